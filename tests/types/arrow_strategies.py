"""Hypothesis strategies: supported types, and arrays of them with every awkward value, slice and null."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from indexlake.types import codec_for
from indexlake.types.validity import TICKS_OF_DAY

UNITS = ("s", "ms", "us", "ns")
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TEMPORALS = [
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *[pa.timestamp(unit) for unit in UNITS],
    *[
        pa.timestamp(unit, zone)
        for unit, zone in zip(UNITS, ("UTC", "Europe/Berlin", "+05:30", "Asia/Kathmandu"), strict=True)
    ],
    *[pa.duration(unit) for unit in UNITS],
]
DECIMALS = [
    pa.decimal32(1, 0),
    pa.decimal32(9, 2),
    pa.decimal64(18, 9),
    pa.decimal128(18, 4),
    pa.decimal128(19, 4),
    pa.decimal128(38, 10),
    pa.decimal128(5, -2),
    pa.decimal256(18, 2),
    pa.decimal256(38, 0),
    pa.decimal256(39, 5),
    pa.decimal256(76, 38),
]
STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1), pa.binary(16)]
IN_DICTIONARIES = [pa.bool_(), *INTEGERS, *FLOATS, *TEMPORALS, *DECIMALS, *STRINGS, *BINARIES]
PLAIN = [*IN_DICTIONARIES, pa.uuid()]

_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
_metadata = st.none() | st.dictionaries(st.binary(max_size=3), st.binary(max_size=3), min_size=1, max_size=2)


def plain_types() -> Any:
    return st.sampled_from(PLAIN)


def dictionary_types() -> Any:
    return st.builds(pa.dictionary, st.sampled_from(INTEGERS), st.sampled_from(IN_DICTIONARIES), st.booleans())


@st.composite
def _fields(draw: Any, types: Any, name: str | None = None) -> Any:
    named = draw(_names) if name is None else name
    return pa.field(named, draw(types), draw(st.booleans()), draw(_metadata))


@st.composite
def _structs(draw: Any, types: Any) -> Any:
    names = draw(st.lists(_names, min_size=1, max_size=3, unique=True))
    return pa.struct([draw(_fields(types, name)) for name in names])


@st.composite
def _maps(draw: Any, types: Any) -> Any:
    names = draw(st.lists(_names, min_size=2, max_size=2, unique=True))
    key = pa.field(names[0], draw(types), False, draw(_metadata))
    return pa.map_(key, draw(_fields(types, names[1])), draw(st.booleans()))


def nested_types() -> Any:
    return st.recursive(
        plain_types() | dictionary_types(),
        lambda types: st.one_of(
            st.builds(pa.list_, _fields(types)),
            st.builds(pa.large_list, _fields(types)),
            st.builds(pa.list_, _fields(types), st.integers(1, 3)),
            _structs(types),
            _maps(types),
        ),
        max_leaves=4,
    )


@st.composite
def deep_types(draw: Any, levels: int, lists: int) -> Any:
    """Types with so many levels, of which so many are lists or maps; some levels have other fields beside."""
    kinds = ["list", "large_list", "map", "map key"]
    flat = ["struct", "wide struct", "fixed"]
    below = [draw(st.sampled_from(kinds if level < lists else flat)) for level in range(levels)]
    type = draw(plain_types() | dictionary_types())
    for kind in draw(st.permutations(below)):
        if kind == "struct":
            type = pa.struct([draw(_fields(st.just(type), "a"))])
        elif kind == "wide struct":
            type = pa.struct([("a", pa.int8()), draw(_fields(st.just(type), "b")), ("c", pa.string())])
        elif kind == "map":
            type = pa.map_(pa.string(), draw(_fields(st.just(type), "v")))
        elif kind == "map key":
            type = pa.map_(pa.field("k", type, False), pa.int8())
        else:
            wrap = {"list": pa.list_, "large_list": pa.large_list, "fixed": lambda field: pa.list_(field, 1)}[kind]
            type = wrap(draw(_fields(st.just(type))))
    return type


def types() -> Any:
    return st.one_of(plain_types(), dictionary_types(), nested_types())


@st.composite
def arrays(draw: Any, type: Any, max_size: int = 12) -> Any:
    """An array of the type, often a slice of a larger one, with anything in its null slots."""
    size = draw(st.integers(0, max_size))
    array = draw(_sized(type, [True] * size))
    start = draw(st.integers(0, size))
    return array.slice(start, draw(st.integers(0, size - start))) if draw(st.booleans()) else array


@st.composite
def typed_arrays(draw: Any, types: Any) -> Any:
    return draw(arrays(draw(types)))


AWKWARD_FLOATS = {
    2: [0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7D01, 0xFD55, 0x0001, 0x7BFF],
    4: [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFA00000, 1, 0x7F7FFFFF],
    8: [
        0,
        1 << 63,
        0x7FF << 52,
        0xFFF << 52,
        0x7FF8 << 48,
        0xFFF8 << 48,
        (0x7FF << 52) + 1,
        (0xFFF << 52) + 7,
        1,
    ],
}


@st.composite
def _sized(draw: Any, type: Any, nulls: list[bool]) -> Any:
    """One row for each flag, which may be null where the flag is set; null slots hold arbitrary values."""
    size = len(nulls)
    some = any(nulls) and draw(st.booleans())
    mask = [may and draw(st.booleans()) for may in nulls] if some else [False] * size
    valid = _bitmap([not null for null in mask]) if some else None
    t = pa.types

    def build(buffers: list[Any], children: Any = None) -> Any:
        return pa.Array.from_buffers(type, size, [valid, *buffers], children=children)

    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, draw(_sized(type.storage_type, nulls)))
    if t.is_dictionary(type):
        values = draw(_sized(type.value_type, [all(nulls)] * draw(st.integers(1, 4))))
        numbers = draw(_lists(st.integers(0, len(values) - 1), size))
        indices = pa.array(_masked(numbers, mask), type.index_type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=type.ordered)
    if t.is_struct(type):
        fields = [type.field(index) for index in range(type.num_fields)]
        return build([], [draw(_child(field, mask)) for field in fields])
    if t.is_fixed_size_list(type):
        hidden = [null for null in mask for _ in range(type.list_size)]
        return build([], [draw(_child(type.value_field, hidden))])
    if t.is_list(type) or t.is_large_list(type) or t.is_map(type):
        lengths = draw(_lists(st.integers(0, 3), size))
        hidden = [null for null, length in zip(mask, lengths, strict=True) for _ in range(length)]
        offsets = [sum(lengths[:row]) for row in range(size + 1)]
        code = "q" if t.is_large_list(type) else "i"
        if t.is_map(type):
            child = draw(_entries(type, hidden))
            offsets = _without_key_twice(child.field(0), offsets)
        else:
            child = draw(_child(type.value_field, hidden))
        return build([pa.py_buffer(struct.pack(f"={size + 1}{code}", *offsets))], [child])
    if t.is_boolean(type):
        return build([_bitmap(draw(_lists(st.booleans(), size)))])
    if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type):
        texts = draw(_lists(st.text(st.characters(codec="utf-8"), max_size=16), size))
        return pa.array(_masked(texts, mask), type)
    if t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type):
        return pa.array(_masked(draw(_lists(st.binary(max_size=16), size)), mask), type)
    return build([pa.py_buffer(b"".join(draw(_lists(_fixed(type), size))))])


def _child(field: Any, hidden: list[bool]) -> Any:
    """Values of a field; a required one may be null only where its parent is."""
    return _sized(field.type, [True] * len(hidden) if field.nullable else hidden)


@st.composite
def _entries(draw: Any, type: Any, hidden: list[bool]) -> Any:
    keys = draw(_sized(type.key_type, [False] * len(hidden)))
    items = draw(_child(type.item_field, hidden))
    return pa.Array.from_buffers(type.field(0).type, len(hidden), [None], children=[keys, items])


def _without_key_twice(keys: Any, offsets: list[int]) -> list[int]:
    """The offsets; those of empty maps when a key is twice in one of them."""
    codec = codec_for(keys.type)
    known = [codec.canonical(value) for value in codec.encode(keys)]
    for start, stop in pairwise(offsets):
        if len(set(known[start:stop])) < stop - start:
            return [0] * len(offsets)
    return offsets


def _lists(values: Any, size: int) -> Any:
    return st.lists(values, min_size=size, max_size=size)


def _fixed(type: Any) -> Any:
    """The bytes of one value of a fixed-width type."""
    width = type.bit_width // 8
    if pa.types.is_time(type):
        day = TICKS_OF_DAY[type.unit]
        times = st.integers(0, day) | st.sampled_from([0, day])
        return times.map(lambda ticks: ticks.to_bytes(width, "little"))
    if pa.types.is_floating(type):
        awkward = st.sampled_from([bits.to_bytes(width, "little") for bits in AWKWARD_FLOATS[width]])
        return awkward | st.binary(min_size=width, max_size=width)
    if pa.types.is_decimal(type):
        limit = 10**type.precision - 1
        numbers = st.integers(-limit, limit) | st.sampled_from([-limit, limit, 0, -1])
        return numbers.map(lambda number: number.to_bytes(width, "little", signed=True))
    if pa.types.is_fixed_size_binary(type) or pa.types.is_unsigned_integer(type):
        return st.binary(min_size=width, max_size=width)
    low, high = -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1
    numbers = st.integers(low, high) | st.sampled_from([low, high, 0, -1, 1])
    return numbers.map(lambda number: number.to_bytes(width, "little", signed=True))


def _masked(values: list[Any], mask: list[bool]) -> list[Any]:
    return [None if null else value for value, null in zip(values, mask, strict=True)]


def _bitmap(flags: list[bool]) -> Any:
    data = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        data[index // 8] |= flag << (index % 8)
    return pa.py_buffer(bytes(data))
