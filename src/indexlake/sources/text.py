"""Values written as text: the type in which a reader takes a column, and the step from there to the table's type.

A column is read in the table's own type if the CSV or JSON reader supports it, so that ``007`` stays ``007`` in a
column of strings and a timestamp is exact.  Types that a reader does not support are read as the closest text or number
and converted here; nothing is rounded or truncated.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from indexlake.errors import SchemaError
from indexlake.schema.fitting import overflows
from indexlake.types.uuids import is_uuid, uuids_of_text


def csv_type(column: str, type: Any) -> Any:
    """Return the type to request from the CSV reader."""
    if pt.is_dictionary(type):
        return csv_type(column, type.value_type)
    if pt.is_nested(type):
        raise SchemaError(
            f"Column {column!r} is of type {type}, which CSV cannot hold. Load it from JSON lines or Parquet.",
            column=column,
        )
    if type == pa.binary_view():
        return pa.binary()
    if is_uuid(type):
        return pa.string()
    is_decimal = pt.is_decimal(type) and not pt.is_decimal128(type)
    return pa.string() if is_decimal or pt.is_float16(type) or type == pa.string_view() else type


def json_type(column: str, type: Any) -> Any:
    """Return the type to request from the JSON reader."""
    if pt.is_dictionary(type):
        return json_type(column, type.value_type)
    if pt.is_date(type) or pt.is_time(type) or pt.is_timestamp(type) or is_uuid(type):
        return pa.string()  # unlike the reader, the cast distinguishes moments with a zone from those without
    if pt.is_duration(type):
        return pa.int64()
    if pt.is_float16(type):
        return pa.float64()
    if pt.is_fixed_size_binary(type):
        return pa.binary()
    if pt.is_struct(type):
        return pa.struct([pa.field(f.name, json_type(column, f.type)) for f in type])
    if pt.is_map(type):
        raise SchemaError(
            f"Column {column!r} is of type {type}, which is not read from JSON. Load it from Parquet or Arrow.",
            column=column,
        )
    if pt.is_nested(type):
        return pa.list_(pa.field(type.value_field.name, json_type(column, type.value_type)))
    return type


def converted(array: Any, type: Any) -> Any:
    """Convert from the type that was read to the table's.  Raises ``pa.ArrowException`` if a value does not fit."""
    cast = _converted(array, type)
    is_text = pt.is_string(array.type)
    if not is_text and overflows(array, cast):
        raise pa.ArrowInvalid("the number is outside the range of the type")
    if is_text and pt.is_floating(cast.type) and first_inexact(array, cast) is not None:
        raise pa.ArrowInvalid("the type does not hold the number")
    if _too_long(cast):
        raise pa.ArrowInvalid("the number has more digits than the type holds")
    return cast


def _too_long(array: Any) -> bool:
    """Return whether a decimal, at any depth, has more digits than its type allows; the readers do not check."""
    if pt.is_struct(array.type):
        return any(_too_long(part) for part in array.flatten())
    if pt.is_nested(array.type):
        return not pt.is_map(array.type) and _too_long(array.flatten())
    if pt.is_decimal(array.type):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return True
    return False


def _converted(array: Any, type: Any) -> Any:
    if pt.is_dictionary(type):
        return _converted(array, type.value_type)  # the rest is the same for all sources
    if array.type == type:
        return array
    if is_uuid(type):
        return uuids_of_text(array)
    if pt.is_time(type) and pt.is_string(array.type):
        # There is no cast from text to a time of day, so read it as a moment on some day.
        moments = pc.binary_join_element_wise("1970-01-01", array, " ").cast(pa.timestamp(type.unit))
        return moments.cast(type)
    return array.cast(type)


_WHOLE = r"^\s*[+-]?[0-9]+\s*$"
_HEXADECIMAL = r"^\s*[+-]?0[xX]"


def may_be_inexact(array: Any) -> bool:
    """Return whether numbers that were read may include one that differs from its text, at any depth.

    A fraction is the nearest float, as everywhere; a whole number must be exact, and a finite one must not be infinite.
    """
    if pt.is_floating(array.type):
        return bool(pc.any(_beyond(array)).as_py())
    if pt.is_struct(array.type):
        return any(may_be_inexact(part) for part in array.flatten())
    return pt.is_nested(array.type) and not pt.is_map(array.type) and may_be_inexact(array.flatten())


def first_inexact(texts: Any, numbers: Any) -> int | None:
    """Return the place of the first text that is not exactly the number made from it, or None."""
    if not pt.is_floating(numbers.type):
        wrong = pc.match_substring_regex(texts, _HEXADECIMAL)
        place = pc.index(wrong, True).as_py()
        return place if place >= 0 else None
    digits = pc.match_substring_regex(texts, "[0-9]")
    suspects = pc.indices_nonzero(pc.fill_null(pc.and_(_beyond(numbers), digits), False)).to_pylist()
    wide = numbers.cast(pa.float64())
    for n in suspects:
        text, number = texts[n].as_py().strip(), wide[n].as_py()
        if math.isinf(number) or (re.match(_WHOLE, text) and int(text) != number):
            return int(n)
    return None


def _beyond(numbers: Any) -> Any:
    """Return which floats are infinite, or so large that not every whole number is one."""
    limit = {16: 2.0**11, 32: 2.0**24, 64: 2.0**53}[numbers.type.bit_width]
    return pc.greater(pc.abs(numbers.cast(pa.float64())), limit - 1)


def convertible(column: str, read: Any, type: Any) -> None:
    """Raise an error early for a type to which ``converted`` cannot convert."""
    try:
        converted(pa.nulls(0, read), type)
    except pa.ArrowNotImplementedError:
        raise SchemaError(
            f"Column {column!r} is of type {type}, which is not read from text. Load it from Parquet or Arrow.",
            column=column,
        ) from None


def first_refused(array: Any, type: Any) -> int:
    """Return the place of the first value that ``converted`` refuses; there must be one."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            converted(array.slice(low, middle - low), type)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low
