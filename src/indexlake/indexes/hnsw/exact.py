"""Exact search: the distance to every candidate row, computed in place by faiss' kernels.

They compute in float32, so which rows are the nearest is not quite certain.  But it is known how far their distances
may be wrong, and all rows that may be among the nearest are passed on, to be compared in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexlake.indexes.hnsw import costs
from indexlake.indexes.hnsw.library import faiss, threads
from indexlake.indexes.hnsw.metric import Vectors, distances, is_l2, lengths
from indexlake.indexes.hnsw.query import VectorQuery
from indexlake.indexes.kind import Slots

_STRIPES = 64
_SLICE = 1 << 14

Lengths = npt.NDArray[np.floating]


class Rounding(NamedTuple):
    """By how much sums of products in float32 may differ: ``relative`` to the sizes of the terms, and beyond that by
    ``vanished``, for terms too small for float32.  This is twice what one sum may be wrong."""

    relative: float
    vanished: float


def rounding(dimension: int) -> Rounding:
    return Rounding((dimension + 8) * 2.0**-23, dimension * 2.0**-125)


def nearest(
    metric: str, vectors: Vectors, long: Lengths | None, rows: Slots | None, query: VectorQuery, k: int
) -> Slots:
    """Return those of the rows (None: all) that may be among the k nearest, in no order.

    ``long``: the lengths of the vectors, if the metric is 'ip'.
    """
    count = len(vectors) if rows is None else len(rows)
    if k >= count:
        return np.arange(count) if rows is None else rows
    found = _rough_distances(metric, vectors, rows, query)
    relative, vanished = rounding(vectors.shape[1])
    if long is None:
        last = _smallest(found, k)
        best = np.flatnonzero(found <= last + vanished + relative * (last if is_l2(metric) else 1.0))
    else:
        with np.errstate(over="ignore"):  # infinite: nothing is known of that row, so it is passed on
            wrong = (long if rows is None else long[rows]) * (0.5 * relative * math.sqrt(query.precise @ query.precise))
        best = np.flatnonzero(found - wrong <= _smallest(found + wrong, k) + vanished)
    return best if rows is None else rows[best]


def _smallest(values: npt.NDArray[np.floating], number: int) -> float:
    """Return the ``number``-th smallest value.

    The values are divided into many stripes.  That of the stripes' minima is quickly found and at least as large, so
    only values up to it need to be sorted.
    """
    length = len(values) // _STRIPES
    if length > 2 * number:
        lows = values[: length * _STRIPES].reshape(_STRIPES, length).min(axis=0)
        values = values[values <= np.partition(lows, number - 1)[number - 1]]
    return float(np.partition(values, number - 1)[number - 1])


def _rough_distances(metric: str, vectors: Vectors, rows: Slots | None, query: VectorQuery) -> npt.NDArray[np.floating]:
    """Return distances to order the rows by, in float32 if it has the range."""
    library = faiss()
    pointer = library.swig_ptr
    dimension = vectors.shape[1]
    if rows is not None and costs.chosen(len(rows), dimension) < costs.in_order(len(vectors), dimension):
        found = np.empty(len(rows), np.float32)
        kernel = library.fvec_L2sqr_by_idx if is_l2(metric) else library.fvec_inner_products_by_idx
        args = pointer(found), pointer(query.vector), pointer(vectors), pointer(rows), dimension, 1, len(rows)
        with threads(1):  # several threads would spend more time waiting for each other than working
            kernel(*args)
    else:
        every = np.empty(len(vectors), np.float32)
        kernel = library.fvec_L2sqr_ny if is_l2(metric) else library.fvec_inner_products_ny
        kernel(pointer(every), pointer(query.vector), pointer(vectors), dimension, len(vectors))
        found = every if rows is None else every[rows]
    if not np.isfinite(found).all():
        return in_full(metric, vectors, rows, query)
    return found if is_l2(metric) else np.negative(found, out=found)


def in_full(metric: str, vectors: Vectors, rows: Slots | None, query: VectorQuery) -> npt.NDArray[np.float64]:
    """Return the distances that users see, to some rows or (None) all, using little memory."""
    count = len(vectors) if rows is None else len(rows)
    if count <= _SLICE:
        return distances(metric, vectors if rows is None else vectors.take(rows, axis=0), query.precise)
    found = np.empty(count, np.float64)
    for at in range(0, count, _SLICE):
        here = slice(at, at + _SLICE)
        found[here] = distances(metric, vectors[here if rows is None else rows[here]], query.precise)
    return found


def rough_lengths(vectors: Vectors) -> Lengths:
    """Return the length of each vector, for `nearest`: in float32 if it has the range."""
    pointer = faiss().swig_ptr
    found = np.empty(len(vectors), np.float32)
    with threads(1):
        faiss().fvec_norms_L2(pointer(found), pointer(vectors), vectors.shape[1], len(vectors))
    if np.isfinite(found).all():
        return np.maximum(found, 1e-18)  # squares of smaller ones may vanish
    return np.concatenate([lengths(vectors[at : at + _SLICE]) for at in range(0, len(vectors), _SLICE)])
