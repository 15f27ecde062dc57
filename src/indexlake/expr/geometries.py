"""Geometries: WKB bytes as shapely's objects, and their bounding boxes.

Coordinates are planar: a distance is in the units of the coordinates.  A value that is not WKB is an error in
computations; for pruning, `boxes` reports which values have no box instead.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import ExpressionError, MissingExtraError

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]
Box = tuple[float, float, float, float]
"""(min x, min y, max x, max y)"""

_POINT = np.dtype([("head", "V5"), ("at", "<f8", 2)])
_HEAD = struct.pack("<BI", 1, 1)
_SLACK = 2.0**-40


class Boxes(NamedTuple):
    """The boxes of some values.  Values without one are empty or, if unreadable or without a finite place, unknown."""

    boxes: Floats  # a row of four numbers for each value; NaN without a box
    empty: Flags  # null or without a point, so that no box meets it
    unknown: Flags
    points: Flags  # the value is a point, equal to its box


def library() -> Any:
    """Return shapely, imported on first use."""
    try:
        import shapely
    except ImportError:
        raise MissingExtraError(
            "Geometries need shapely. Install it with: pip install 'indexlake[geo]'", extra="geo"
        ) from None
    return shapely


def points(coordinates: Floats) -> pa.Array:
    """Return points as WKB, given rows of x and y."""
    made = np.empty(len(coordinates), _POINT)
    made["head"] = np.void(_HEAD)
    made["at"] = coordinates
    size = _POINT.itemsize
    offsets = np.arange(0, size * (len(made) + 1), size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(made), [None, pa.py_buffer(offsets), pa.py_buffer(made)])


def coordinates(values: pa.Array) -> Floats | None:
    """Return rows of x and y if all values are points in the usual WKB form, else None."""
    widths = {pa.binary(): np.int32, pa.large_binary(): np.int64}
    if values.null_count or not len(values) or values.type not in widths:
        return None
    lengths = pc.binary_length(values)
    if pc.min_max(lengths).as_py() != {"min": _POINT.itemsize, "max": _POINT.itemsize}:
        return None
    first = np.frombuffer(values.buffers()[1], widths[values.type])[values.offset]
    made = np.frombuffer(values.buffers()[2], _POINT, len(values), int(first))
    heads = np.ascontiguousarray(made["head"]).view(np.uint8).reshape(-1, 5)
    return made["at"] if (heads == np.frombuffer(_HEAD, np.uint8)).all() else None


def parsed(values: pa.Array) -> Objects:
    """Return the geometries of WKB values, None for null.  Raises ``ExpressionError`` for values that are not WKB."""
    shapely = library()
    simple = coordinates(values)
    if simple is not None and np.isfinite(simple).all():
        found: Objects = shapely.points(simple)
        return found
    made, bad = _read(values)
    if bad.any():
        value = values[int(np.flatnonzero(bad)[0])].as_py()
        raise not_wkb(value)
    return made


def geometry(value: bytes) -> Any:
    return parsed(pa.array([value], pa.binary()))[0]


def not_wkb(value: bytes) -> ExpressionError:
    shown = f"{value[:16].hex()}…" if len(value) > 16 else value.hex()
    return ExpressionError(
        f"a value of {len(value)} bytes (0x{shown}) is not a geometry in WKB; st_geomfromtext() and st_point() make one"
    )


def _read(values: pa.Array) -> tuple[Objects, Flags]:
    """Return the geometries that can be read, and a mask of the values that cannot."""
    shapely = library()
    raw = values.to_numpy(zero_copy_only=False)
    try:
        made = shapely.from_wkb(raw, on_invalid="ignore")
    except NotImplementedError:  # an unsupported kind of curve: find out which values
        made = np.array([_read_one(shapely, value) for value in raw], np.object_)
    bad = shapely.is_missing(made) & values.is_valid().to_numpy(zero_copy_only=False)
    return made, bad


def _read_one(shapely: Any, value: bytes | None) -> Any:
    try:
        return shapely.from_wkb(value, on_invalid="ignore")
    except NotImplementedError:
        return None


def boxes(values: pa.Array) -> Boxes:
    """Return the boxes of WKB values.  Never raises because of a value."""
    simple = coordinates(values)
    if simple is not None:
        x, y = simple.T
        finite, empty = np.isfinite(x) & np.isfinite(y), np.isnan(x) & np.isnan(y)
        found = np.where(finite[:, None], np.hstack([simple, simple]), np.nan)
        return Boxes(found, empty, ~finite & ~empty, finite)
    shapely = library()
    made, bad = _read(values)
    missing = shapely.is_missing(made)
    empty = (missing & ~bad) | shapely.is_empty(made)
    finite = ~missing & ~empty
    places, owners = shapely.get_coordinates(made, return_index=True)
    odd = ~np.isfinite(places).all(axis=1)
    finite[owners[odd]] = False
    with np.errstate(invalid="ignore"):
        found = np.where(finite[:, None], shapely.bounds(made), np.nan)
    return Boxes(found, empty, ~finite & ~empty, finite & (shapely.get_type_id(made) == 0))


def box_of(value: bytes) -> Box | None:
    """Return the box of one geometry, or None if it is empty.  Raises ``ExpressionError`` if it cannot be read."""
    found = geometry(value)
    if found.is_empty:
        return None
    low_x, low_y, high_x, high_y = map(float, found.bounds)
    return low_x, low_y, high_x, high_y


def widened(box: Box, distance: float) -> Box:
    """Return a box of all places that may be within a distance of the box, allowing for rounding of the distance."""
    reach = distance + (distance + max(map(abs, box))) * _SLACK
    low = [math.nextafter(edge - reach, -math.inf) for edge in box[:2]]
    high = [math.nextafter(edge + reach, math.inf) for edge in box[2:]]
    return low[0], low[1], high[0], high[1]
