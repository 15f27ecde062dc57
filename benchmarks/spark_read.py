"""Reading in Spark: our tables against Spark's own reading of the same rows from Parquet files that Spark wrote.

Wide: an aggregate over every column.  Narrow: over one, which is asked for where Spark cannot tell us.  Contenders
take turns, all answers are compared.  Beside the Vortex table, Spark is given the same number of rows by a Python task
that repeats one batch: what any rows from Python cost, whoever reads them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import indexlake as il
from benchmarks.orders import SCHEMA, config, stream
from benchmarks.outcome import Outcome, at_most, in_turn, shown, spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 15
WARM_UP = 4
"""Java compiles what it has run often enough."""
BATCH_ROWS = 65_536
WIDE = ["sum(id) a", "sum(length(customer)) b", "max(city) c", "sum(quantity) d", "sum(total) e"]
NARROW = ["sum(quantity) d"]


def read(folder: Path, rows: int, spark: SparkSession) -> Iterator[Outcome]:
    """Aggregates over tables in several states; the floor is ``spark.read.parquet``."""
    lake = il.connect(str(folder / "lake"), automatic=False)
    native = str(folder / "native.parquet")
    cold = _table(lake, "cold", rows, dump_format="parquet")
    cold.to_spark(spark).write.parquet(native)
    yield from _compared("Parquet table", spark, native, cold, (1.15, 1.15))
    warm = _table(lake, "warm", rows)
    yield from _compared("Vortex table", spark, native, warm, (1.1, 1.6))
    yield from _repeated(spark, native, warm, rows)

    deleted = _table(lake, "deleted", rows, dump_format="parquet")
    deleted.delete("id % 100 = 42")
    kept = str(folder / "kept.parquet")
    deleted.to_spark(spark).write.parquet(kept)
    yield from _compared("1 % deleted", spark, kept, deleted, (1.5, None))

    mixed = _table(lake, "mixed", rows - rows // 10 - rows // 100, dump_format="parquet")
    mixed.set_config(dump_format="vortex")
    mixed.insert(stream(rows // 10, first=rows - rows // 10 - rows // 100))
    mixed.set_config(direct_write_row_count=10**9, inline_row_count_limit=10**9)
    mixed.insert(stream(rows // 100, first=rows - rows // 100))
    yield from _compared("10 % warm, 1 % hot", spark, native, mixed, (1.4, None))
    lake.close()


def _table(lake: il.Lake, name: str, rows: int, **changed: Any) -> il.Table:
    made = lake.create_table(f"bench.{name}", SCHEMA, config=config(**changed))
    made.insert(stream(rows))
    return made


def _compared(
    name: str, spark: SparkSession, native: str, table: il.Table, goals: tuple[float | None, float | None]
) -> Iterator[Outcome]:
    for kind, columns, aggregates, goal in (
        ("wide", None, WIDE, goals[0]),
        ("narrow", ["quantity"], NARROW, goals[1]),
    ):
        ours = _answer(lambda columns=columns: table.to_spark(spark, columns), aggregates)
        floor = _answer(lambda: spark.read.parquet(native), aggregates)
        _check(name, ours(0), floor(0))
        times = in_turn({"ours": ours, "floor": floor}, ROUNDS, warm_up=WARM_UP)
        mine, theirs = (statistics.median(times[who]) / 1000 for who in ("ours", "floor"))
        detail = f"ours {spread([t / 1000 for t in times['ours']], 'ms')}"
        if goal is None:
            ratio = round(mine / theirs, 3)
            yield Outcome(f"{name}, {kind}", shown(mine, "ms"), shown(theirs, "ms"), ratio, "", None, detail)
        else:
            yield at_most(f"{name}, {kind}", mine, theirs, goal, "ms", detail)


def _repeated(spark: SparkSession, native: str, table: il.Table, rows: int) -> Iterator[Outcome]:
    for kind, columns, aggregates in (("wide", None, WIDE), ("narrow", ["quantity"], NARROW)):
        tasks = spark.sparkContext.defaultParallelism
        batch = table.scan(columns=columns, limit=BATCH_ROWS).to_arrow().combine_chunks().to_batches()[0]
        times_each = rows // tasks // BATCH_ROWS
        schema = table.to_spark(spark, columns).schema

        def frame(
            batch: pa.RecordBatch = batch, times: int = times_each, tasks: int = tasks, schema: Any = schema
        ) -> DataFrame:
            return spark.range(0, tasks, 1, tasks).mapInArrow(_repeating(batch, times), schema)

        floor = _answer(lambda: spark.read.parquet(native), aggregates)
        times = in_turn({"python": _answer(frame, aggregates), "floor": floor}, ROUNDS, warm_up=WARM_UP)
        python, theirs = (statistics.median(times[who]) / 1000 for who in ("python", "floor"))
        name = f"one batch repeated by Python, {kind}"
        yield Outcome(name, shown(python, "ms"), shown(theirs, "ms"), round(python / theirs, 3), "", None)


def _repeating(batch: pa.RecordBatch, times: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def rows(given: Iterator[Any]) -> Iterator[Any]:
        for _ in given:
            for _ in range(times):
                yield batch

    return rows


def _answer(frame: Callable[[], DataFrame], aggregates: list[str]) -> Callable[[int], dict[str, Any]]:
    """Making the DataFrame, planning and all included: each query of a user pays for it."""
    return lambda _: frame().selectExpr(*aggregates).collect()[0].asDict()


def _check(name: str, ours: dict[str, Any], floor: dict[str, Any]) -> None:
    for key, value in floor.items():
        close = abs(ours[key] - value) <= 1e-6 * abs(value) if isinstance(value, float) else ours[key] == value
        assert close, f"{name}: {key} is {ours[key]}, Spark says {value}"
