"""Keys: equal where their values are, in the order of their values, the same one by one and vectorised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.indexes.keys import Key, KeyColumn, encode_key, hash_key, hash_keys, key_to_bytes
from indexlake.types import codec_for

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))),
    "uint64": (pa.uint64(), st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))),
    "float64": (pa.float64(), st.one_of(st.sampled_from([0.0, -0.0, math.nan, -math.nan]), st.floats())),
    "string": (pa.string(), st.text(alphabet="a\x00\x01\uffff", max_size=12)),
    "binary": (pa.large_binary(), st.lists(st.sampled_from([0, 1, 97, 255]), max_size=20).map(bytes)),
    "uuid": (pa.binary(16), st.binary(min_size=16, max_size=16)),
    "decimal": (pa.decimal128(30, 1), st.decimals(-(10**20), 10**20, places=1)),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Any], list[pa.ChunkedArray], list[tuple[Any, ...]]]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(TYPES[n][1] for n in names)), max_size=25))
    cut = draw(st.integers(0, len(rows)))
    arrays = []
    for number, name in enumerate(names):
        values = [row[number] for row in rows]
        arrays.append(
            pa.chunked_array([pa.array(values[:cut], TYPES[name][0]), pa.array(values[cut:], TYPES[name][0])])
        )
    return [codec_for(TYPES[n][0]) for n in names], arrays, rows


def model(codecs: list[Any], row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(c.canonical(c.encode_one(v)) for c, v in zip(codecs, row, strict=True))


@settings(max_examples=250, deadline=None)
@given(tables())
def test_keys_compare_as_their_values_do(
    table: tuple[list[Any], list[pa.ChunkedArray], list[tuple[Any, ...]]],
) -> None:
    codecs, arrays, rows = table
    values = [model(codecs, row) for row in rows]
    one_by_one: list[Any] = [
        encode_key(codecs, [c.encode_one(v) for c, v in zip(codecs, row, strict=True)]) for row in rows
    ]
    column = KeyColumn.from_arrays(codecs, arrays)
    assert column.to_list() == one_by_one == [column[i] for i in range(len(column))]
    order = sorted(range(len(rows)), key=values.__getitem__)
    assert sorted(range(len(rows)), key=one_by_one.__getitem__) == order
    assert column.argsort().tolist() == order
    assert column.is_sorted() == (order == list(range(len(rows))))
    assert column.take(column.argsort()).is_sorted()
    for left in range(len(rows)):
        for right in range(left):
            assert (one_by_one[left] == one_by_one[right]) == (values[left] == values[right])
    repeated = [i for i, v in enumerate(values) if v in values[:i]]
    assert column.first_duplicate() == (repeated[0] if repeated else None)
    in_bytes = [key_to_bytes(k) for k in one_by_one]
    assert sorted(range(len(rows)), key=in_bytes.__getitem__) == order


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(0, 25), st.integers(0, 25))
def test_slices_parts_and_hashes_agree_with_single_keys(
    table: tuple[list[Any], list[pa.ChunkedArray], list[tuple[Any, ...]]], start: int, length: int
) -> None:
    codecs, arrays, _ = table
    column = KeyColumn.from_arrays(codecs, arrays)
    keys = column.to_list()
    start = min(start, len(keys))
    part = column.slice(start, length)
    assert part.to_list() == keys[start : start + length]
    assert hash_keys(part).tolist() == [hash_key(k) for k in part]
    assert KeyColumn.concat([part, column]).to_list() == part.to_list() + keys
    assert KeyColumn.from_keys(keys, ints=column.is_int).to_list() == keys
    for skip in (0, 1, 5):
        if not part.is_int:
            expected = [int.from_bytes(key_to_bytes(k)[skip : skip + 8].ljust(8, b"\0"), "big") for k in part]
            assert part.prefixes(skip).tolist() == expected
    common = part.common_prefix()
    if not part.is_int and len(part):
        assert all(key_to_bytes(k).startswith(common) for k in part)
        assert len({key_to_bytes(k)[: len(common) + 1] for k in part}) > 1 or common in part.to_list()


def test_hashes_are_the_same_on_every_machine() -> None:
    assert [hash_key(0), hash_key(1), hash_key(2**64 - 1)] == [0, 6238072747940578789, 13029008266876403067]
    assert hash_key(b"") == 3244421341483603138
    assert hash_key(b"indexlake") == 14860450217790637444


def keys_of(values: list[Key]) -> KeyColumn:
    return KeyColumn.from_keys(values, ints=isinstance(values[0], int))


def test_many_keys_with_a_common_start_are_sorted() -> None:
    random = np.random.default_rng(1)
    values: list[Key] = [f"customer-{n:012}".encode() for n in random.integers(0, 10**6, 5000).tolist()]
    column = keys_of(values)
    assert column.take(column.argsort()).to_list() == sorted(values)  # type: ignore[type-var]
    assert column.common_prefix() == b"customer-000000"


def test_an_empty_column_has_no_duplicate_and_no_order() -> None:
    for column in (KeyColumn.from_keys([], ints=True), KeyColumn.from_keys([], ints=False)):
        assert column.first_duplicate() is None
        assert column.argsort().tolist() == []
        assert column.common_prefix() == b""
        assert column.prefixes().tolist() == []
