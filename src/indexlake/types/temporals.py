"""Dates, times, timestamps and durations: stored as Arrow's integer, in the order of the values.

A moment with a time zone and one without are different things: neither is accepted in place of the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.errors import ConstraintError
from indexlake.types.codec import SqlValue
from indexlake.types.integers import Int64Codec
from indexlake.types.outside import in_python

_NAIVE = dt.datetime(1970, 1, 1)
_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_DAY = dt.timedelta(days=1)
_DAY_MILLISECONDS = 86_400_000
_MICROSECOND = dt.timedelta(microseconds=1)
_INT64 = pa.int64()
_HIGH = 2**63 - 1
_WITH_ZONE = "value.replace(tzinfo=datetime.UTC) if it is in UTC, or the zone that it is in"
# Microseconds in one tick, and ticks in one microsecond.
_TICKS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


class TemporalCodec(Int64Codec):
    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self._bits = _INT64 if type.bit_width == 64 else pa.int32()
        self._tick, self._ticks = _TICKS[getattr(type, "unit", "us")]
        self._limits = in_python(type)
        self._python, self._read, self._show = _paths(self)
        self.wanted = f"a datetime.{self._python.__name__}"
        if self._tick == 1 and self._python in (dt.date, dt.timedelta):
            self.exact = frozenset((self._python, None.__class__))

    def to_storage(self, array: Any) -> Any:
        return array.view(self._bits).cast(_INT64)

    def from_storage(self, array: Any) -> Any:
        return array.cast(self._bits).view(self.type)

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is self._python:
            return self._read(value)
        return None if value is None else self.encode_other(value)

    def encode_constant(self, value: Any) -> SqlValue:
        return value if type(value) is int else self.encode_one(value)

    def encode_other(self, value: Any) -> SqlValue:
        """Encode numpy's moments and spans, and pandas', which are numpy's with a zone, if nothing is lost."""
        if type(value).__name__ in ("Timestamp", "Timedelta") and (raw := getattr(value, "asm8", None)) is not None:
            if isinstance(value, dt.datetime):
                if pa.types.is_date(self.type):
                    self._check_day(value)
                elif pa.types.is_timestamp(self.type):
                    self.check_zone(value)
            return self._numpy_ticks(value, raw)
        if isinstance(value, np.datetime64 | np.timedelta64) and not np.isnat(value):
            if isinstance(value, np.datetime64) and getattr(self.type, "tz", None) is not None:
                self.refuse(value, f"the column has a time zone; give a datetime with one: {_WITH_ZONE}")
            return self._numpy_ticks(value, value)
        return super().encode_other(value)

    def same_as(self, value: Any) -> Any:
        """Return subclasses of the Python types as the Python type itself, and a datetime at midnight as a date."""
        if isinstance(value, str):
            how = {
                dt.timedelta: "datetime.timedelta(…)",
                dt.time: "datetime.time.fromisoformat(value)",
                dt.date: "datetime.date.fromisoformat(value)",
                dt.datetime: "datetime.datetime.fromisoformat(value)",
            }
            self.refuse(value, f"give {how[self._python]}")
        if isinstance(value, dt.datetime):
            if self._python is dt.datetime:
                day = (value.year, value.month, value.day)
                time = (value.hour, value.minute, value.second, value.microsecond)
                return dt.datetime(*day, *time, tzinfo=value.tzinfo, fold=value.fold)
            if self._python is dt.date:
                self._check_day(value)
                return dt.date(value.year, value.month, value.day)
            if self._python is dt.time:
                self.refuse(value, "it has a date; give value.time()")
        elif isinstance(value, dt.date):
            if self._python is dt.date:
                return dt.date(value.year, value.month, value.day)
            if self._python is dt.datetime:
                self.refuse(value, "it has no time of day; give datetime.datetime.combine(value, datetime.time(), …)")
        elif self._python is dt.time and isinstance(value, dt.time):
            return dt.time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
        elif self._python is dt.timedelta and isinstance(value, dt.timedelta):
            return dt.timedelta(microseconds=dt.timedelta.__floordiv__(value, _MICROSECOND))
        return super().same_as(value)

    def decode_one(self, value: SqlValue) -> Any:
        if value is None:
            return None
        try:
            return self._show(value)  # type: ignore[arg-type]
        except (OverflowError, ValueError):
            return self.slow(value)

    def slow(self, value: SqlValue) -> Any:
        """Return pyarrow's value, for moments outside the calendar, nanoseconds, and dates with a time of day."""
        limits = self._limits
        try:
            if limits is None or limits.hold(value):  # type: ignore[arg-type]
                return pa.scalar(value, self.type).as_py()
        except (OverflowError, ValueError):
            pass
        raise ConstraintError(
            f"A value of type {self.type} is a time that Python cannot represent, such as infinity, the year 10000, "
            "24:00:00 or a time with nanoseconds. Cast it to VARCHAR in SQL, or take the rows as Arrow."
        )

    def ticks(self, microseconds: int, value: Any) -> int:
        """Convert microseconds to the unit of the type; refuse values that lose precision or do not fit."""
        ticks, rest = divmod(microseconds * self._ticks, self._tick)
        if rest:
            self.refuse(value, f"it is finer than the column's unit, {self.type.unit}")
        if not -_HIGH - 1 <= ticks <= _HIGH:
            self.refuse(value, "it is outside the range of the type")
        return ticks

    def span(self, ticks: int) -> dt.timedelta:
        """Return ticks as a Python duration.  Raises ``ValueError`` if precision would be lost."""
        if self._ticks != 1:
            raise ValueError("nanoseconds are pyarrow's")
        return dt.timedelta(microseconds=ticks * self._tick)

    def check_zone(self, value: dt.datetime) -> None:
        """Refuse a value without a zone in a column with one, and the other way round."""
        if self.type.tz is None:
            if value.tzinfo is not None:
                self.refuse(
                    value,
                    "it has a time zone and the column has none; give value.replace(tzinfo=None), or first "
                    "value.astimezone(…) for the clock of another zone",
                )
        elif value.utcoffset() is None:
            self.refuse(value, f"it has no time zone and the column has one; give {_WITH_ZONE}")

    def _check_day(self, value: dt.datetime) -> None:
        if value.tzinfo is not None or value.time() != dt.time() or bool(getattr(value, "nanosecond", 0)):
            self.refuse(value, "it has a time of day; give value.date()")

    def _numpy_ticks(self, value: Any, raw: Any) -> int:
        """Return the ticks of a numpy moment or span, if this type is of that kind and nothing is lost."""
        t, type = pa.types, self.type
        if isinstance(raw, np.timedelta64) != t.is_duration(type) or t.is_time(type):
            self.refuse(value, f"give {self.wanted}")
        if isinstance(raw, np.timedelta64) and np.datetime_data(raw.dtype)[0] in ("M", "Y"):
            self.refuse(value, "months and years have no fixed length; give days or a finer unit")
        unit = "D" if t.is_date(type) else type.unit
        try:
            same = raw.astype(f"{raw.dtype.kind}8[{unit}]")
            exact = np.datetime_data(raw.dtype)[0] != "generic" and same.astype(raw.dtype) == raw
        except (TypeError, OverflowError, ValueError):
            exact = False
        if not exact:
            self.refuse(value, f"it is finer than the column's unit, {unit}, or outside the range of the type")
        ticks = int(same.astype(np.int64))
        return ticks * _DAY_MILLISECONDS if t.is_date64(type) else ticks


