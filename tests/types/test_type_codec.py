"""Arrays through the encoded form of the catalog: equal to the bit, of the same type, in the same order."""

from __future__ import annotations

import math
import pickle
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.errors import CatalogError, ConstraintError
from indexlake.types import codec_for
from indexlake.types.outside import python_value
from tests.types.arrow_exact import assert_same, bits
from tests.types.arrow_strategies import (
    AWKWARD_FLOATS,
    FLOATS,
    PLAIN,
    arrays,
    dictionary_types,
    plain_types,
    typed_arrays,
    types,
)

EVERY = [
    *PLAIN,
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.float64(), True),
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.list_(pa.binary(2), 2),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float32()))]),
    pa.map_(pa.string(), pa.struct([("c", pa.decimal256(76, 2))])),
]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([math.nan]), pa.array([-math.nan])),
        (pa.array([""]), pa.array([None], pa.string())),
        (pa.array([[None]], pa.list_(pa.int8())), pa.array([None], pa.list_(pa.int8()))),
        (
            pa.array([[]], pa.list_(pa.field("a", pa.int8()))),
            pa.array([[]], pa.list_(pa.field("b", pa.int8()))),
        ),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("s", "UTC"))),
    ],
)
def test_the_comparison_used_here_sees_every_difference(left, right):
    assert_same(left, left)
    with pytest.raises(AssertionError):
        assert_same(left, right)


@settings(max_examples=400, deadline=None)
@given(typed_arrays(types()))
def test_an_array_comes_back_equal_to_the_bit(array):
    codec = codec_for(array.type)
    values = codec.encode(array)
    wanted = int if codec.kind == "int" else bytes
    assert all(value is None or type(value) is wanted for value in values)
    decoded = codec.decode(values)
    decoded.validate()
    assert_same(decoded, array)


@pytest.mark.parametrize("type", PLAIN, ids=str)
def test_every_plain_type_comes_back_equal_to_the_bit(type):
    @settings(max_examples=20, deadline=None)
    @given(arrays(type))
    def check(array):
        codec = codec_for(type)
        assert_same(codec.decode(codec.encode(array)), array)

    check()


@settings(max_examples=100, deadline=None)
@given(st.data(), types())
def test_a_chunked_array_is_encoded_like_its_chunks_in_turn(data, type):
    parts = [data.draw(arrays(type, max_size=4)) for _ in range(data.draw(st.integers(0, 3)))]
    codec = codec_for(type)
    values = codec.encode(pa.chunked_array(parts, type))
    assert values == [value for part in parts for value in codec.encode(part)]
    assert bits(codec.decode(values)) == [row for part in parts for row in bits(part)]


@pytest.mark.parametrize("type", EVERY, ids=str)
def test_nothing_and_nulls_only_come_back_with_their_type(type):
    codec = codec_for(type)
    for count in (0, 1, 9):
        array = codec.decode([None] * count)
        assert array.type.equals(type, check_metadata=True)
        assert len(array) == array.null_count == count
        assert codec.encode(array) == [None] * count
        assert_same(codec.array([None] * count), array)


@settings(max_examples=300, deadline=None)
@given(typed_arrays(types()))
def test_one_value_decodes_to_what_pyarrow_shows(array):
    codec = codec_for(array.type)
    for value, scalar in zip(codec.encode(array), codec.decode(codec.encode(array)), strict=True):
        shown = python_value(scalar)
        if shown is scalar:  # outside the calendar
            with pytest.raises(ConstraintError, match="a time that Python cannot represent"):
                codec.decode_one(value)
        else:
            assert repr(codec.decode_one(value)) == repr(shown)


def order_key(type, value):
    """A key under which Python sorts the values as SQL does: NaN last, by code point, by byte."""
    if pa.types.is_floating(type):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def python_values(array):
    if not pa.types.is_temporal(array.type):
        return array.to_pylist()
    return array.view(pa.int64() if array.type.bit_width == 64 else pa.int32()).to_pylist()


