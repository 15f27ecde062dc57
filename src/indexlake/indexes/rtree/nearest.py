"""Finds the nearest k rows of several segments: the nearest boxes are opened first, and only those that can matter.

Distances are planar, in the units of the coordinates.  A box is never farther away than anything in it, so boxes
farther than the k-th row so far stay closed.  Rows without a finite place have no distance and are not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.expr import geometries
from indexlake.indexes.kind import Hits, Part
from indexlake.indexes.rtree.header import NODE_SIZE
from indexlake.indexes.rtree.segment import RTreeSegment

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_ROUNDING = 1 - 2.0**-40  # distances of boxes and of shapes are rounded differently
_FIRST, _MOST = 1, 1024  # how many boxes are opened at a time


@dataclass(frozen=True, slots=True)
class Near:
    """A place, and how far from it a row may be."""

    x: float
    y: float
    max_distance: float

    def __str__(self) -> str:
        limit = f" within {self.max_distance:g}" if self.max_distance < np.inf else ""
        return f"near ({self.x:g}, {self.y:g}){limit}"


_NOTHING = Hits(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class _Best:
    """The nearest rows so far; ties go to the lower part and slot.

    They are sorted only once there are enough new ones, so that many rows are not sorted again for the sake of a few.
    """

    def __init__(self, near: Near, k: int) -> None:
        self._k = k
        self._kept: list[tuple[Numbers, Numbers, Floats]] = [
            (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        ]
        self._count = 0
        self._new = 0
        self.limit = near.max_distance

    def offer(self, part: int, slots: Numbers, distances: Floats) -> None:
        near = distances <= self.limit
        count = int(near.sum())
        if not count:
            return
        self._kept.append(Hits(np.full(count, part), slots[near], distances[near]))
        self._count += count
        self._new += count
        if self._count >= self._k and self._new >= self._k // 8:
            self.limit = float(self.ordered().scores[-1])

    def ordered(self) -> Hits:
        """Return the rows, nearest first."""
        parts, slots, distances = (np.concatenate(each) for each in zip(*self._kept, strict=True))
        order = np.lexsort((slots, parts, distances))[: self._k]
        found = Hits(parts[order], slots[order], distances[order])
        self._kept, self._count, self._new = [found], len(order), 0
        return found


def nearest(near: Near, parts: Sequence[Part], k: int) -> Hits:
    """Return the k nearest live rows, or all within reach if there are fewer."""
    best = _Best(near, k)
    if k > 0:
        roots = []
        for number, part in enumerate(parts):
            if part.segment.item_count:
                roots.append((float(_distances(part.segment.nodes[-1:], near)[0]), number))
        for _, number in sorted(roots):
            _visit(parts[number], number, near, best)
    return best.ordered()


def _visit(part: Part, number: int, near: Near, best: _Best) -> None:
    """Open what can matter in one part.

    The queue holds nodes (their numbers) and shapes (the complement ~ of their place, which is negative).
    """
    segment: RTreeSegment = part.segment
    waiting: Numbers = np.array([len(segment.nodes) - 1])
    bounds = _distances(segment.nodes[waiting], near)
    step = _FIRST
    while True:
        hopeful = bounds * _ROUNDING <= best.limit
        waiting, bounds = waiting[hopeful], bounds[hopeful]
        if not len(waiting):
            return
        if len(waiting) > step:
            order = np.argpartition(bounds, step)
            chosen, rest = np.sort(waiting[order[:step]]), order[step:]
            waiting, bounds = waiting[rest], bounds[rest]
        else:
            chosen, waiting, bounds = np.sort(waiting), waiting[:0], bounds[:0]
        step = min(2 * step, _MOST)
        shapes = ~chosen[chosen < 0][::-1]
        if len(shapes):
            best.offer(number, segment.slots_of(shapes), _shape_distances(segment, shapes, near))
        below, leaves = _below(segment, chosen[chosen >= 0])
        added = [(below, _distances(segment.nodes[below], near))]
        if len(leaves):
            added.append(_leaves(part, number, leaves, near, best))
        waiting = np.concatenate([waiting, *(numbers for numbers, _ in added)])
        bounds = np.concatenate([bounds, *(distances for _, distances in added)])


def _below(segment: RTreeSegment, nodes: Numbers) -> tuple[Numbers, Numbers]:
    """Return the nodes and the items directly below some nodes of any level."""
    starts = np.array(segment.level_starts)
    levels = np.searchsorted(starts, nodes, "right") - 1
    firsts = (nodes - starts[levels]) * NODE_SIZE
    found = firsts[:, None] + np.arange(NODE_SIZE)
    exists = found < np.array([segment.item_count, *segment.counts])[levels][:, None]
    lowest = levels == 0
    moved = found + np.concatenate([[0], starts])[levels][:, None]
    return moved[~lowest][exists[~lowest]], moved[lowest][exists[lowest]]


def _leaves(part: Part, number: int, places: Numbers, near: Near, best: _Best) -> tuple[Numbers, Floats]:
    """Offer the live points among some items; return the shapes, which wait their turn, with their bounds."""
    segment: RTreeSegment = part.segment
    slots = segment.slots_of(places)
    boxes = segment.boxes_of(places)
    distances = _distances(boxes, near)
    kept = distances * _ROUNDING <= best.limit
    if part.mask is not None:
        kept &= part.mask[slots]
    shapes = kept & segment.have_shapes(places)
    points = kept & ~shapes
    best.offer(number, slots[points], distances[points])
    return ~places[shapes], distances[shapes]


def _shape_distances(segment: RTreeSegment, places: Numbers, near: Near) -> Floats:
    shapely = geometries.library()
    shapes = geometries.parsed(pa.array(segment.shapes_of(places), pa.binary()))
    found: Any = shapely.distance(shapes, shapely.points(near.x, near.y))
    return np.asarray(found, np.float64)


def _distances(boxes: Floats, near: Near) -> Floats:
    """Return the distances of boxes (four numbers) or points (two)."""
    with np.errstate(over="ignore"):
        if boxes.shape[1] == 2:
            return np.hypot(boxes[:, 0] - near.x, boxes[:, 1] - near.y)
        x = np.maximum(np.maximum(boxes[:, 0] - near.x, near.x - boxes[:, 2]), 0)
        y = np.maximum(np.maximum(boxes[:, 1] - near.y, near.y - boxes[:, 3]), 0)
        return np.hypot(x, y)