def _paths(codec: TemporalCodec) -> tuple[type, Callable[[Any], int], Callable[[int], Any]]:
    """Return the Python type of the values, and the fast conversions from and to it."""
    t, type = pa.types, codec.type
    if t.is_date32(type):
        return dt.date, _day, _date
    if t.is_date64(type):
        return dt.date, lambda value: _day(value) * _DAY_MILLISECONDS, _whole_date
    if t.is_duration(type):
        return dt.timedelta, lambda value: codec.ticks(value // _MICROSECOND, value), codec.span
    if t.is_time(type):
        return dt.time, lambda value: _ticks_of_time(codec, value), lambda ticks: _time(codec.span(ticks))
    return dt.datetime, _moment_reader(codec), _moment(codec)


def _day(value: dt.date) -> int:
    return value.toordinal() - _EPOCH_DAY


def _date(day: int) -> dt.date:
    return dt.date.fromordinal(day + _EPOCH_DAY)


def _whole_date(milliseconds: int) -> dt.date:
    day, rest = divmod(milliseconds, _DAY_MILLISECONDS)
    if rest:
        raise ValueError("not a whole day")
    return _date(day)


def _ticks_of_time(codec: TemporalCodec, value: dt.time) -> int:
    if value.tzinfo is not None:
        codec.refuse(value, "a time of day has no time zone; give value.replace(tzinfo=None)")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return codec.ticks(seconds * 1_000_000 + value.microsecond, value)


def _time(since_midnight: dt.timedelta) -> dt.time:
    if not dt.timedelta() <= since_midnight < _DAY:
        raise ValueError("not within a day")
    return (_NAIVE + since_midnight).time()


def _moment_reader(codec: TemporalCodec) -> Callable[[dt.datetime], int]:
    zoned = codec.type.tz is not None
    epoch = _UTC if zoned else _NAIVE

    def ticks(value: dt.datetime) -> int:
        if (value.tzinfo is not None) is not zoned:
            codec.check_zone(value)
        try:
            since = value - epoch
        except TypeError:  # a zone whose offset from UTC is not known
            codec.check_zone(value)
            raise
        microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return codec.ticks(microseconds, value)

    return ticks


def _moment(codec: TemporalCodec) -> Callable[[int], Any]:
    if codec.type.unit == "ns":
        return codec.slow
    if codec.type.tz is None:
        return lambda ticks: _NAIVE + codec.span(ticks)
    zone = pa.lib.string_to_tzinfo(codec.type.tz)
    return lambda ticks: (_UTC + codec.span(ticks)).astimezone(zone)
