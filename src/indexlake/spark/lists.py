"""Sends a single numeric column to Spark as lists of values, which Spark unpacks again.

Spark copies every row from Python into a row of its own before looking at it.  If a row is a single number, that costs
more than everything else; a list is copied as one row.  With more columns, or with text, unpacking the lists costs as
much as it saves.
"""

from __future__ import annotations

import pyarrow as pa

LISTS = "rows"
"""The name of the column of lists."""
LIST_ROWS = 8_192


def in_lists(schema: pa.Schema) -> bool:
    """Return whether rows of these columns, in Spark's types, are better sent as lists."""
    return len(schema) == 1 and _is_number(schema.types[0])


def list_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(LISTS, _list_of(schema.types[0]))])


def as_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch as lists of ``LIST_ROWS`` values; no value is copied."""
    values = batch.column(0)
    starts = pa.array([*range(0, len(values), LIST_ROWS), len(values)], pa.int32())
    return pa.RecordBatch.from_arrays(
        [pa.ListArray.from_arrays(starts, values, type=_list_of(values.type))], names=[LISTS]
    )


def _list_of(type: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", type))


def _is_number(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_integer(type) or t.is_floating(type) or t.is_date(type) or t.is_timestamp(type) or t.is_boolean(type)
    )
