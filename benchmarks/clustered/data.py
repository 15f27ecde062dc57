"""The tables that the benchmarks of clustered tables share.  Rows come in an order that is not that of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import indexlake as il
from benchmarks.indexes.data import shuffled

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("customer", pa.string()),
        pa.field("city", pa.string()),
        pa.field("quantity", pa.int32()),
        pa.field("total", pa.float64()),
        pa.field("note", pa.string()),
    ]
)
BATCH = 100_000
ROW_GROUP = 122_880
"""Rows of a row group of Parquet, as DuckDB writes them."""

Numbers: TypeAlias = npt.NDArray[np.int64]
_CUSTOMERS = pa.array([f"customer-{n:06}" for n in range(100_003)])
_CITIES = pa.array(["Amsterdam", "Bogotá", "Cairo", "Dakar", "Edinburgh", "Fukuoka"])
_NOTES = pa.array([f"{a} {b} {n}" for n in range(1_000) for a, b in (("sent", "late"), ("paid", "twice"))])


def random_keys(n: Numbers, rows: int) -> Numbers:
    return shuffled(n, rows) * 3


def appended_keys(n: Numbers, rows: int) -> Numbers:
    return n * 3


def skewed_keys(n: Numbers, rows: int) -> Numbers:
    """Of a thousand tenants the first has a seventh of all rows, the second half as many, and so on."""
    spread = shuffled(n, rows)
    tenant = (np.exp(np.log(1001) * ((spread * 7919) % rows) / rows) - 1).astype(np.int64)
    return (tenant << 40) + spread


def rows_of(keys: Numbers) -> pa.RecordBatch:
    """The rows of these keys: what is in them follows from the key."""
    mixed = keys * 7919 + 13
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys),
            _CUSTOMERS.take(pa.array(mixed % 100_003)),
            _CITIES.take(pa.array(mixed % 6)),
            pa.array((mixed % 97).astype(np.int32)),
            pa.array((mixed % 1_000_000) * 0.01),
            _NOTES.take(pa.array(mixed % len(_NOTES))),
        ],
        schema=SCHEMA,
    )


def batches(
    rows: int, keys: Callable[[Numbers, int], Numbers] = random_keys, size: int = BATCH
) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, size):
        yield rows_of(keys(np.arange(start, min(start + size, rows), dtype=np.int64), rows))


def stream(rows: int, keys: Callable[[Numbers, int], Numbers] = random_keys) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(rows, keys))


def open_lake(folder: Path) -> il.Lake:
    """Without background work, which would disturb."""
    return il.connect(folder / "lake", automatic=False)


def table_of(lake: il.Lake, name: str, layout: str, rows: int) -> il.Table:
    """Ten partitions or blocks, or as many as there are with the usual sizes."""
    full = min(1_000_000, max(1_000, rows // 10))
    config = il.TableConfig(partition_row_count=full, block_row_count=full, retention=timedelta(0))
    return lake.create_table(name, SCHEMA, primary_key="k", layout=layout, config=config)


def filled(lake: il.Lake, layout: str, rows: int) -> il.Table:
    """A table with the rows, in its best shape."""
    table = table_of(lake, layout, layout, rows)
    table.insert(stream(rows), progress=False)
    jobs = lake.pipeline(runner="threads", progress=False)
    jobs.merge(layout) if layout == "clustered" else jobs.compact(layout)
    jobs.merge_index(layout)
    return table


def parquet(path: Path, source: pa.RecordBatchReader) -> Path:
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for batch in source:
            writer.write_batch(batch, row_group_size=ROW_GROUP)
    return path


def parquet_sorted(path: Path, source: Path) -> Path:
    import duckdb

    duckdb.sql(f"copy (select * from '{source}' order by k) to '{path}' (format parquet, row_group_size {ROW_GROUP})")
    return path