@settings(max_examples=300, deadline=None)
@given(typed_arrays(plain_types()))
def test_canonical_values_sort_and_compare_as_the_values_do(array):
    codec = codec_for(array.type)
    assert codec.ordered
    pairs = [
        (codec.canonical(encoded), order_key(array.type, value))
        for encoded, value in zip(codec.encode(array), python_values(array), strict=True)
        if value is not None
    ]
    for left, left_key in pairs:
        for right, right_key in pairs:
            assert (left < right) == (left_key < right_key)
            assert (left == right) == (left_key == right_key)


@settings(max_examples=200, deadline=None)
@given(typed_arrays(plain_types() | dictionary_types()))
def test_the_canonical_array_holds_the_canonical_values(array):
    codec = codec_for(array.type)
    wanted = [codec.canonical(value) for value in codec.encode(array)]
    for given_array in (array, pa.chunked_array([array, array.slice(1)])):
        found = codec.canonical_array(given_array)
        if codec.kind == "int":
            assert found.dtype == np.int64
            shown = [None if want is None else value for want, value in zip(wanted, found.tolist(), strict=False)]
        else:
            assert found.type == pa.binary()
            shown = found.to_pylist()[: len(wanted)]
        assert shown == wanted
        assert len(found) == len(given_array)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_floats_have_one_zero_and_one_greatest_nan_once_canonical(type):
    codec = codec_for(type)
    assert codec.encode_one(-0.0) != codec.encode_one(0.0)
    assert codec.canonical(codec.encode_one(-0.0)) == codec.encode_one(0.0)
    nans = [codec.canonical(codec.encode_one(value)) for value in (math.nan, -math.nan)]
    assert nans[0] == nans[1] > codec.encode_one(math.inf)
    assert codec.encode_one(-math.inf) < codec.encode_one(-1.0) < codec.encode_one(-0.0)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_an_array_with_every_awkward_float_is_canonical(type):
    width = type.bit_width // 8
    raw = b"".join(pattern.to_bytes(width, "little") for pattern in AWKWARD_FLOATS[width])
    array = pa.Array.from_buffers(type, len(AWKWARD_FLOATS[width]), [None, pa.py_buffer(raw)])
    codec = codec_for(type)
    found = codec.canonical_array(array).tolist()
    assert found == [codec.canonical(value) for value in codec.encode(array)]
    assert found[0] == found[1] == 0  # 0.0 and -0.0


def test_nested_values_have_no_order():
    assert not codec_for(pa.list_(pa.int8())).ordered
    assert not codec_for(pa.struct([("a", pa.int8())])).ordered
    assert not codec_for(pa.map_(pa.int8(), pa.int8())).ordered
    assert codec_for(pa.dictionary(pa.int8(), pa.string())).ordered


@pytest.mark.parametrize(
    ("type", "value", "encoded"),
    [
        (pa.bool_(), True, 1),
        (pa.int8(), -5, -5),
        (pa.uint64(), 0, -(2**63)),
        (pa.uint64(), 2**64 - 1, 2**63 - 1),
        (pa.float64(), 1.0, 0x3FF0000000000000),
        (pa.float64(), -0.0, -1),
        (pa.float64(), -1.0, -0x3FF0000000000001),
        (pa.float32(), 1.0, 0x3FF0000000000000),
        (pa.float16(), 1.0, 0x3FF0000000000000),
        (pa.decimal128(18, 2), Decimal("-1.25"), -125),
        (pa.decimal128(19, 2), Decimal("1.25"), bytes.fromhex("8000000000000000000000000000007d")),
        (pa.decimal128(38, 0), Decimal(-1), bytes.fromhex("7f" + "ff" * 15)),
        (pa.decimal256(76, 0), Decimal(1), b"\x80" + bytes(30) + b"\x01"),
        (pa.string(), "ü\0", b"\xc3\xbc\0"),
        (pa.binary(2), b"\0\xff", b"\0\xff"),
        (pa.dictionary(pa.int8(), pa.string()), "a", b"a"),
        (pa.list_(pa.int8()), [1, None], b"[1,null]"),
        (pa.list_(pa.string()), ['ü"\0', "null"], '["ü\\"\\u0000","null"]'.encode()),
        (
            pa.struct([("%s", pa.binary()), ("b", pa.bool_())]),
            {"%s": b"x", "b": None},
            b'{"%s":"eA==","b":null}',
        ),
        (pa.map_(pa.string(), pa.float64()), [("a", 1.0)], b'[["a",4607182418800017408]]'),
    ],
    ids=str,
)
def test_encodings_stay_as_they_are_since_catalogs_hold_them(type, value, encoded):
    codec = codec_for(type)
    assert codec.encode_one(value) == encoded
    assert codec.decode_one(encoded) == value
    assert codec.encode(codec.decode([encoded])) == [encoded]


