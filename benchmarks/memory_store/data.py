"""The table of these benchmarks: four columns, of which the first is the key."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("customer", pa.string()),
        pa.field("quantity", pa.int64()),
        pa.field("total", pa.float64()),
    ]
)
CREATE = "create table orders (id integer primary key, customer text, quantity integer, total double)"
INSERT = "insert into orders (id, customer, quantity, total) values (?, ?, ?, ?)"
GET = "select id, customer, quantity, total from orders where id = ?"


def values(n: int) -> tuple[Any, ...]:
    return n, f"customer-{n % 100_003:06}", n % 17, n * 0.01


def row(n: int) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, values(n), strict=True))


def lists(rows: int) -> list[list[Any]]:
    """The columns as Python values."""
    return [list(column) for column in zip(*map(values, range(rows)), strict=True)]


def open_lake(folder: Path, name: str, hot: str = "memory", **options: Any) -> tuple[il.Lake, il.Table]:
    """A lake with one empty table.  Nothing happens in the background, and all rows stay hot until they are dumped."""
    lake = il.connect(str(folder / name), automatic=False, hot=hot, **options)
    config = il.TableConfig(retention=timedelta(days=1), direct_write_row_count=1 << 40)
    return lake, lake.create_table("orders", SCHEMA, primary_key="id", config=config)


def fill(table: il.Table, rows: int, each: int = 10_000) -> None:
    """``each`` rows in a commit."""
    for start in range(0, rows, each):
        columns = zip(*map(values, range(start, min(rows, start + each))), strict=True)
        table.insert(
            pa.Table.from_arrays([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)
        )


def numbers(first: int = 0) -> Iterator[int]:
    return iter(range(first, 1 << 60))
