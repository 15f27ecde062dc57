"""The kind "rtree": packed R-trees over points from two columns, or over geometries (WKB) from one.

It makes windows (``lon between … and lat between …``) and st_intersects(), st_within(), st_contains() and st_dwithin()
fast, and finds the nearest rows.  A row whose column is null or whose geometry is empty is not near anything.  Rows
whose value is not WKB are always candidates for a predicate, so that the error is the same as without the index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from indexlake.errors import ExpressionError, SchemaError
from indexlake.expr import geometries
from indexlake.indexes.kind import Content, Hits, IndexKind, Part, refuse_include, refuse_params, refuse_unique
from indexlake.indexes.rtree.nearest import Near, nearest
from indexlake.indexes.rtree.segment import RTreeSegment
from indexlake.indexes.rtree.window import RTreeProbe, probe_of
from indexlake.indexes.rtree.writer import Rows, RTreeBuilder, written

if TYPE_CHECKING:
    from indexlake.expr.test import Test
    from indexlake.indexes.index import Index
    from indexlake.schema import Field
    from indexlake.storage import InputFile

_TAKES = "It takes two columns of numbers, x and y (for example lon, lat), or one binary column of geometries (WKB)"


class RTree(IndexKind):
    name = "rtree"
    measure = "_distance"
    most_rows = 1 << 20  # a tree is packed in memory

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        refuse_unique(self.name, unique)
        refuse_include(self.name, include)
        refuse_params(self.name, params, ())
        if len(fields) == 1:
            if not _is_binary(fields[0].type):
                raise SchemaError(
                    f"An rtree index on one column needs binary geometries, but {fields[0].name!r} is of type "
                    f"{fields[0].type}. {_TAKES}."
                )
            geometries.library()
            return {}
        if len(fields) != 2:
            raise SchemaError(f"An rtree index cannot be on {len(fields)} columns. {_TAKES}.")
        for f in fields:
            if not _is_number(f.type):
                raise SchemaError(
                    f"An rtree index on two columns needs numbers, but {f.name!r} is of type {f.type}. {_TAKES}."
                )
        return {}

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> RTreeBuilder:
        return RTreeBuilder(lasting=lasting)

    def open(self, index: Index, file: InputFile) -> RTreeSegment:
        return RTreeSegment(file)

    def merge(self, index: Index, inputs: Sequence[tuple[Any, Sequence[int]]]) -> Content:
        rows: list[Rows] = []
        starts = [0]
        for segment, ordinals in inputs:
            made, ends = segment.rows_of(ordinals, starts[-1])
            rows.append(made)
            starts += ends
        return Content(written(rows, starts, in_order=True))

    def probe(self, index: Index, fields: Sequence[Field], test: Test) -> RTreeProbe | None:
        return probe_of(fields, test)

    def query(self, index: Index, fields: Sequence[Field], query: Any, options: Mapping[str, Any]) -> Near:
        for name in options:
            if name != "max_distance":
                raise ExpressionError(f"A search near a place has no option {name!r}; it has max_distance.")
        limit = options.get("max_distance")
        limit = math.inf if limit is None else limit
        try:
            far = -1.0 if isinstance(limit, bool) or not isinstance(limit, Real) else float(limit)
        except OverflowError:
            far = math.inf
        if not far >= 0:
            raise ExpressionError(f"The option 'max_distance' is a number, 0 or more, not {limit!r}.")
        return Near(*_place(query), far)

    def search(self, index: Index, query: Near, parts: Sequence[Part], k: int) -> Hits:
        return nearest(query, parts, k)


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _is_binary(type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type) or pa.types.is_large_binary(type) or type == pa.binary_view())


def _place(query: Any) -> tuple[float, float]:
    """Return the place that a query names: (x, y), a shapely point or a point as WKB."""
    if isinstance(query, bytes | bytearray | memoryview):
        try:
            query = geometries.geometry(bytes(query))
        except ExpressionError as error:
            raise ExpressionError(f"The place to search near cannot be read: {error}.") from None
    if getattr(query, "geom_type", None) is not None:
        if query.geom_type != "Point" or query.is_empty:
            empty = "an empty " if query.is_empty else "a "
            _refuse(f"{empty}{query.geom_type}")
        query = (query.x, query.y)
    if isinstance(query, str) or not hasattr(query, "__len__") or len(query) != 2:
        _refuse(repr(query))
    try:
        x, y = (float(number) for number in query if not isinstance(number, bool | np.bool_ | str | bytes))
    except (TypeError, ValueError, OverflowError):
        _refuse(repr(query))
    if not (math.isfinite(x) and math.isfinite(y)):
        _refuse(repr((x, y)))
    return x, y


def _refuse(given: str) -> NoReturn:
    raise ExpressionError(
        f"An rtree index is searched near a place: (x, y) with finite numbers, a shapely Point, or a point as WKB; "
        f"not {given}."
    ) from None
