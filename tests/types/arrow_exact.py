"""Equality of Arrow arrays to the bit: type with nested names and metadata, nulls, payloads of NaNs, -0.0."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa


def assert_same(actual: Any, expected: Any) -> None:
    """Both arrays have exactly the same type and the same values, bit for bit, however they lie in memory."""
    assert same_type(actual.type, expected.type), f"{actual.type} is not exactly {expected.type}"
    assert len(actual) == len(expected)
    found, wanted = bits(actual), bits(expected)
    for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
        assert left == right, f"row {index}: {left!r} is not {right!r} (bits of {expected.type})"


def same_type(left: Any, right: Any) -> bool:
    return bool(left.equals(right, check_metadata=True)) and _fields(left) == _fields(right)


def _fields(type: Any) -> list[Any]:
    """What ``equals`` leaves out for some nested types: names and nullability of their fields."""
    if pa.types.is_map(type):
        fields = [type.key_field, type.item_field]
    elif pa.types.is_struct(type) or pa.types.is_nested(type):
        fields = [type.field(index) for index in range(type.num_fields)]
    else:
        return []
    return [(field.name, field.nullable, field.metadata, _fields(field.type)) for field in fields]


def bits(array: Any) -> list[Any]:
    """One comparable Python object for each row; None exactly where the row is null."""
    if isinstance(array, pa.ChunkedArray):
        return [row for chunk in array.chunks for row in bits(chunk)]
    rows = _rows(array)
    valid = array.is_valid().to_pylist()
    return [row if ok else None for row, ok in zip(rows, valid, strict=True)]


def _rows(array: Any) -> list[Any]:
    type, t = array.type, pa.types
    if isinstance(type, pa.BaseExtensionType):
        return bits(array.storage)
    if t.is_dictionary(type):
        values, indices = bits(array.dictionary), array.indices.to_pylist()
        return [None if index is None else values[index] for index in indices]
    if t.is_struct(type):
        columns = [bits(array.field(index)) for index in range(type.num_fields)]
        return [tuple(row) for row in zip(*columns, strict=True)] if columns else [()] * len(array)
    if t.is_map(type):
        keys, items, offsets = bits(array.keys), bits(array.items), array.offsets.to_pylist()
        pairs = list(zip(keys, items, strict=True))
        return [pairs[start:stop] for start, stop in itertools.pairwise(offsets)]
    if t.is_fixed_size_list(type):
        size, items = type.list_size, bits(array.values)
        return [items[row * size : (row + 1) * size] for row in range(array.offset, array.offset + len(array))]
    if t.is_list(type) or t.is_large_list(type):
        items, offsets = bits(array.values), array.offsets.to_pylist()
        return [items[start:stop] for start, stop in itertools.pairwise(offsets)]
    if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type):
        return [None if text is None else text.encode() for text in array.to_pylist()]
    if t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type) or t.is_boolean(type):
        return list(array.to_pylist())
    width = type.bit_width // 8
    buffer = array.buffers()[1]
    data = b"" if buffer is None else buffer.to_pybytes()
    return [data[row * width : (row + 1) * width] for row in range(array.offset, array.offset + len(array))]
