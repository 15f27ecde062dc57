"""Fits given values to the columns of a table: exactly, or with an error that names the column.

Arrow columns are converted to a column's type only if no value changes.  Encoded tuples are the form of rows in the hot
store and the write-set.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from indexlake.arrow import kernels as pc
from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema import field_steps
from indexlake.schema.table_schema import Field, TableSchema
from indexlake.types import SqlValue, codec_for
from indexlake.types.convert import checked_cast
from indexlake.types.hugeint import HELD_AS, is_hugeint
from indexlake.types.nested import without_list_views
from indexlake.types.outside import any_outside, in_arrow

Values = tuple[SqlValue, ...]
"""The encoded values of a row, in the order of the table's fields."""


def fit(array: pa.Array, f: Field) -> pa.Array:
    """Return the array in the field's type, if no information is lost."""
    if array.type == f.type:
        if f.type == HELD_AS and not is_hugeint(f) and any_outside(array, in_arrow):
            raise ConstraintError(
                f"Column {f.name!r} is of type {f.type}; a value given has 39 digits. A HUGEINT column takes it.",
                column=f.name,
            )
        return array
    if pt.is_nested(array.type):
        array = without_list_views(array)
    if not _castable(array.type, f.type):
        raise ConstraintError(
            f"Column {f.name!r} is of type {f.type}; the values given are {array.type}. {_advice(array.type, f.type)}",
            column=f.name,
        )
    if (lost := _lost_field(array.type, f.type)) is not None:
        raise SchemaError(
            f"Column {f.name!r} is of type {f.type}; the values given have a field {lost!r}, which it does not have.",
            column=f.name,
        )
    try:
        plain = _decoded(array) if pt.is_dictionary(array.type) else array
        if pt.is_dictionary(f.type):
            return codec_for(f.type).decode(codec_for(f.type.value_type).encode(_cast(plain, f.type.value_type)))
        return _cast(plain, f.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConstraintError(
            f"Column {f.name!r}: a value given as {array.type} does not fit into {f.type}: {error}", column=f.name
        ) from None


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Apply Arrow's checked cast, and also check that floats do not overflow a narrower type."""
    cast = checked_cast(array, type)
    if overflows(array, cast):
        raise pa.ArrowInvalid("a number is outside the range of the type")
    return cast


def overflows(wide: pa.Array, narrow: pa.Array) -> bool:
    """Return whether a finite float became infinite, at any depth."""
    source, target = wide.type, narrow.type
    if pt.is_floating(source) and pt.is_floating(target) and target.bit_width < source.bit_width:
        infinite = pc.is_inf(narrow.cast(pa.float64()))
        return bool(pc.any(pc.and_(infinite, pc.is_finite(wide.cast(pa.float64())))).as_py())
    if pt.is_struct(source) and pt.is_struct(target):
        by_name = dict(zip([f.name for f in source], wide.flatten(), strict=True))
        parts = zip([f.name for f in target], narrow.flatten(), strict=True)
        return any(overflows(by_name[name], part) for name, part in parts if name in by_name)
    if pt.is_map(source) and pt.is_map(target):
        return overflows(wide.keys, narrow.keys) or overflows(wide.items, narrow.items)
    if pt.is_nested(source) and pt.is_nested(target) and not pt.is_map(source) and not pt.is_map(target):
        return overflows(wide.flatten(), narrow.flatten())
    return False


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array; Arrow can take from views, but not inside a dictionary."""
    values = array.dictionary
    if values.type in (pa.string_view(), pa.binary_view()):
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    return values.take(array.indices)


def _lost_field(source: pa.DataType, target: pa.DataType) -> str | None:
    """Return a field inside the source that the target lacks, if any: a cast would drop it silently."""
    if not pt.is_nested(source) or not pt.is_nested(target):
        return None
    if not pt.is_struct(source):
        pairs = [(source.field(n), target.field(n)) for n in range(min(source.num_fields, target.num_fields))]
    elif not pt.is_struct(target):
        return None
    else:
        names = {f.name: f for f in target}
        missing: str | None = next((f.name for f in source if f.name not in names), None)
        if missing is not None:
            return missing
        pairs = [(f, names[f.name]) for f in source]
    return next((lost for a, b in pairs if (lost := _lost_field(a.type, b.type)) is not None), None)


_FAMILIES = (
    pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean, pt.is_temporal,
    lambda t: pt.is_string(t) or pt.is_large_string(t) or t == pa.string_view(),
    lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t) or t == pa.binary_view(),
    pt.is_nested,
)  # fmt: skip


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a checked cast keeps the meaning: within a family, or from integers to wider numbers."""
    if pt.is_null(source):
        return True
    if pt.is_dictionary(source):
        source = source.value_type
    if pt.is_dictionary(target):
        target = target.value_type
    if pt.is_integer(source) and (pt.is_floating(target) or pt.is_decimal(target)):
        return True
    if pt.is_nested(source) and pt.is_nested(target):
        return all(_castable(a, b) for a, b in _parts(source, target))
    if pt.is_temporal(source) and pt.is_temporal(target):
        if pt.is_timestamp(source) and pt.is_timestamp(target):
            return (source.tz is None) == (target.tz is None)
        same = [pt.is_date, pt.is_time, pt.is_duration, pt.is_timestamp]
        return any(kind(source) and kind(target) for kind in same)
    return any(family(source) and family(target) for family in _FAMILIES)


def _parts(source: pa.DataType, target: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """Return the pairs of types inside two nested types; struct fields are matched by name, as Arrow does."""
    if pt.is_struct(source) and pt.is_struct(target):
        own = {f.name: f.type for f in source}
        return [(own[f.name], f.type) for f in target if f.name in own]
    if pt.is_map(source) and pt.is_map(target):
        return [(source.key_type, target.key_type), (source.item_type, target.item_type)]
    return [(source.field(0).type, target.field(0).type)]


def _advice(source: pa.DataType, target: pa.DataType) -> str:
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        if target.tz is not None:
            return "Say which time zone they are in, for example with pyarrow.compute.assume_timezone(array, 'UTC')."
        return "Take the clock of a time zone first, for example with pyarrow.compute.local_timestamp(array)."
    return "Cast them first."


def repeated(f: Field, value: SqlValue, count: int) -> pa.Array:
    """Return an array of one encoded value, ``count`` times."""
    return field_steps.repeated(f.type, value, count)


def encode_batch(batch: pa.RecordBatch, schema: TableSchema) -> list[Values]:
    """Return the rows of a batch of exactly the right types as encoded tuples."""
    columns = [f.codec.encode(batch.column(f.name)) for f in schema.fields]
    return list(zip(*columns, strict=True))


def decode_batch(rows: Sequence[Values], schema: TableSchema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [f.codec.decode(values) for f, values in zip(schema.fields, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def null_error(column: str, *, given: bool) -> ConstraintError:
    what = "holds a null" if given else "is missing and has no default"
    return ConstraintError(f"Column {column!r} {what}, but it is declared NOT NULL. Give it a value.", column=column)


def in_column(column: str, error: ConstraintError) -> ConstraintError:
    return ConstraintError(f"Column {column!r}: {error}", column=column)
