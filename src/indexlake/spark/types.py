"""Maps column types to Spark's, and converts values both ways: bit for bit, or with an error that names the column.

Spark has fewer types than Arrow.  A type that it lacks becomes one that holds every value (``uint64`` a decimal, a time
of day an integer), or one that holds all values except those that Spark cannot distinguish: a timestamp in nanoseconds
becomes one in microseconds, and a value between two microseconds is an error, never rounded.  An infinite date or
timestamp is an error as well.  Every column and every part of it may be null in Spark, as in everything that Spark
reads from files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import fixed_array, fixed_values, nested_array, null_mask
from indexlake.errors import ConstraintError, SchemaError
from indexlake.types.convert import convert
from indexlake.types.nested import list_parts, offsets_of
from indexlake.types.outside import any_outside, in_arrow
from indexlake.types.uuids import is_uuid, text_of_uuids, uuids_of_text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

MOST_DIGITS = 38
DAY_MILLISECONDS = 86_400_000
ZONE = "UTC"

_MICROSECONDS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
"""The factor and the divisor for each unit."""

_Mask = npt.NDArray[np.bool_] | None
_Leaf = Callable[[Any, Any, _Mask], Any]


def spark_schema(fields: Sequence[pa.Field]) -> StructType:
    """Return the columns of a DataFrame, all of them nullable."""
    return struct_of(arrow_schema(fields))


def struct_of(schema: pa.Schema) -> StructType:
    """Return Spark's name for a schema in Arrow's types that Spark has."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the same schema in Arrow, in which rows are sent to Spark and back."""
    return pa.schema([pa.field(f.name, spark_type(f.type, f.name)) for f in fields])


