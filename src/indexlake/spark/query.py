"""``lake.sql(…, engine="spark")``: our scans, and Spark for the rest of the query.

The query is parsed and its scans are planned as for DuckDB: one snapshot for all tables, each scan with the columns and
conditions that the query asks of it.  What is left is translated into Spark's dialect and evaluated by Spark, by its
rules.  The snapshot is pinned while the lake is open, like that of ``to_spark``.
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
from indexlake.spark.failure import said
from indexlake.spark.frame import check_reachable, plan_frame
from indexlake.spark.handover import by_place
from indexlake.spark.session import session
from indexlake.sql.query import sampled, view_name
from indexlake.sql.result import Batches, SqlResult
from indexlake.sql.tokens import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indexlake.sql.planned_query import PlannedQuery
    from indexlake.sql.table_plan import TablePlan


class SparkResult(SqlResult):
    """Rows that Spark computes; each partition passes through this process by itself."""

    def __init__(self, frame: DataFrame, snapshot_id: int) -> None:
        self._frame = frame
        super().__init__(self._stream, snapshot_id)

    def to_spark(self) -> DataFrame:
        """The DataFrame, to go on with in Spark."""
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
    """The query as a DataFrame."""
    lake = planned.lake
    check_reachable(lake)
    spark = session()
    prefix = f"__il_{uuid.uuid4().hex}"
    names = [f"{prefix}_{n}" for n in range(len(planned.tables))]
    text = _in_spark_words(planned, names)
    if planned.tables:
        lake._maintenance.keep(planned.snapshot_id)
    made = []
    try:
        for name, table in zip(names, planned.tables, strict=True):
            _scanned(spark, planned, table).createOrReplaceTempView(name)
            made.append(name)
        with _translated(spark):
            return spark.sql(text, args={_marker(name): value for name, value in planned.parameters.items()})
    finally:
        for name in made:
            spark.catalog.dropTempView(name)  # the DataFrame has the plan itself


def explained(planned: PlannedQuery) -> str:
    """Spark's own plan."""
    frame = frame_of(planned)
    with _translated(frame.sparkSession), redirect_stdout(io.StringIO()) as printed:
        frame.explain(mode="formatted")
    return printed.getvalue().strip()


def _scanned(spark: SparkSession, planned: PlannedQuery, table: TablePlan) -> DataFrame:
    row_id = table.row_id or not table.fields  # rows without columns cannot be counted on their way
    found = plan_frame(spark, planned.lake, table.found.state, table.scan, table.fields, row_id=row_id)
    return found if table.row_id or not row_id else found.drop(ROW_ID)


def _in_spark_words(planned: PlannedQuery, names: list[str]) -> str:
    """The query in Spark's dialect, over views of these names."""
    import sqlglot
    from sqlglot import exp

    def renamed(text: str) -> str:
        for number, name in enumerate(names):
            text = text.replace(sampled(number), quoted(name)).replace(quoted(view_name(number)), quoted(name))
        return text

    query = planned.query
    source = query.fragment.source
    edits = query.edits_apart([table.found.schema.by_name.keys() for table in planned.tables], planned.namespace)
    text = query.fragment.spliced([(start, end, renamed(new)) for start, end, new in edits]).text
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except Exception:  # of the parser, whatever it is
        raise source.error("This query cannot be translated into Spark's dialect. Use engine='duckdb'.", None) from None
    for node in list(tree.find_all(exp.Parameter, exp.Placeholder)):
        node.replace(exp.Placeholder(this=_marker(node.name)))
    try:
        return tree.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.UnsupportedError as error:
        raise source.error(f"Spark has no such thing: {error} Use engine='duckdb'.", None) from None


def _marker(name: str) -> str:
    return f"p{name}" if name.isdigit() else name


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as bytes, so that Spark passes them on as they are."""
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"data": pa.array([out.getvalue().to_pybytes()], pa.binary())})


@contextmanager
def _translated(spark: SparkSession) -> Iterator[None]:
    """Errors of Spark as errors of ours."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise ExpressionError(f"Spark: {said(error)}") from None
    except PySparkException as error:
        raise JobError(f"Spark could not run the query: {said(error, spark)}") from None
    except Exception as error:
        if "Py4J" not in type(error).__name__:
            raise
        raise JobError(f"Spark could not run the query: {said(error, spark)}") from None
