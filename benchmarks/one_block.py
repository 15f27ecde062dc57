"""One block of each format: read whole and by a predicate, alone, with some rows deleted, and against other readers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import indexlake as il
from benchmarks.orders import SCHEMA, config
from benchmarks.outcome import Outcome, at_most, in_turn
from benchmarks.points import block_files, file_columns
from benchmarks.scans import BareVortex

ROUNDS = 9
FORMATS = ("vortex", "parquet", "ipc")
DELETED_ROWS = 1_000_000
PREDICATE = "city = 'c7'"


def _stream(rows: int) -> pa.RecordBatchReader:
    """One city in a hundred, anywhere; totals that do not compress."""
    random = np.random.default_rng(17)
    cities = pa.array([f"c{n}" for n in range(100)])

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, 100_000):
            ids = np.arange(first, min(rows, first + 100_000))
            columns = [
                pa.array(ids),
                pa.array(np.char.add("customer-", (ids % 100_003).astype("U6")).tolist(), pa.string()),
                cities.take(pa.array(random.integers(0, 100, len(ids)))),
                pa.array((ids % 17).astype(np.int32)),
                pa.array(random.random(len(ids))),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def _one_block(folder: Path, format: str, rows: int) -> tuple[il.Lake, il.Table]:
    lake = il.connect(str(folder / f"{format}-{rows}"), automatic=False)
    table = lake.create_table(
        "sales.orders", SCHEMA, primary_key="id", config=config(dump_format=format, block_row_count=rows)
    )
    table.insert(_stream(rows))
    assert [block.format for block in table._state().blocks.records] == [format]
    return lake, table


def deleted_rows(folder: Path, _rows: int) -> Iterator[Outcome]:
    """The same block read at a snapshot before the deletes and at the newest, in time of the processor."""
    for format in FORMATS:
        lake, table = _one_block(folder, format, DELETED_ROWS)
        random = np.random.default_rng(5)
        before = table.at(lake.snapshot_id)
        for count in (1, 100, 1_000, DELETED_ROWS // 100):
            gone = DELETED_ROWS - table.count()
            table.delete(
                "id in $ids", params={"ids": random.choice(DELETED_ROWS, count - gone, replace=False).tolist()}
            )
            for name, where in (("scan", None), ("filter", PREDICATE)):
                name = f"{name} of {format}, about {count:,} deleted rows"
                yield _against(
                    name,
                    table,
                    where,
                    partial(_read, before, where),
                    1.1 if count <= 1_000 else 1.3,
                    time.process_time_ns,
                )
        lake.close()


def readers(folder: Path, rows: int) -> Iterator[Outcome]:
    """Against Vortex and DuckDB on the same file, all with all cores; these verify no bytes."""
    import duckdb

    lake, table = _one_block(folder, "vortex", rows)
    bare = BareVortex(block_files(lake, table), file_columns(table))
    assert bare.one_by_one().equals(table.scan().to_arrow())
    yield _against(f"scan of one Vortex block of {rows:,} rows", table, None, bare.one_by_one, 1.1)
    lake.close()
    lake, table = _one_block(folder, "parquet", rows)
    (path,) = block_files(lake, table)
    names = ", ".join(f"{column} as {f.name}" for column, f in zip(file_columns(table), SCHEMA, strict=True))
    connection = duckdb.connect()
    query = f"select {names} from read_parquet('{path}')"
    for name, where, limit in (("scan", None, 1.1), (PREDICATE, PREDICATE, 1.3)):

        def other(where: str | None = where) -> pa.Table:
            found = connection.sql(f"select * from ({query})" + (f" where {where}" if where else ""))
            return found.to_arrow_table()

        assert other().num_rows == table.scan(where).count()
        yield _against(f"{name} of one Parquet block of {rows:,} rows, against DuckDB", table, where, other, limit)
    lake.close()
    lake, table = _one_block(folder, "ipc", rows)
    (path,) = block_files(lake, table)
    columns = file_columns(table)

    def copied() -> pa.Table:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
            return file.read_all().select(columns).combine_chunks()

    yield _against(f"scan of one Arrow block of {rows:,} rows, against a copy by one thread", table, None, copied, 1.1)
    lake.close()


def _read(table: il.Table, where: str | None) -> pa.Table:
    return table.scan(where).to_arrow()


def _against(
    name: str,
    table: il.Table,
    where: str | None,
    other: Callable[[], object],
    limit: float,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Outcome:
    times = in_turn({"ours": lambda _: _read(table, where), "other": lambda _: other()}, ROUNDS, warm_up=2, clock=clock)
    ours, others = (statistics.median(found) / 1000 for found in times.values())
    return at_most(name, ours, others, limit, "ms")
