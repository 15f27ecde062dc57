"""Rows on their way from a DataFrame to our tasks: in small batches that Spark does not measure.

Spark keeps what it hands to Python below 64 MiB a batch by measuring the batch after every row that it adds, and that
takes longer than all the rest of the way.  So batches have few rows here and are not measured, while a filter sees to
it that no row is wide.  When one is, the job begins again with measured batches.  A session that has a limit of its own
is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from indexlake.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from indexlake.spark.runner import SparkRunner

ROWS = 4_096
"""In a batch that is not measured,"""
ROW_BYTES = 64 << 10
"""if no row has more text, bytes and list elements than this: so a batch has at most 256 MiB of them."""

RESULT = "result binary"
WIDE = "A row is too wide for batches that are not measured."

_MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNMEASURED = str(2**31 - 1)


def handed_over(runner: SparkRunner, frame: DataFrame, work: Any, check: Callable[[], None]) -> list[Any]:
    """What our tasks say of the partitions of a frame; ``work`` turns the batches of one into one of a binary."""
    frame = by_place(frame)
    narrow = _narrow(frame)
    if narrow is not None and not _has(frame.sparkSession, _MOST_BYTES):
        try:
            with _unmeasured(frame.sparkSession):
                return runner.collect(narrow.mapInArrow(work, RESULT), check)
        except JobError as error:
            if WIDE not in str(error):
                raise
    return runner.collect(frame.mapInArrow(work, RESULT), check)


def by_place(frame: DataFrame) -> DataFrame:
    """The frame with its columns named by their places: on the way to Python, Spark loses a name with a dot or a
    backtick, and one that is there twice."""
    return frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))


def _narrow(frame: DataFrame) -> DataFrame | None:
    """The frame, which fails if a row is wide; None where Spark cannot tell how wide a row is."""
    from pyspark.sql import functions as f

    widths: list[Column] = []
    for field in frame.schema.fields:
        width = _width(f.col(field.name), field.dataType)
        if width is None:
            return None
        widths.extend(width)
    if not widths:
        return frame
    total = sum(widths[1:], widths[0])
    return frame.where(f.when(total <= ROW_BYTES, True).otherwise(f.raise_error(f.lit(WIDE)).cast("boolean")))


def _width(column: Column, type: DataType) -> list[Column] | None:
    from pyspark.sql import functions as f
    from pyspark.sql import types as s

    if isinstance(type, s.StringType | s.BinaryType):
        return [f.coalesce(f.octet_length(column), f.lit(0)).cast("long")]
    if isinstance(type, s.ArrayType) and _is_fixed(type.elementType):
        return [f.coalesce(f.size(column), f.lit(0)).cast("long") * _FIXED_BYTES]
    return [] if _is_fixed(type) else None


_FIXED_BYTES = 16


def _is_fixed(type: DataType) -> bool:
    from pyspark.sql import types as s

    fixed = (s.NumericType, s.BooleanType, s.DateType, s.TimestampType, s.TimestampNTZType, s.DayTimeIntervalType)
    return isinstance(type, fixed)


_lock = threading.Lock()
_running: dict[int, tuple[int, str | None]] = {}
"""Of each session that is set so: how many jobs rely on it, and how it was set before."""


@contextmanager
def _unmeasured(spark: SparkSession) -> Iterator[None]:
    session = id(spark)
    with _lock:
        jobs, before = _running.get(session, (0, spark.conf.get(_MOST_ROWS) if _has(spark, _MOST_ROWS) else None))
        limit = int(before or 0)
        spark.conf.set(_MOST_ROWS, min(limit, ROWS) if limit > 0 else ROWS)
        spark.conf.set(_MOST_BYTES, _UNMEASURED)
        _running[session] = jobs + 1, before
    try:
        yield
    finally:
        with _lock:
            jobs, before = _running.pop(session)
            if jobs > 1:
                _running[session] = jobs - 1, before
            else:
                spark.conf.unset(_MOST_BYTES)
                spark.conf.unset(_MOST_ROWS) if before is None else spark.conf.set(_MOST_ROWS, before)


def _has(spark: SparkSession, name: str) -> bool:
    """Whether the session says something of a setting, and not we for it."""
    return bool(spark.conf._jconf.contains(name)) and not (name == _MOST_BYTES and id(spark) in _running)
