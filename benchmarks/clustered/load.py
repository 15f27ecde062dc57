"""Steady loads: batches go in, jobs run in between, and rows move from hot to delta to data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import indexlake as il
from benchmarks.clustered import data
from benchmarks.outcome import Outcome, at_most

KEYS = {"random": data.random_keys, "appending": data.appended_keys, "skewed": data.skewed_keys}
SMALL = 5_000
"""Every tenth batch comes in pieces of so many rows, which go to the hot store; the others are written directly."""

MOST_WRITTEN, MOST_UNEVEN = 4.0, 3.0


def steady(folder: Path, rows: int) -> Iterator[Outcome]:
    rows *= 2
    for kind, keys in KEYS.items():
        with data.open_lake(folder / kind) as lake:
            table = data.table_of(lake, "t", "clustered", rows)
            jobs = lake.pipeline(runner="threads", progress=False)
            start, working = time.perf_counter(), 0.0
            for number, batch in enumerate(data.batches(rows, keys, max(SMALL, min(data.BATCH, rows // 100)))):
                step = SMALL if number % 10 == 9 else batch.num_rows
                for first in range(0, batch.num_rows, step):
                    table.insert(batch.slice(first, step), progress=False)
                begun = time.perf_counter()
                jobs.run("t")
                working += time.perf_counter() - begun
            jobs.dump("t")
            jobs.run("t")
            seconds = time.perf_counter() - start
            yield from _outcomes(kind, table, rows, seconds, working)


def _outcomes(kind: str, table: il.Table, rows: int, seconds: float, working: float) -> Iterator[Outcome]:
    stats = table.stats()
    found = stats.clustered
    assert found is not None
    assert stats.rows == rows
    pace = f"{working:,.0f} of {seconds:,.0f} s in jobs; {found}"
    yield Outcome(
        f"steady load, {kind} keys", f"{rows / seconds:,.0f} rows/s", "", round(rows / seconds), "", None, pace
    )
    yield at_most(
        f"bytes written for each given, {kind} keys", found.bytes_written / 2**20, found.bytes_given / 2**20,
        MOST_WRITTEN, "MiB",
    )  # fmt: skip
    yield at_most(
        f"largest and median partition, {kind} keys", found.largest_partition_rows, found.median_partition_rows,
        MOST_UNEVEN, "rows",
    )  # fmt: skip
