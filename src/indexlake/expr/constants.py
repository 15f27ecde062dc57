"""Python values as typed constants, and conversions of constants.

A constant has the form in which Arrow stores it: dates, times, timestamps and durations as counts, decimals as unscaled
integers, intervals as months, days and microseconds; a list, struct or map is an Arrow scalar.  So nothing is lost for
nanoseconds, years beyond 9999 or 38 digits.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import pyarrow as pa

from indexlake.arrow.values import scalar_of
from indexlake.display import short
from indexlake.errors import ExpressionError
from indexlake.expr.coercion import combine, fits
from indexlake.expr.sqltype import (
    BLOB,
    BOOL,
    DATE,
    DOUBLE,
    DURATION,
    HUGEINT,
    INT32,
    INTERVAL,
    NESTED_KINDS,
    NULL,
    PER_SECOND,
    STRING_LITERAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UINT64,
    UUID,
    VARCHAR,
    SqlType,
    from_arrow,
    list_of,
    literal_type,
    normal,
    struct_of,
    to_arrow,
)
from indexlake.types import HUGEINTS
from indexlake.types.codec import is_missing
from indexlake.types.outside import python_value

EXACT = decimal.Context(prec=80, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH_NAIVE = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
DAY_SECONDS = 86_400


class NotCovered(Exception):
    """The shortcut in Python does not cover this case; the full evaluator has to be used."""


def plain(value: Any) -> Any:
    """Return a parameter with its containers as lists; cheap for values that are plain already."""
    if type(value) in _UNCHANGED:
        return value
    if type(value) is decimal.Decimal:
        return _exact(value)
    if type(value) in _CONTAINERS:
        _check_depth(value)
        if type(value) is dict or decimal.Decimal in set(map(type, value)) or _CONTAINERS & set(map(type, value)):
            return _exact(value)
    if type(value) is list:
        return value[:]  # the caller may change it later
    if isinstance(value, str):
        if not value.isascii():
            _check_text(value)
        return value
    if isinstance(value, (bytes, bytearray, memoryview, pa.Scalar)):
        return value
    if is_missing(value):
        raise ExpressionError(f"{value!r} is not a value; give None for a missing one")
    if isinstance(value, (tuple, set, frozenset, range)):
        return plain(list(value))
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return plain([python_value(item) for item in value])
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        return plain(value.tolist())
    return value


def _exact(value: Any) -> Any:
    """Return a parameter whose decimals have no positive exponent, which DuckDB's client reads as a negative one."""
    if type(value) is decimal.Decimal:
        type_, held = decimal_constant(value)
        return value if type_.scale else decimal.Decimal(held) if type_.kind == "decimal" else held
    if type(value) is dict:
        return {name: _exact(item) for name, item in value.items()}
    return [_exact(item) for item in value] if type(value) in _CONTAINERS else value


def _check_depth(value: Any) -> None:
    """Refuse values that are nested so deeply that nothing could process them."""
    level = [value]
    for _ in range(MAX_DEPTH):
        items = [item.values() if type(item) is dict else item for item in level]
        level = [part for item in items if _CONTAINERS & set(map(type, item)) for part in item]
        level = [part for part in level if type(part) in _CONTAINERS]
        if not level:
            return
    raise ExpressionError(f"a parameter is nested more than {MAX_DEPTH} levels deep")


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ExpressionError(
            f"a string in the parameters is not valid Unicode ({error.reason} at position {error.start})"
        ) from None


def signature(value: Any) -> Any:
    """Return what in a parameter's value determines how the expression is bound; hashable and cheap to compute."""
    kind = type(value)
    if kind is int:
        return INT32.kind if -(2**31) <= value < 2**31 else integer_type(value).kind
    if kind is str or kind is float or kind is bool or value is None:
        return kind
    return tuple(list_types(value)) if kind is list else typed(value)[0]


