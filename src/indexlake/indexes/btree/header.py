"""The header of a segment file, little-endian: a fixed header, then sections at 64-byte boundaries.

common      what all keys start with
fences      every 4096th prefix
bloom       the Bloom filter
prefixes    8 bytes a key, sorted by key: the key itself, or its bytes behind `common`, as an integer
positions   4 bytes a key; 8 where there are several blocks: the block's ordinal in the upper half
offsets     where each key starts in `keys`, and the end; absent where all keys are as long
keys        the whole keys; absent where they are integers
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indexlake.errors import CorruptionError
from indexlake.indexes.btree.bloom import BLOCK_BYTES

FENCE_STEP = 4096

_MAGIC = b"ILKEYSEG"
_VERSION = 1
_SECTIONS = ("common", "fences", "bloom", "prefixes", "positions", "offsets", "keys")
_HEADER = struct.Struct("<8sHBxIQQ")
_TABLE = struct.Struct(f"<{2 * len(_SECTIONS)}Q")
_INT_KEYS, _UNIQUE = 1, 2
_ALIGNMENT = 64
HEADER_SIZE = _HEADER.size + _TABLE.size


@dataclass(frozen=True, slots=True)
class Section:
    """A range of bytes of the file."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a segment says.  `width` is the size of every key, 0 where it varies."""

    key_count: int
    is_int: bool
    unique: bool
    width: int
    common: Section
    fences: Section
    bloom: Section
    prefixes: Section
    positions: Section
    offsets: Section
    keys: Section


def assemble(
    contents: Mapping[str, Any], *, key_count: int, is_int: bool, unique: bool, width: int
) -> list[memoryview]:
    """The pieces of a segment file, one after the other, from the buffers of its sections."""
    flags = _INT_KEYS * is_int | _UNIQUE * unique
    header = _HEADER.pack(_MAGIC, _VERSION, flags, FENCE_STEP, key_count, width)
    spans: list[int] = []
    pieces: list[memoryview] = []
    at = HEADER_SIZE
    for name in _SECTIONS:
        buffer = contents.get(name, b"")
        piece = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        padding = -at % _ALIGNMENT
        spans += [at + padding, len(piece)]
        pieces += [memoryview(bytes(padding)), piece]
        at += padding + len(piece)
    return [memoryview(header + _TABLE.pack(*spans)), *pieces]


def parse(path: str, size: int, header: Any) -> Header:
    """Read a header, and check that its sections fit the file and each other."""
    magic, version, flags, fence_step, key_count, width = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise _wrong(path, "it does not start like a key segment")
    if version != _VERSION:
        raise _wrong(path, f"it is of version {version}, this release reads version {_VERSION}")
    numbers = _TABLE.unpack_from(header, _HEADER.size)
    sections = [Section(start, length) for start, length in zip(numbers[::2], numbers[1::2], strict=True)]
    found = Header(key_count, bool(flags & _INT_KEYS), bool(flags & _UNIQUE), width, *sections)
    offsets = 0 if found.is_int or width else (4 if found.keys.size < 1 << 32 else 8) * (key_count + 1)
    fits = (
        fence_step == FENCE_STEP
        and all(s.start >= HEADER_SIZE and s.start + s.size <= size for s in sections)
        and found.fences.size == 8 * -(-key_count // FENCE_STEP)
        and found.bloom.size > 0
        and found.bloom.size % BLOCK_BYTES == 0
        and found.prefixes.size == 8 * key_count
        and found.positions.size in (4 * key_count, 8 * key_count)
        and found.offsets.size == offsets
        and (found.is_int or not width or found.keys.size == width * key_count)
    )
    if not fits:
        raise _wrong(path, "its sections do not fit together")
    return found


def _wrong(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"key segment {path!r} cannot be read: {what}; restore the file or rebuild the index", path=path
    )
