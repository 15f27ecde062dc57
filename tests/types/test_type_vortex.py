"""Every supported type through a real Vortex file, equal to the bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.errors import ConstraintError
from indexlake.types import selection
from indexlake.types.convert import convert
from indexlake.types.vortex import to_vortex, vortex_type
from tests.types.arrow_exact import assert_same, same_type
from tests.types.arrow_strategies import (
    PLAIN,
    arrays,
    dictionary_types,
    nested_types,
    typed_arrays,
    types,
)


@pytest.fixture(scope="module")
def through(tmp_path_factory):
    """A function that writes an array to a file and reads it again."""
    import vortex

    path = str(tmp_path_factory.mktemp("vortex") / "column.vortex")

    def write_and_read(array):
        written = to_vortex(array)
        assert written.type.equals(vortex_type(array.type))
        vortex.io.write(pa.table({"f1": written}), path)
        return convert(vortex.open(path).to_arrow().read_all().column("f1"), array.type)

    return write_and_read


def repeated(array, times):
    """Enough rows for Vortex to choose its encodings: runs, dictionaries, bit-packing, ALP."""
    return selection.take(array, pa.array(np.tile(np.arange(len(array)), times)))


@pytest.mark.parametrize("type", PLAIN, ids=str)
def test_every_plain_type_survives_a_file(type, through):
    @settings(max_examples=8, deadline=None)
    @given(arrays(type, max_size=30), st.sampled_from([1, 100]))
    def check(array, times):
        array = repeated(array, times)
        assert_same(through(array), array)

    check()


@settings(max_examples=120, deadline=None)
@given(array=typed_arrays(nested_types() | dictionary_types()), times=st.sampled_from([1, 50]))
def test_every_nested_type_survives_a_file(through, array, times):
    array = repeated(array, times)
    assert_same(through(array), array)


@settings(max_examples=200, deadline=None)
@given(typed_arrays(types()))
def test_there_and_back_is_the_identity_without_a_file(array):
    written = to_vortex(array)
    written.validate()
    assert written.type.equals(vortex_type(array.type))
    assert_same(convert(written, array.type), array)


@settings(max_examples=100, deadline=None)
@given(types())
def test_the_written_type_is_written_as_itself(type):
    assert same_type(vortex_type(vortex_type(type)), vortex_type(type))


def test_chunks_are_converted_one_by_one():
    array = pa.chunked_array([pa.array([b"ab", None], pa.binary(2)), pa.array([b"cd"], pa.binary(2))])
    written = to_vortex(array)
    assert written.type == pa.binary()
    assert_same(convert(written, array.type), array)
    empty = pa.chunked_array([], pa.dictionary(pa.int8(), pa.duration("s")))
    assert_same(convert(to_vortex(empty), empty.type), empty)


@pytest.mark.parametrize("rows", [[None], [None, None], [{"a": 1, "b": "x", "c": {"d": [1, 2]}}, None]])
def test_required_fields_below_a_null_struct_survive_a_file(rows, through):
    items = pa.list_(pa.field("item", pa.date32(), False), 2)
    type = pa.struct(
        [
            pa.field("a", pa.decimal256(60, 2), False),
            pa.field("b", pa.string_view(), False),
            pa.field("c", pa.struct([pa.field("d", items, False)]), False),
        ]
    )
    array = pa.array(rows, type)
    assert_same(through(array), array)
    lists = pa.array([rows, None, []], pa.list_(pa.field("item", type)))
    assert_same(through(lists), lists)


def test_a_null_in_a_required_field_is_refused_before_vortex_sees_it():
    array = pa.array([{"a": None}], pa.struct([pa.field("a", pa.int64(), False)]))
    with pytest.raises(ConstraintError, match="required field 'a'"):
        to_vortex(array)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.timestamp("s"), 2**40),
        (pa.timestamp("ns", "UTC"), -(2**63)),
        (pa.time32("s"), 86_400),
        (pa.time64("ns"), -1),
        (pa.date64(), 5),
        (pa.duration("ns"), 2**63 - 1),
    ],
    ids=str,
)
def test_values_that_no_calendar_shows_survive_a_file(type, value, through):
    bits_type = pa.int64() if type.bit_width == 64 else pa.int32()
    array = pa.array([value, None, value], bits_type).view(type)
    assert_same(through(array), array)


_MAPS = pa.array([[("a", 1)], None, [], []], pa.map_(pa.string(), pa.int64()))
_TEXTS = pa.array(["a", None])
_NO_TEXT = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), _TEXTS.slice(2))


@pytest.mark.parametrize(
    "array",
    [
        _MAPS.slice(1),
        pa.StructArray.from_arrays([_MAPS.slice(1), pa.array([1, 2, 3])], ["m", "n"]),
        _NO_TEXT,
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), _NO_TEXT),
        pa.MapArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array(["a"]).slice(1), pa.array([1]).slice(1)),
        pa.LargeListArray.from_arrays(pa.array([0, 0], pa.int64()), pa.array([{"x": "a"}]).slice(1)),
    ],
    ids=["map", "struct of map", "list", "list of list", "map of empty slices", "list of struct"],
)
def test_empty_slices_inside_are_no_trouble(array, through):
    """As they come from a block of which all other rows were deleted; Vortex panicked on them."""
    assert through(array).to_pylist() == array.to_pylist()
