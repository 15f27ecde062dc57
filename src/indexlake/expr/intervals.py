"""Intervals: months, days and microseconds that are kept apart until applied to a date, as in SQL.

Kernels on Arrow's month-day-nano arrays.  To compare intervals, time is carried into days of 24 hours and days into
months of 30 days.  Adding to a timestamp moves first by months (a day that the month does not have becomes its last
day), then by days, then by time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr.constants import NotCovered

TYPE = pa.month_day_nano_interval()
DAY = 86_400_000_000
_DTYPE = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_INT32 = 2**31
_MICROSECONDS = 2**63 // 1000  # what fits in Arrow's nanoseconds
Numbers = np.ndarray[Any, Any]
Parts = tuple[Numbers, Numbers, Numbers]  # months, days, microseconds


def parts_of(array: pa.Array) -> Parts:
    """Return months, days and microseconds; arbitrary where the array is null."""
    data = np.frombuffer(array.buffers()[1], dtype=_DTYPE, count=len(array) + array.offset)[array.offset :]
    months, days = data["months"].astype(np.int64), data["days"].astype(np.int64)
    return months, days, data["nanoseconds"] // 1000


def from_parts(parts: Sequence[Numbers], null: Numbers) -> pa.Array:
    """Make an array of intervals from months, days and microseconds, which are ignored where `null` is set."""
    kept = ~null
    months, days, microseconds = parts
    for numbers, limit in ((months, _INT32), (days, _INT32), (microseconds, _MICROSECONDS)):
        if np.any((np.abs(np.asarray(numbers, dtype=np.float64)) >= limit) & kept):
            raise ExpressionError("an interval is out of range")
    data = np.zeros(len(null), dtype=_DTYPE)
    for name, numbers in (("months", months), ("days", days), ("nanoseconds", np.asarray(microseconds) * 1000)):
        data[name] = np.where(kept, numbers, 0)
    valid = pa.py_buffer(np.packbits(kept, bitorder="little")) if null.any() else None
    return pa.Array.from_buffers(TYPE, len(null), [valid, pa.py_buffer(data)])


def nulls_of(*arrays: pa.Array) -> Numbers:
    found = np.zeros(len(arrays[0]), dtype=bool)
    for array in arrays:
        found |= pc.is_null(array).to_numpy(zero_copy_only=False)
    return found


def from_duration(array: pa.Array) -> pa.Array:
    null = nulls_of(array)
    zero = np.zeros(len(array), dtype=np.int64)
    counts = pc.fill_null(array.cast(pa.duration("us"), safe=False).cast(pa.int64()), 0).to_numpy()
    return from_parts((zero, zero, counts), null)


def to_duration(array: pa.Array) -> pa.Array:
    """Convert to durations; an interval with months has no fixed length and is an error."""
    null = nulls_of(array)
    months, days, microseconds = parts_of(array)
    if np.any((months != 0) & ~null):
        raise ExpressionError("an interval with months has no fixed length; subtract timestamps to get one")
    total = np.where(null, 0, days * DAY + microseconds)
    return pa.array(total, pa.int64(), mask=null).cast(pa.duration("us"))


def compare(op: str, left: pa.Array, right: pa.Array) -> pa.Array:
    null = nulls_of(left, right)
    order = np.zeros(len(null), dtype=np.int64)
    for first, second in zip(_carried(left), _carried(right), strict=True):
        order = np.where(order == 0, np.sign(first - second), order)
    held = {"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}
    return pa.array(held[op], pa.bool_(), mask=null)


def _carried(array: pa.Array) -> Parts:
    months, days, microseconds = parts_of(array)
    rest = np.fmod(microseconds, DAY)
    days = days + (microseconds - rest) // DAY
    left = np.fmod(days, 30)
    return months + (days - left) // 30, left, rest


def add(left: pa.Array, right: pa.Array, sign: int) -> pa.Array:
    pairs = zip(parts_of(left), parts_of(right), strict=True)
    return from_parts([a + sign * b for a, b in pairs], nulls_of(left, right))


def negate(array: pa.Array) -> pa.Array:
    return from_parts([-part for part in parts_of(array)], nulls_of(array))


def multiply(array: pa.Array, factor: pa.Array) -> pa.Array:
    """Multiply by whole numbers."""
    null = nulls_of(array, factor)
    times = pc.fill_null(factor, 0).to_numpy()
    parts = [np.where(null, 0, part) for part in parts_of(array)]
    if np.any(np.abs(times.astype(np.float64)) * np.max(np.abs(parts), axis=0) >= 2**62):
        raise ExpressionError("an interval is out of range")
    return from_parts([part * times for part in parts], null)


def between(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return `left - right` of two timestamps (µs) as whole days and the rest."""
    null = nulls_of(left, right)
    counts = pc.fill_null(pc.call_function("subtract_checked", [left.cast(pa.int64()), right.cast(pa.int64())]), 0)
    difference = counts.to_numpy()
    rest = np.fmod(difference, DAY)
    return from_parts((np.zeros(len(null), np.int64), (difference - rest) // DAY, rest), null)


def shift(moments: pa.Array, array: pa.Array, sign: int) -> pa.Array:
    """Return timestamps (µs) moved by intervals."""
    null = nulls_of(moments, array)
    counts = np.where(null, 0, pc.fill_null(moments.cast(pa.int64()), 0).to_numpy())
    if np.any(np.abs(counts) >= 2**62):
        raise NotCovered  # infinity, and years outside of NumPy's calendar
    months, days, microseconds = (np.where(null, 0, sign * part) for part in parts_of(array))
    moved = _shift_months(counts, months) if months.any() else counts
    steps = days.astype(np.float64) * DAY + microseconds.astype(np.float64) + moved.astype(np.float64)
    if np.any(np.abs(steps) >= 9.2e18):
        raise NotCovered  # near the ends of the range
    total = moved + days * DAY + microseconds
    return pa.array(total, pa.int64(), mask=null).cast(pa.timestamp("us")).cast(moments.type)


def _shift_months(counts: Numbers, months: Numbers) -> Numbers:
    if np.any(np.abs(months) > 1_000_000):
        raise NotCovered
    clock = counts % DAY
    days = (counts // DAY).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    day = (days - month).astype(np.int64)
    target = month + months
    last = ((target + 1).astype("datetime64[D]") - target.astype("datetime64[D]")).astype(np.int64) - 1
    moved = target.astype("datetime64[D]").astype(np.int64) + np.minimum(day, last)
    if np.any(np.abs(moved) >= 100_000_000):
        raise NotCovered
    result: Numbers = np.where(months == 0, counts, moved * DAY + clock)
    return result


# -- text ----------------------------------------------------------------------------------------------------

MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12_000}
DAYS = {"day": 1, "week": 7}
MICROSECONDS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
_UNITS = {
    "microsecond": ("microseconds", "us", "usec", "usecs", "usecond", "useconds"),
    "millisecond": ("milliseconds", "ms", "msec", "msecs", "msecond", "mseconds"),
    "second": ("seconds", "s", "sec", "secs"),
    "minute": ("minutes", "m", "min", "mins"),
    "hour": ("hours", "h", "hr", "hrs"),
    "day": ("days", "d"),
    "week": ("weeks", "w"),
    "month": ("months", "mon", "mons"),
    "quarter": ("quarters",),
    "year": ("years", "y", "yr", "yrs"),
    "decade": ("decades", "dec", "decs"),
    "century": ("centuries", "cent", "c"),
    "millennium": ("millennia", "mil", "mils", "millenium"),
}
UNITS = {word: unit for unit, words in _UNITS.items() for word in (unit, *words)}
_TERM = re.compile(r"\s*([+-]?\d{1,9})\s*([a-zA-Z]+)\s*", re.ASCII)


def parse(text: str) -> tuple[int, int, int]:
    """Return `'1 month 2 days'` as months, days and microseconds; raises `NotCovered` for other spellings."""
    position, parts = 0, [0, 0, 0]
    while position < len(text):
        match = _TERM.match(text, position)
        unit = UNITS.get(match.group(2).lower()) if match is not None else None
        if match is None or unit is None:
            raise NotCovered
        for place, table in enumerate((MONTHS, DAYS, MICROSECONDS)):
            parts[place] += int(match.group(1)) * table.get(unit, 0)
        position = match.end()
    if not text.strip() or max(map(abs, parts[:2])) >= _INT32:
        raise NotCovered
    return parts[0], parts[1], parts[2]
