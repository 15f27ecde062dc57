"""Python values as typed constants, and casts of constants.

A constant is kept in the form Arrow stores it: dates, times, timestamps and intervals as counts, decimals as
unscaled integers.  Nothing is lost for nanoseconds, years beyond 9999 or 38 digits.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
import uuid
from typing import Any

import pyarrow as pa

from indexlake.errors import ExpressionError
from indexlake.expr.sqltype import (
    BLOB,
    BOOL,
    DATE,
    DOUBLE,
    INT32,
    INTEGERS,
    INTERVAL,
    NULL,
    PER_SECOND,
    STRING_LITERAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UINT64,
    SqlType,
    fits,
    from_arrow,
    literal_type,
    to_arrow,
)

EXACT = decimal.Context(prec=80, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_EPOCH_NAIVE = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
DAY_SECONDS = 86_400


class NotCovered(Exception):
    """The short way in Python does not know this cast; the evaluator decides."""


def plain(value: Any) -> Any:
    """A parameter with its containers as lists; cheap for what is plain already."""
    if type(value) is list:
        return value[:]  # the caller may change it
    if type(value) in _PLAIN or isinstance(value, (str, bytes, pa.Scalar)):
        return value
    if isinstance(value, (tuple, set, frozenset, range)):
        return list(value)
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value.to_pylist()
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        return value.tolist()
    return value


def signature(value: Any) -> Any:
    """What of a parameter's value decides how the expression is bound; hashable and cheap."""
    kind = type(value)
    if kind is int:
        return integer_type(value).kind
    if kind is str or kind is float or kind is bool or value is None:
        return kind
    return tuple(list_types(value)) if kind is list else typed(value)[0]


def list_types(values: list[Any]) -> list[SqlType]:
    """The types of the elements of a list, each once; nulls have none."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if kinds == {int}:
        present = values if None not in values else [item for item in values if item is not None]
        return list(dict.fromkeys((integer_type(min(present)), integer_type(max(present)))))
    if len(kinds) == 1 and kinds <= _UNIFORM:
        return [typed(next(item for item in values if item is not None))[0]]
    return list(dict.fromkeys(typed(item)[0] for item in values if item is not None))


_UNIFORM = frozenset({str, float, bool, bytes, dt.date})
_PLAIN = frozenset({int, str, float, bool, bytes, type(None), dt.date, dt.datetime, decimal.Decimal})


def integer_type(value: int) -> SqlType:
    """The type of an integer parameter: unlike a literal it can be UBIGINT, and it adapts to nothing."""
    if 2**63 <= value < 2**64:
        return UINT64
    return INT32 if value == -(2**31) else literal_type(value)


def typed(value: Any) -> tuple[SqlType, Any]:
    """The SQL type of a Python value, and the value as a constant of it."""
    kind = type(value)
    if kind is int:
        if not fits(value, "hugeint"):
            return DOUBLE, float(value)
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
        return DATE, value.toordinal() - _EPOCH
    if isinstance(value, decimal.Decimal):
        return decimal_constant(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BLOB, bytes(value)
    if isinstance(value, dt.timedelta):
        return INTERVAL, value // _MICROSECOND
    if isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise ExpressionError(f"a time with a time zone ({value!r}) is not supported; give a plain time")
        return TIME, ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, uuid.UUID):
        return STRING_LITERAL, str(value)
    if isinstance(value, (int, float, str, bool)):  # subclasses, e.g. enums
        for base in (bool, int, float, str):
            if isinstance(value, base):
                return typed(base(value))
    if isinstance(value, pa.Scalar):
        type_ = from_arrow(value.type)
        if value.is_valid and type_.kind in PER_SECOND and to_arrow(type_) == value.type:
            return type_, value.value
        return typed(value.as_py())
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return typed(value.item())
    raise ExpressionError(
        f"a parameter of type {kind.__name__} ({value!r}) is not supported; give int, float, str, bytes, bool, "
        "None, Decimal, date, datetime, time, timedelta, UUID or a list of them"
    )


def decimal_constant(value: decimal.Decimal) -> tuple[SqlType, Any]:
    """A Python decimal as DECIMAL of the digits it has; NaN and infinity as DOUBLE."""
    if not value.is_finite():
        return DOUBLE, float(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)) or "0") * (10 ** max(exponent, 0)) * (-1 if sign else 1)
    scale = max(-exponent, 0)
    width = max(len(str(abs(unscaled))), scale, 1)
    if width > 38:
        return DOUBLE, float(value)
    return SqlType("decimal", width, scale), unscaled


def decimal_literal(text: str) -> tuple[SqlType, Any]:
    """`2.50` is DECIMAL(3,2); with an exponent, or more than 38 digits, a number is DOUBLE."""
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


def to_scalar(value: Any, type: SqlType) -> pa.Scalar:
    """A constant as an Arrow scalar of the type that it is evaluated in."""
    arrow = to_arrow(type)
    if value is not None and type.kind in ("decimal", "hugeint"):
        value = EXACT.scaleb(decimal.Decimal(value), -type.scale)
    return pa.scalar(value, arrow)


def from_scalar(scalar: pa.Scalar, type: SqlType) -> Any:
    """The constant that an Arrow scalar holds."""
    if not scalar.is_valid:
        return None
    if type.kind == "decimal":
        return int(EXACT.scaleb(scalar.as_py(), type.scale))
    if type.kind == "hugeint":
        return int(scalar.as_py())
    if type.kind == "date" or type.kind in PER_SECOND:
        return scalar.value
    return scalar.as_py()


def to_float32(value: float) -> float:
    """The nearest 32-bit float; beyond the range it is infinite."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def decimal_to_double(unscaled: int, scale: int) -> float:
    """DuckDB's conversion: one division where the digits fit in 53 bits, else whole part plus fraction."""
    if scale == 0 or abs(unscaled) <= 2**53:
        return float(unscaled) / 10.0**scale
    sign = -1 if unscaled < 0 else 1
    whole, fraction = divmod(abs(unscaled), 10**scale)
    return sign * float(whole) + sign * float(fraction) / 10.0**scale


