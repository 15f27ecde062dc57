"""``lake.sql(…, engine="spark")``: our scans, and Spark for the rest of the query.

The query is parsed and its scans are planned as for DuckDB: one snapshot for all tables, and each scan with the columns
and conditions that the query needs.  The rest is translated to Spark's dialect and evaluated by Spark, following its
own rules.  The snapshot stays pinned while the lake is open, as for ``to_spark``.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.errors import ExpressionError, JobError
from indexlake.schema import ROW_ID
from indexlake.spark.dialect import INTEGERS, SparkText
from indexlake.spark.failure import reason_of
from indexlake.spark.frame import check_reachable, plan_frame
from indexlake.spark.handover import by_place
from indexlake.spark.session import session
from indexlake.spark.space import register
from indexlake.spark.types import arrow_schema, spark_schema, to_spark
from indexlake.sql.run.result import Batches, SqlResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indexlake.sql.plan.table_plan import TablePlan
    from indexlake.sql.run.planned_query import PlannedQuery


class SparkResult(SqlResult):
    """Rows that Spark computes; they pass through this process one partition at a time."""

    def __init__(self, frame: DataFrame, snapshot_id: int) -> None:
        self._frame = frame
        super().__init__(self._stream, snapshot_id)

    def to_spark(self) -> DataFrame:
        """The DataFrame, for further processing in Spark."""
        return self._frame

    def _stream(self) -> Batches:
        with _translated(self._frame.sparkSession):
            schema = self._frame.limit(0).toArrow().schema

        def batches() -> Iterator[pa.RecordBatch]:
            with _translated(self._frame.sparkSession):
                packed = by_place(self._frame).mapInArrow(_packed, "data binary")
                for row in packed.toLocalIterator(prefetchPartitions=True):
                    for batch in pa.ipc.open_stream(row[0]):
                        named = batch.rename_columns(schema.names)
                        yield named if named.schema == schema else named.cast(schema)

        return schema, batches()


def run_query(planned: PlannedQuery) -> SparkResult:
    return SparkResult(frame_of(planned), planned.snapshot_id)


def frame_of(planned: PlannedQuery) -> DataFrame:
    """Return the query as a DataFrame."""
    lake = planned.lake
    check_reachable(lake)
    spark = session()
    if spark.conf.get("spark.sql.ansi.enabled") != "true":
        raise JobError(
            "This Spark session has spark.sql.ansi.enabled set to false, so numbers would wrap around. Switch it on: "
            "spark.conf.set('spark.sql.ansi.enabled', 'true')."
        )
    prefix = f"__il_{uuid.uuid4().hex}"
    names = [f"{prefix}_{n}" for n in range(len(planned.tables))]
    found = [f"{prefix}_search_{n}" for n in range(len(planned.searches))]
    words = SparkText(planned, names, found)
    if planned.tables:
        lake._maintenance.keep(planned.snapshot_id)
    made = []
    try:
        for name, table in zip(names, planned.tables, strict=True):
            _scanned(spark, planned, table).createOrReplaceTempView(name)
            made.append(name)
        for name, search in zip(found, planned.searches, strict=True):
            _local(spark, search.rows).createOrReplaceTempView(name)
            made.append(name)
        for name, path in planned.file_tables.items():
            with _translated(spark):
                spark.read.parquet(f"file://{path}").createOrReplaceTempView(name)
            made.append(name)
        register(spark, words.of_space)
        with _translated(spark, INTEGERS if words.divides else None):
            return spark.sql(words.text, args=words.arguments)
    finally:
        for name in made:
            spark.catalog.dropTempView(name)  # the DataFrame holds the plan itself


def explained(planned: PlannedQuery) -> str:
    """Return Spark's own plan."""
    frame = frame_of(planned)
    with _translated(frame.sparkSession), redirect_stdout(io.StringIO()) as printed:
        frame.explain(mode="formatted")
    return printed.getvalue().strip()


def _scanned(spark: SparkSession, planned: PlannedQuery, table: TablePlan) -> DataFrame:
    row_id = table.row_id or not table.fields  # rows without columns could not be counted on the way
    found = plan_frame(spark, planned.lake, table.found.state, table.scan, table.fields, row_id=row_id)
    return found if table.row_id or not row_id else found.drop(ROW_ID)


def _local(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows of this process as a DataFrame; they are sent with Spark's plan."""
    shown = arrow_schema(rows.schema)
    batches = [to_spark(batch, shown) for batch in rows.to_batches() if batch.num_rows]
    schema = spark_schema(shown)
    return spark.createDataFrame(pa.Table.from_batches(batches, shown) if batches else [], schema)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Serialise batches, so that Spark passes them on unchanged."""
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"data": pa.array([out.getvalue().to_pybytes()], pa.binary())})


@contextmanager
def _translated(spark: SparkSession, of_types: str | None = None) -> Iterator[None]:
    """Translate Spark's errors into ours; ``of_types`` is advice for mismatched types."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        told = reason_of(error)
        advice = f" {of_types}" if of_types and "DATATYPE_MISMATCH" in told else ""
        raise ExpressionError(f"Spark: {told}{advice}") from None
    except PySparkException as error:
        raise JobError(f"Spark could not run the query: {reason_of(error, spark)}") from None
    except Exception as error:
        if "Py4J" not in type(error).__name__:
            raise
        raise JobError(f"Spark could not run the query: {reason_of(error, spark)}") from None