def list_types(values: list[Any]) -> list[SqlType]:
    """Return the distinct types of the elements of a list, ignoring nulls."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if kinds == {int}:
        present = values if None not in values else [item for item in values if item is not None]
        return list(dict.fromkeys((integer_type(min(present)), integer_type(max(present)))))
    if len(kinds) == 1 and kinds <= _UNIFORM:
        return [typed(next(item for item in values if item is not None))[0]]
    return list(dict.fromkeys(typed(item)[0] for item in values if item is not None))


_CONTAINERS = frozenset({list, tuple, dict})
MAX_DEPTH = 64
"""The most levels of lists and dicts in a parameter."""
_UNIFORM = frozenset({str, float, bool, bytes, dt.date})
_UNCHANGED = frozenset({int, float, bool, bytes, type(None), dt.date, dt.datetime})


def integer_type(value: int) -> SqlType:
    """Return the type of an integer parameter: unlike a literal it can be UBIGINT, and it adapts to nothing."""
    if -(2**31) <= value < 2**31:
        return INT32
    return UINT64 if 2**63 <= value < 2**64 else literal_type(value)


def typed(value: Any) -> tuple[SqlType, Any]:
    """Return the SQL type of a Python value, and the value as a constant of that type."""
    kind = type(value)
    if kind is int:
        if not fits(value, "hugeint"):
            raise ExpressionError("an integer parameter has at most 128 bits, with its sign; give a float, or text")
        return integer_type(value), value
    if kind is str:
        return STRING_LITERAL, value
    if kind is float:
        return DOUBLE, value
    if kind is bool:
        return BOOL, value
    if value is None:
        return NULL, None
    if isinstance(value, dt.datetime):
        if getattr(value, "nanosecond", 0):  # a pandas timestamp
            nanoseconds = value.as_unit("ns").value  # type: ignore[attr-defined]
            return SqlType("timestamp_ns" if value.tzinfo is None else "timestamptz_ns"), nanoseconds
        if value.tzinfo is not None:
            return TIMESTAMPTZ, (value - _EPOCH_UTC) // _MICROSECOND
        return TIMESTAMP, (value - _EPOCH_NAIVE) // _MICROSECOND
    if isinstance(value, dt.date):
        return DATE, value.toordinal() - EPOCH_DAY
    if isinstance(value, decimal.Decimal):
        return decimal_constant(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BLOB, bytes(value)
    if isinstance(value, dt.timedelta):
        return DURATION, value // _MICROSECOND
    if isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise ExpressionError(f"a time with a time zone ({value!r}) is not supported; give a plain time")
        return TIME, ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, uuid.UUID):
        return UUID, value.bytes
    for base in (bool, int, float, str):
        if isinstance(value, base):  # an instance of a subclass, e.g. an enum
            return typed(base(value))
    if isinstance(value, pa.MonthDayNano):
        return INTERVAL, (value.months, value.days, value.nanoseconds // 1000)
    if isinstance(value, (list, tuple, dict)):
        return _nested(value)
    if isinstance(value, pa.Scalar):
        type_ = from_arrow(value.type)
        if type_.kind in NESTED_KINDS:
            return type_, value.cast(to_arrow(type_))
        if value.is_valid and type_.kind in PER_SECOND and to_arrow(type_) == value.type:
            return type_, value.value
        shown = python_value(value)
        return typed(shown) if shown is not value else (type_, _ticks(value, type_))
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return typed(value.item())
    if isinstance(getattr(value, "wkb", None), bytes):  # a shapely geometry
        raise ExpressionError(
            f"a parameter of type {kind.__name__} is not supported; give the bytes of the geometry: its .wkb"
        )
    raise ExpressionError(
        f"a parameter of type {kind.__name__} ({short(value)}) is not supported; give int, float, str, bytes, bool, "
        "None, Decimal, date, datetime, time, timedelta, UUID or a list or dict of them"
    )


def _nested(value: Any) -> tuple[SqlType, pa.Scalar]:
    """Return a list as a list whose elements have one type, or a dict as a struct."""
    found = _nested_type(value)
    try:
        return found, pa.scalar(_inner(value), to_arrow(found))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ExpressionError(f"{value!r} is not a list of one type or a struct: {error}") from None


def _nested_type(value: Any) -> SqlType:
    if isinstance(value, dict):
        return struct_of(tuple(map(str, value)), tuple(_nested_type(item) for item in value.values()))
    if isinstance(value, uuid.UUID):
        return VARCHAR  # Arrow does not make nested values of UUIDs
    if not isinstance(value, (list, tuple)):
        return normal(typed(value)[0])
    element = NULL
    for item in value:
        both = combine(element, _nested_type(item))
        if both is None:
            raise ExpressionError(f"the elements of {value!r} have no common type")
        element = normal(both)
    return list_of(element)


def _inner(value: Any) -> Any:
    """Return a value as Arrow takes it inside lists and structs."""
    if isinstance(value, dict):
        return {str(name): _inner(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inner(item) for item in value]
    if isinstance(value, uuid.UUID):
        return str(value)
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def decimal_constant(value: decimal.Decimal) -> tuple[SqlType, Any]:
    """Return a Python decimal as DECIMAL with the digits it has, or as HUGEINT; NaN and infinity as DOUBLE."""
    if not value.is_finite():
        return DOUBLE, float(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if abs(exponent) > 38:
        return DOUBLE, _double(value)
    unscaled = int("".join(map(str, digits)) or "0") * (10 ** max(exponent, 0)) * (-1 if sign else 1)
    scale = max(-exponent, 0)
    width = max(len(str(abs(unscaled))), scale, 1)
    if width > 38:
        return (HUGEINT, unscaled) if not scale and fits(unscaled, "hugeint") else (DOUBLE, _double(value))
    return SqlType("decimal", width, scale), unscaled


def _double(value: decimal.Decimal) -> float:
    found = float(value)
    if math.isinf(found):
        raise ExpressionError(f"the parameter {short(value)} is outside the range of DOUBLE")
    return found


def decimal_literal(text: str) -> tuple[SqlType, Any]:
    """Return a literal's type and value: `2.50` is DECIMAL(3,2); with an exponent or over 38 digits, DOUBLE."""
    if "e" in text.lower():
        return DOUBLE, float(text)
    whole, _, fraction = text.partition(".")
    width = len(whole.lstrip("0")) + len(fraction)
    # DuckDB counts a single leading zero: 0.5 is DECIMAL(2,1).
    if whole.startswith("0"):
        width += 1
    if width > 38:
        return DOUBLE, float(text)
    return SqlType("decimal", max(width, 1), len(fraction)), int(whole + fraction or "0")


