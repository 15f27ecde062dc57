"""Arrays that claim a type their bytes do not keep are refused before they reach a file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from indexlake.errors import ConstraintError
from indexlake.types import check_values
from tests.types.arrow_strategies import typed_arrays, types

PRICE = pa.field("price", pa.null())
REQUIRED = pa.field("a", pa.int64(), False)


def dictionary(indices, values):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values, pa.string()), safe=False)


def list_with_offsets(*offsets):
    buffer = pa.array(offsets, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.list_(pa.int64()), len(offsets) - 1, [None, buffer], children=[pa.array([1, 2])])


def time(ticks, type=None):
    type = type or pa.time64("us")
    return pa.array(ticks, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)


FLOAT_KEYS = pa.map_(pa.float64(), pa.int64())
TEXT_KEYS = pa.map_(pa.string(), pa.int64())

BROKEN = {
    "a time far outside the day": time([2**62]),
    "a time below midnight": time([0, -5], pa.time32("s")),
    "a second after 24:00:00": time([86_401], pa.time32("s")),
    "a millisecond after 24:00:00": time([86_400_001], pa.time32("ms")),
    "a nanosecond after 24:00:00": time([86_400 * 10**9 + 1], pa.time64("ns")),
    "a time outside the day in a list": pa.ListArray.from_arrays([0, 1], time([-1])),
    "a time outside the day in a struct": pa.StructArray.from_arrays([time([-1])], ["a"]),
    "a time outside the day in a dictionary": pa.DictionaryArray.from_arrays([0], time([-1])),
    "a key twice": pa.array([[("k", 1), ("k", 2)]], TEXT_KEYS),
    "a key twice after other maps": pa.array([None, [], [("k", 1)], [("k", 1), ("l", 2), ("k", 3)]], TEXT_KEYS),
    "a key twice in a list of maps": pa.array([[[("k", 1), ("k", 2)]]], pa.list_(TEXT_KEYS)),
    "0.0 and -0.0 as keys": pa.array([[(0.0, 1), (-0.0, 2)]], FLOAT_KEYS),
    "two NaNs as keys": pa.array([[(float("nan"), 1), (-float("nan"), 2)]], FLOAT_KEYS),
    "bytes that are no UTF-8": pa.array([b"\xff"]).view(pa.string()),
    "bytes that are no UTF-8 inside a list": pa.ListArray.from_arrays([0, 1], pa.array([b"\xff"]).view(pa.string())),
    "null in a required field": pa.StructArray.from_arrays([pa.array([None], pa.int64())], fields=[REQUIRED]),
    "null in a required item": pa.array([[None]], pa.list_(REQUIRED)),
    "null in a required item of a fixed-size list": pa.array([[1, None]], pa.list_(REQUIRED, 2)),
    "null in a required field two levels down": pa.array([[{"a": None}]], pa.list_(pa.struct([REQUIRED]))),
    "null by way of a dictionary": pa.StructArray.from_arrays(
        [dictionary([0], [None])], fields=[pa.field("a", pa.dictionary(pa.int8(), pa.string()), False)]
    ),
    "an index outside the dictionary": dictionary([1], ["x"]),
    "offsets that go back": list_with_offsets(0, 2, 1),
    "more digits than the precision": pa.Array.from_buffers(
        pa.decimal128(3, 0), 1, pa.array([5000], pa.decimal128(38, 0)).buffers()
    ),
}


@pytest.mark.parametrize("array", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_array_is_refused_with_its_column(array):
    with pytest.raises(
        ConstraintError, match=r"Column 'price' was given an array .* that is not valid: .*\. Repair it"
    ) as caught:
        check_values(pa.chunked_array([array]), PRICE)
    assert caught.value.column == "price"


@settings(max_examples=200, deadline=None)
@given(typed_arrays(types()))
def test_every_valid_array_passes(array):
    check_values(array, PRICE)


def test_a_null_below_a_null_parent_is_no_violation():
    check_values(pa.array([None, {"a": 1}], pa.struct([REQUIRED])), PRICE)
    check_values(pa.array([None, [1, 2]], pa.list_(REQUIRED, 2)), PRICE)


def test_times_from_midnight_to_midnight_pass_and_what_a_null_hides_is_not_looked_at():
    check_values(time([0, 86_400], pa.time32("s")), PRICE)
    check_values(time([0, 86_400 * 10**9, None], pa.time64("ns")), PRICE)
    hidden = pa.StructArray.from_arrays([time([-1, 5])], ["a"], mask=pa.array([True, False]))
    check_values(hidden, PRICE)
    bits = pa.py_buffer(bytes([0b10]))
    check_values(pa.Array.from_buffers(pa.time64("us"), 2, [bits, time([-1, 5]).buffers()[1]]), PRICE)


def test_one_key_in_several_maps_passes():
    check_values(pa.array([[("k", 1)], [("k", 1), ("l", 2)], None], TEXT_KEYS), PRICE)
    check_values(pa.array([[("k", 1)], [("k", 1), ("l", 2)], [("k", 1)]], TEXT_KEYS).slice(1), PRICE)
