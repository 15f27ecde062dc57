"""Parquet blocks that Spark can read by itself with exactly the same rows as a result.

That means: every row of the file is visible, the file has all requested columns, Spark's reader produces the same
values, and a filter that Spark applies to the file's statistics drops no row that its own comparison keeps.  Because of
the last point, blocks with a NaN are excluded (in Spark, NaN is greater than everything, but file statistics ignore
it), and so are timestamps in milliseconds (Spark rounds the filter to them).  Blocks with an infinite date or
timestamp, or a HUGEINT of 39 digits, are excluded in order to be refused: Spark would take it for another value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.blocks.statistics import ColumnStats, stats_from_bytes
from indexlake.scan.plan import BlockTask, ScanPlan
from indexlake.schema import ROW_ID, Field
from indexlake.snapshots.state import TableState
from indexlake.spark.types import spark_schema
from indexlake.storage import Storage
from indexlake.types.floats import NAN
from indexlake.types.hugeint import HELD_AS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "recursiveFileLookup": "true",  # otherwise, parent folders named a=b would become columns
    "__globPaths__": "false",  # otherwise, brackets in a folder name would be a pattern
}
"""Set explicitly so that session settings cannot change them."""

FLOAT_OPTIONS = {"parquet.filter.dictionary.enabled": "false"}  # 0.0 is not in a dictionary that has -0.0

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def divided(
    state: TableState, storage: Storage, plan: ScanPlan, fields: Sequence[Field]
) -> tuple[list[BlockTask], list[BlockTask]]:
    """Split the blocks of a plan into those that Spark can read itself and those that need our code."""
    if not storage.is_local or plan.predicate is not None or not all(is_exact(f.type) for f in fields):
        return [], list(plan.tasks)
    native: list[BlockTask] = []
    others: list[BlockTask] = []
    for task in plan.tasks:
        (native if _is_native(state, task, fields) else others).append(task)
    return native, others


def frame(
    spark: SparkSession, storage: Storage, tasks: Sequence[BlockTask], fields: Sequence[Field], *, row_id: bool
) -> DataFrame:
    """Return the rows of blocks that Spark can read itself."""
    columns = [f.arrow(f.column) for f in fields] + ([pa.field(ROW_ID, pa.int64())] if row_id else [])
    names = [f.name for f in fields] + ([ROW_ID] if row_id else [])
    paths = ["file://" + os.path.join(storage.root, task.path) for task in tasks]
    options = OPTIONS | (FLOAT_OPTIONS if any(_is_float(f.type) for f in fields) else {})
    found = spark.read.schema(spark_schema(columns)).options(**options).parquet(*paths)
    return found.toDF(*names)


def _is_native(state: TableState, task: BlockTask, fields: Sequence[Field]) -> bool:
    if task.format != "parquet" or task.kind != "block":
        return False
    if task.deleted is not None or task.only is not None or task.versions_up_to is not None:
        return False
    held = {f.field_id for f in task.fields}
    if not all(f.field_id in held for f in fields):
        return False
    bounded = [f for f in fields if _is_float(f.type) or _is_moment(f.type) or f.type == HELD_AS]
    if not bounded:
        return True
    record = state.blocks.record(task.file_id)
    if record is None:
        return False
    known = stats_from_bytes(record.column_stats)
    return all(f.column in known and _is_ordinary(f, known[f.column]) for f in bounded)


def _is_ordinary(f: Field, column: ColumnStats) -> bool:
    """Return whether no value is NaN, an infinite date or timestamp, or a HUGEINT of 39 digits."""
    if _is_float(f.type):
        return column.max != NAN
    if column.value_count == 0:
        return True
    if f.type == HELD_AS:
        return all(end is not None and abs(f.codec.decode_one(end)) < 10**38 for end in (column.min, column.max))
    end = 2 ** (_plain(f.type).bit_width - 1) - 1
    return column.min is not None and column.max is not None and column.min != -end and column.max != end


def _is_float(type: Any) -> bool:
    return bool(pa.types.is_floating(_plain(type)))


def _is_moment(type: Any) -> bool:
    return bool(pa.types.is_date(_plain(type)) or pa.types.is_timestamp(_plain(type)))


def _plain(type: Any) -> Any:
    return type.value_type if pa.types.is_dictionary(type) else type


def is_exact(type: Any, *, nested: bool = False) -> bool:
    """Return whether Spark reads the type from our Parquet files with the values that we would hand to Spark."""
    t = pa.types
    if t.is_dictionary(type):
        return is_exact(type.value_type, nested=nested)
    if t.is_struct(type):
        inner = [type.field(index) for index in range(type.num_fields)]
        names = {f.name.lower() for f in inner}
        plain = len(names) == len(inner) and all(_NAME.fullmatch(f.name) for f in inner)
        return plain and all(is_exact(f.type, nested=True) for f in inner)
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        return is_exact(type.value_type, nested=True)
    if t.is_map(type):
        return is_exact(type.key_type, nested=True) and is_exact(type.item_type, nested=True)
    if t.is_float32(type) or t.is_float64(type) or t.is_date32(type):
        return not nested  # nested values have no statistics that would reveal a NaN or an infinite date
    if t.is_timestamp(type):
        return bool(type.unit == "us") and not nested
    if t.is_decimal128(type):
        return bool(0 <= type.scale <= type.precision)
    strings = (t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary, t.is_binary_view)
    others = (t.is_boolean, t.is_integer, t.is_fixed_size_binary)
    return any(kind(type) for kind in (*strings, *others))
