"""Keys of several columns, some of them null, for the partial run of a segment.

Each part starts with a byte that says what follows: 01 an integer of eight bytes, 02 an escaped byte string with its
terminator, 03 nothing, because the value is null.  All parts of a column have the same type, so nulls come last and
other values are in order.  After that byte, a part is encoded as in the middle of a key without nulls (`keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.values import scalar_of
from indexlake.indexes.keys import KeyColumn, encode_part, part_values
from indexlake.types import Codec

NULL, BEHIND_NULL = b"\x03", b"\x04"

_INT, _BYTES = b"\x01", b"\x02"
_ENDING = b"\x00\x00"


def partial_keys(codecs: Sequence[Codec], columns: Sequence[pa.Array]) -> KeyColumn:
    """Return the keys of rows given as columns, which may contain nulls."""
    parts: list[Any] = []
    for codec, column in zip(codecs, columns, strict=True):
        values = [_scalar(_mark(codec)), *part_values(codec, column, last=False), _scalar(b"")]
        parts.append(pc.if_else(pc.is_valid(column), pc.binary_join_element_wise(*values), _scalar(NULL)))
    return KeyColumn(binary=pc.binary_join_element_wise(*parts, _scalar(b"")))


def partial_part(codec: Codec, value: Any) -> bytes:
    """Return a canonical value encoded as a part."""
    return _mark(codec) + encode_part(codec, value, last=False)


def values_begin(codec: Codec) -> bytes:
    """Return the byte with which every part of a column starts unless it is null."""
    return _mark(codec)


def before_null(key: bytes) -> tuple[bytes, bytes]:
    """Return the key up to and including its first null, and the parts before it encoded as without nulls."""
    parts: list[bytes] = []
    at = 0
    while key[at : at + 1] != NULL:
        end = _end(key, at)
        parts.append(key[at + 1 : end])
        at = end
    return key[: at + 1], b"".join(parts)


def first_part(key: bytes) -> bytes:
    """Return the first part, which must not be null, encoded as in a key without nulls."""
    return key[1 : _end(key, 0)]


def _end(key: bytes, at: int) -> int:
    return at + 9 if key[at : at + 1] == _INT else key.index(_ENDING, at) + 2


def after(prefix: bytes) -> bytes | None:
    """Return the least key greater than all keys with a prefix, or None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _mark(codec: Codec) -> bytes:
    return _INT if codec.kind == "int" else _BYTES


def _scalar(value: bytes) -> pa.Scalar:
    return scalar_of(value, pa.large_binary())
