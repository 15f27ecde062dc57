"""An open rtree segment: which slots meet a window, and which are near a place.

The nodes (half a byte a row) are read once; of the leaves, only those that a query touches.  All reads are verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.indexes.kind import Answer, Slots
from indexlake.indexes.rtree.header import (
    ANYWHERE,
    HEADER_SIZE,
    NO_X,
    NO_Y,
    NODE_SIZE,
    ODD,
    Section,
    level_counts,
    parse,
    wrong,
)
from indexlake.indexes.rtree.writer import Rows

if TYPE_CHECKING:
    from indexlake.indexes.rtree.window import RTreeProbe, Window
    from indexlake.storage import InputFile

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
"""Ascending numbers of items or nodes."""

_COUNTED = 64  # with up to this many leaves, matches are counted exactly
_MOST_RUNS = 512  # more runs than this are read in one piece


class RTreeSegment:
    """An open segment.  Safe to share between threads."""

    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._file = file
        self.header = parse(self.path, file.size(), file.read_at(0, HEADER_SIZE))
        self._are_points = self.header.are_points
        self.item_count = self.header.item_count
        starts = self._array(self.header.starts, "<i8")
        if starts[0] != 0 or (np.diff(starts) < 0).any() or self.item_count > starts[-1]:
            raise wrong(self.path, "its blocks do not fit together")
        self.starts: Sequence[int] = starts.tolist()
        self.counts = level_counts(self.item_count)
        self.level_starts = [sum(self.counts[:level]) for level in range(len(self.counts))]

    def __repr__(self) -> str:
        return f"RTreeSegment({self.path!r}, {self.starts[-1]} rows)"

    def _array(self, section: Section, dtype: Any) -> npt.NDArray[Any]:
        return np.frombuffer(self._file.read_at(section.start, section.size), dtype)

    @cached_property
    def nodes(self) -> Floats:
        """The boxes of all nodes, lowest level first."""
        return self._array(self.header.nodes, "<f8").reshape(-1, 4)

    @cached_property
    def odd(self) -> npt.NDArray[Any]:
        """The rows that no box can hold."""
        return self._array(self.header.odd, ODD)

    # -- probes --------------------------------------------------------------------------------------------

    def ask(self, probe: RTreeProbe) -> Answer:
        leaves, odd = self._leaves(probe.windows), self._odd_slots(probe.windows)
        if len(leaves) <= _COUNTED:
            met = self._met(leaves, probe.windows)
            return Answer(len(odd) + len(met), lambda: self._slots(met, odd))
        rest = self.item_count - (self.counts[0] - 1) * NODE_SIZE  # items in the last leaf
        last = bool(leaves[-1] == self.counts[0] - 1)
        count = len(odd) + len(leaves) * NODE_SIZE - (NODE_SIZE - rest) * last
        return Answer(count, lambda: self._slots(self._met(leaves, probe.windows), odd))

    def _slots(self, met: Places, odd: Slots) -> Slots:
        return np.sort(np.concatenate([self.slots_of(met), odd]))

    def _leaves(self, windows: Sequence[Window]) -> Places:
        """Return the lowest-level nodes that meet all windows."""
        if not self.counts:
            return np.zeros(0, np.int64)
        found = np.zeros(1, np.int64)
        for level in range(len(self.counts) - 1, -1, -1):
            start = self.level_starts[level]
            found = found[_meet(self.nodes[found + start], windows)]
            if level:
                found = children(found, self.counts[level - 1])
        return found

    def _met(self, leaves: Places, windows: Sequence[Window]) -> Places:
        """Return the items in these leaves that meet all windows."""
        places = children(leaves, self.item_count)
        return places[_meet(self.boxes_of(places), windows)]

    def _odd_slots(self, windows: Sequence[Window]) -> Slots:
        odd = self.odd
        if not len(odd):
            return np.zeros(0, np.int64)
        kept = np.ones(len(odd), np.bool_)
        for window in windows:
            for axis, values, bit in ((window.x, odd["x"], NO_X), (window.y, odd["y"], NO_Y)):
                if axis is not None:
                    kept &= axis.has(values) & (odd["missing"] & bit == 0)
        found: Slots = odd["slot"][kept | (odd["missing"] == ANYWHERE)]
        return found

    # -- items ---------------------------------------------------------------------------------------------

    def boxes_of(self, places: Places) -> Floats:
        """Return the points (two numbers) or boxes (four) of some items."""
        return self._of(self.header.items, places, 2 if self._are_points else 4, "<f8")

    def slots_of(self, places: Places) -> Slots:
        wide = self.header.slots.size > 4 * self.item_count
        return self._of(self.header.slots, places, 1, "<i8" if wide else "<u4").reshape(-1).astype(np.int64)

    def shapes_of(self, places: Places) -> list[bytes]:
        """Return the geometries of some items as WKB, empty for points."""
        header = self.header
        if self._are_points:
            return [b""] * len(places)
        firsts = self._of(header.offsets, places, 1, "<i8").reshape(-1)
        ends = self._of(header.offsets, places + 1, 1, "<i8").reshape(-1)
        if len(places) and ((firsts < 0) | (ends < firsts) | (ends > header.shapes.size)).any():
            raise wrong(self.path, "its geometries do not fit together")
        ranges = [(header.shapes.start + int(a), int(b - a)) for a, b in zip(firsts, ends, strict=True)]
        return [bytes(piece) for piece in self._file.read_ranges(ranges)]

    def have_shapes(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which of some items are geometries other than points."""
        if self._are_points:
            return np.zeros(len(places), np.bool_)
        offsets = self.header.offsets
        ends = self._of(offsets, places + 1, 1, "<i8")
        found: npt.NDArray[np.bool_] = (ends > self._of(offsets, places, 1, "<i8")).reshape(-1)
        return found

    def _of(self, section: Section, places: Places, width: int, dtype: str) -> npt.NDArray[Any]:
        """Return the rows of a section at some places, which ascend; neighbours are read together."""
        size = width * np.dtype(dtype).itemsize
        if not len(places):
            return np.zeros((0, width), dtype)
        breaks = np.flatnonzero(np.diff(places) != 1) + 1
        first, last = int(places[0]), int(places[-1]) + 1
        if len(breaks) >= _MOST_RUNS or (last - first) <= 2 * len(places):
            piece = self._file.read_at(section.start + size * first, size * (last - first))
            return np.frombuffer(piece, dtype).reshape(-1, width)[places - first]
        firsts = places[np.concatenate([[0], breaks])]
        lasts = places[np.concatenate([breaks - 1, [len(places) - 1]])] + 1
        ranges = [
            (section.start + size * a, size * (b - a)) for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True)
        ]
        pieces = self._file.read_ranges(ranges)
        return np.concatenate([np.frombuffer(piece, dtype) for piece in pieces]).reshape(-1, width)

    # -- whole blocks --------------------------------------------------------------------------------------

    def rows_of(self, ordinals: Sequence[int], first: int) -> tuple[Rows, list[int]]:
        """Return the rows of some blocks, with slots from ``first`` on, and the first slot after each block."""
        starts = np.array(self.starts)
        moves = np.zeros(len(starts) - 1, np.int64)
        kept = np.zeros(len(starts) - 1, np.bool_)
        ends = []
        for ordinal in ordinals:
            kept[ordinal], moves[ordinal] = True, first - starts[ordinal]
            first += int(starts[ordinal + 1] - starts[ordinal])
            ends.append(first)
        slots = self.slots_of(np.arange(self.item_count))
        blocks = np.searchsorted(starts, slots, "right") - 1
        places = np.flatnonzero(kept[blocks])
        odd_blocks = np.searchsorted(starts, self.odd["slot"], "right") - 1
        odd = self.odd[kept[odd_blocks]].copy()
        odd["slot"] += moves[odd_blocks[kept[odd_blocks]]]
        shapes = None if self._are_points else pa.array(self.shapes_of(places), pa.large_binary())
        return Rows(self.boxes_of(places), slots[places] + moves[blocks[places]], odd, shapes), ends


def children(nodes: Places, count: int) -> Places:
    """Return the children of nodes of one level, given the number of nodes on the level below."""
    found = (nodes[:, None] * NODE_SIZE + np.arange(NODE_SIZE)).reshape(-1)
    return found[: np.searchsorted(found, count)]


def _meet(boxes: Floats, windows: Sequence[Window]) -> npt.NDArray[np.bool_]:
    """Return which of the boxes or points meet all windows."""
    found = np.ones(len(boxes), np.bool_)
    high = boxes.shape[1] - 2
    for window in windows:
        low_x, low_y, high_x, high_y = window.box
        found &= (boxes[:, 0] <= high_x) & (boxes[:, high] >= low_x)
        found &= (boxes[:, 1] <= high_y) & (boxes[:, high + 1] >= low_y)
    return found
