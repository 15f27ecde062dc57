"""``apply_changes``: after it, a copy is what its source is."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("part", pa.string(), False), ("v", pa.float64())])


@pytest.fixture
def tables(lake: il.Lake) -> tuple[il.Table, il.Table]:
    return tuple(lake.create_table(name, SCHEMA, primary_key=["id", "part"]) for name in ("source", "copy"))  # type: ignore[return-value]


def rows(table: il.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_pylist())


def change(table: il.Table, order: random.Random, rounds: int) -> None:
    """Change rows at random, also their keys, and reuse keys that are gone."""
    for _ in range(rounds):
        key = {"id": order.randrange(12), "part": order.choice("ab")}
        kind = order.randrange(5)
        if kind == 0:
            table.delete("id = $id and part = $part", params=key)
        elif kind == 1:
            table.update({"v": order.random()}, "id = $id", params={"id": key["id"]})
        elif kind == 2 and not table.get((key["id"] + 100, key["part"])):
            table.update({"id": key["id"] + 100}, "id = $id and part = $part", params=key)
        elif kind == 3:
            table.delete("id >= 100")
        else:
            table.upsert([{**key, "v": order.random()}])


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_follows_its_source(lake: il.Lake, tables: tuple[il.Table, il.Table], seed: int) -> None:
    source, copy = tables
    order = random.Random(seed)
    since = 0
    for number in range(5):
        change(source, order, order.randrange(25))
        if order.random() < 0.4:
            lake.pipeline(runner="threads").dump("source")
        feed = source.changes(since)
        copy.apply_changes(feed, token=("copy", number))
        assert rows(copy) == rows(source)
        shuffled = feed.to_pylist()
        order.shuffle(shuffled)
        if shuffled:
            copy.apply_changes(pa.Table.from_pylist(shuffled, feed.schema))
        assert rows(copy) == rows(source), "their order is told by the number of the snapshot"
        copy.apply_changes(feed, token=("copy", number))
        assert rows(copy) == rows(source)
        since = feed.until


def test_a_large_feed_in_pieces(lake: il.Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    source = lake.create_table("s", schema, primary_key="id")
    copy = lake.create_table("c", schema, primary_key="id", config=il.TableConfig(direct_write_row_count=5_000))
    source.insert(pa.table({"id": range(30_000), "v": range(30_000)}))
    source.update({"v": il.expr("-v")}, "id % 3 = 0")
    source.delete("id % 7 = 0")
    assert copy.apply_changes(source.changes(0)).inserted == source.count()
    source.delete("id % 2 = 0")
    source.insert(pa.table({"id": range(30_000, 40_000), "v": range(10_000)}))
    result = copy.apply_changes(source.changes(copy.history()[-1].snapshot_id - 1))
    assert result.deleted > 10_000
    assert copy.to_arrow().sort_by("id").equals(source.to_arrow().sort_by("id"))


def test_changes_of_other_systems_in_their_order(tables: tuple[il.Table, il.Table]) -> None:
    _, copy = tables
    copy.insert([{"id": 1, "part": "a", "v": 1.0}, {"id": 2, "part": "a", "v": 2.0}])
    given = [
        {"_change_type": "update_postimage", "at": 30, "id": 1, "part": "a", "v": 3.0},
        {"_change_type": "update_postimage", "at": 20, "id": 1, "part": "a", "v": 9.0},
        {"_change_type": "insert", "at": 10, "id": 2, "part": "a", "v": 9.0},
        {"_change_type": "delete", "at": 11, "id": 2, "part": "a", "v": None},
        {"_change_type": "delete", "at": 11, "id": 7, "part": "b", "v": None},
    ]
    result = copy.apply_changes(given, sequence_by="at")
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 1)
    assert rows(copy) == [(1, "a", 3.0)]
    copy.apply_changes(reader_of({**row, "id": 5} for row in given[:2]), sequence_by="at")
    assert rows(copy) == [(1, "a", 3.0), (5, "a", 3.0)]
    copy.apply_changes([{k: v for k, v in row.items() if k != "at"} for row in given])
    assert rows(copy) == [(1, "a", 9.0), (5, "a", 3.0)], "without a column that tells, the order is that of the rows"


def reader_of(rows: Iterator[dict[str, Any]]) -> pa.RecordBatchReader:
    return pa.Table.from_pylist(list(rows)).to_reader()


def test_it_takes_only_the_columns_given_and_works_in_transactions(
    lake: il.Lake, tables: tuple[il.Table, il.Table]
) -> None:
    _, copy = tables
    copy.insert([{"id": 1, "part": "a", "v": 1.0}, {"id": 2, "part": "a", "v": 2.0}])
    with lake.transaction() as tx:
        mine = tx.table("copy")
        mine.apply_changes([{"_change_type": "delete", "id": 1, "part": "a"}])
        mine.apply_changes(
            [{"_change_type": "insert", "id": 2, "part": "a"}, {"_change_type": "insert", "id": 3, "part": "a"}]
        )
        assert rows(mine) == [(2, "a", 2.0), (3, "a", None)]
    assert rows(copy) == [(2, "a", 2.0), (3, "a", None)]
    assert (
        lake.pipeline(runner="threads")
        .load([{"_change_type": "delete", "id": 3, "part": "a"}], "copy", mode="changes")
        .deleted
        == 1
    )
    assert copy.apply_changes([]).rows == 0


def test_an_upsert_in_a_sequence_takes_the_last_row_of_each_key(
    lake: il.Lake, tables: tuple[il.Table, il.Table]
) -> None:
    _, copy = tables
    pipeline = lake.pipeline(runner="threads")
    given = [{"id": id, "part": "a", "v": v} for id, v in ((1, 1.0), (1, 3.0), (2, 5.0), (1, 2.0))]
    with pytest.raises(il.DuplicateKeyError, match="given twice"):
        pipeline.load(given, "copy", mode="upsert")
    assert pipeline.load(given, "copy", mode="upsert", sequence_by="V").rows == 2
    assert rows(copy) == [(1, "a", 3.0), (2, "a", 5.0)]
    turns = [{"id": 1, "part": "a", "v": v, "turn": turn} for v, turn in ((7.0, 1), (8.0, 0))]
    pipeline.load(turns, "copy", mode="upsert", sequence_by="turn")
    assert rows(copy) == [(1, "a", 7.0), (2, "a", 5.0)]
    with pytest.raises(il.JobError, match="sequence_by is for the modes 'upsert' and 'changes'"):
        pipeline.load(given, "copy", sequence_by="v")


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.uint64(), [2**64 - 1, 0, 2**63]),
        (pa.float64(), [float("nan"), -1.5, float("inf")]),
        (pa.float16(), [2.5, -1.0, 0.0]),
        (pa.uuid(), [uuid.UUID(int=n) for n in (2**127, 1, 2**64)]),
        (pa.string(), ["é", "", "z" * 200]),
        (pa.decimal128(20, 3), [Decimal("1.5"), Decimal("-9"), Decimal("1.499")]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, n, tzinfo=UTC) for n in (9, 1, 5)]),
        (pa.bool_(), [True, False, False]),
    ],
    ids=str,
)  # fmt: skip
def test_any_type_with_an_order_tells_it(
    tables: tuple[il.Table, il.Table], type: pa.DataType, values: list[Any]
) -> None:
    _, copy = tables
    given = {"id": pa.array([1] * 3), "part": ["a"] * 3, "v": [1.0, 2.0, 3.0], "at": pa.array(values, type)}
    copy.apply_changes(pa.table({**given, "_change_type": ["insert"] * 3}), sequence_by="at")
    assert rows(copy) == [(1, "a", 1.0)], "the first is the greatest"


def test_a_generated_column_is_computed_here(lake: il.Lake) -> None:
    lake.sql("create table a (id int primary key, v int, w int generated always as (v * 2))")
    lake.sql("create table b (id int primary key, v int, w int generated always as (v * 3))")
    lake.sql("insert into a (id, v) values (1, 5)")
    lake.table("b").apply_changes(lake.table("a").changes(0))
    assert lake.table("b").to_pylist() == [{"id": 1, "v": 5, "w": 15}]


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        ([{"id": 1, "part": "a"}], {}, il.SchemaError, "needs a column '_change_type'"),
        ([{"_change_type": "upsert", "id": 1, "part": "a"}], {}, il.ConstraintError, "not 'upsert'"),
        ([{"_change_type": None, "id": 1, "part": "a"}], {}, il.ConstraintError, "not None"),
        ([{"_change_type": "delete", "id": None, "part": "a"}], {}, il.ConstraintError, "one of them is null"),
        ([{"_change_type": "delete", "id": 1 << 63, "part": "a"}], {}, il.ConstraintError, "does not fit into int64"),
        ([{"_change_type": "delete", "id": 1}], {}, il.SchemaError, "part"),
        ([{"_change_type": "insert", "id": 1, "part": "a", "w": 1}], {}, il.SchemaError, "no column 'w'"),
        ([{"_change_type": "insert", "id": 1, "part": "a"}], {"sequence_by": "x"}, il.SchemaError, "'x'"),
        ([{"_change_type": "insert", "id": 1, "part": "a", "x": None}], {"sequence_by": "x"}, il.ConstraintError, "nu"),
        ([{"_change_type": "insert", "id": 1, "part": "a", "x": [1]}], {"sequence_by": "x"}, il.SchemaError, "no ord"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_changes_nothing(
    tables: tuple[il.Table, il.Table], given: list[dict[str, Any]], options: dict[str, Any], error: Any, message: str
) -> None:
    _, copy = tables
    copy.insert({"id": 1, "part": "a", "v": 1.0})
    with pytest.raises(error, match=message):
        copy.apply_changes(given, **options)
    assert rows(copy) == [(1, "a", 1.0)]


def test_a_table_without_key_is_refused(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int64"})
    with pytest.raises(il.SchemaError, match="no primary key, so apply_changes cannot tell"):
        t.apply_changes([{"_change_type": "insert", "id": 1}])