def _ticks(value: pa.Scalar, type: SqlType) -> Any:
    """Return a moment that Python cannot represent, such as infinity or 24:00:00, in the unit of its SQL type."""
    if pa.types.is_timestamp(value.type) and abs(value.value) == 2**63 - 1:
        return value.value
    try:
        return value.cast(to_arrow(type)).value
    except (pa.ArrowException, AttributeError):
        raise ExpressionError(f"a parameter of type {value.type} is a value that SQL's {type} cannot hold") from None


def to_scalar(value: Any, type: SqlType) -> pa.Scalar:
    """Return a constant as an Arrow scalar of the type in which it is evaluated."""
    arrow = to_arrow(type)
    if isinstance(value, pa.Scalar):
        return value
    if value is not None and type.kind == "interval":
        value = pa.MonthDayNano([value[0], value[1], value[2] * 1000])
    if type.kind == "hugeint":
        return HUGEINTS.array([value])[0]
    if value is not None and type.kind == "decimal":
        value = EXACT.scaleb(decimal.Decimal(value), -type.scale)
    return scalar_of(value, arrow)


def from_scalar(scalar: pa.Scalar, type: SqlType) -> Any:
    """Return the constant that an Arrow scalar holds."""
    if not scalar.is_valid:
        return None
    if type.kind == "decimal":
        return int(EXACT.scaleb(scalar.as_py(), type.scale))
    if type.kind == "hugeint":
        return int(scalar.as_py())
    if type.kind == "date" or type.kind in PER_SECOND:
        return scalar.value
    if type.kind == "interval":
        months, days, nanoseconds = scalar.as_py()
        return months, days, nanoseconds // 1000
    return scalar if type.kind in NESTED_KINDS else scalar.as_py()
