"""The header of an rtree segment, little-endian: a fixed header, then sections at 64-byte boundaries.

starts      the first slot of each block and the number of all, 8 bytes each
nodes       boxes (4 floats) of the nodes, the lowest level first, the root last; a node has `node_size` children
items       what the leaves hold, in Hilbert order: points (2 floats) or boxes (4 floats)
slots       the slot of each item, 4 bytes; 8 where the segment has more slots than that
odd         rows that no box can hold, 32 bytes each: slot, x, y, what is missing
offsets     where the geometry of each item starts in `shapes`, and the end; absent where all items are points
shapes      the geometries that are not points, as WKB
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexlake.errors import CorruptionError

NODE_SIZE = 64

_MAGIC = b"ILRTREE\0"
_VERSION = 1
_SECTIONS = ("starts", "nodes", "items", "slots", "odd", "offsets", "shapes")
_HEADER = struct.Struct("<8sHBxIQQQ")
_TABLE = struct.Struct(f"<{2 * len(_SECTIONS)}Q")
_POINTS = 1
_ALIGNMENT = 64
HEADER_SIZE = _HEADER.size + _TABLE.size

ODD = np.dtype([("slot", "<i8"), ("x", "<f8"), ("y", "<f8"), ("missing", "<i8")])
NO_X, NO_Y, ANYWHERE = 1, 2, 4
"""Flags in ``missing``: a coordinate is null, or nothing is known of the place."""


@dataclass(frozen=True, slots=True)
class Section:
    """A range of bytes of the file."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of a segment's header."""

    item_count: int
    are_points: bool
    starts: Section
    nodes: Section
    items: Section
    slots: Section
    odd: Section
    offsets: Section
    shapes: Section


def level_counts(item_count: int) -> list[int]:
    """Return the number of nodes of each level, lowest level first."""
    counts: list[int] = []
    while item_count > 1 or (item_count == 1 and not counts):
        item_count = -(-item_count // NODE_SIZE)
        counts.append(item_count)
    return counts


def assemble(contents: Mapping[str, Any], *, item_count: int, odd_count: int, are_points: bool) -> list[Any]:
    """Return the pieces of a segment file, in order, from the arrays of its sections."""
    blocks = len(contents["starts"]) - 1
    header = _HEADER.pack(_MAGIC, _VERSION, _POINTS * are_points, NODE_SIZE, item_count, odd_count, blocks)
    spans: list[int] = []
    pieces: list[Any] = []
    at = HEADER_SIZE
    for name in _SECTIONS:
        found = np.ascontiguousarray(contents[name]).reshape(-1)
        piece = found.view(np.uint8)
        padding = -at % _ALIGNMENT
        spans += [at + padding, len(piece)]
        pieces += [bytes(padding), piece.data]
        at += padding + len(piece)
    return [header + _TABLE.pack(*spans), *pieces]


def parse(path: str, size: int, header: Any) -> Header:
    """Parse a header, and check that its sections fit the file and each other."""
    if len(header) < HEADER_SIZE:
        raise wrong(path, "it is shorter than its header")
    magic, version, flags, node_size, items, odd, blocks = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise wrong(path, "it does not start like an rtree segment")
    if version != _VERSION:
        raise wrong(path, f"its version is {version}, and this release reads version {_VERSION}")
    numbers = _TABLE.unpack_from(header, _HEADER.size)
    sections = [Section(start, length) for start, length in zip(numbers[::2], numbers[1::2], strict=True)]
    found = Header(items, bool(flags & _POINTS), *sections)
    fits = (
        node_size == NODE_SIZE
        and all(s.start >= HEADER_SIZE and s.start + s.size <= size for s in sections)
        and found.starts.size == 8 * (blocks + 1)
        and found.items.size == (16 if found.are_points else 32) * items
        and found.nodes.size == 32 * sum(level_counts(items))
        and found.slots.size in (4 * items, 8 * items)
        and found.odd.size == ODD.itemsize * odd
        and found.offsets.size == (0 if found.are_points else 8 * (items + 1))
    )
    if not fits:
        raise wrong(path, "its sections do not fit together")
    return found


def wrong(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"rtree segment {path!r} cannot be read: {what}; restore the file or rebuild the index", path=path
    )
