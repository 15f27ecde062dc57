"""Infers the type of a column from Python values.

pyarrow infers the type; the values are then converted as for a column of that type, so that none silently becomes
another: no naive times among zoned ones, no ``True`` among floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from indexlake.errors import ConstraintError, SchemaError
from indexlake.types import check_supported, codec_for
from indexlake.types.codec import CONVERSION_ERRORS


def inferred_column(name: Any, values: Sequence[Any]) -> Any:
    """Return an array of the values, in a type that holds all of them exactly."""
    if not isinstance(name, str):
        raise SchemaError(f"A row is a dict of column names and values; {name!r} is not a column name.")
    try:
        array = pa.array(values)
    except OverflowError:
        return _large_integers(name, values)
    except CONVERSION_ERRORS as error:
        raise _mixed(name, error) from None
    try:
        check_supported(array.type, name)
    except SchemaError:
        return array  # creating a table from it will raise the error
    codec = codec_for(array.type)
    if {type(value) for value in values} <= codec.exact:
        return array
    try:
        return codec.array(values)
    except ConstraintError as error:
        raise _mixed(name, error) from None


def _large_integers(name: str, values: Sequence[Any]) -> Any:
    """Return an array of whole numbers beyond int64."""
    numbers = [value for value in values if value is not None]
    if not all(type(number) is int for number in numbers):
        raise _mixed(name, "a whole number is beyond int64") from None
    if min(numbers) >= 0 and max(numbers) < 2**64:
        return pa.array(values, pa.uint64())
    largest = max(numbers, key=abs)
    wide = "decimal128(38, 0)" if abs(largest) < 10**38 else "decimal256(76, 0)"
    shown = str(largest) if abs(largest) < 10**80 else "a number of more than 80 digits"
    raise SchemaError(
        f"Column {name!r} holds {shown}, which is beyond int64 and uint64. Give a schema with a wider type for it, "
        f"such as {wide!r}, then insert the rows.",
        column=name,
    ) from None


def _mixed(name: str, reason: object) -> SchemaError:
    return SchemaError(
        f"The values of column {name!r} have no type in common: {str(reason).rstrip('.')}. Give a schema, then insert "
        "the rows.",
        column=name,
    )
