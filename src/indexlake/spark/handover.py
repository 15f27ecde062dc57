"""Hands rows of a DataFrame to our tasks in small batches whose size Spark does not measure.

Spark keeps the batches that it hands to Python below 64 MiB by measuring them after every row it adds, which takes
longer than everything else on the way.  So batches have few rows here and are not measured.  A wide row is not handed
over but only marked; when a task sees a mark, the whole result is discarded and the job starts again with measured
batches.  If a session has a limit of its own, it is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.arrow import kernels as pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from indexlake.spark.runner import SparkRunner

    Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """Turns the batches of a partition into one batch that reports the result."""

ROWS = 4_096
"""The number of rows in a batch that is not measured,"""
ROW_BYTES = 64 << 10
"""if no row has more text, bytes and list elements than this: so a batch has at most 256 MiB of them."""

RESULT = "result binary"

_MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNMEASURED = str(2**31 - 1)
_FIXED_BYTES = 16
_WIDE = "wide"
_WAIT_SECONDS = 0.2


def handed_over(runner: SparkRunner, frame: DataFrame, work: Work, check: Callable[[], None]) -> list[bytes]:
    """Return the results of the tasks for the partitions of a frame, which get its columns by position."""
    frame, spark = by_place(frame), frame.sparkSession
    marked = _marked(frame)
    if marked is not None and not _has_limit(spark):
        with _batches(spark, check, measured=False):
            found = runner.collect(marked.mapInArrow(IndexLakeHandover(work), RESULT), check)
        if None not in found:
            return found
    with _batches(spark, check, measured=True):
        return runner.collect(frame.mapInArrow(work, RESULT), check)


def by_place(frame: DataFrame) -> DataFrame:
    """Return the frame with columns named by position: Spark loses names with dots or backticks, and duplicates, on the
    way to Python."""
    return frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))


class IndexLakeHandover:
    """Passes rows without their marks to a task, on an executor; returns null if a row is wide."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __repr__(self) -> str:
        return repr(self._work)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._work(self._narrow(batches))
        except _WideRowError:
            yield pa.RecordBatch.from_pydict({"result": pa.nulls(1, pa.binary())})

    def _narrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            *columns, wide = batch.columns
            if pc.any(wide).as_py():
                raise _WideRowError
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])


class _WideRowError(Exception):
    """Raised for a marked row; never leaves a task."""


def _marked(frame: DataFrame) -> DataFrame | None:
    """Return the frame with wide rows reduced to a mark, or None if Spark cannot tell how wide a row is."""
    from pyspark.sql import functions as f

    widths: dict[str, Column] = {}
    for field in frame.schema.fields:
        if not _is_fixed(field.dataType):
            width = _width(f.col(field.name), field.dataType)
            if width is None:
                return None
            widths[field.name] = f.coalesce(width.cast("long"), f.lit(0))
    narrow = sum(widths.values(), f.lit(0)) <= ROW_BYTES
    columns = [f.when(narrow, f.col(c)).alias(c) if c in widths else f.col(c) for c in frame.columns]
    return frame.select(*columns, (~narrow).alias(_WIDE))


def _width(column: Column, type: DataType) -> Column | None:
    from pyspark.sql import functions as f
    from pyspark.sql import types as s

    if isinstance(type, s.StringType | s.BinaryType):
        return f.octet_length(column)
    if isinstance(type, s.ArrayType) and _is_fixed(type.elementType):
        return f.size(column) * _FIXED_BYTES
    return None


def _is_fixed(type: DataType) -> bool:
    from pyspark.sql import types as s

    fixed = (s.NumericType, s.BooleanType, s.DateType, s.TimestampType, s.TimestampNTZType, s.DayTimeIntervalType)
    return isinstance(type, fixed)


@dataclass(slots=True)
class _Jobs:
    """The jobs on one session, which are all measured or all not: its settings apply to all of them."""

    measured: bool
    before: str | None
    number: int = 0


_changed = threading.Condition()
_running: dict[int, _Jobs] = {}


@contextmanager
def _batches(spark: SparkSession, check: Callable[[], None], *, measured: bool) -> Iterator[None]:
    """Set up the session for a job, waiting for jobs that need it set up differently."""
    session = id(spark)
    with _changed:
        while session in _running and _running[session].measured != measured:
            _changed.wait(_WAIT_SECONDS)
            check()
        jobs = _running.get(session)
        if jobs is None:
            before = spark.conf.get(_MOST_ROWS) if _is_set(spark, _MOST_ROWS) else None
            if not measured:
                limit = int(before or 0)
                spark.conf.set(_MOST_ROWS, min(limit, ROWS) if limit > 0 else ROWS)
                spark.conf.set(_MOST_BYTES, _UNMEASURED)
            jobs = _running[session] = _Jobs(measured, before)  # once nothing can fail: others wait for it
        jobs.number += 1
    try:
        yield
    finally:
        with _changed:
            jobs.number -= 1
            if not jobs.number:
                del _running[session]
                _changed.notify_all()
                if not measured:
                    _restore(spark, jobs.before)


def _restore(spark: SparkSession, rows: str | None) -> None:
    with suppress(Exception):  # if Spark is gone there is nothing to restore, and its own error is on the way
        spark.conf.unset(_MOST_BYTES)
        if rows is None:
            spark.conf.unset(_MOST_ROWS)
        else:
            spark.conf.set(_MOST_ROWS, rows)


def _has_limit(spark: SparkSession) -> bool:
    """Return whether the session has a limit on batch size that was not set by us."""
    with _changed:
        jobs = _running.get(id(spark))
        return (jobs is None or jobs.measured) and _is_set(spark, _MOST_BYTES)


def _is_set(spark: SparkSession, name: str) -> bool:
    return bool(spark.conf._jconf.contains(name))
