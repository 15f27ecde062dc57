"""Casts of constants without Arrow: those that Python does exactly as DuckDB does, only faster.

`NotCovered` means that the full evaluator is needed.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from typing import Any

from indexlake.errors import ExpressionError
from indexlake.expr.coercion import fits
from indexlake.expr.constants import DAY_SECONDS, EPOCH_DAY, NotCovered
from indexlake.expr.infinite import is_infinite
from indexlake.expr.intervals import parse
from indexlake.expr.sqltype import DURATIONS, INTEGERS, PER_SECOND, TIMESTAMPS, SqlType
from indexlake.types.uuids import uuid_bytes


def to_float32(value: float) -> float:
    """Return the nearest 32-bit float, or infinity beyond the range."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def double_to_float(value: float) -> float:
    narrow = to_float32(value)
    if math.isinf(narrow) and not math.isinf(value):
        raise ExpressionError(f"{value!r} is out of range for FLOAT")
    return narrow


def decimal_to_double(unscaled: int, scale: int) -> float:
    """Convert as DuckDB does: with one division if the digits fit in 53 bits, else whole part plus fraction."""
    if scale == 0 or abs(unscaled) <= 2**53:
        return float(unscaled) / 10.0**scale
    sign = -1 if unscaled < 0 else 1
    whole, fraction = divmod(abs(unscaled), 10**scale)
    return sign * float(whole) + sign * float(fraction) / 10.0**scale


def convert(value: Any, source: SqlType, target: SqlType) -> Any:
    """Cast a constant in Python; raises `NotCovered` if the full evaluator is needed."""
    if value is None or source == target:
        return value
    kind = target.kind
    if is_infinite(value, source):
        raise NotCovered
    if source.kind in INTEGERS or source.literal is not None:
        return _from_int(value, target)
    if source.kind == "string_literal" or source.kind == "varchar":
        return _from_string(value, target)
    if source.kind == "decimal":
        return _from_decimal(value, source.scale, target)
    if source.kind == "double" and kind == "float":
        return double_to_float(value)
    if source.kind == "float" and kind == "double":
        return value
    if source.kind in DURATIONS and kind == "interval":
        days, rest = divmod(abs(value) * 1_000_000 // PER_SECOND[source.kind], DAY_SECONDS * 1_000_000)
        return (0, days, rest) if value >= 0 else (0, -days, -rest)
    if source.kind == "date" and kind in TIMESTAMPS:
        return _in_int64(value * DAY_SECONDS * PER_SECOND[kind], target)
    if source.kind in PER_SECOND and kind in PER_SECOND and PER_SECOND[source.kind] <= PER_SECOND[kind]:
        if (source.kind in TIMESTAMPS) != (kind in TIMESTAMPS) or (source.kind in DURATIONS) != (kind in DURATIONS):
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
    if kind == "double" and abs(value) < 2**64:
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
    if kind == "uuid":
        if (found := uuid_bytes(text)) is None:
            raise ExpressionError(f"'{text}' is not a UUID; write its 32 hexadecimal digits")
        return found
    if kind == "date" and (match := _DATE.match(text)):
        return _days(text, target, *map(int, match.groups()))
    if kind in TIMESTAMPS and (match := _TIMESTAMP.match(text)):
        return _timestamp(text, target, match)
    if kind == "interval":
        return parse(text)
    if kind in DURATIONS:
        months, days, microseconds = parse(text)
        if months:
            raise ExpressionError(f"'{text}' contains months, so it has no fixed length")
        return (days * DAY_SECONDS * 1_000_000 + microseconds) * (PER_SECOND[kind] // 1_000_000)
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
        return dt.date(year, month, day).toordinal() - EPOCH_DAY
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
        raise NotCovered  # more digits than the unit: the evaluator rounds or refuses
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
