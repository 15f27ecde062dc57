"""A small table that has rows in every tier, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("city", pa.string()),
        pa.field("total", pa.float64()),
    ]
)
CITIES = ["Oslo", "Rome", None, "Lima"]


def row(number: int) -> dict[str, Any]:
    return {"id": number, "city": CITIES[number % 4], "total": None if number % 7 == 0 else number * 0.5}


def rows(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [row(n) for n in numbers]


def dump(table: il.Table) -> Any:
    """Move the hot rows of the table to blocks."""
    return table._lake.pipeline().dump(table.name)[table.name]


def tiered(make: Callable[..., il.Table], **options: Any) -> il.Table:
    """Rows 1 … 30: a dumped block with a deleted and an updated row, a direct block, and hot rows."""
    t = make(SCHEMA, "id", direct_write_row_count=10, **options)
    t.insert(rows(range(1, 9)))
    t.insert({"id": 100, "city": "gone", "total": 0.0})
    t.insert({"id": 9, "city": "old", "total": -1.0})
    dump(t)
    t.delete("id = 100")
    t.update({"city": CITIES[1], "total": 4.5}, "id = 9")
    t.insert(pa.Table.from_pylist(rows(range(10, 22)), SCHEMA))
    t.insert(rows(range(22, 31)))
    return t


EVERYTHING = rows(range(1, 31))


def content(table: il.Table) -> list[dict[str, Any]]:
    """All rows in key order."""
    return sorted(table.scan().to_pylist(), key=lambda r: r["id"])
