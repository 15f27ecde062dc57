"""``t.changes(…).to_spark()``: the change feed as a Spark DataFrame.

The feed is planned once, together with the DataFrame, and cut into portions that tasks read with the code of a feed in
this process. Its history stays pinned as long as the lake is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.catalog.commits import row_changes
from indexlake.feed.plan import plan_feed
from indexlake.spark.frame import check_readable, session_here, tasks_frame
from indexlake.spark.portion import AsChanges, Reading, Stage, feed_portions
from indexlake.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indexlake.feed.changes import Changes


def feed_to_spark(changes: Changes, spark: SparkSession | None) -> DataFrame:
    lake = changes._table._lake
    check_readable(changes._table)
    schema = arrow_schema(changes.schema)  # so that errors are raised before Spark is started and a snapshot is pinned
    spark = session_here(spark)
    lake._maintenance.keep(changes.since)
    stage = None if lake.read_only else Stage(lake.storage, changes._table._table_id, lake._writer_id)
    reading, cut = planned(changes, schema, spark.sparkContext.defaultParallelism, stage)
    if not cut:
        return spark.createDataFrame([], spark_schema(schema))
    return tasks_frame(spark, reading, cut)


def planned(changes: Changes, schema: pa.Schema, parallelism: int, stage: Stage | None) -> tuple[Reading, list[bytes]]:
    """Return the portions of a feed, and how to read them; ``schema`` has its columns, in Spark's types."""
    table = changes._table
    storage, files = table._lake.storage, table._lake._files
    with changes._reading() as reading:
        plan = plan_feed(reading, changes.since, changes.until, files, changes._read)
        commits = list(row_changes(reading.transaction, table._table_id, changes.since, changes.until))
    rows = [*(s.rows for s in plan.known), *(b.rows for b in plan.unread)]
    shared = {id(f): f for block in rows if (task := getattr(block, "task", None)) for f in (task.fields, block.fields)}
    shown = AsChanges(tuple(changes.schema.names), changes._predicate)
    how = Reading(
        storage.spec(), storage.secrets, tuple(changes._read), False, None, tuple(shared.values()), schema,
        changes=shown,
    )  # fmt: skip
    return how, feed_portions(plan, commits, how, parallelism, files, stage)
