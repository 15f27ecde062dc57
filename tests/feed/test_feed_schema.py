"""Feeds across changes of the schema: every row with the columns that the table has at ``until``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int32(), "gone": pa.string(), "p": pa.struct({"x": pa.int32()})})


def row(n: int) -> dict[str, Any]:
    return {"id": n, "n": n * 10, "gone": f"g{n}", "p": {"x": n}}


def without(changes: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in change.items() if k != "_snapshot_id"} for change in changes]


@pytest.mark.parametrize("place", ["hot", "dumped", "dumped later", "direct"])
def test_old_rows_are_shown_with_the_columns_of_the_end(place: str, any_shared_lake: il.Lake, new_table: Any) -> None:
    def dump() -> None:
        if place == "dumped":
            any_shared_lake.pipeline().dump(table.name)

    table = new_table(any_shared_lake, SCHEMA, direct_write_row_count=3 if place == "direct" else 1000)
    first = any_shared_lake.snapshot_id
    table.insert(pa.Table.from_pylist([row(1), row(2), row(3)], SCHEMA))
    dump()
    table.update({"n": -1}, "id = 1")
    dump()
    old = any_shared_lake.snapshot_id
    before = table.changes(first, old).to_pylist()
    table.add_column("late", pa.string(), default="d")
    table.insert({**row(4), "late": None})
    table.rename_column("n", "number")
    table.widen_column("number", pa.int64())
    table.widen_column("p.x", pa.int64())
    table.drop_column("gone")
    table.delete("id = 2")
    table.update({"late": "u"}, "id in (3, 4)")
    if place == "dumped later":
        any_shared_lake.pipeline().dump(table.name)

    def shown(n: int, number: int, late: str | None, kind: str) -> dict[str, Any]:
        return {"id": n, "number": number, "p": {"x": n}, "late": late, "_change_type": kind}

    feed = table.changes(first)
    assert feed.schema.names == ["id", "number", "p", "late", "_change_type", "_snapshot_id"]
    assert feed.schema.field("number").type == pa.int64()
    assert feed.schema.field("p").type == pa.struct({"x": pa.int64()})
    assert without(feed) == [
        shown(1, 10, "d", "insert"),
        shown(2, 20, "d", "insert"),
        shown(3, 30, "d", "insert"),
        shown(1, 10, "d", "update_preimage"),
        shown(1, -1, "d", "update_postimage"),
        shown(4, 40, None, "insert"),
        shown(2, 20, "d", "delete"),
        shown(3, 30, "d", "update_preimage"),
        shown(4, 40, None, "update_preimage"),
        shown(3, 30, "u", "update_postimage"),
        shown(4, 40, "u", "update_postimage"),
    ]
    # A feed that ends before the changes of the schema is as it was.
    assert table.changes(first, old).to_pylist() == before
    assert table.changes(first, old).schema.names[:4] == SCHEMA.names
    # Predicates see the rows as they are shown, under the names of the end.
    found = table.changes(first, where="number > 25 and late = 'd'", columns=["id"])
    assert [c["id"] for c in found] == [3, 3]


def test_a_change_of_the_schema_is_no_change_of_rows(local_lake: il.Lake, new_table: Any) -> None:
    table = new_table(local_lake, SCHEMA)
    table.insert(row(1))
    before = local_lake.snapshot_id
    table.add_column("more", pa.int64(), default=5)
    with table.alter() as a:
        a.rename_column("n", "m")
        a.drop_column("gone")
    table.rename(table.name + "x")
    assert (
        local_lake.table(table.name if table.name.endswith("x") else table.name + "x").changes(before).to_pylist() == []
    )