def test_signalling_nans_keep_their_bits():
    raw = struct.pack("<4I", 0x7F800001, 0xFFA00000, 0x7FC00000, 0xFFFFFFFF)
    array = pa.Array.from_buffers(pa.float32(), 4, [None, pa.py_buffer(raw)])
    codec = codec_for(pa.float32())
    assert codec.decode(codec.encode(array)).buffers()[1].to_pybytes() == raw


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dictionary_comes_back_with_its_index_type_and_flag_and_used_values_only(ordered):
    type = pa.dictionary(pa.uint16(), pa.string(), ordered)
    dictionary = pa.array(["c", None, "unused", "a", "c"])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 3, None, 4], pa.uint16()), dictionary, ordered=ordered)
    codec = codec_for(type)
    decoded = codec.decode(codec.encode(array))
    assert decoded.type == type
    assert decoded.to_pylist() == ["c", None, "a", None, "c"]
    assert decoded.dictionary.to_pylist() == (["a", "c"] if ordered else ["c", "a"])


def test_a_batch_with_more_values_than_the_index_type_can_number_is_refused_with_advice():
    codec = codec_for(pa.dictionary(pa.int8(), pa.int64()))
    assert len(codec.decode(list(range(128))).dictionary) == 128
    with pytest.raises(ConstraintError, match=r"129 distinct values.*Read smaller batches, or use a wider index type"):
        codec.decode(list(range(129)))


def test_types_that_differ_in_names_or_metadata_inside_have_their_own_codecs():
    plain = pa.list_(pa.field("item", pa.int64()))
    named = pa.list_(pa.field("x", pa.int64()))
    marked = pa.list_(pa.field("item", pa.int64(), metadata={"unit": "m"}))
    for type in (plain, named, marked):
        assert codec_for(type).decode([b"[1]"]).type.equals(type, check_metadata=True)
        assert codec_for(type).decode([b"[1]"]).type.value_field.name == type.value_field.name


@pytest.mark.parametrize("type", EVERY, ids=str)
def test_codecs_are_shared_and_survive_pickling(type):
    assert codec_for(type) is codec_for(type)
    assert pickle.loads(pickle.dumps(codec_for(type))) is codec_for(type)


def test_an_array_of_another_type_is_refused():
    with pytest.raises(ConstraintError, match="Expected values of type int64, got an array of type int32"):
        codec_for(pa.int64()).encode(pa.array([1], pa.int32()))


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int8(), 128),
        (pa.int8(), b"x"),
        (pa.string(), b"\xff"),
        (pa.binary(2), b"x"),
        (pa.decimal128(38, 0), b"x"),
        (pa.list_(pa.int8()), b"[1"),
        (pa.list_(pa.int8(), 2), b"[1]"),
        (pa.struct([("a", pa.int8())]), b"{}"),
        (pa.map_(pa.string(), pa.int8()), b"[[null,1]]"),
    ],
    ids=str,
)
def test_a_value_in_the_catalog_that_is_none_of_the_type_is_reported_as_such(type, value):
    with pytest.raises(CatalogError, match=r"The catalog holds a value that is not a valid .* restore the catalog"):
        codec_for(type).decode([value])


def test_a_decimal_beyond_its_precision_is_refused_and_not_cut():
    array = pa.array([Decimal(10) ** 30], pa.decimal128(38, 0))
    lying = pa.Array.from_buffers(pa.decimal128(18, 0), 1, array.buffers())
    with pytest.raises(ConstraintError, match="more than the 18 digits"):
        codec_for(pa.decimal128(18, 0)).encode(lying)


@pytest.mark.long
def test_a_dictionary_too_large_to_be_written_out_is_refused():
    array = pa.DictionaryArray.from_arrays(pa.array([0] * 33, pa.int32()), pa.array([b"x" * (64 << 20)]))
    with pytest.raises(ConstraintError, match="smaller batches"):
        codec_for(array.type).to_storage(array)
