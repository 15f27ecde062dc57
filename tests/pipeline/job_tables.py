"""Tables for the tests of jobs, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from indexlake.blocks.block import BlockRecord
from tests.support.lakes import clock_of

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
MINUTE = 60_000_000


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "v": [n * 7919 % 1009 for n in numbers], "text": [f"row {n}" for n in numbers]})


def table(lake: il.Lake, name: str = "t", *, block: int = 100, **config: Any) -> il.Table:
    settings = il.TableConfig(**{"block_row_count": block, "direct_write_row_count": 10, **config})
    return lake.create_table(name, SCHEMA, primary_key="id", config=settings)


def in_blocks(t: il.Table, *sizes: int, start: int = 0) -> il.Table:
    """One block of each size."""
    for size in sizes:
        t.insert(rows(start, size))
        start += size
    return t


def content(t: il.Table) -> list[dict[str, Any]]:
    return t.scan(order_by="id", with_row_id=True).to_pylist()


def blocks(t: il.Table, *, ended: bool = False) -> list[BlockRecord]:
    """The records of the live data blocks, or of all."""
    with t._lake._readings.open(t._table_id) as reading:
        state = reading.state
        return [b for b in state.blocks.records if ended or (b.end_snapshot is None and b.role == "data")]


def sizes(t: il.Table) -> list[int]:
    return sorted(b.record_count for b in blocks(t))


def files(lake: il.Lake) -> set[str]:
    """Every file in the tables' folders."""
    root = Path(lake.storage.root)
    return {str(p.relative_to(root)) for p in (root / "tables").rglob("*") if p.is_file()}


def expire_everything(lake: il.Lake) -> None:
    """As if all of it had happened weeks ago."""
    with clock_of(lake).stopped():
        lake.pipeline().expire()
