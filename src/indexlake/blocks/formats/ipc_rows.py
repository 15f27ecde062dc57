"""One row of a record batch, read directly from its message in the memory map.

Having Arrow decode a batch and wrap its columns costs more than looking up a few values: a message says where its
buffers are, and those of numbers and text are simple. Values of other types are left to Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

Layout = list[int]
"""The offset in the file of each buffer of a message; -1: it is empty."""

Read = Callable[[memoryview, Layout, int], Any]
"""Reads the value of one column: (map of the file, layout of a message, row in it) → value."""

_NUMBERS = {
    pa.int8(): "<b", pa.int16(): "<h", pa.int32(): "<i", pa.int64(): "<q", pa.uint8(): "<B", pa.uint16(): "<H",
    pa.uint32(): "<I", pa.uint64(): "<Q", pa.float32(): "<f", pa.float64(): "<d",
}  # fmt: skip
_OFFSETS = {pa.string(): "<2i", pa.binary(): "<2i", pa.large_string(): "<2q", pa.large_binary(): "<2q"}
_INT, _SHORT, _LENGTH = struct.Struct("<i"), struct.Struct("<H"), struct.Struct("<I")
_MESSAGE = struct.Struct("<qi4xq")  # its offset, and the lengths of its head and body
_BUFFER = struct.Struct("<qq")  # its offset in the body, and its length
_PREFIX = 8  # bytes in front of the flatbuffer of a message

Message = tuple[int, int, int]
"""Its offset in the file, and the lengths of its head and body."""


def messages(footer: memoryview) -> list[Message]:
    """Return the messages of all record batches, from the footer of the file."""
    return list(_MESSAGE.iter_unpack(_structs(footer, _root(footer), 3, _MESSAGE.size)))


def layout(message: memoryview, begin: int, head: int) -> Layout:
    """Return the layout of a record batch's message, given its offset in the file and the length of its head."""
    flat = message[_PREFIX:head]
    batch = _field(flat, _root(flat), 2)
    batch += _LENGTH.unpack_from(flat, batch)[0]
    body = begin + head
    return [body + at if size else -1 for at, size in _BUFFER.iter_unpack(_structs(flat, batch, 2, _BUFFER.size))]


def reads(schema: pa.Schema, columns: Sequence[str]) -> list[Read | None]:
    """Return how to read each of the columns; None: Arrow has to."""
    firsts, count = {}, 0
    for field in schema:
        firsts[field.name] = count
        count += _buffers(field.type)
    return [_read(schema.field(name).type, firsts[name]) for name in columns]


def _read(type: Any, first: int) -> Read | None:
    if type in _NUMBERS:
        return _number(struct.Struct(_NUMBERS[type]), first)
    if type in _OFFSETS:
        return _text(struct.Struct(_OFFSETS[type]), first, type in (pa.string(), pa.large_string()))
    return _boolean(first) if type == pa.bool_() else None


def _number(form: struct.Struct, first: int) -> Read:
    unpack, width = form.unpack_from, form.size

    def read(file: memoryview, at: Layout, row: int) -> Any:
        valid = at[first]
        if valid >= 0 and not file[valid + (row >> 3)] >> (row & 7) & 1:
            return None
        return unpack(file, at[first + 1] + row * width)[0]

    return read


def _boolean(first: int) -> Read:
    def read(file: memoryview, at: Layout, row: int) -> Any:
        valid = at[first]
        if valid >= 0 and not file[valid + (row >> 3)] >> (row & 7) & 1:
            return None
        return bool(file[at[first + 1] + (row >> 3)] >> (row & 7) & 1)

    return read


def _text(form: struct.Struct, first: int, decode: bool) -> Read:
    unpack, width = form.unpack_from, form.size // 2

    def read(file: memoryview, at: Layout, row: int) -> Any:
        valid = at[first]
        if valid >= 0 and not file[valid + (row >> 3)] >> (row & 7) & 1:
            return None
        start, end = unpack(file, at[first + 1] + row * width)
        data = at[first + 2]
        value = file[data + start : data + end]
        return str(value, "utf-8") if decode else bytes(value)

    return read


def _buffers(type: Any) -> int:
    """Return how many buffers a column has in a message."""
    if isinstance(type, pa.BaseExtensionType):
        return _buffers(type.storage_type)
    if pa.types.is_null(type):
        return 0
    inner = sum(_buffers(type.field(n).type) for n in range(type.num_fields))
    if type in _OFFSETS:
        return 3
    has_own = not (pa.types.is_struct(type) or pa.types.is_fixed_size_list(type))
    return inner + 1 + has_own


def _root(flat: memoryview) -> int:
    return int(_LENGTH.unpack_from(flat, 0)[0])


def _field(flat: memoryview, table: int, number: int) -> int:
    """Return the offset of a field of a flatbuffer table."""
    fields = table - _INT.unpack_from(flat, table)[0]
    return int(table + _SHORT.unpack_from(flat, fields + 4 + 2 * number)[0])


def _structs(flat: memoryview, table: int, number: int, size: int) -> memoryview:
    """Return the structs of ``size`` bytes that a field of a flatbuffer table lists."""
    vector = _field(flat, table, number)
    vector += _LENGTH.unpack_from(flat, vector)[0]
    start = vector + _LENGTH.size
    return flat[start : start + size * _LENGTH.unpack_from(flat, vector)[0]]
