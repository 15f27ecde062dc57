"""Functions of dates, timestamps and intervals.  Timestamps with a time zone are interpreted in UTC.

Parts and truncation are computed by Arrow for the years 1 to 9999 and by DuckDB for others.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.expr import intervals, tree
from indexlake.expr.build import Builder, Leaf
from indexlake.expr.constants import NotCovered
from indexlake.expr.functions.function import Function, Row, Signature, constant
from indexlake.expr.overloads import choose
from indexlake.expr.sqltype import (
    DATE,
    DOUBLE,
    INT32,
    INT64,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPS,
    TIMESTAMPTZ,
    VARCHAR,
    SqlType,
)

_TIMESTAMP_NS = SqlType("timestamp_ns")
_TIME_NS = SqlType("time_ns")
_MOMENTS = TIMESTAMPS | {"date"}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999


def _ordinary(values: Any) -> Any:
    """Return the values if all are in years on which every library agrees; else raise `NotCovered`."""
    counts = values.cast(pa.int32()).cast(pa.int64()) if values.type == pa.date32() else values.cast(pa.int64())
    unit = 1 if values.type == pa.date32() else intervals.DAY
    ends = pc.min_max(counts).as_py()
    if ends["min"] is not None and not (_FIRST_DAY * unit <= ends["min"] and ends["max"] < (_LAST_DAY + 1) * unit):
        raise NotCovered
    return values


def _utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value


def _part(kernel: Any) -> Any:
    def part(values: list[Any], call: tree.Call) -> Any:
        if call.arguments[0].type.kind not in _MOMENTS:
            raise NotCovered
        return kernel(_ordinary(values[0])).cast(pa.int64())

    return part


def _clock_part(kernel: Any) -> Any:
    moment_part = _part(kernel)

    def part(values: list[Any], call: tree.Call) -> Any:
        kind = call.arguments[0].type.kind
        if kind == "time":
            return kernel(values[0]).cast(pa.int64())
        return moment_part([values[0].cast(pa.timestamp("us"))] if kind == "date" else values, call)

    return part


def _part_row(function: Callable[[Any], int], clock: bool = False) -> Callable[[tree.Call], Row]:
    def make(call: tree.Call) -> Row:
        kind = call.arguments[0].type.kind
        if kind == "date" and clock:
            return lambda value: 0
        if kind not in _MOMENTS:
            raise NotCovered
        return lambda value: function(_utc(value))

    return make


def _epoch(values: list[Any], call: tree.Call) -> Any:
    kind = call.arguments[0].type.kind
    if kind not in ("date", "timestamp"):
        raise NotCovered
    value = _ordinary(values[0])
    counts = value.cast(pa.timestamp("us")).cast(pa.int64()) if kind == "date" else value.cast(pa.int64())
    return pc.divide(counts.cast(pa.float64(), safe=False), 1e6)


_CALENDAR = (DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ)
_CLOCK = (DATE, INTERVAL, TIME, TIMESTAMP, _TIME_NS, TIMESTAMPTZ)


def _each(types: tuple[SqlType, ...], result: SqlType) -> tuple[Signature, ...]:
    return tuple(((type,), result) for type in types)


def _calendar(name: str, gives: str, kernel: Any = None, row: Any = None, synonyms: tuple[str, ...] = ()) -> Function:
    made = None if kernel is None else _part(kernel), None if row is None else _part_row(row)
    signatures = _each(_CALENDAR, INT64)
    return Function(
        name, "date, timestamp or interval", gives, signatures, kernel=made[0], row=made[1], synonyms=synonyms
    )


def _clock(name: str, gives: str, kernel: Any = None, row: Any = None) -> Function:
    made = None if kernel is None else _clock_part(kernel), None if row is None else _part_row(row, clock=True)
    signatures = _each(_CLOCK, INT64)
    return Function(name, "date, time, timestamp or interval", gives, signatures, kernel=made[0], row=made[1])


# fmt: off
_PARTS = (
    _calendar("year", "the year", pc.year, lambda value: value.year),
    _calendar("month", "the month, 1 to 12", pc.month, lambda value: value.month),
    _calendar("day", "the day of the month", pc.day, lambda value: value.day, ("dayofmonth",)),
    _calendar("quarter", "the quarter, 1 to 4", pc.quarter, lambda value: (value.month + 2) // 3),
    _calendar("week", "the ISO week", pc.iso_week, lambda value: value.isocalendar()[1], ("weekofyear",)),
    _calendar(
        "dayofweek", "the day of the week, Sunday is 0", lambda values: pc.day_of_week(values, week_start=7),
        lambda value: value.isoweekday() % 7, ("weekday",),
    ),
    _calendar(
        "isodow", "the day of the week, Monday is 1 and Sunday 7",
        lambda values: pc.day_of_week(values, count_from_zero=False, week_start=1), lambda value: value.isoweekday(),
    ),
    _calendar("dayofyear", "the day of the year", pc.day_of_year, lambda value: value.timetuple().tm_yday),
    _calendar("isoyear", "the year of the ISO week", pc.iso_year, lambda value: value.isocalendar()[0]),
    _calendar("yearweek", "ISO year and week as one number"),
    _calendar("decade", "the year without its last digit"),
    _calendar("century", "the century"),
    _calendar("millennium", "the millennium"),
    _calendar("era", "0 for BC, else 1"),
    _clock("hour", "the hour", pc.hour, lambda value: value.hour),
    _clock("minute", "the minute", pc.minute, lambda value: value.minute),
    _clock("second", "the second", pc.second, lambda value: value.second),
    _clock("millisecond", "the milliseconds of the minute, seconds included"),
    _clock("microsecond", "the microseconds of the minute, seconds included"),
)
# fmt: on
_OTHER_PARTS = ("quarter", "dayofweek", "weekday", "isodow", "dayofyear", "isoyear", "yearweek", "era", "epoch")
_PART_WORDS = {
    **intervals.UNITS,
    **{name: name for name in _OTHER_PARTS},
    "dayofmonth": "day",
    "weekofyear": "week",
    "dow": "dayofweek",
    "doy": "dayofyear",
}


def _date_part(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    """Turn `date_part('year', d)` into `year(d)`."""
    part = arguments[0]
    if not isinstance(part, Leaf) or part.parameter is not None or not isinstance(part.value, str):
        builder.fail("the part of date_part() is written as text: date_part('year', …)")
    name = _PART_WORDS.get(part.value.lower())
    if name is None:
        builder.fail(f"there is no part '{part.value}' of a date; some are year, month, day, hour, dow, week, epoch")
    return builder.call(name, arguments[1:])


_TRUNCATED = {"year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"}
_TRUNC_WORDS = {**intervals.UNITS, "dayofmonth": "day", "weekofyear": "week"}


def _date_trunc(values: list[Any], call: tree.Call) -> Any:
    unit = _TRUNC_WORDS.get(constant(values[0]).lower())
    if unit not in _TRUNCATED or call.arguments[1].type.kind not in ("date", "timestamp", "timestamptz"):
        raise NotCovered
    moments = _ordinary(values[1])
    moments = moments.cast(pa.timestamp("us")) if moments.type == pa.date32() else moments
    return _ordinary(pc.floor_temporal(moments, 1, unit, week_starts_monday=True))


_SMALLEST = {"microsecond": 0, "second": 0, "minute": 0, "hour": 0, "day": 1, "month": 1}
_BELOW: dict[str, Any] = {
    unit: dict(islice(_SMALLEST.items(), count))
    for count, unit in enumerate(("second", "minute", "hour", "day", "month", "year"), 1)
}
"""The values of the smaller parts at the beginning of each unit."""


def _date_trunc_row(call: tree.Call) -> Row:
    if call.arguments[1].type.kind not in ("date", "timestamp", "timestamptz"):
        raise NotCovered

    def truncate(word: str, given: Any) -> Any:
        value = _utc(given)
        if not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        unit = _TRUNC_WORDS.get(word.lower())
        if unit == "week" and value.year > 1:
            value, unit = value - dt.timedelta(days=value.weekday()), "day"
        if unit == "quarter":
            value, unit = value.replace(day=1, month=(value.month - 1) // 3 * 3 + 1), "day"
        if unit not in _BELOW:
            raise NotCovered
        return value.replace(**_BELOW[unit])

    return truncate


# -- the present -------------------------------------------------------------------------------------------


def _present(type: SqlType) -> Callable[[Builder, list[tree.Node]], tree.Node]:
    return lambda builder, arguments: builder.present(type)


def _age(builder: Builder, arguments: list[tree.Node]) -> tree.Node | None:
    return builder.call("age", [builder.present(DATE), *arguments]) if len(arguments) == 1 else None


def _date_add(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    return builder.arithmetic("+", *arguments)


# -- intervals ---------------------------------------------------------------------------------------------


def _maker(place: int, factor: int) -> Any:
    def make(values: list[Any], call: tree.Call) -> Any:
        numbers = values[0]
        null = intervals.nulls_of(numbers)
        counts = pc.fill_null(numbers, 0).cast(pa.float64(), safe=False).to_numpy()
        if (abs(counts) * factor >= (2**31 if place < 2 else 2**62)).any():
            raise NotCovered
        whole = pc.fill_null(numbers, 0).cast(pa.int64()).to_numpy()
        return intervals.from_parts([whole * (factor if each == place else 0) for each in range(3)], null)

    return make


_PLURALS = {"century": "centuries", "millennium": "millennia"}
MAKER_OF = {unit: f"to_{_PLURALS.get(unit, unit + 's')}" for unit in set(intervals.UNITS.values())}


def _interval(unit: str, place: int, factor: int) -> Function:
    name = MAKER_OF[unit]
    gives = f"an interval of that many {name.removeprefix('to_')}"
    if unit in ("second", "millisecond"):
        return Function(name, "number", gives, _each((DOUBLE,), INTERVAL))
    types = (INT32, INT64) if place < 2 else (INT64,)
    return Function(name, "number", gives, _each(types, INTERVAL), kernel=_maker(place, factor))


_MAKERS = tuple(
    _interval(unit, place, factor)
    for place, units in enumerate((intervals.MONTHS, intervals.DAYS, intervals.MICROSECONDS))
    for unit, factor in units.items()
)


# -- text --------------------------------------------------------------------------------------------------

_FORMATTED = (DATE, TIMESTAMP, _TIMESTAMP_NS, TIMESTAMPTZ)


def _strptime_types(operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
    chosen = choose([((VARCHAR, VARCHAR), TIMESTAMP)], operands)
    if chosen is None or not isinstance(literals[1], str):
        return None
    zoned = "%Z" in literals[1] or "%z" in literals[1]
    return (VARCHAR, VARCHAR), TIMESTAMPTZ if zoned else _TIMESTAMP_NS if "%n" in literals[1] else TIMESTAMP


def _pairs(*types: SqlType) -> tuple[Signature, ...]:
    return tuple(((VARCHAR, type, type), INT64) for type in types)


# fmt: off
FUNCTIONS = (
    Function(
        "now", "nothing", "the time of the statement, with time zone; also `current_timestamp`", arity=(0, 0),
        expand=_present(TIMESTAMPTZ), synonyms=("get_current_timestamp", "transaction_timestamp", "current_timestamp"),
    ),
    Function(
        "current_date", "nothing", "the day of the statement in UTC", arity=(0, 0), expand=_present(DATE),
        synonyms=("today",),
    ),
    Function(
        "current_localtimestamp", "nothing", "the time of the statement in UTC, without time zone",
        arity=(0, 0), expand=_present(TIMESTAMP), synonyms=("localtimestamp",),
    ),
    *_PARTS,
    Function(
        "date_part", "part, date", "a part by name, as `extract(part from date)`", arity=(2, 2), expand=_date_part,
        synonyms=("datepart",),
    ),
    Function(
        "date_trunc", "part, date", "the beginning of the year, month, week, hour, …",
        (((VARCHAR, DATE), TIMESTAMP), *(((VARCHAR, type), type) for type in (INTERVAL, TIMESTAMP, TIMESTAMPTZ))),
        kernel=_date_trunc, row=_date_trunc_row, synonyms=("datetrunc",),
    ),
    Function(
        "date_diff", "part, from, to", "how many boundaries of the part lie between",
        _pairs(DATE, TIME, TIMESTAMP, TIMESTAMPTZ), synonyms=("datediff",),
    ),
    Function(
        "date_sub", "part, from, to", "how many whole parts lie between", _pairs(DATE, TIME, TIMESTAMP, TIMESTAMPTZ),
        synonyms=("datesub",),
    ),
    Function("date_add", "date, interval", "the same as `date + interval`", arity=(2, 2), expand=_date_add),
    Function(
        "age", "timestamp[, timestamp]", "the interval from the second to the first, or from the only one to today",
        (((TIMESTAMP, TIMESTAMP), INTERVAL), ((TIMESTAMPTZ, TIMESTAMPTZ), INTERVAL)), arity=(1, 2), expand=_age,
    ),
    Function(
        "strftime", "date, format", "the date as text; the format is a constant",
        (*(((type, VARCHAR), VARCHAR) for type in _FORMATTED), *(((VARCHAR, type), VARCHAR) for type in _FORMATTED)),
    ),
    Function(
        "strptime", "text, format", "text read as a timestamp; an error if it does not fit the format",
        resolve=_strptime_types, arity=(2, 2),
    ),
    Function(
        "try_strptime", "text, format", "text read as a timestamp, null if it does not fit the format",
        resolve=_strptime_types, arity=(2, 2), strict=True,
    ),
    Function(
        "epoch", "date, time, timestamp or interval", "seconds since 1970-01-01", _each(_CLOCK, DOUBLE), kernel=_epoch
    ),
    Function(
        "epoch_ms", "date, time, timestamp or interval", "milliseconds since 1970-01-01; of a number: the timestamp",
        (*_each(_CLOCK, INT64), ((INT64,), TIMESTAMP)),
    ),
    Function("epoch_us", "date, time, timestamp or interval", "microseconds since 1970-01-01", _each(_CLOCK, INT64)),
    Function(
        "epoch_ns", "date, time, timestamp or interval", "nanoseconds since 1970-01-01",
        _each((*_CLOCK, _TIMESTAMP_NS), INT64),
    ),
    Function("last_day", "date or timestamp", "the last day of the month", _each((DATE, TIMESTAMP, TIMESTAMPTZ), DATE)),
    Function("monthname", "date or timestamp", "the name of the month", _each((DATE, TIMESTAMP, TIMESTAMPTZ), VARCHAR)),
    Function("dayname", "date or timestamp", "the name of the day", _each((DATE, TIMESTAMP, TIMESTAMPTZ), VARCHAR)),
    Function("make_date", "year, month, day", "the date", (((INT64,) * 3, DATE),)),
    Function(
        "make_timestamp", "year, month, day, hour, minute, second", "the timestamp",
        (((*(INT64,) * 5, DOUBLE), TIMESTAMP),),
    ),
    Function("to_timestamp", "seconds since 1970-01-01", "the timestamp with time zone", (((DOUBLE,), TIMESTAMPTZ),)),
    Function(
        "time_bucket", "interval, date", "the beginning of the bucket of that width",
        tuple(((INTERVAL, type), type) for type in (DATE, TIMESTAMP, TIMESTAMPTZ)),
    ),
    Function(
        "timezone", "zone, timestamp", "the clock of the zone at a timestamp with time zone, and the other way round; "
        "also `timestamp at time zone 'zone'`",
        (((VARCHAR, TIMESTAMP), TIMESTAMPTZ), ((VARCHAR, TIMESTAMPTZ), TIMESTAMP)),
    ),
    *_MAKERS,
)
# fmt: on
