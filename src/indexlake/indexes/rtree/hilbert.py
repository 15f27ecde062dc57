"""The order of places along a Hilbert curve: places near each other on the curve are near each other in the plane."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BITS = 16
_SLICE = 1 << 16


def hilbert_order(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the order along the curve of the centres of boxes or points (finite; four or two numbers a row)."""
    if not len(boxes):
        return np.zeros(0, np.int64)
    half = boxes.shape[1] // 2
    centres = boxes[:, :half] / 2 + boxes[:, half:] / 2 if half == 2 else boxes
    low = centres.min(axis=0)
    extent = centres.max(axis=0) / 2 - low / 2  # half the extent: the whole may overflow
    scale = np.where(extent > 0, extent, 1.0)
    places = np.empty(len(boxes), np.uint32)
    for at in range(0, len(boxes), _SLICE):  # in slices, to save memory
        cells = (centres[at : at + _SLICE] / 2 - low / 2) / scale * ((1 << _BITS) - 1)
        x, y = cells.astype(np.uint32).T
        places[at : at + _SLICE] = _along(x, y)
    return np.argsort(places, kind="stable")


def _along(x: npt.NDArray[np.uint32], y: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return how far along the curve each cell is, from the largest quadrants to the smallest."""
    place = np.zeros(len(x), np.uint32)
    for bit in range(_BITS - 1, -1, -1):
        right, top = (x >> np.uint32(bit)) & np.uint32(1), (y >> np.uint32(bit)) & np.uint32(1)
        place = (place << np.uint32(2)) | ((np.uint32(3) * right) ^ top)
        # Lower quadrants are turned, because the curve enters and leaves them along another side.
        turned = top == 0
        flip = np.where(turned & (right == 1), np.uint32((1 << _BITS) - 1), np.uint32(0))
        x, y = x ^ flip, y ^ flip
        x, y = np.where(turned, y, x), np.where(turned, x, y)
    return place
