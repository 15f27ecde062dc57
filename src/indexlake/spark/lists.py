"""Sends a single numeric column to Spark as lists of values, which Spark unpacks again.

Spark copies every row from Python into a row of its own before looking at it.  If a row is a single number, that costs
more than everything else; a list is copied as one row.  With more columns, or with text, unpacking the lists costs as
much as it saves.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

LISTS = "rows"
"""The name of the column of lists."""
LIST_ROWS = 8_192


def in_lists(schema: pa.Schema) -> bool:
    """Return whether rows of these columns, in Spark's types, are better sent as lists."""
    return len(schema) == 1 and _is_number(schema.types[0])


def list_schema(schema: pa.Schema, filled: Collection[str]) -> pa.Schema:
    """Return the schema of the lists of a column, which have no nulls if it is in ``filled``."""
    column = schema.field(0)
    element = pa.field("element", column.type, column.name not in filled)
    return pa.schema([pa.field(LISTS, pa.list_(element), nullable=False)])


def as_lists(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a batch as lists of ``LIST_ROWS`` values; no value is copied."""
    values = batch.column(0)
    starts = pa.array([*range(0, len(values), LIST_ROWS), len(values)], pa.int32())
    lists = pa.ListArray.from_arrays(starts, values, type=schema.types[0])
    return pa.RecordBatch.from_arrays([lists], schema=schema)


def _is_number(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_integer(type) or t.is_floating(type) or t.is_date(type) or t.is_timestamp(type) or t.is_boolean(type)
    )
