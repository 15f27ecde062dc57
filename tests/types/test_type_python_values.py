"""Python values: stored exactly or refused; what is taken is what pyarrow makes of it."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import OrderedDict, deque, namedtuple
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.errors import ConstraintError
from indexlake.types import codec_for
from tests.types.arrow_exact import assert_same
from tests.types.arrow_strategies import PLAIN, dictionary_types, nested_types, plain_types, typed_arrays

ZONES = [dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")]
CLOCK = dt.datetime(2024, 1, 1, 12, 30)
MOMENT = CLOCK.replace(tzinfo=dt.UTC)
Point = namedtuple("Point", "x y")


class Small(IntEnum):
    ONE = 1


class Name(str, Enum):  # noqa: UP042 (others write it so)
    ADA = "ada"


class Nowhere(dt.tzinfo):
    """A zone that does not say how far it is from UTC: such a datetime is one without a zone."""

    def utcoffset(self, when):
        return None


def _shown(value):
    """The same in every process."""
    return re.sub("0x[0-9a-f]+", "", str(value))


EDGES = [
    0,
    1,
    -1,
    *[sign * 2**bits + delta for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1) for delta in (-1, 0)],
]
POOL = [
    True,
    np.True_,
    *EDGES,
    *[2**bits + delta for bits in (11, 24, 53) for delta in (-1, 0, 1)],
    0.0,
    -0.0,
    1.0,
    0.1,
    -65519.9,
    65520.0,
    1e39,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "a",
    "ü\0😀",
    b"",
    b"a",
    b"\xff",
    b"0123456789abcdef",
    bytearray(b"a"),
    memoryview(b"a"),
    Decimal("1.25"),
    Decimal("-1E+3"),
    Decimal("NaN"),
    Decimal(10) ** 37,
    np.int8(3),
    np.uint64(2**63),
    np.float32(0.1),
    np.float16(0.1),
    np.str_("a"),
    dt.date(2024, 2, 29),
    dt.date.min,
    dt.date.max,
    dt.datetime(2024, 2, 29, 12),
    dt.datetime.min,
    dt.datetime.max.replace(microsecond=0, tzinfo=dt.UTC),
    dt.time(1, 2, 3),
    dt.timedelta(days=-3, seconds=5),
    dt.timedelta.max,
    np.datetime64("2024-02-29", "us"),
    np.timedelta64(5, "ms"),
    pd.Timestamp("2024-02-29 01:02:03"),
    pd.Timedelta(seconds=5),
    pd.NA,
    pd.NaT,
    1e400,
    Fraction(1, 2),
    object(),
    [],
    {},
]


def pyarrow_says(value, type):
    """The encoded value by way of pyarrow alone, or the error."""
    try:
        return codec_for(type).encode(pa.array([pa.scalar(value, type)], type))[0]
    except Exception as error:
        return error


def we_say(value, type):
    try:
        return codec_for(type).encode_one(value)
    except ConstraintError as error:
        return error


@pytest.mark.parametrize("type", PLAIN, ids=str)
def test_one_value_is_encoded_as_pyarrow_would_or_refused_with_what_to_give(type):
    for value in POOL:
        theirs, ours = pyarrow_says(value, type), we_say(value, type)
        if isinstance(ours, Exception):
            assert re.search(
                ": (give |it is (not a whole|outside|finer)|it (has|needs) |only integers|a (time|float) |decimals have"
                "|the column has)",
                str(ours),
            ), (value, ours)
        elif not isinstance(theirs, Exception):
            assert ours == theirs, value
        elif isinstance(value, np.integer) and not isinstance(value, np.timedelta64):
            assert ours == pyarrow_says(int(value), type)
        else:  # numpy's moments in another unit: pyarrow takes them in an array of its own
            array = pa.array(np.array([value])).cast(type)
            assert ours == codec_for(type).encode(array)[0]


def clocks(**bounds):
    return st.datetimes(**bounds)


def moments(**bounds):
    return st.datetimes(timezones=st.sampled_from(ZONES), allow_imaginary=False, **bounds)


PYTHON = {
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    pa.float32(): st.floats(-3e38, 3e38) | st.just(math.inf) | st.integers(-(2**24), 2**24),
    pa.float16(): st.floats(-65519, 65519) | st.just(-math.inf),
    pa.string(): st.text(st.characters(codec="utf-8")),
    pa.binary(): st.binary(),
    pa.decimal128(18, 3): st.decimals(-(10**14), 10**14, places=3) | st.integers(-(10**14), 10**14),
    pa.decimal256(76, 38): st.decimals(-(10**37), 10**37, places=10),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.times(),
    pa.duration("us"): st.timedeltas(dt.timedelta(-(10**8)), dt.timedelta(10**8)),
    pa.timestamp("us"): clocks(),
    pa.timestamp("us", "Europe/Berlin"): moments(),
    pa.timestamp("ns", "UTC"): moments(min_value=dt.datetime(1700, 1, 1), max_value=dt.datetime(2200, 1, 1)),
    pa.timestamp("s"): clocks().map(lambda value: value.replace(microsecond=0)),
}


@pytest.mark.parametrize("type", PYTHON, ids=str)
def test_the_direct_path_agrees_with_pyarrow(type):
    @settings(max_examples=60, deadline=None)
    @given(PYTHON[type])
    def check(value):
        ours = codec_for(type).encode_one(value)
        assert ours == pyarrow_says(value, type)
        assert ours == codec_for(type).encode(codec_for(type).array([value]))[0]

    check()


@settings(max_examples=200, deadline=None)
@given(typed_arrays(plain_types() | dictionary_types() | nested_types()))
def test_what_pyarrow_shows_is_encoded_back_to_what_it_came_from(array):
    codec = codec_for(array.type)
    for encoded in codec.encode(array):
        try:
            shown = codec.decode_one(encoded)
        except ConstraintError:
            continue  # outside the calendar: pyarrow cannot show it
        if "NaT" in repr(shown) or "nan" in repr(shown) or is_cut(array.type):
            continue
        assert codec.encode_one(shown) == encoded
        assert codec.encode(codec.array([shown])) == [encoded]


def is_cut(type):
    """Whether as_py drops something: the time of a date64, nanoseconds of a time, 24:00 and beyond."""
    if pa.types.is_date64(type) or pa.types.is_time(type):
        return True
    if pa.types.is_dictionary(type):
        return is_cut(type.value_type)
    return any(is_cut(type.field(index).type) for index in range(type.num_fields))


@pytest.mark.parametrize(
    ("type", "value", "reason"),
    [
        (pa.int64(), True, "True (bool) is not a value of type int64: give an int"),
        (pa.int64(), np.True_, "give an int"),
        (pa.int64(), Fraction(1, 2), "give an int"),
        (pa.int64(), 1 + 0j, "give an int"),
        (pa.int64(), np.timedelta64(5, "ns"), "give an int"),
        (pa.int64(), np.datetime64("2024-01-01"), "give an int"),
        (pa.int64(), np.array(5), "give an int"),
        (pa.int64(), pa.scalar(1.5), "it is not a whole number"),
        (pa.int64(), pd.NA, "give None for a missing value"),
        (pa.string(), pd.NaT, "give None for a missing value"),
        (pa.list_(pa.int64()), pd.NA, "give None for a missing value"),
        (pa.timestamp("us"), np.datetime64("NaT"), "give None for a missing value"),
        (pa.float64(), True, "give a float"),
        (pa.float64(), Decimal("0.1"), "a float does not keep decimal digits; give float(value)"),
        (pa.float64(), np.longdouble(1) / 3, "it has more digits than a float keeps; give float(value)"),
        (pa.float64(), np.int64(2**53 + 1), "only integers up to 9007199254740992 are exact in it"),
        (pa.float32(), 1e39, "it is outside the range of the type"),
        (pa.float16(), np.float64(65520), "it is outside the range of the type"),
        (pa.decimal128(4, 2), True, "give a Decimal or an int"),
        (pa.int64(), 1.5, "it is not a whole number"),
        (pa.int64(), Decimal("1.5"), "it is not a whole number"),
        (pa.int64(), np.float32(1.5), "it is not a whole number"),
        (pa.int64(), math.nan, "it is not a whole number"),
        (pa.int64(), "1", "'1' (str) is not a value of type int64: give an int"),
        (pa.int8(), 128, "it is outside -128 to 127"),
        (pa.uint64(), -1, "it is outside 0 to 18446744073709551615"),
        (pa.uint64(), 2**64, "it is outside 0 to 18446744073709551615"),
        (pa.float64(), 2**53 + 1, "only integers up to 9007199254740992 are exact in it"),
        (pa.float64(), "1.0", "give a float"),
        (pa.bool_(), 1, "give True or False"),
        (pa.string(), 1, "give a str"),
        (pa.string(), b"a", "give text: value.decode()"),
        (pa.binary(), "a", "give bytes: value.encode()"),
        (pa.binary(), memoryview(np.array([1, 2], "i4")), "give bytes"),
        (pa.string(), "a\ud800", "it is not valid Unicode (surrogates not allowed at position 1)"),
        (pa.binary(3), b"ab", "it has 2 bytes, not 3"),
        (pa.decimal128(4, 2), Decimal("1.234"), "it has more digits than the scale 2 keeps"),
        (pa.decimal128(4, 2), Decimal("100"), "it needs more than the 4 digits of the column"),
        (pa.decimal128(4, 2), Decimal("1E+999999"), "it needs more than the 4 digits of the column"),
        (pa.decimal128(4, 2), Decimal("1E-999999"), "it has more digits than the scale 2 keeps"),
        (pa.decimal128(4, 2), 100, "it needs more than the 4 digits of the column"),
        (pa.decimal128(4, -2), 150, "it has more digits than the scale -2 keeps"),
        (pa.decimal128(4, 2), Decimal("Infinity"), "decimals have no NaN and no infinity"),
        (pa.decimal128(4, 2), 1.5, "a float has no exact decimal digits; give Decimal(str(value))"),
        (pa.timestamp("s"), dt.datetime(2024, 1, 1, 0, 0, 0, 1), "it is finer than the column's unit, s"),
        (pa.timestamp("us"), pd.Timestamp(1), "it is finer than the column's unit, us"),
        (pa.timestamp("ns"), dt.datetime(2500, 1, 1), "it is outside the range of the type"),
        (pa.timestamp("us"), "2024-01-01", "give datetime.datetime.fromisoformat(value)"),
        (pa.timestamp("us"), 5, "give a datetime.datetime"),
        (pa.timestamp("us"), np.datetime64(1, "ns"), "it is finer than the column's unit, us"),
        (pa.timestamp("ns"), np.datetime64("3000-01-01"), "outside the range of the type"),
        (pa.timestamp("us"), dt.date(2024, 1, 1), "it has no time of day; give datetime.datetime.combine(value"),
        (pa.timestamp("us"), MOMENT, "it has a time zone and the column has none; give value.replace(tzinfo=None)"),
        (pa.timestamp("us"), pd.Timestamp(MOMENT), "it has a time zone and the column has none"),
        (pa.timestamp("us"), pa.scalar(MOMENT), "it has a time zone and the column has none"),
        (pa.timestamp("us", "UTC"), CLOCK, "it has no time zone and the column has one; give value.replace(tzinfo="),
        (pa.timestamp("us", "UTC"), CLOCK.replace(tzinfo=Nowhere()), "it has no time zone and the column has one"),
        (pa.timestamp("us", "UTC"), pd.Timestamp(CLOCK), "it has no time zone and the column has one"),
        (pa.timestamp("us", "UTC"), np.datetime64(CLOCK), "the column has a time zone; give a datetime with one"),
        (pa.date32(), 5, "give a datetime.date"),
        (pa.date32(), MOMENT, "it has a time of day; give value.date()"),
        (pa.date32(), np.datetime64(CLOCK), "it is finer than the column's unit, D"),
        (pa.time64("us"), 5, "give a datetime.time"),
        (pa.time64("us"), CLOCK, "it has a date; give value.time()"),
        (pa.duration("us"), 5, "give a datetime.timedelta"),
        (pa.duration("us"), np.timedelta64(5), "it is finer than the column's unit, us, or outside"),
        (pa.list_(pa.string()), "abc", "give a list; one item alone is [value]"),
        (pa.list_(pa.int64()), b"abc", "give a list; one item alone is [value]"),
        (pa.list_(pa.int64()), memoryview(b"abc"), "give a list"),
        (pa.list_(pa.string()), {"a": 1}, "give a list, for example list(value.items())"),
        (pa.list_(pa.int64()), {1, 2}, "a set has no order; give list(value) or sorted(value)"),
        (pa.list_(pa.int64()), iter([1, 2]), "give a list"),
        (pa.list_(pa.int64()), np.array(5), "give a list"),
        (pa.list_(pa.string()), pd.DataFrame({"a": [1]}), "give a list"),
        (pa.struct([("a", pa.int8())]), "a", "give a dict"),
        (pa.struct([("a", pa.int8())]), [("a", 1)], "give a dict"),
        (pa.struct([("a", pa.int8())]), (1, 2), "it has 2 values for 1 fields; give a dict"),
        (pa.struct([("a", pa.int8())]), Point(1, 2), "it has no field 'x'"),
        (pa.map_(pa.string(), pa.int8()), "ab", "give a dict or a list of pairs"),
        (pa.map_(pa.string(), pa.string()), ["ab"], "give a dict or a list of pairs"),
        (pa.duration("ms"), dt.timedelta(microseconds=1), "it is finer than the column's unit, ms"),
        (pa.time32("s"), dt.time(0, 0, 0, 1), "it is finer than the column's unit, s"),
        (pa.time64("us"), dt.time(1, tzinfo=dt.UTC), "a time of day has no time zone"),
        (pa.date32(), dt.datetime(2024, 1, 1, 1), "it has a time of day; give value.date()"),
        (pa.list_(pa.int8()), [1, 300], "it is outside -128 to 127"),
        (pa.list_(pa.int8()), 5, "list"),
        (pa.list_(pa.int8()), np.array([1.5]), "it is not a whole number"),
        (pa.list_(pa.string()), ["\ud800"], "it is not valid Unicode"),
        (pa.list_(pa.int8(), 2), [1], "it has 1 items, not 2"),
        (pa.struct([("a", pa.int8())]), {"a": 1, "b": 2}, "it has no field 'b'; its fields are a"),
        (pa.map_(pa.string(), pa.int8()), [("a",)], "map"),
        (pa.list_(pa.int8()), pa.scalar([1]), "it is a scalar of type list<item: int64>"),
    ],
    ids=_shown,
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(type, value, reason):
    codec = codec_for(type)
    with pytest.raises(ConstraintError) as caught:
        codec.encode_one(value)
    assert reason in str(caught.value)
    with pytest.raises(ConstraintError):
        codec.array([None, value])


@pytest.mark.parametrize(
    ("type", "value", "place"),
    [
        (pa.list_(pa.field("item", pa.int8(), False)), [1, None], "an item"),
        (pa.struct([pa.field("a", pa.int8(), False)]), {}, "field 'a'"),
        (pa.map_(pa.string(), pa.int8()), [(None, 1)], "a key"),
        (pa.map_(pa.string(), pa.field("value", pa.int8(), False)), {"a": None}, "a value"),
    ],
    ids=str,
)
def test_null_in_a_required_place_is_refused(type, value, place):
    with pytest.raises(ConstraintError, match=f"null is not allowed in {place} of a value of type"):
        codec_for(type).encode_one(value)


def test_a_long_value_is_cut_in_the_error():
    with pytest.raises(ConstraintError) as caught:
        codec_for(pa.int64()).encode_one("x" * 10_000)
    assert len(str(caught.value)) < 11_000
    assert str(caught.value).startswith("'" + "x" * 76 + "... (str) is not a value of type int64")


@pytest.mark.parametrize(
    ("type", "value", "same_as"),
    [
        (pa.int64(), 1.0, 1),
        (pa.int64(), np.int8(1), 1),
        (pa.int64(), pa.scalar(1), 1),
        (pa.int64(), pa.scalar(None, pa.int64()), None),
        (pa.decimal128(5, 2), pa.scalar(None, pa.decimal128(5, 2)), None),
        (pa.int64(), Small.ONE, 1),
        (pa.int64(), Decimal(1), 1),
        (pa.int64(), pa.scalar(1, pa.int8()), 1),
        (pa.float64(), pa.scalar(math.inf, pa.float32()), math.inf),
        (pa.float64(), Small.ONE, 1.0),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.decimal128(5, 2), np.int8(1), Decimal("1.00")),
        (pa.string(), Name.ADA, "ada"),
        (pa.string(), np.str_("a"), "a"),
        (pa.binary(), bytearray(b"a"), b"a"),
        (pa.binary(), memoryview(b"a"), b"a"),
        (pa.timestamp("us"), pd.Timestamp(CLOCK), CLOCK),
        (pa.timestamp("us"), np.datetime64(CLOCK), CLOCK),
        (pa.timestamp("us"), pa.scalar(CLOCK, pa.timestamp("s")), CLOCK),
        (pa.timestamp("us", "UTC"), pd.Timestamp(MOMENT), MOMENT),
        (pa.duration("us"), np.timedelta64(5, "ms"), dt.timedelta(milliseconds=5)),
        (pa.duration("us"), pd.Timedelta(5, "ms"), dt.timedelta(milliseconds=5)),
        (pa.date32(), np.datetime64("2024-01-01"), dt.date(2024, 1, 1)),
        (pa.date32(), pd.Timestamp("2024-01-01"), dt.date(2024, 1, 1)),
        (pa.list_(pa.int64()), range(2), [0, 1]),
        (pa.list_(pa.int64()), deque([1, 2]), [1, 2]),
        (pa.list_(pa.int64()), pd.Series([1, 2]), [1, 2]),
        (pa.list_(pa.int64()), pl.Series([1, 2]), [1, 2]),
        (pa.list_(pa.int64()), pa.array([1, None]), [1, None]),
        (pa.list_(pa.timestamp("us")), np.array([CLOCK], "M8[ns]"), [CLOCK]),
        (pa.struct([("y", pa.int8()), ("x", pa.int8())]), Point(1, 2), {"y": 2, "x": 1}),
        (pa.date32(), dt.datetime(2024, 1, 1), dt.date(2024, 1, 1)),
        (pa.list_(pa.int64()), (1, 2), [1, 2]),
        (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
        (pa.list_(pa.list_(pa.int64())), np.array([[1], [2]]), [[1], [2]]),
        (pa.struct([("a", pa.int8()), ("b", pa.int8())]), {"b": 1}, {"a": None, "b": 1}),
        (pa.struct([("a", pa.int8())]), OrderedDict(a=1), {"a": 1}),
        (pa.struct([("a", pa.int8())]), (1,), {"a": 1}),
        (pa.map_(pa.string(), pa.int8()), {"a": 1}, [("a", 1)]),
        (pa.list_(pa.int8()), pa.scalar([1, None], pa.list_(pa.int8())), [1, None]),
        (pa.list_(pa.int8()), pa.scalar(None, pa.list_(pa.int8())), None),
        (pa.list_(pa.int8(), 1), pa.scalar(None, pa.list_(pa.int8(), 1)), None),
        (pa.struct([("a", pa.int8())]), pa.scalar({"a": 1}, pa.struct([("a", pa.int8())])), {"a": 1}),
        (pa.map_(pa.string(), pa.int8()), [["a", 1]], [("a", 1)]),
    ],
    ids=_shown,
)
def test_other_spellings_of_a_value_are_the_same_value(type, value, same_as):
    codec = codec_for(type)
    assert codec.encode_one(value) == codec.encode_one(same_as)
    assert codec.decode_one(codec.encode_one(value)) == same_as


def test_arrays_of_python_values_are_those_of_pyarrow():
    for type, values in [
        (pa.int16(), [1, None, -5]),
        (pa.timestamp("s", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
        (pa.decimal256(40, 2), [Decimal("1.20"), None, 5]),
        (pa.list_(pa.struct([("a", pa.string())])), [[{"a": "x"}, None], None, []]),
    ]:
        assert_same(codec_for(type).array(values), pa.array(values, type))


def test_one_bad_value_among_many_is_named():
    with pytest.raises(
        ConstraintError, match=re.escape("300 (int) is not a value of type int8: it is outside -128 to 127")
    ):
        codec_for(pa.int8()).array([1, None, 300, 2])
