"""Exact search: the distance to every candidate row, computed in place by faiss' kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from indexlake.indexes.hnsw import costs
from indexlake.indexes.hnsw.library import faiss, threads
from indexlake.indexes.hnsw.metric import Vectors, distances, is_l2
from indexlake.indexes.hnsw.query import VectorQuery
from indexlake.indexes.kind import Slots

SPARE = 16
"""How many extra candidates float32 passes on to float64, so that rounding does not decide which rows are the best."""

_STRIPES = 64
_SLICE = 1 << 14


def nearest(metric: str, vectors: Vectors, rows: Slots | None, query: VectorQuery, k: int) -> Slots:
    """Return candidates for the k nearest of the rows (None: all), and up to `SPARE` more, in no order."""
    count = len(vectors) if rows is None else len(rows)
    wanted = k + SPARE
    if wanted >= count:
        return np.arange(count) if rows is None else rows
    found = _rough_distances(metric, vectors, rows, query)
    best = smallest(found, wanted)
    return best if rows is None else rows[best]


def smallest(values: npt.NDArray[np.floating], count: int) -> Slots:
    """Return the indices of the ``count`` smallest values, of which there must be more; ties go to the first.

    The values are divided into many stripes.  The count-th smallest of the stripes' minima is quickly found and at
    least as large as the count-th smallest value, so only values up to it need to be sorted.
    """
    length = len(values) // _STRIPES
    if length > 2 * count:
        lows = values[: length * _STRIPES].reshape(_STRIPES, length).min(axis=0)
        bound = np.partition(lows, count - 1)[count - 1]
    else:
        bound = np.partition(values, count - 1)[count - 1]
    places = np.flatnonzero(values <= bound)
    return places[np.argsort(values[places], kind="stable")[:count]]


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