def convert(value: Any, source: SqlType, target: SqlType) -> Any:
    """Cast a constant the short way; `NotCovered` where the full evaluator is needed."""
    if value is None or source == target:
        return value
    kind = target.kind
    if source.kind in INTEGERS or source.literal is not None:
        return _from_int(value, target)
    if source.kind == "string_literal" or source.kind == "varchar":
        return _from_string(value, target)
    if source.kind == "decimal":
        return _from_decimal(value, source.scale, target)
    if source.kind == "double" and kind == "float":
        narrow = to_float32(value)
        if math.isinf(narrow) and not math.isinf(value):
            raise ExpressionError(f"{value!r} is out of range for FLOAT")
        return narrow
    if source.kind == "float" and kind == "double":
        return value
    if source.kind == "date" and kind in TIMESTAMPS:
        return _in_int64(value * DAY_SECONDS * PER_SECOND[kind], target)
    if source.kind in PER_SECOND and kind in PER_SECOND and PER_SECOND[source.kind] <= PER_SECOND[kind]:
        if (source.kind in TIMESTAMPS) != (kind in TIMESTAMPS):
            raise NotCovered
        return _in_int64(value * (PER_SECOND[kind] // PER_SECOND[source.kind]), target)
    raise NotCovered


def _in_int64(value: int, target: SqlType) -> int:
    if not -(2**63) <= value < 2**63:
        raise ExpressionError(f"a constant is out of range for {target}")
    return value


def _from_int(value: int, target: SqlType) -> Any:
    kind = target.kind
    if kind in INTEGERS:
        if not fits(value, kind):
            raise ExpressionError(f"{value} is out of range for {target}")
        return value
    if kind == "decimal":
        unscaled = value * 10**target.scale
        if abs(unscaled) >= 10**target.width:
            raise ExpressionError(f"{value} does not fit in {target}")
        return unscaled
    if kind == "double":
        return float(value)
    if kind == "bool":
        return value != 0
    if kind == "varchar":
        return str(value)
    raise NotCovered


def _from_decimal(unscaled: int, scale: int, target: SqlType) -> Any:
    if target.kind == "decimal" and target.scale >= scale:
        result = unscaled * 10 ** (target.scale - scale)
        if abs(result) >= 10**target.width:
            raise ExpressionError(f"{decimal.Decimal(unscaled).scaleb(-scale)} does not fit in {target}")
        return result
    if target.kind == "double":
        return decimal_to_double(unscaled, scale)
    raise NotCovered


_INT = re.compile(r"[+-]?\d+\Z", re.ASCII)
_FLOAT = re.compile(r"([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|nan|-?inf)\Z", re.ASCII)
_DECIMAL = re.compile(r"([+-]?)(\d+)(?:\.(\d*))?\Z", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})\Z", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?(Z|[+-]\d{2}(?::?\d{2})?)?\Z",
    re.ASCII,
)


def _from_string(text: str, target: SqlType) -> Any:
    kind = target.kind
    if kind == "varchar":
        return text
    if kind in INTEGERS and _INT.match(text):
        value = int(text)
        if not fits(value, kind):
            raise ExpressionError(f"'{text}' is out of range for {target}")
        return value
    if kind == "double" and _FLOAT.match(text):
        return float(text)
    if kind == "decimal" and (match := _DECIMAL.match(text)):
        return _decimal_digits(text, target, *match.groups())
    if kind == "bool" and text in ("true", "false"):
        return text == "true"
    if kind == "blob" and "\\" not in text and text.isascii():
        return text.encode()
    if kind == "date" and (match := _DATE.match(text)):
        return _days(text, target, *map(int, match.groups()))
    if kind in TIMESTAMPS and (match := _TIMESTAMP.match(text)):
        return _timestamp(text, target, match)
    raise NotCovered


def _decimal_digits(text: str, target: SqlType, sign: str, whole: str, fraction: str | None) -> int:
    digits = fraction or ""
    if len(digits) > target.scale:
        raise NotCovered  # needs rounding
    unscaled = int(whole + digits.ljust(target.scale, "0"))
    if unscaled >= 10**target.width:
        raise ExpressionError(f"'{text}' does not fit in {target}")
    return -unscaled if sign == "-" else unscaled


def _days(text: str, target: SqlType, year: int, month: int, day: int) -> int:
    try:
        return dt.date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        if year == 0:
            raise NotCovered from None
        raise ExpressionError(f"'{text}' is not a valid {target}; write YYYY-MM-DD [hh:mm:ss]") from None


def _timestamp(text: str, target: SqlType, match: re.Match[str]) -> int:
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    if zone is not None and (target.kind not in ("timestamptz", "timestamptz_ns") or hour is None):
        raise NotCovered
    per_second = PER_SECOND[target.kind]
    digits = fraction or ""
    if len(digits) > len(str(per_second)) - 1:
        raise NotCovered  # digits beyond the unit: the evaluator rounds or refuses
    days = _days(text, target, int(year), int(month), int(day))
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise NotCovered
    seconds = days * DAY_SECONDS + clock[0] * 3600 + clock[1] * 60 + clock[2]
    if zone is not None and zone != "Z":
        plain = zone[1:].replace(":", "")
        offset = int(plain[:2]) * 3600 + int(plain[2:] or 0) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return _in_int64(seconds * per_second + int(digits.ljust(9, "0")) * per_second // 10**9, target)
