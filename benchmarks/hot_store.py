"""Many rows through the hot store in the catalog: batches inserted inline, and their dump to blocks, on SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pyarrow as pa

from benchmarks import memory
from benchmarks.orders import batches, open_lake
from benchmarks.outcome import Outcome, at_least, below

BATCH = 200_000
MOST_ROWS = 2_000_000


def through_the_hot_store(folder: Path, rows: int) -> Iterator[Outcome]:
    """Time of the processor; the floor of inserts is ``executemany`` into the same table with the same indexes."""
    rows = min(rows, MOST_ROWS) // BATCH * BATCH
    lake, table = open_lake(folder, "hot", direct_write_row_count=10 * rows, inline_row_count_limit=10 * rows)
    bare = apsw.Connection(str(folder / "bare.db"))
    bare.execute("pragma journal_mode = wal")
    bare.execute("pragma synchronous = full")
    source = apsw.Connection(str(folder / "hot" / "catalog.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    inline = f"indexlake_inline_row_{table._table_id}"
    for (statement,) in source.execute(
        "select sql from sqlite_master where tbl_name = ? and sql is not null", (inline,)
    ):
        bare.execute(statement)
    ours = floor = 0.0
    for batch in batches(rows, size=BATCH):
        start = time.process_time()
        table.insert(pa.Table.from_batches([batch]))
        ours += time.process_time() - start
        same = source.execute(f"select * from {inline} where _begin = (select max(_begin) from {inline})").fetchall()
        start = time.process_time()
        with bare:
            bare.executemany(f"insert into {inline} values ({', '.join('?' * len(same[0]))})", same)
        floor += time.process_time() - start
    bare.close()
    source.close()
    yield at_least(f"{rows:,} rows inline, {BATCH:,} at a time", rows / ours, rows / floor, 0.6, "rows/s")
    start, processor = time.perf_counter(), time.process_time()
    lake.pipeline().dump("sales.orders")
    speed, busy = rows / (time.perf_counter() - start), rows / (time.process_time() - processor)
    yield Outcome(
        f"dump of {rows:,} rows", f"{speed:,.0f} rows/s", "", round(speed), "≥ 600,000 rows/s", speed >= 600_000,
        f"{busy:,.0f} rows a second of the processor",
    )  # fmt: skip
    lake.close()
    alone = memory.measured("through", folder / "alone", rows)  # the floor's rows would count here
    yield below("  peak memory of both", int(str(alone["resident"])) >> 20, 708, "MiB")
