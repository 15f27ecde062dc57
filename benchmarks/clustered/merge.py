"""Merging on Spark against Spark's own rewrite of the same rows, which are in Parquet there."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import indexlake as il
from benchmarks.clustered import data
from benchmarks.outcome import Outcome, at_most, in_turn, spread

ROUNDS = 3
DELTAS = 4


def on_spark(folder: Path, rows: int) -> Iterator[Outcome]:
    """A merged table, and as many rows again in deltas that all partitions have; each round merges a copy of it."""
    first = folder / "first"
    parts = _unmerged(first, rows)
    source = folder / "source"
    source.mkdir()
    size = rows // DELTAS
    for n in range(DELTAS):
        some = (b for m, b in enumerate(data.batches(rows, size=max(1, size // 10))) if m // 10 == n)
        data.parquet(source / f"{n}.parquet", pa.RecordBatchReader.from_batches(data.SCHEMA, some))
    copies = iter([shutil.copytree(first, folder / f"copy{n}") for n in range(ROUNDS + 1)])
    spark = il.spark.session(spark_driver_memory="4g")

    def ours(_: int) -> None:
        with data.open_lake(next(copies)) as lake:
            done = lake.pipeline(spark=spark, progress=False).merge("t")["main.t"]
            assert done.rows == rows, done
            assert all(not p.delta_blocks for p in lake.table("t").partitions())

    def sorting(n: int) -> None:
        frame = spark.read.parquet(str(source)).repartitionByRange(parts, "k").sortWithinPartitions("k")
        frame.write.parquet(str(folder / f"sorted{n}"))

    def plain(n: int) -> None:
        spark.read.parquet(str(source)).repartition(parts).write.parquet(str(folder / f"plain{n}"))

    times = in_turn({"ours": ours, "sorting": sorting, "plain": plain}, ROUNDS, warm_up=1)
    spark.stop()
    mine = statistics.median(times["ours"]) / 1e6
    for who, name in (("sorting", "Spark's rewrite in key order"), ("plain", "Spark's rewrite in any order")):
        other = statistics.median(times[who]) / 1e6
        detail = f"{rows / mine:,.0f} rows/s; {spread([t / 1e6 for t in times['ours']], 's')}"
        yield at_most(f"merge on Spark, and {name}", mine, other, 0.8, "s", detail)


def _unmerged(folder: Path, rows: int) -> int:
    """Half of the rows are data, the others deltas; how many partitions there are."""
    with data.open_lake(folder) as lake:
        table = data.table_of(lake, "t", "clustered", rows)
        jobs = lake.pipeline(runner="threads", progress=False)
        half = rows // 2
        whole = list(data.batches(rows, size=max(1, half // DELTAS)))
        for batch in whole[:DELTAS]:
            table.insert(batch, progress=False)
        jobs.merge("t")
        for batch in whole[DELTAS:]:
            table.insert(batch, progress=False)
        return len(table.partitions())
