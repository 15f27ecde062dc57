"""Keys of several columns of which some are null, for the partial run of a segment.

Each part has a byte in front that says what follows: 01 an integer of eight bytes, 02 an escaped byte string and its
end, 03 nothing, because the value is null.  A column has parts of one type only, so nulls are last and the other values
in their order.  Behind its byte a part is what it is in the middle of a key without nulls (`keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.keys import KeyColumn, encode_part, part_values
from indexlake.types import Codec

NULL, BEHIND_NULL = b"\x03", b"\x04"

_INT, _BYTES = b"\x01", b"\x02"
_ENDING = b"\x00\x00"


def partial_keys(codecs: Sequence[Codec], columns: Sequence[pa.Array]) -> KeyColumn:
    """The keys of the rows of some columns."""
    parts: list[Any] = []
    for codec, column in zip(codecs, columns, strict=True):
        values = [_scalar(_mark(codec)), *part_values(codec, column, last=False), _scalar(b"")]
        parts.append(pc.if_else(pc.is_valid(column), pc.binary_join_element_wise(*values), _scalar(NULL)))
    return KeyColumn(binary=pc.binary_join_element_wise(*parts, _scalar(b"")))


def partial_part(codec: Codec, value: Any) -> bytes:
    """A canonical value as a part."""
    return _mark(codec) + encode_part(codec, value, last=False)


def values_begin(codec: Codec) -> bytes:
    """What every part of a column that is not null starts with."""
    return _mark(codec)


def before_null(key: bytes) -> tuple[bytes, bytes]:
    """What all keys with this first null start with; and the parts before it, as a key without nulls has them."""
    parts: list[bytes] = []
    at = 0
    while key[at : at + 1] != NULL:
        end = _end(key, at)
        parts.append(key[at + 1 : end])
        at = end
    return key[: at + 1], b"".join(parts)


def first_part(key: bytes) -> bytes:
    """The first part, which is not null, as a key without nulls has it."""
    return key[1 : _end(key, 0)]


def _end(key: bytes, at: int) -> int:
    return at + 9 if key[at : at + 1] == _INT else key.index(_ENDING, at) + 2


def after(prefix: bytes) -> bytes | None:
    """The least key greater than all that start with a prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _mark(codec: Codec) -> bytes:
    return _INT if codec.kind == "int" else _BYTES


def _scalar(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())
