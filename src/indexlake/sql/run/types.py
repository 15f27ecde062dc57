"""Conversions between SQL types and Arrow types.

DuckDB is the authority on names: a type is whatever it makes of ``cast(null as …)``.  A few Arrow types that DuckDB
does not accept are handed over as the nearest one that it does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from indexlake.arrow.buffers import holds
from indexlake.errors import ExpressionError
from indexlake.types.convert import convert, mapped_leaves, shown_type
from indexlake.types.dictionaries import TEXT, as_text_dictionary
from indexlake.types.hugeint import HUGEINT, as_hugeints, is_hugeint

_DIGITS = 38


def taken_as(field: Any) -> pa.DataType:
    """Return the type in which a column is handed to DuckDB."""
    return HUGEINT if is_hugeint(field) else _taken_as(field.type)


def _taken_as(type: pa.DataType) -> pa.DataType:
    if pt.is_float16(type):
        return pa.float32()
    if pt.is_decimal(type) and (type.scale < 0 or type.precision > _DIGITS):
        scale = max(0, type.scale)
        return pa.decimal128(min(_DIGITS, type.precision - min(0, type.scale)), min(scale, _DIGITS))
    if pt.is_list(type):
        return pa.list_(_field(type.value_field))
    if pt.is_large_list(type):
        return pa.large_list(_field(type.value_field))
    if pt.is_fixed_size_list(type):
        return pa.list_(_field(type.value_field), type.list_size)
    if pt.is_struct(type):
        return pa.struct([_field(f) for f in type])
    if pt.is_map(type):
        return pa.map_(_field(type.key_field), _field(type.item_field))
    return type


def _field(f: pa.Field) -> pa.Field:
    return f.with_type(_taken_as(f.type))


def handed_over(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    """Return a column in the type in which DuckDB gets it."""
    if array.type == type:
        return array
    if type == TEXT:
        return as_text_dictionary(array)
    if type == HUGEINT:
        return as_hugeints(array)
    try:
        return array.cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ExpressionError(
            f"Column {column!r} of type {array.type} holds a value that SQL's {type} cannot hold: {error}"
        ) from None


def for_duckdb(rows: pa.Table) -> pa.Table:
    """Return a table in the types that DuckDB accepts."""
    arrays = [
        handed_over(column.combine_chunks(), taken_as(field), field.name)
        for column, field in zip(rows.columns, rows.schema, strict=True)
    ]
    return pa.table(arrays, rows.schema.names)


def result_type(given: pa.DataType, column: pa.DataType) -> pa.DataType:
    """Return the type of a result column that is a plain table column: the table's, if every value survives."""
    if given == column:
        return column
    if pt.is_interval(given):
        return pa.duration("us" if column.unit == "ns" else column.unit) if pt.is_duration(column) else given
    if pt.is_nested(given) and holds(given, pt.is_interval):
        return given
    if pt.is_timestamp(column) and column.unit == "ns" and column.tz is not None:
        return given  # DuckDB has dropped the nanoseconds
    if pt.is_dictionary(column) and column.index_type.bit_width < 32:
        return given  # a batch of a result may hold more values than these indices can number
    return column


def in_zone(type: pa.DataType, zone: str | None) -> pa.DataType:
    """Return a type with its times shown in this zone; None leaves them in their own."""
    if zone is None or not holds(type, _is_zoned):
        return type
    return mapped_leaves(type, lambda leaf: pa.timestamp(leaf.unit, zone) if _is_zoned(leaf) else leaf)


def _is_zoned(type: pa.DataType) -> bool:
    return pt.is_timestamp(type) and type.tz is not None


def restored(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return a result column in the type that ``shown_type`` and ``result_type`` chose."""
    if array.type == type:
        return array
    given = shown_type(array.type)
    if given != array.type:
        array = convert(array, given)
        if given == type:
            return array
    if pt.is_interval(array.type):
        return _duration(array, type)
    if pt.is_dictionary(type):
        encoded = array.cast(type.value_type).dictionary_encode()
        indices = encoded.indices.cast(type.index_type)
        return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=type.ordered)
    return array.cast(type)


def _duration(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Convert DuckDB's intervals (months, days, microseconds) to durations; former durations have no months."""
    unit = {"s": 10**9, "ms": 10**6, "us": 10**3}[type.unit]
    values = [None if v is None else (v.days * 86_400 * 10**9 + v.nanoseconds) // unit for v in array.to_pylist()]
    return pa.array(values, pa.int64()).cast(type)


def usual(type: pa.DataType) -> pa.DataType:
    """Return the type for a column that SQL declares or returns: list items get Arrow's usual field names, and times
    are in UTC, whatever time zone they are shown in."""
    if pt.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    if pt.is_fixed_size_list(type):
        return pa.list_(usual(type.value_type), type.list_size)
    if pt.is_list(type):
        return pa.list_(usual(type.value_type))
    if pt.is_struct(type):
        return pa.struct([pa.field(f.name, usual(f.type)) for f in type])
    if pt.is_map(type):
        return pa.map_(usual(type.key_type), usual(type.item_type))
    return type
