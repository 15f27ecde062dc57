"""The file of a vector segment, little-endian: a fixed header, then sections at 64-byte boundaries.

starts     the first slot of each block, and the number of slots, 8 bytes each
validity   a bit a slot: whether its row has a vector that can be found; absent where all have
groups     4 bytes a slot with a vector: which vector; absent where each has its own, in the order of the slots
vectors    float32 or float16; with groups all different, and near ones together.  Under cosine float32 vectors have
           length one; float16 ones are as they were given, because they would be rounded a second time
levels     a byte a vector: on how many levels of the graph it is; absent without a graph
links      the neighbours of each vector on each of its levels, 4 bytes each, -1 where there are fewer
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indexlake.errors import CorruptionError
from indexlake.indexes.hnsw.metric import METRICS

_MAGIC = b"ILVECSEG"
_VERSION = 1
_HEADER = struct.Struct("<8sHBBIIIQQQQ")
_SECTIONS = 6
_TABLE = struct.Struct(f"<{2 * _SECTIONS}Q")
_ALIGNMENT = 64
HEADER_SIZE = _HEADER.size + _TABLE.size


@dataclass(frozen=True, slots=True)
class Section:
    """A range of bytes of the file."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What the sections mean.  `breadth` is how broad a search must be for good recall; 0 without a graph."""

    metric: str
    item_size: int  # 2: float16, 4: float32
    dimension: int
    m: int
    breadth: int
    slots: int
    found: int  # slots with a vector that can be found
    rows: int  # vectors
    entry: int  # the vector where searches of the graph begin


@dataclass(frozen=True, slots=True)
class Header:
    facts: Facts
    starts: Section
    validity: Section
    groups: Section
    vectors: Section
    levels: Section
    links: Section


def assemble(facts: Facts, sections: Sequence[Sequence[Any]]) -> list[memoryview]:
    """Return the pieces of a file.  Each section is a list of buffers, possibly empty."""
    header = _HEADER.pack(
        _MAGIC, _VERSION, METRICS.index(facts.metric), facts.item_size, facts.dimension, facts.m, facts.breadth,
        facts.slots, facts.found, facts.rows, facts.entry,
    )  # fmt: skip
    spans: list[int] = []
    pieces: list[memoryview] = []
    at = HEADER_SIZE
    for buffers in sections:
        parts = [view.cast("B") for buffer in buffers if (view := memoryview(buffer)).nbytes]
        size = sum(map(len, parts))
        padding = -at % _ALIGNMENT
        spans += [at + padding, size]
        pieces += [memoryview(bytes(padding)), *parts]
        at += padding + size
    return [memoryview(header + _TABLE.pack(*spans)), *pieces]


def parse(path: str, size: int, header: Any) -> Header:
    """Parse a header, and check that its sections fit the file and each other."""
    if len(header) < HEADER_SIZE:
        raise wrong(path, "it is shorter than its header")
    magic, version, metric, item_size, *numbers = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise wrong(path, "it does not start like a vector segment")
    if version != _VERSION:
        raise wrong(path, f"its version is {version}, and this release reads version {_VERSION}")
    if metric >= len(METRICS):
        raise wrong(path, f"it uses distance number {metric}, which does not exist")
    facts = Facts(METRICS[metric], item_size, *numbers)
    spans = _TABLE.unpack_from(header, _HEADER.size)
    sections = [Section(start, length) for start, length in zip(spans[::2], spans[1::2], strict=True)]
    found = Header(facts, *sections)
    fits = (
        item_size in (2, 4)
        and all(s.start >= HEADER_SIZE and s.start % _ALIGNMENT == 0 and s.start + s.size <= size for s in sections)
        and found.starts.size >= 8
        and found.starts.size % 8 == 0
        and found.validity.size == (0 if facts.found == facts.slots else -(-facts.slots // 8))
        and (found.groups.size == 4 * facts.found or (not found.groups.size and facts.rows == facts.found))
        and facts.rows <= facts.found <= facts.slots
        and found.vectors.size == facts.rows * facts.dimension * item_size
        and found.levels.size == (facts.rows if facts.breadth else 0)
        and found.links.size % 4 == 0
        and (facts.entry < facts.rows if facts.breadth else found.links.size == 0)
    )
    if not fits:
        raise wrong(path, "its sections do not fit together")
    return found


def wrong(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"vector segment {path!r} cannot be read: {what}; restore the file or rebuild the index", path=path
    )
