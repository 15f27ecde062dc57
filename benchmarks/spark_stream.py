"""Streams from Spark: batches of some rows written to a table, against Spark's own sink of Parquet files.

Each contender reads the same files, one a batch, and the median time of its batches counts, as Spark reports them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import indexlake as il
from benchmarks.orders import SCHEMA, batches, config
from benchmarks.outcome import Outcome, shown, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 24
WARM_UP = 4
SIZES = (1_000, 100_000)


def stream(folder: Path, _rows: int, spark: SparkSession) -> Iterator[Outcome]:
    """Batches by the format and by the sink of this process, with a primary key; upserts by the latter."""
    lake = il.connect(str(folder / "lake"), automatic=False)
    for size in SIZES:
        source = folder / f"source-{size}"
        source.mkdir()
        for number, batch in enumerate(batches(BATCHES * size, size)):
            pq.write_table(pa.Table.from_batches([batch]), source / f"{number:04}.parquet")
        floor = _times(spark, source, folder / f"native-{size}", _native(folder / f"out-{size}"))
        for name, key, start in (
            ("format", "id", _format(folder)),
            ("sink", "id", _sink(lake, "append")),
            ("sink, upsert", "id", _sink(lake, "upsert")),
        ):
            table = f"bench.{name.partition(',')[0]}{size}{len(name)}"
            lake.create_table(table, SCHEMA, primary_key=key, config=config())
            times = _times(spark, source, folder / table, start(table))
            assert lake.table(table).count() == BATCHES * size
            ours, other = statistics.median(times), statistics.median(floor)
            yield Outcome(
                f"stream, {size:,} rows a batch: {name}", shown(ours, "ms"), shown(other, "ms"),
                round(ours / other, 3), "", None, spread(times, "ms"),
            )  # fmt: skip
    lake.close()


def _times(spark: SparkSession, source: Path, checkpoint: Path, start: Callable[[Any], Any]) -> list[float]:
    """Milliseconds of each batch after the first ones."""
    schema = spark.read.parquet(str(source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    query = start(frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
    query.awaitTermination()
    return [float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress if p["numInputRows"]][WARM_UP:]


def _native(out: Path) -> Callable[[Any], Any]:
    return lambda writer: writer.format("parquet").start(str(out))


def _format(folder: Path) -> Callable[[str], Callable[[Any], Any]]:
    return lambda table: lambda writer: writer.format("indexlake").option("table", table).start(str(folder / "lake"))


def _sink(lake: il.Lake, mode: str) -> Callable[[str], Callable[[Any], Any]]:
    return lambda table: lambda writer: writer.foreachBatch(lake.pipeline(progress=False).sink(table, mode)).start()
