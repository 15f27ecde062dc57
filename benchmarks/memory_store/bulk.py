"""Many hot rows: scanned, checkpointed, recovered, and what they take."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from benchmarks.memory_store import data
from benchmarks.outcome import Outcome, at_least, at_most, in_turn

ROUNDS = 5


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def scan(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = data.open_lake(folder, "scan", durability="none")
    data.fill(table, rows)
    columns = data.lists(rows)

    def bare(_: int) -> pa.Table:
        arrays = [pa.array(column, kind) for column, kind in zip(columns, data.SCHEMA.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=data.SCHEMA)

    assert table.to_arrow().sort_by("id").equals(bare(0))
    times = in_turn({"ours": lambda _: table.to_arrow(), "bare": bare}, ROUNDS, warm_up=1)
    lake.close()
    ours, floor = (statistics.median(times[name]) / 1000 for name in ("ours", "bare"))
    detail = f"{rows / ours * 1000:,.0f} rows/s"
    yield at_most(f"scan of {rows:,} hot rows, and pa.array of the same lists", ours, floor, 1.5, "ms", detail)


def checkpoint(folder: Path, rows: int) -> Iterator[Outcome]:
    """The whole job: pages to Arrow, block files with the segment of the key, read back, one commit of the catalog."""
    for format in ("ipc", "vortex", "parquet"):
        rates = []
        for n in range(3):
            lake, table = data.open_lake(folder, f"checkpoint-{format}-{n}", durability="none")
            table.set_config(dump_format=format)
            data.fill(table, rows)
            gc.collect()
            took = seconds(lambda lake=lake: lake.pipeline(runner="threads", progress=False).dump("orders"))
            assert table.stats().hot_rows == 0
            assert table.count() == rows
            rates.append(rows / took)
            lake.close()
        found = statistics.median(rates)
        yield at_least(
            f"checkpoint to {format}",
            found,
            1_000_000,
            1.0,
            "rows/s",
            "pages → Arrow → block → segment → read back → commit",
        )
    lake, table = data.open_lake(folder, "parts", durability="none")
    data.fill(table, rows)
    state = table._state()

    def chunks(_: int) -> int:
        with table._reading() as reading:
            count, above = 0, None
            while (above := reading.hot.chunk(state, history=False, above=above, check=lambda: None)) is not None:
                count += sum(part.rows.num_rows if hasattr(part, "rows") else 0 for part in above.parts)
            return count

    took = statistics.median(in_turn({"ours": chunks}, 3, warm_up=1)["ours"]) / 1e6
    lake.close()
    yield Outcome("  of which pages to Arrow", f"{rows / took:,.0f} rows/s", "", round(rows / took), "", None, "")


def recovery(folder: Path, rows: int) -> Iterator[Outcome]:
    """From ``il.connect`` to the first row that was read."""
    for each, name in ((1_000, "commits of 1,000 rows"), (1, "commits of one row")):
        count = rows if each > 1 else rows // 5
        lake, table = data.open_lake(folder, f"recovery-{each}", durability="none")
        if each > 1:
            data.fill(table, count, each)
        else:
            for n in range(count):
                table.insert(data.row(n))
        lake.close()
        rates = []
        for _ in range(3):
            gc.collect()
            start = time.perf_counter()
            again = il.connect(str(folder / f"recovery-{each}"), automatic=False, durability="none")
            assert again.table("orders").get(count - 1) == data.row(count - 1)
            rates.append(count / (time.perf_counter() - start))
            again.close()
        yield at_least(f"recovery of {count:,} rows, {name}", statistics.median(rates), 300_000, 1.0, "rows/s")


def bytes_per_row(folder: Path, rows: int) -> Iterator[Outcome]:
    """What the process has allocated for them, the log's bytes, and what the store counts."""
    lake, table = data.open_lake(folder, "bytes", durability="none")
    gc.collect()
    before = anonymous()
    data.fill(table, rows)
    gc.collect()
    taken = (anonymous() - before) / rows
    log = sum(path.stat().st_size for path in (folder / "bytes" / "redo").glob("*.log")) / rows
    store: Any = lake._readings.store
    counted = sum(of.bytes for of in store.tables.values()) / rows
    lake.close()
    detail = f"counted by the store {counted:,.0f}, in the log {log:,.0f}"
    yield Outcome("memory of a row of four columns", f"{taken:,.0f} bytes", "", round(taken), "", None, detail)


def anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon")
