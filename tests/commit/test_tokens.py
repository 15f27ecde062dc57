"""Tokens with numbers: a write happens once for each number, in their order, and that is never forgotten."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog import commits

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def ids(table: il.Table) -> list[int]:
    return sorted(row["id"] for row in table.scan().to_pylist())


def test_a_number_that_was_written_is_not_written_again(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, primary_key="id")
    done = t.insert({"id": 1}, token=("stream", 1))
    assert t.insert({"id": 9}, token=("stream", 1)) == done
    last = t.insert({"id": 2}, token=("stream", 5))
    assert t.insert({"id": 9}, token=("stream", 5)) == last
    assert t.insert({"id": 9}, token=("stream", 2)) == last, "smaller numbers have had their turn"
    assert t.insert({"id": 3}, token=("stream", 6)).rows == 1
    assert t.insert({"id": 4}, token=("other", 1)).rows == 1, "each name counts for itself"
    assert ids(t) == [1, 2, 3, 4]


def test_every_write_takes_one(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, primary_key="id")
    writes = [
        lambda token: t.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 1}], token=token),
        lambda token: t.update({"v": il.expr("v + 1")}, "true", token=token),
        lambda token: t.delete("id = 2", token=token),
        lambda token: any_lake.sql("update t set v = v * 10", token=token),
        lambda token: any_lake.run(lambda tx: tx.table("t").update({"v": il.expr("v + 7")}, "true"), token=token),
        lambda token: any_lake.pipeline(runner="threads").load([{"id": 3, "v": 3}], "t", token=token),
        lambda token: t.merge([{"id": 3, "v": 4}], on="id").when_matched_update().execute(token=token),
    ]
    for number, write in enumerate(writes):
        for _ in range(2):
            write(("all", number))
    assert t.scan(order_by="id").to_pylist() == [{"id": 1, "v": 27}, {"id": 3, "v": 4}]


def test_a_name_is_used_with_numbers_or_without(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA)
    t.insert({"id": 1}, token="plain")
    t.insert({"id": 2}, token=("numbered", 0))
    with pytest.raises(il.SchemaError, match="'plain' was used without a number before"):
        t.insert({"id": 3}, token=("plain", 1))
    with pytest.raises(il.SchemaError, match="'numbered' was used with a number before"):
        t.insert({"id": 3}, token="numbered")
    assert ids(t) == [1, 2]


@pytest.mark.parametrize(
    "token", [("x",), ("x", -1), ("x", 1.0), ("x", True), ("", 1), (1, 1), ("x", 1 << 63), ["x", 1],
              "a\0b", "\ud800", "x" * 1001, "é" * 501, ("a\0b", 1), ("\ud800", 1)]
)  # fmt: skip
def test_what_is_no_token_is_refused(lake: il.Lake, token: object) -> None:
    t = lake.create_table("t", SCHEMA)
    with pytest.raises(il.SchemaError, match="a pair of such a name and a number"):
        t.insert({"id": 1}, token=token)  # type: ignore[arg-type]
    assert t.count() == 0


def test_numbers_are_kept_for_ever_whatever_their_age(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA)
    t.insert({"id": 1}, token=("stream", 4))
    t.insert({"id": 2}, token="once")
    any_lake.pipeline(runner="threads").dump()  # so that the catalog knows of both
    with any_lake.catalog.transaction() as tx:
        commits.drop_tokens_before(tx, 1 << 62)
        tx.commit()
    with any_lake.catalog.read() as r:
        assert r.rows("select token from indexlake_token") == [("stream",)]
    t.insert({"id": 8}, token=("stream", 4))
    assert ids(t) == [1, 2]


def test_two_writers_of_one_stream_write_each_number_once(any_two_handles: tuple[il.Lake, il.Lake]) -> None:
    lakes = any_two_handles
    lakes[0].create_table("t", SCHEMA)
    order = random.Random(3)
    for number in range(30):
        for lake in order.sample([*lakes, *lakes], 3):
            lake.table("t").insert({"id": number}, token=("stream", number))
    assert ids(lakes[1].table("t")) == list(range(30))
