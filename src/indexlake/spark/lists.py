"""One column of numbers on its way to Spark: as lists of values, which Spark takes apart again.

Spark copies every row that Python gives it into a row of its own before it looks at it.  Where a row is one number,
that costs more than all the rest; a list is copied as one row.  With more columns, or with text, taking the lists
apart costs as much as it saves.
"""

from __future__ import annotations

import pyarrow as pa

LISTS = "rows"
"""The column that holds the lists."""
LIST_ROWS = 8_192


def in_lists(schema: pa.Schema) -> bool:
    """Whether rows of these columns, in the types of Spark, had better travel in lists."""
    return len(schema) == 1 and _is_number(schema.types[0])


def list_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(LISTS, _list_of(schema.types[0]))])


def as_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch, so many in each list; no value is copied."""
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
