"""``t.changes(…).to_spark()``: the change feed as a Spark DataFrame.

The feed is planned once, together with the DataFrame, and cut into portions that tasks read with the code of a feed in
this process. Its history stays pinned as long as the lake is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from indexlake.catalog.commits import row_changes
from indexlake.feed.changes import Changes, Moment
from indexlake.feed.events import BlockRows
from indexlake.feed.plan import plan_feed
from indexlake.schema.change_columns import CHANGE_TYPE, SNAPSHOT_ID
from indexlake.spark.asked import asked_schema, columns_of
from indexlake.spark.frame import check_readable, session_here, tasks_frame
from indexlake.spark.portion import AsChanges, Reading, Stage, feed_portions
from indexlake.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from indexlake.table import Table


def feed_to_spark(changes: Changes, spark: SparkSession | None) -> DataFrame:
    lake = changes._table._lake
    check_readable(changes._table)
    schema = arrow_schema(changes.schema)  # so that errors are raised before Spark is started and a snapshot is pinned
    spark = session_here(spark)
    lake._maintenance.keep(changes.since)
    stage = None if lake.read_only else Stage(lake.storage, changes._table._table_id, lake._writer_id)
    asked = AskedChanges(changes, tuple(schema.names), schema)
    reading, cut = asked.planned(spark.sparkContext.defaultParallelism, stage)
    if not cut:
        return spark.createDataFrame([], spark_schema(schema))
    return tasks_frame(spark, reading, cut)


class AskedChanges(NamedTuple):
    """A feed, and which of its columns Spark gets in which order and under which names."""

    changes: Changes
    names: tuple[str, ...]
    schema: pa.Schema  # in Spark's types

    @staticmethod
    def of(
        table: Table, since: Moment, until: Moment | None, where: str | None, schema: StructType,
        columns_at: int | None = None,
    ) -> AskedChanges:  # fmt: skip
        """Return what is asked for by a schema of Spark."""
        whole = Changes(table, since, until, None, where, None, False, columns_at)
        names = columns_of(table.name, whole.schema, schema)
        own = [name for name in names if name not in (CHANGE_TYPE, SNAPSHOT_ID)]
        changes = Changes(table, whole.since, whole.until, own, where, None, False, columns_at)
        shown = arrow_schema([changes.schema.field(name) for name in names])
        return AskedChanges(changes, tuple(names), asked_schema(shown, schema))

    def planned(self, parallelism: int, stage: Stage | None) -> tuple[Reading, list[bytes]]:
        """Return the portions of the feed, and how to read them."""
        changes, table = self.changes, self.changes._table
        storage, files = table._lake.storage, table._lake._files
        with changes._reading() as reading:
            plan = plan_feed(reading, changes.since, changes.until, files, changes._read, sent=True)
            commits = list(row_changes(reading.transaction, table._table_id, changes.since, changes.until))
        blocks = [b.rows for b in plan.unread] + [s.rows for s in plan.known if isinstance(s.rows, BlockRows)]
        shared = {id(found): found for block in blocks for found in (block.task.fields, block.fields)}
        how = Reading(
            storage.spec(), storage.secrets, tuple(changes._read), False, None, tuple(shared.values()), self.schema,
            changes=AsChanges(self.names, changes._predicate),
        )  # fmt: skip
        return how, feed_portions(plan, commits, how, parallelism, files, stage)
