"""``t.to_spark()``: a table at one snapshot as a Spark DataFrame.

The plan is made once, together with the DataFrame.  Whatever is done with it later, and whatever jobs do meanwhile, it
returns the rows of its snapshot, which stays pinned as long as the lake is open.  Parquet blocks are read by Spark
where that is exact; everything else is read by tasks that run the same code as a scan in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import JobError, OwnershipError
from indexlake.schema import ROW_ID
from indexlake.spark import native
from indexlake.spark.lists import LISTS, as_lists, in_lists, list_schema
from indexlake.spark.nulls import declared, filled_columns, may_be_null
from indexlake.spark.portion import Reading, Stage, portions
from indexlake.spark.session import session
from indexlake.spark.types import arrow_schema, spark_schema, struct_of

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from indexlake.lake import Lake
    from indexlake.scan.plan import ScanPlan
    from indexlake.schema import Field
    from indexlake.snapshots.state import TableState
    from indexlake.table import Table

SENT_BYTES = 512 << 10
"""Portions up to this size in total are sent with the code of the tasks; larger ones are broadcast, which takes Spark
20 ms and more."""
FILLED_BYTES = 128 << 10
"""What is sent with the code is filled up to this size: the kernel delays small packets by up to 40 ms, but not large
ones."""


def to_spark(
    table: Table,
    spark: SparkSession | None,
    columns: Sequence[str] | None,
    where: str | None,
    params: Mapping[str, Any] | Sequence[Any] | None,
) -> DataFrame:
    """Return the rows of a table, or of the snapshot that the handle is fixed to."""
    lake = table._lake
    check_readable(table)
    scan = table.scan(where, params=params, columns=columns)
    arrow_schema(scan.schema)  # so that errors are raised before Spark is started and a snapshot is pinned
    scan._bind(table._schema_now())
    spark = session_here(spark)
    with table._reading() as reading:
        scan._snapshot = reading.snapshot
    lake._maintenance.keep(reading.snapshot)
    plan, fields, _, row_id, _ = scan._plan()
    with_id = row_id or not fields  # rows without columns could not be counted on the way
    found = plan_frame(spark, lake, table._state(), plan, fields, row_id=with_id)
    return found if row_id or not with_id else found.drop(ROW_ID)


def check_readable(table: Table) -> None:
    """Refuse what Spark cannot read."""
    table._lake._check()
    if table._tx is not None:
        raise OwnershipError(
            "to_spark() does not work inside a transaction: Spark would not see what it has written. Commit it, "
            "or read without Spark."
        )
    check_reachable(table._lake)


def session_here(spark: SparkSession | None) -> SparkSession:
    spark = spark or session()
    if not hasattr(spark, "_jsparkSession"):
        raise JobError("to_spark() needs a Spark session of this process; Spark Connect has its driver elsewhere.")
    return spark


def check_reachable(lake: Lake) -> None:
    if lake.storage.root.startswith("memory:"):
        raise JobError("Files in memory cannot be reached by Spark. Read with scan().to_arrow().")


def plan_frame(
    spark: SparkSession, lake: Lake, state: TableState, plan: ScanPlan, fields: Sequence[Field], *, row_id: bool
) -> DataFrame:
    """Return the rows of a plan: those that Spark reads itself, and those that our tasks read."""
    storage = lake.storage
    alone, others = native.divided(state, storage, plan, fields)
    reading = Reading.of(storage, plan, fields, row_id=row_id)
    reading = replace(reading, filled=filled_columns(state.blocks, plan, others, fields))
    stage = None if lake.read_only else Stage(storage, state.table.table_id, lake._writer_id)
    cut = portions(plan, others, state, reading, spark.sparkContext.defaultParallelism, stage)
    parts: list[DataFrame] = []
    if alone:
        parts.append(native.frame(spark, storage, alone, fields, row_id=row_id))
    if cut:
        parts.append(tasks_frame(spark, reading, cut))
    if not parts:
        return spark.createDataFrame([], spark_schema(reading.schema))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def tasks_frame(spark: SparkSession, reading: Reading, cut: list[bytes]) -> DataFrame:
    """Return the rows that our tasks read; a single numeric column is sent as lists."""
    numbers = spark.range(0, len(cut), 1, len(cut))
    size = sum(map(len, cut))
    sent = cut if size <= SENT_BYTES else spark.sparkContext.broadcast(cut)
    scan = IndexLakeScan(reading, sent, bytes(max(0, FILLED_BYTES - size)))
    if scan.lists is None:
        rows = numbers.mapInArrow(scan, declared(spark_schema(reading.schema), reading.filled))
    else:
        lists = numbers.mapInArrow(scan, struct_of(scan.lists))
        rows = lists.selectExpr(f"explode({LISTS})")
    return may_be_null(rows, reading.schema.names, reading.filled)


class IndexLakeScan:
    """Reads portions by number, on an executor."""

    def __init__(self, reading: Reading, cut: list[bytes] | Broadcast[list[bytes]], filler: bytes) -> None:
        self._reading = reading
        self._cut = cut
        self._filler = filler
        self.lists = list_schema(reading.schema, reading.filled) if in_lists(reading.schema) else None

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cut = self._cut if isinstance(self._cut, list) else self._cut.value
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                rows = self._reading.rows(cut[number])
                yield from rows if self.lists is None else (as_lists(batch, self.lists) for batch in rows)

    def __repr__(self) -> str:
        return (
            f"IndexLakeScan({self._reading.spec.root!r}, {self._reading.schema.names})"  # without the options: secrets
        )
