"""The header of a segment file, little-endian: a fixed header, then sections at 64-byte boundaries.

A *run* is a sorted list of keys and of the slots that hold them.  Keys are encoded as described in `keys`; slots of
equal keys ascend.  Rows with a null in their key are not in the run, so that a search for equal keys never finds them:

- for a key of one column, `nulls` has their slots;
- for a composite key, they are in a second run, the *partial* one.  Its keys have a marker in front of each part, so
  that nulls come last and every part can be searched within those before it (`partial`).

common      the prefix that all keys of the run share
starts      8 bytes each: the first slot of every block, and the number of slots
fences      every 4096th prefix
bloom       the Bloom filter
prefixes    8 bytes a key, sorted by key: the key itself, or its bytes after `common`, as an integer
positions   the slots, 4 bytes each, or 8 if there are more than 2**32 slots
offsets     where each key starts in `keys`, and the end; absent if all keys have the same length
keys        the whole keys; absent if they are integers
nulls       slots, ascending
partial_…   the sections of the partial run, which has no filter
values      the columns of an index that includes some: an Arrow stream for every 1024 slots, at least one
value_ends  8 bytes each: where the streams end

Version 1 was for one block whose keys have no nulls: slots are positions in it, and the only sections are those of the
run and its filter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from indexlake.errors import CorruptionError
from indexlake.indexes.btree.bloom import BLOCK_BYTES

FENCE_STEP = 4096
VALUE_STEP = 1024
VERSION = 2

_MAGIC = b"ILKEYSEG"
_OLD_SECTIONS = ("common", "fences", "bloom", "prefixes", "positions", "offsets", "keys")
_RUN = ("common", "fences", "prefixes", "positions", "offsets", "keys")
_SECTIONS = (
    "common", "starts", "fences", "bloom", "prefixes", "positions", "offsets", "keys", "nulls",
    *(f"partial_{name}" for name in _RUN), "values", "value_ends",
)  # fmt: skip
_HEADER = struct.Struct("<8sHBxIQQ")
_MORE = struct.Struct("<QQQ")
_INT_KEYS, _UNIQUE = 1, 2
_ALIGNMENT = 64
_OLD_SIZE = _HEADER.size + 16 * len(_OLD_SECTIONS)
HEADER_SIZE = _HEADER.size + _MORE.size + 16 * len(_SECTIONS)


@dataclass(frozen=True, slots=True)
class Section:
    """A range of bytes of the file."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class RunLayout:
    """Where a run is.  `width` is the size of every key, or 0 if it varies; `slot_size` is the size of a slot."""

    count: int
    is_int: bool
    width: int
    slot_size: int
    common: Section
    fences: Section
    prefixes: Section
    positions: Section
    offsets: Section
    keys: Section

    def fits(self) -> bool:
        """Return whether the sizes of the sections are consistent."""
        offset_size = 4 if self.keys.size < 1 << 32 else 8
        return (
            self.fences.size == 8 * -(-self.count // FENCE_STEP)
            and self.prefixes.size == 8 * self.count
            and self.positions.size == self.slot_size * self.count
            and self.offsets.size == (0 if self.is_int or self.width else offset_size * (self.count + 1))
            and (self.is_int or not self.width or self.keys.size == self.width * self.count)
        )


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of a segment's header."""

    unique: bool
    slot_count: int
    run: RunLayout
    bloom: Section
    partial: RunLayout | None
    starts: Section | None  # None: one block
    nulls: Section | None
    values: Section | None
    value_ends: Section | None


def slot_size(slot_count: int) -> int:
    """Return the number of bytes of a slot."""
    return 4 if slot_count <= 1 << 32 else 8


class Pieces(Protocol):
    """The bytes of a section, which are not all in memory."""

    @property
    def size(self) -> int: ...
    def pieces(self) -> Iterable[Any]: ...


def assemble(
    contents: Mapping[str, Any],
    *,
    key_count: int,
    is_int: bool,
    unique: bool,
    width: int,
    slot_count: int,
    partial_count: int = 0,
    partial_width: int = 0,
) -> Iterator[memoryview]:
    """Yield the pieces of a segment file from its sections, which are buffers or `Pieces`."""
    flags = _INT_KEYS * is_int | _UNIQUE * unique
    header = _HEADER.pack(_MAGIC, VERSION, flags, FENCE_STEP, key_count, width)
    header += _MORE.pack(slot_count, partial_count, partial_width)
    sections = [contents.get(name, b"") for name in _SECTIONS]
    spans: list[int] = []
    at = HEADER_SIZE
    for section in sections:
        at += -at % _ALIGNMENT
        spans += [at, section.size if hasattr(section, "pieces") else memoryview(section).nbytes]
        at += spans[-1]
    yield memoryview(header + struct.pack(f"<{len(spans)}Q", *spans))
    at = HEADER_SIZE
    for section, start, size in zip(sections, spans[::2], spans[1::2], strict=True):
        yield memoryview(bytes(start - at))
        for piece in section.pieces() if hasattr(section, "pieces") else (section,):
            if len(piece):
                yield memoryview(piece).cast("B")
        at = start + size


def parse(path: str, size: int, header: Any) -> Header:
    """Parse a header (`HEADER_SIZE` bytes, or all of a shorter file) and check that its sections fit."""
    if len(header) < _OLD_SIZE:
        raise _wrong(path, "it is shorter than its header")
    magic, version, flags, fence_step, count, width = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise _wrong(path, "it does not start like a key segment")
    if version not in (1, VERSION):
        raise _wrong(path, f"its version is {version}, and this release reads versions 1 and {VERSION}")
    names, at = (_OLD_SECTIONS, _HEADER.size) if version == 1 else (_SECTIONS, _HEADER.size + _MORE.size)
    if len(header) < at + 16 * len(names):
        raise _wrong(path, "it is shorter than its header")
    numbers = struct.unpack_from(f"<{2 * len(names)}Q", header, at)
    sections = {name: Section(*numbers[2 * n : 2 * n + 2]) for n, name in enumerate(names)}
    slots, partials, partial_width = (count, 0, 0) if version == 1 else _MORE.unpack_from(header, _HEADER.size)
    wide = slot_size(slots)
    found = Header(
        unique=bool(flags & _UNIQUE),
        slot_count=slots,
        run=RunLayout(count, bool(flags & _INT_KEYS), width, wide, *(sections[name] for name in _RUN)),
        bloom=sections["bloom"],
        partial=RunLayout(partials, False, partial_width, wide, *(sections[f"partial_{name}"] for name in _RUN))
        if partials
        else None,
        **{name: sections.get(name) for name in ("starts", "nulls", "values", "value_ends")},
    )
    fits = (
        fence_step == FENCE_STEP
        and all(s.start >= _OLD_SIZE and s.start + s.size <= size for s in sections.values())
        and found.run.fits()
        and found.bloom.size > 0
        and found.bloom.size % BLOCK_BYTES == 0
        and (found.partial is None or found.partial.fits())
        and (found.starts is None or (found.starts.size >= 8 and found.starts.size % 8 == 0))
        and (found.nulls is None or found.nulls.size % wide == 0)
        and (found.value_ends is None or found.value_ends.size in (0, 8 * max(1, -(-slots // VALUE_STEP))))
    )
    if not fits:
        raise _wrong(path, "its sections do not fit together")
    return found


def _wrong(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"key segment {path!r} cannot be read: {what}; restore the file or rebuild the index", path=path
    )