def spark_type(type: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type in which Spark holds values of a column.

    >>> spark_type(pa.uint32(), "n")
    DataType(int64)
    """
    t = pa.types
    if t.is_dictionary(type):
        return spark_type(type.value_type, column)
    if t.is_struct(type):
        inner = [type.field(index) for index in range(type.num_fields)]
        return pa.struct([pa.field(f.name, spark_type(f.type, f"{column}.{f.name}")) for f in inner])
    if t.is_map(type):
        key = pa.field("key", spark_type(type.key_type, f"{column}.key"), False)
        return pa.map_(key, pa.field("value", spark_type(type.item_type, f"{column}.value")))
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        return pa.list_(pa.field("element", spark_type(type.value_type, f"{column}[]")))
    return _spark_leaf(type, column)


def _spark_leaf(type: pa.DataType, column: str) -> pa.DataType:
    t = pa.types
    if t.is_unsigned_integer(type):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[type.bit_width]
    if t.is_float16(type):
        return pa.float32()
    if t.is_decimal(type):
        digits = max(type.precision, type.scale) if type.scale >= 0 else type.precision - type.scale
        if digits > MOST_DIGITS:
            raise SchemaError(
                f"Column {column!r} of type {type} has {digits} digits; Spark's decimals have at most {MOST_DIGITS}. "
                "Leave the column out with columns=[…].",
                column=column,
            )
        return pa.decimal128(digits, max(type.scale, 0))
    if t.is_date(type):
        return pa.date32()
    if t.is_time(type):
        return pa.int64()  # Spark has a type for it, which is switched off by default
    if t.is_timestamp(type):
        return pa.timestamp("us", None if type.tz is None else ZONE)
    if t.is_duration(type):
        return pa.duration("us")
    if t.is_large_string(type) or t.is_string_view(type) or is_uuid(type):
        return pa.string()
    if t.is_large_binary(type) or t.is_binary_view(type) or t.is_fixed_size_binary(type):
        return pa.binary()
    return type


def fits(found: DataType, column: pa.Field) -> bool:
    """Return whether values of Spark's type can go into the column: each arrives unchanged, or is an error."""
    return _fits(found, spark_schema([column])[0].dataType)


def _fits(found: DataType, wanted: DataType) -> bool:
    from pyspark.sql import types as s

    whole = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
    if isinstance(found, s.NullType):
        return True
    if isinstance(found, whole):
        return isinstance(wanted, (*whole, s.FloatType, s.DoubleType, s.DecimalType))
    if isinstance(found, s.FloatType):
        return isinstance(wanted, s.FloatType | s.DoubleType)
    if isinstance(found, s.DecimalType):  # Spark's type of 1.5
        return isinstance(wanted, s.DecimalType | s.FloatType | s.DoubleType)
    if isinstance(found, s.StructType) and isinstance(wanted, s.StructType):
        pairs = zip(found.fields, wanted.fields, strict=False)
        return found.names == wanted.names and all(_fits(a.dataType, b.dataType) for a, b in pairs)
    if isinstance(found, s.MapType) and isinstance(wanted, s.MapType):
        return _fits(found.keyType, wanted.keyType) and _fits(found.valueType, wanted.valueType)
    if isinstance(found, s.ArrayType) and isinstance(wanted, s.ArrayType):
        return _fits(found.elementType, wanted.elementType)
    return found == wanted


# ---------------------------------------------------------------- values


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in Spark's types; ``schema`` is the result of ``arrow_schema`` for theirs."""
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(_mapped(array, field.type, None, _to_leaf))
        except _Inexact as error:
            raise ConstraintError(
                f"Column {field.name!r}: {error} Leave the column out with columns=[…], or change its values.",
                column=field.name,
            ) from None
        except pa.ArrowInvalid as error:
            problem = f"Column {field.name!r} does not fit into Spark: {error}"
            raise ConstraintError(problem, column=field.name) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_spark(array: Any, type: pa.DataType, column: str) -> Any:
    """Return Spark's values in the type of a table's column; a value that the type cannot hold is an error."""
    plain = _plain(type)
    try:
        return convert(_mapped(array, plain, None, _from_leaf), type)
    except _Inexact as error:
        raise ConstraintError(f"Column {column!r}: {error}", column=column) from None
    except (pa.ArrowInvalid, ConstraintError) as error:
        raise ConstraintError(f"Column {column!r} of type {type}: {error}", column=column) from None


class _Inexact(Exception):
    """A value that the other side cannot hold; the message names it."""


def _mapped(array: Any, type: pa.DataType, hidden: _Mask, leaf: _Leaf) -> Any:
    """Convert to a type of the same shape.  ``hidden`` marks rows below a null, whose values are meaningless."""
    source, t = array.type, pa.types
    if source.equals(type, check_metadata=True) and not t.is_nested(type):
        return _finite(array, hidden)
    if t.is_null(source):
        return pa.nulls(len(array), type)
    if t.is_dictionary(source):
        return _mapped(convert(array, source.value_type), type, hidden, leaf)
    if not t.is_nested(type):
        return leaf(array, type, hidden)
    mask = null_mask(array)
    below = mask if hidden is None else hidden if mask is None else mask | hidden
    if t.is_struct(type):
        children = [_mapped(array.field(n), type.field(n).type, below, leaf) for n in range(type.num_fields)]
        return nested_array(type, len(array), mask, children)
    starts, stops, items = list_parts(array)
    lengths = stops - starts
    if t.is_fixed_size_list(type):
        items, below = _of_size(items, starts, lengths, type.list_size, below)
        return nested_array(type, len(array), mask, [_mapped(items, type.value_type, below, leaf)])
    inner = None if below is None else np.repeat(below, lengths)
    child = _mapped(items, type.field(0).type, inner, leaf)
    return nested_array(type, len(array), mask, [child], offsets_of(lengths, type))


def _of_size(items: Any, starts: Any, lengths: Any, size: int, hidden: _Mask) -> tuple[Any, _Mask]:
    """Return the items of fixed-size lists; a null list gets as many items, all null."""
    wrong = lengths != size if hidden is None else (lengths != size) & ~hidden
    if wrong.any():
        raise _Inexact(f"a list has {int(lengths[wrong][0])} elements where the table's type has {size}.")
    if (lengths == size).all():
        return items, None if hidden is None else np.repeat(hidden, size)
    places = (starts[:, None] + np.arange(size)).ravel()
    absent = np.repeat(lengths != size, size)
    return items.take(pa.array(np.where(absent, 0, places), mask=absent)), absent


def _to_leaf(array: Any, type: pa.DataType, hidden: _Mask) -> Any:
    source, t = array.type, pa.types
    if is_uuid(source):
        return text_of_uuids(array)
    if t.is_time(source):
        return _integers(array).cast(pa.int64())
    if t.is_date64(source):
        days = _scaled(array, type, 1, DAY_MILLISECONDS, hidden, "a whole day, which is what Spark's dates are")
        return _finite(days, hidden)
    if t.is_timestamp(source) or t.is_duration(source):
        what = "whole microseconds, which is what Spark has"
        return _finite(_scaled(array, type, *_MICROSECONDS[source.unit], hidden, what), hidden)
    if t.is_decimal(source):
        same = pa.decimal128(source.precision, source.scale)
        return convert(array, same).cast(type)
    if t.is_fixed_size_binary(source):
        return array.cast(pa.binary())
    return array.cast(type)


def _from_leaf(array: Any, type: pa.DataType, hidden: _Mask) -> Any:
    t = pa.types
    if is_uuid(type):
        return uuids_of_text(array if hidden is None else pc.if_else(pa.array(hidden), None, array))
    _finite(array, hidden)
    if hidden is not None and not t.is_string(type) and not t.is_binary(type) and not t.is_fixed_size_binary(type):
        array = pc.if_else(pa.array(hidden), _zero(array.type), array)  # a value that fits
    if t.is_time(type):
        return array.cast(pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    if t.is_date64(type):
        return _scaled(array, type, DAY_MILLISECONDS, 1, None, "milliseconds that fit the table's type")
    if t.is_timestamp(type) or t.is_duration(type):
        multiply, divide = _MICROSECONDS[type.unit]
        return _scaled(array, type, divide, multiply, None, f"a number of {type.unit}, the unit of the table's type")
    if t.is_float16(type):
        narrow = array.cast(type)
        exact = pc.or_(pc.equal(narrow.cast(array.type), array), pc.is_nan(array))
        if pc.all(exact, skip_nulls=True).as_py() is False:
            raise _Inexact("a value needs more digits than float16 has.")
        return narrow
    if t.is_decimal(type):
        return _narrowed(array, type)
    return array.cast(type)


def _narrowed(array: Any, type: pa.DataType) -> Any:
    """Convert Spark's numbers to a table's decimals with a different precision or scale."""
    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(19, 0))
    wide = pa.decimal128(MOST_DIGITS, array.type.scale)
    scaled = array.cast(wide).cast(pa.decimal128(MOST_DIGITS, type.scale))
    if type.precision < MOST_DIGITS:
        scaled = scaled.cast(pa.decimal128(type.precision, type.scale))
    return convert(scaled, type) if type.precision <= MOST_DIGITS else scaled.cast(type)


def _plain(type: pa.DataType) -> pa.DataType:
    """Return the type with values instead of dictionaries, plain strings instead of views, and everything nullable."""
    t = pa.types
    if t.is_dictionary(type):
        return _plain(type.value_type)
    if t.is_struct(type):
        inner = [type.field(index) for index in range(type.num_fields)]
        return pa.struct([pa.field(f.name, _plain(f.type)) for f in inner])
    if t.is_map(type):
        key = pa.field(type.key_field.name, _plain(type.key_type), False)
        return pa.map_(key, pa.field(type.item_field.name, _plain(type.item_type)))
    if t.is_fixed_size_list(type):
        return pa.list_(pa.field(type.value_field.name, _plain(type.value_type)), type.list_size)
    if t.is_list(type) or t.is_large_list(type):
        return pa.list_(pa.field(type.value_field.name, _plain(type.value_type)))
    if t.is_string_view(type) or t.is_large_string(type):
        return pa.string()
    return pa.binary() if t.is_binary_view(type) or t.is_large_binary(type) else type


def _zero(type: pa.DataType) -> Any:
    if pa.types.is_temporal(type):
        return pa.array([0], pa.int32() if type.bit_width == 32 else pa.int64()).view(type)[0]
    return pa.scalar(Decimal(0) if pa.types.is_decimal(type) else False if pa.types.is_boolean(type) else 0, type)


def _integers(array: Any) -> Any:
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _finite(array: Any, hidden: _Mask) -> Any:
    """Return the array, after refusing infinity, which Spark would take for a day in the distant future or past, and a
    HUGEINT of 39 digits."""
    if any_outside(array, in_arrow):
        raise _Inexact("a HUGEINT has 39 digits; Spark's decimals have at most 38.")
    if not pa.types.is_date32(array.type) and not pa.types.is_timestamp(array.type):
        return array
    numbers = _integers(array)
    if hidden is not None:
        numbers = pc.if_else(pa.array(hidden), 0, numbers)
    bounds = pc.min_max(numbers).as_py()
    end = 2 ** (array.type.bit_width - 1) - 1
    if end in (bounds["max"], -(bounds["min"] or 0)):
        name = "infinity" if bounds["max"] == end else "-infinity"
        raise _Inexact(f"the value {name} ({array.type}) would be an ordinary moment in Spark.")
    return array


def _scaled(array: Any, type: pa.DataType, multiply: int, divide: int, hidden: _Mask, what: str) -> Any:
    """Convert moments to another unit, each exactly the same moment."""
    source = np.int32 if array.type.bit_width == 32 else np.int64
    values = fixed_values(array, source).astype(np.int64)
    mask = null_mask(array)
    nothing = mask if hidden is None else hidden if mask is None else mask | hidden
    if nothing is not None:
        values = np.where(nothing, 0, values)
    low, high = (-(2**31), 2**31 - 1) if type.bit_width == 32 else (-(2**63), 2**63 - 1)
    # Comparing with the quotient of a limit avoids Python integers and overflow in NumPy.
    wrong = (values < -(-low // multiply)) | (values > high // multiply) if multiply > 1 else values % divide != 0
    if multiply == 1 and type.bit_width == 32:
        wrong |= (values // divide < low) | (values // divide > high)
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise _Inexact(f"the value {values[place]} ({array.type}) is not {what}.")
    scaled = values * multiply if multiply > 1 else values // divide
    return fixed_array(scaled.astype(np.int32 if type.bit_width == 32 else np.int64), type, mask, len(array))
