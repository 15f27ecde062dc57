"""The table that the benchmarks share, and the bare SQLite one that it is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("customer", pa.string()),
        pa.field("city", pa.string()),
        pa.field("quantity", pa.int32()),
        pa.field("total", pa.float64()),
    ]
)
CITIES = ["Aarhus", "Bergen", "Cork", "Delft", "Espoo", "Funchal", "Ghent", "Haarlem"]


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "customer": f"customer-{n % 100_003}",
        "city": CITIES[n % len(CITIES)],
        "quantity": n % 17,
        "total": n * 0.01,
    }


def batches(rows: int, size: int = 100_000, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Rows ``first`` … ``first + rows``, the same values as ``row``."""
    cities = pa.array(CITIES)
    for start in range(first, first + rows, size):
        ids = np.arange(start, min(start + size, first + rows), dtype=np.int64)
        customers = pa.array(np.char.add("customer-", (ids % 100_003).astype("U6")).tolist(), pa.string())
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(ids),
                customers,
                cities.take(pa.array(ids % len(CITIES))),
                pa.array((ids % 17).astype(np.int32)),
                pa.array(ids * 0.01),
            ],
            schema=SCHEMA,
        )


def stream(rows: int, first: int = 0) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(rows, first=first))


def config(**changed: Any) -> il.TableConfig:
    return il.TableConfig(**{"retention": timedelta(days=1), **changed})


def open_lake(folder: Path, name: str, **changed: Any) -> tuple[il.Lake, il.Table]:
    """A lake with one empty table; background dumps are off, so that each benchmark says what lies where."""
    lake = il.connect(str(folder / name), automatic=False)
    return lake, lake.create_table("sales.orders", SCHEMA, primary_key="id", config=config(**changed))


INSERT = "insert into orders (id, customer, city, quantity, total) values (?, ?, ?, ?, ?)"


def bare_sqlite(path: Path) -> apsw.Connection:
    """The same columns and the same durability, and nothing else: what one insert costs at the least."""
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(
        "create table orders (id integer primary key, customer text, city text, quantity integer, total real)"
    )
    return connection
