"""Builds rtree segments, from the rows of blocks and from other segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.expr import geometries
from indexlake.indexes.kind import Content
from indexlake.indexes.rtree.header import ANYWHERE, NO_X, NO_Y, NODE_SIZE, ODD, assemble, level_counts
from indexlake.indexes.rtree.hilbert import hilbert_order

Floats = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as a tree holds them.  `shapes` are the WKB of the items, empty for points; None if all are points."""

    items: Floats
    slots: Slots
    odd: npt.NDArray[Any]
    shapes: pa.Array | None


class RTreeBuilder:
    """Collects the boxes of rows, block by block."""

    def __init__(self, *, lasting: bool) -> None:
        self._lasting = lasting
        self._rows: list[Rows] = []
        self._starts = [0]
        self._count = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        made = (_of_points if len(columns) == 2 else _of_shapes)(*columns, first=self._count)
        self._rows.append(made)
        self._count += len(columns[0])

    def end_block(self) -> None:
        self._starts.append(self._count)

    def content(self) -> Content:
        rows, self._rows = self._rows, []  # they are copied and then released
        return Content(written(rows, self._starts, in_order=self._lasting))


def _of_points(x: pa.Array, y: pa.Array, *, first: int) -> Rows:
    values, missing = [], np.zeros(len(x), np.int64)
    for column, bit in ((x, NO_X), (y, NO_Y)):
        floats = column if column.type == pa.float64() else pc.cast(column, pa.float64(), safe=False)
        values.append(floats.to_numpy(zero_copy_only=False))  # nulls become NaN
        if column.null_count:
            missing |= np.where(column.is_null().to_numpy(zero_copy_only=False), bit, 0)
    items = np.column_stack(values)
    plain = np.isfinite(items).all(axis=1)
    odd_rows = np.flatnonzero(~plain & (missing != NO_X | NO_Y))
    odd = np.empty(len(odd_rows), ODD)
    odd["slot"], odd["missing"] = odd_rows + first, missing[odd_rows]
    odd["x"], odd["y"] = items[odd_rows].T
    rows = np.flatnonzero(plain)
    return Rows(items[rows], rows + first, odd, None)


def _of_shapes(values: pa.Array, *, first: int) -> Rows:
    if values.type != pa.binary():
        values = pc.cast(values, pa.binary())
    found = geometries.boxes(values)
    unknown = np.flatnonzero(found.unknown)
    odd = np.zeros(len(unknown), ODD)
    odd["slot"], odd["missing"] = unknown + first, ANYWHERE
    rows = np.flatnonzero(~found.unknown & ~found.empty)
    boxes, are_points = found.boxes[rows], found.points[rows]
    if are_points.all():
        return Rows(np.ascontiguousarray(boxes[:, :2]), rows + first, odd, None)
    shapes = pc.if_else(pa.array(are_points), pa.scalar(b"", pa.binary()), values.take(pa.array(rows)))
    return Rows(boxes, rows + first, odd, shapes)


def written(parts: list[Rows], starts: Sequence[int], *, in_order: bool) -> list[Any]:
    """Return the bytes of a segment of these rows, and release the rows.  Without Hilbert order it is built faster and
    searched more slowly."""
    are_points = all(part.shapes is None for part in parts)
    width = 2 if are_points else 4
    items = np.concatenate([_wide(part.items, width) for part in parts] or [np.zeros((0, width))])
    slots = np.concatenate([part.slots for part in parts] or [np.zeros(0, np.int64)])
    odd = np.concatenate([part.odd for part in parts] or [np.zeros(0, ODD)])
    shapes = None if are_points else _all_shapes(parts)
    parts.clear()
    order = hilbert_order(items) if in_order else np.arange(len(items))
    items, slots = items[order], slots[order]
    contents: dict[str, Any] = {
        "starts": np.array(starts, "<i8"),
        "items": items.astype("<f8", copy=False),
        "nodes": _nodes(items).astype("<f8", copy=False),
        "slots": slots.astype("<u4" if starts[-1] < 1 << 32 else "<i8"),
        "odd": odd,
        "offsets": np.zeros(0, "<i8"),
        "shapes": np.zeros(0, np.uint8),
    }
    if shapes is not None:
        shapes = shapes.take(pa.array(order))
        _, offsets, data = shapes.buffers()
        contents["offsets"] = np.frombuffer(offsets, "<i8", len(shapes) + 1)
        contents["shapes"] = np.frombuffer(data or b"", np.uint8, int(contents["offsets"][-1]))
    return assemble(contents, item_count=len(items), odd_count=len(odd), are_points=are_points)


def _wide(items: Floats, width: int) -> Floats:
    return items if items.shape[1] == width else np.hstack([items, items])


def _all_shapes(parts: list[Rows]) -> pa.Array:
    """Return the shapes of all rows, with 64-bit offsets that begin at zero."""
    return pa.concat_arrays(
        [
            pa.repeat(pa.scalar(b"", pa.large_binary()), len(part.items))
            if part.shapes is None
            else part.shapes.cast(pa.large_binary())
            for part in parts
        ]
    )


def _nodes(items: Floats) -> Floats:
    """Return the boxes of all nodes, lowest level first."""
    level = items  # a point's lower corner is also its upper corner
    levels = []
    for count in level_counts(len(items)):
        firsts = np.arange(count) * NODE_SIZE
        level = np.hstack(
            [np.minimum.reduceat(level[:, :2], firsts, axis=0), np.maximum.reduceat(level[:, -2:], firsts, axis=0)]
        )
        levels.append(level)
    return np.concatenate(levels or [np.zeros((0, 4))])
