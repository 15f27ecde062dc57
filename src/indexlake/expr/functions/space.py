"""Functions of geometries, which are WKB in BLOB columns.  Planar: distances are in the units of the coordinates.

Shapely computes them; DuckDB has no such functions without an extension.  Nothing intersects an empty geometry, and
distances to it are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr import geometries, tree
from indexlake.expr.broadcast import rows_of
from indexlake.expr.functions.function import Function, Kernel
from indexlake.expr.sqltype import BLOB, BOOL, DOUBLE, VARCHAR

MEETING = frozenset({"st_intersects", "st_within", "st_contains", "st_dwithin"})
"""True only if the boxes of both geometries meet or, for st_dwithin(), are within the distance."""


@contextmanager
def _computing(name: str) -> Iterator[Any]:
    shapely = geometries.library()
    try:
        with np.errstate(invalid="ignore"):
            yield shapely
    except shapely.errors.GEOSException as error:
        raise ExpressionError(f"{name}() cannot be computed: {str(error).partition(': ')[2] or error}") from None


def _geometry(value: Any) -> Any:
    return geometries.geometry(value.as_py()) if isinstance(value, pa.Scalar) else geometries.parsed(value)


def _nulls(values: list[Any]) -> Any:
    """Return a mask of rows in which an argument is null."""
    missing = [value.is_null().to_numpy(zero_copy_only=False) for value in values if not isinstance(value, pa.Scalar)]
    return reduce(np.logical_or, missing)


def _compute(make: Callable[..., Any]) -> Kernel:
    """Return a kernel of two geometries and possibly a number, computed by ``make`` with shapely; NaN becomes null."""

    def kernel(values: list[Any], call: tree.Call) -> Any:
        with _computing(call.name) as shapely:
            first, second = map(_geometry, values[:2])
            rest = [_numbers(value) for value in values[2:]]
            for one in (first, second):
                if not isinstance(one, np.ndarray):
                    shapely.prepare(one)
            found = np.broadcast_to(make(shapely, first, second, *rest), rows_of(*values))
        nulls = _nulls(values)
        return pa.array(found, mask=nulls | np.isnan(found) if found.dtype == np.float64 else nulls)

    return kernel


def _numbers(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value.to_numpy(zero_copy_only=False)


def _is_one(value: Any) -> bool:
    return not isinstance(value, np.ndarray)


# The prepared geometry, that is, the single one that is compared with many, has to come first.


def _intersects(shapely: Any, a: Any, b: Any) -> Any:
    return shapely.intersects(b, a) if _is_one(b) else shapely.intersects(a, b)


def _contains(shapely: Any, a: Any, b: Any) -> Any:
    return shapely.contains(a, b)


def _within(shapely: Any, a: Any, b: Any) -> Any:
    return shapely.contains(b, a)


def _dwithin(shapely: Any, a: Any, b: Any, distance: Any) -> Any:
    one, others = (b, a) if _is_one(b) else (a, b)
    nowhere = ~np.isfinite(shapely.bounds(others)[..., :2]).all(axis=-1)  # GEOS fails at a point that has a NaN
    return shapely.dwithin(one, np.where(nowhere, None, others), distance)


def _distance(shapely: Any, a: Any, b: Any) -> Any:
    return shapely.distance(a, b)


def _point(values: list[Any], call: tree.Call) -> Any:
    sides = [np.broadcast_to(_numbers(value), rows_of(*values)) for value in values]
    made = geometries.points(np.column_stack(sides))
    return pc.if_else(pa.array(_nulls(values)), pa.scalar(None, pa.binary()), made)


def _from_text(values: list[Any], call: tree.Call) -> Any:
    shapely = geometries.library()
    texts = values[0].to_numpy(zero_copy_only=False)
    try:
        made = shapely.from_wkt(texts, on_invalid="ignore")
    except NotImplementedError:
        raise ExpressionError("st_geomfromtext() does not support curves") from None
    wrong = shapely.is_missing(made) & ~_nulls(values)
    if wrong.any():
        raise ExpressionError(f"'{texts[wrong][0]}' is not a geometry in WKT, such as 'POINT(3 4)'")
    return pa.array(shapely.to_wkb(made, byte_order=1), pa.binary())


def _checked(values: list[Any], call: tree.Call) -> Any:
    geometries.parsed(values[0])
    return values[0]


def _text(values: list[Any], call: tree.Call) -> Any:
    made = geometries.parsed(values[0])
    return pa.array(geometries.library().to_wkt(made, rounding_precision=-1), pa.string())


# fmt: off
FUNCTIONS = (
    Function("st_astext", "geometry", "the geometry as WKT", (((BLOB,), VARCHAR),), kernel=_text),
    Function(
        "st_contains", "geometry, geometry", "whether the second lies in the first, and not only on its edge",
        (((BLOB, BLOB), BOOL),), kernel=_compute(_contains),
    ),
    Function(
        "st_distance", "geometry, geometry", "the least distance in the units of the coordinates; null if one is empty",
        (((BLOB, BLOB), DOUBLE),), kernel=_compute(_distance),
    ),
    Function(
        "st_dwithin", "geometry, geometry, distance", "whether they are no farther apart",
        (((BLOB, BLOB, DOUBLE), BOOL),), kernel=_compute(_dwithin),
    ),
    Function(
        "st_geomfromtext", "text", "the geometry of a WKT, such as 'POINT(3 4)'", (((VARCHAR,), BLOB),),
        kernel=_from_text,
    ),
    Function(
        "st_geomfromwkb", "bytes", "the bytes; an error if they are not WKB", (((BLOB,), BLOB),), kernel=_checked
    ),
    Function(
        "st_intersects", "geometry, geometry", "whether they have a point in common", (((BLOB, BLOB), BOOL),),
        kernel=_compute(_intersects),
    ),
    Function("st_point", "number, number", "the point at x, y", (((DOUBLE, DOUBLE), BLOB),), kernel=_point),
    Function(
        "st_within", "geometry, geometry", "whether the first lies in the second, and not only on its edge",
        (((BLOB, BLOB), BOOL),), kernel=_compute(_within),
    ),
)
# fmt: on
