"""Rows on their way to our tasks: batches that Spark does not measure, unless a row is wide."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.spark import handover
from indexlake.spark.runner import SparkRunner

ROWS, BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"


def settings(spark: Any) -> tuple[str | None, str | None]:
    """What the session says itself."""
    first, second = (spark.conf.get(n) if spark.conf._jconf.contains(n) else None for n in (ROWS, BYTES))
    return first, second


def batch_rows(lake: il.Lake, frame: Any) -> list[int]:
    """How many rows the tasks get at a time."""

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # inside: workers cannot import tests
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"result": pa.array([str(batch.num_rows).encode()], pa.binary())})

    found = handover.handed_over(SparkRunner(frame.sparkSession, lake.storage), frame, sizes, lambda: None)
    return [int(rows) for rows in found]


def test_narrow_rows_come_in_small_batches_and_the_session_is_as_it_was(lake: il.Lake, spark: Any) -> None:
    before = settings(spark)
    assert before[1] is None
    frame = spark.range(0, 10_000, 1, 1).selectExpr("id", "string(id) name", "array(1.5d, id) `odd.na``me`")
    assert batch_rows(lake, frame) == [handover.ROWS, handover.ROWS, 10_000 - 2 * handover.ROWS]
    assert settings(spark) == before


def test_jobs_that_measure_wait_for_those_that_do_not(lake: il.Lake, spark: Any) -> None:
    """They need the same session set otherwise."""
    before = settings(spark)
    frames = [
        spark.range(0, 20_000, 1, 1).selectExpr("id"),
        spark.range(0, 20_000, 1, 1).selectExpr("map(id, 1) m"),
    ] * 3
    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda n=n, f=f: found.__setitem__(n, batch_rows(lake, f)))
        for n, f in enumerate(frames)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: max(rows) for n, rows in found.items()} == {n: 20_000 if n % 2 else handover.ROWS for n in range(6)}
    assert settings(spark) == before


def test_a_wide_row_makes_the_job_begin_again_with_measured_batches(lake: il.Lake, spark: Any) -> None:
    before = settings(spark)
    wide = f"if(id = 6000, repeat('x', {handover.ROW_BYTES + 1}), 'y') text"
    assert batch_rows(lake, spark.range(0, 10_000, 1, 1).selectExpr("id", wide)) == [10_000]
    assert settings(spark) == before
    t = lake.create_table("t", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    lake.pipeline(spark=spark).load(spark.range(0, 10_000, 1, 2).selectExpr("id", wide), "t")
    assert len(t) == 10_000
    assert t.scan("length(text) > 1").to_pylist() == [{"id": 6_000, "text": "x" * (handover.ROW_BYTES + 1)}]


def test_rows_whose_width_spark_cannot_tell_are_measured(lake: il.Lake, spark: Any) -> None:
    frame = spark.range(0, 10_000, 1, 1).selectExpr("map(id, 'x') m")
    assert batch_rows(lake, frame) == [10_000]


def test_a_limit_of_the_session_is_obeyed(lake: il.Lake, spark: Any) -> None:
    spark.conf.set(BYTES, "8000")
    try:
        assert max(batch_rows(lake, spark.range(0, 10_000, 1, 1))) < 2_000
        assert spark.conf.get(BYTES) == "8000"
    finally:
        spark.conf.unset(BYTES)
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, 100)
    try:
        assert max(batch_rows(lake, spark.range(0, 1_000, 1, 1))) == 100
        assert spark.conf.get(ROWS) == "100"
    finally:
        spark.conf.set(ROWS, before)


def test_a_load_that_fails_leaves_the_session_as_it_was(lake: il.Lake, spark: Any) -> None:
    before = settings(spark)
    with pytest.raises(il.JobError, match="no good"):
        batch_rows(lake, spark.range(3).selectExpr("if(id = 2, raise_error('no good'), id) id"))
    assert settings(spark) == before


def test_loads_at_the_same_time_leave_the_session_as_it_was(lake: il.Lake, spark: Any) -> None:
    before = settings(spark)
    schema = pa.schema([("id", pa.int64())])
    tables = [lake.create_table(f"t{n}", schema) for n in range(4)]
    pipeline = lake.pipeline(spark=spark, progress=False)
    loads = [
        threading.Thread(target=pipeline.load, args=(spark.range(0, 3_000 * (n + 1), 1, 2), f"t{n}")) for n in range(4)
    ]
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    assert [len(t) for t in tables] == [3_000, 6_000, 9_000, 12_000]
    assert settings(spark) == before
