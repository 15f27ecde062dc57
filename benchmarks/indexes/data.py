"""The tables that the benchmarks of indexes share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), False),  # in the order of the rows
        pa.field("k", pa.int64(), False),  # in random order
        pa.field("u", pa.string(), False),  # a random UUID
        pa.field("customer", pa.string()),
        pa.field("total", pa.float64()),
    ]
)
BATCH = 100_000


def shuffled(n: np.ndarray, rows: int) -> np.ndarray:
    """A permutation of 0 … rows - 1, without a table of it."""
    step = next(s for s in range(int(rows * 0.618) | 1, rows * 2) if np.gcd(s, rows) == 1) if rows > 2 else 1
    return n.astype(np.int64) * step % rows


def key(n: int, rows: int) -> int:
    return int(shuffled(np.array([n]), rows)[0])


def identifier(n: int) -> str:
    """A UUID that is random in its order, and known from the number of its row."""
    return str(uuid.UUID(int=(n * 0x9E3779B97F4A7C15F39CC0605CEDC835 + 0x1234567) & (1 << 128) - 1))


def batches(rows: int, first: int = 0, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    for start in range(first, rows, size):
        n = np.arange(start, min(start + size, rows), dtype=np.int64)
        keys = shuffled(n, rows)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(n),
                pa.array(keys),
                pa.array([identifier(each) for each in n.tolist()]),
                pa.array(np.char.add("customer-", (keys % 100_003).astype("U6")).tolist(), pa.string()),
                pa.array(n * 0.01),
            ],
            schema=SCHEMA,
        )


def stream(rows: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(rows))


def open_lake(folder: Path, name: str) -> il.Lake:
    """Without background work, which would disturb."""
    return il.connect(folder / name, automatic=False)


def table_of(lake: il.Lake, rows: int, blocks: int, name: str = "t", schema: pa.Schema = SCHEMA) -> il.Table:
    config = il.TableConfig(
        block_row_count=max(1, rows // blocks),
        direct_write_row_count=min(10_000, max(1, rows // blocks)),
        retention=timedelta(0),
    )
    return lake.create_table(name, schema, config=config)
