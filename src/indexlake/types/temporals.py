"""Dates, times, timestamps and durations: the integer that Arrow keeps, in the order of the values.

Python values in the calendar's range take a direct path; everything else goes through pyarrow.  Both agree.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from indexlake.errors import ConstraintError
from indexlake.types.codec import SqlValue
from indexlake.types.integers import Int64Codec

_NAIVE = dt.datetime(1970, 1, 1)
_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_DAY = dt.timedelta(days=1)
_DAY_MILLISECONDS = 86_400_000
_MICROSECOND = dt.timedelta(microseconds=1)
_INT64 = pa.int64()
_HIGH = 2**63 - 1
# Microseconds in one tick, or ticks in one microsecond.
_TICKS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


class TemporalCodec(Int64Codec):
    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self._bits = _INT64 if type.bit_width == 64 else pa.int32()
        self._tick, self._ticks = _TICKS[getattr(type, "unit", "us")]
        self._python, self._read, self._show = _paths(self)
        if self._tick == 1 and not pa.types.is_time(type):
            self.exact = frozenset((self._python, None.__class__))

    def to_storage(self, array: Any) -> Any:
        return array.view(self._bits).cast(_INT64)

    def from_storage(self, array: Any) -> Any:
        return array.cast(self._bits).view(self.type)

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is self._python:
            return self._read(value)
        if value is None:
            return None
        self._check_lossless(value)
        found: int | None = self.convert(value).value
        return found

    def decode_one(self, value: SqlValue) -> Any:
        if value is None:
            return None
        try:
            return self._show(value)  # type: ignore[arg-type]
        except (OverflowError, ValueError):
            return self.slow(value)

    def slow(self, value: SqlValue) -> Any:
        """What pyarrow makes of values outside the calendar, of nanoseconds, of dates with a time of day."""
        try:
            return pa.scalar(value, self.type).as_py()
        except (OverflowError, ValueError):
            raise ConstraintError(
                f"A value of type {self.type} is a moment that Python does not have, such as infinity or the year "
                "10000. Cast it to VARCHAR in SQL, or take the rows as Arrow."
            ) from None

    def ticks(self, microseconds: int, value: Any) -> int:
        """Microseconds in the unit of the type; refused when something is lost or does not fit."""
        ticks, rest = divmod(microseconds * self._ticks, self._tick)
        if rest:
            self.refuse(value, f"it is finer than the column's unit, {self.type.unit}")
        if not -_HIGH - 1 <= ticks <= _HIGH:
            self.refuse(value, "it is outside the range of the type")
        return ticks

    def span(self, ticks: int) -> dt.timedelta:
        """Ticks as a Python duration; ``ValueError`` when it would be cut."""
        if self._ticks != 1:
            raise ValueError("nanoseconds are pyarrow's")
        return dt.timedelta(microseconds=ticks * self._tick)

    def _check_lossless(self, value: Any) -> None:
        """For subclasses of the Python types, as pandas has them; pyarrow cuts them without a word."""
        if isinstance(value, dt.datetime | dt.timedelta) and value != value:
            self.refuse(value, "NaT is no moment; give None for a missing value")
        if pa.types.is_date(self.type):
            if isinstance(value, dt.datetime) and (value.time() != dt.time() or value.tzinfo is not None):
                self.refuse(value, "it has a time of day; give value.date()")
        elif isinstance(value, dt.datetime | dt.timedelta):
            microsecond = value.microsecond if isinstance(value, dt.datetime) else value.microseconds
            nanosecond = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
            if microsecond % self._tick or (nanosecond and self._ticks == 1):
                self.refuse(value, f"it is finer than the column's unit, {self.type.unit}")


def _paths(codec: TemporalCodec) -> tuple[type, Callable[[Any], int], Callable[[int], Any]]:
    """The Python type of the values, and the direct ways from and to it."""
    t, type = pa.types, codec.type
    if t.is_date32(type):
        return dt.date, _day, _date
    if t.is_date64(type):
        return dt.date, lambda value: _day(value) * _DAY_MILLISECONDS, _whole_date
    if t.is_duration(type):
        return dt.timedelta, lambda value: codec.ticks(value // _MICROSECOND, value), codec.span
    if t.is_time(type):
        return dt.time, lambda value: _ticks_of_time(codec, value), lambda ticks: _time(codec.span(ticks))
    return dt.datetime, lambda value: _ticks_of_moment(codec, value), _moment(codec)


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


def _ticks_of_moment(codec: TemporalCodec, value: dt.datetime) -> int:
    since = value - (_NAIVE if value.tzinfo is None else _UTC)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return codec.ticks(microseconds, value)


def _moment(codec: TemporalCodec) -> Callable[[int], Any]:
    if codec.type.unit == "ns":
        return codec.slow
    if codec.type.tz is None:
        return lambda ticks: _NAIVE + codec.span(ticks)
    zone = pa.lib.string_to_tzinfo(codec.type.tz)
    return lambda ticks: (_UTC + codec.span(ticks)).astimezone(zone)
