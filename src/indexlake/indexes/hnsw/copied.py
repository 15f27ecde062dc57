"""Vectors copied side by side in half precision: the distances to all of them take half the time.

The nearest are certain all the same: it is known how far a copy may be from its vector, so whoever computes the exact
distances to those found can tell whether a row that was not found may be nearer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexlake.indexes.hnsw.exact import rounding
from indexlake.indexes.hnsw.library import faiss, threads
from indexlake.indexes.hnsw.metric import Vectors, is_l2, lengths, metric_number

if TYPE_CHECKING:
    from indexlake.indexes.hnsw.query import VectorQuery

SPARE = 16
"""How many more than the wanted rows are asked for, so that those beyond them are certain to be farther away."""


class Copied:
    """Copies of vectors, numbered in their order.  Safe to share between threads."""

    def __init__(self, metric: str, vectors: Vectors) -> None:
        library = faiss()
        count, dimension = vectors.shape
        copies = library.IndexScalarQuantizer(
            dimension, library.ScalarQuantizer.QT_fp16, metric_number(library, metric)
        )
        with threads(1):
            copies.add(vectors)
            held = copies.reconstruct_n(0, count)
        self._metric = metric
        self._copies = copies
        self._rounding = rounding(dimension)
        self._away = float(lengths(held - vectors).max(initial=0.0))
        self._longest = float(lengths(held).max(initial=0.0))

    @property
    def is_good(self) -> bool:
        """Whether all numbers fit into half precision."""
        return math.isfinite(self._away)

    def nearest(self, query: VectorQuery, count: int) -> tuple[npt.NDArray[np.int64], float]:
        """Return ``count`` of the nearest, in no order, and a distance (as users see it) below which there are no
        others.  There must be at least as many vectors."""
        pointer = faiss().swig_ptr
        far, found = np.empty(count, np.float32), np.empty(count, np.int64)
        with threads(1):
            self._copies.search_c(1, pointer(query.vector), count, pointer(far), pointer(found))
        last, (relative, vanished) = float(far[-1]), self._rounding
        if is_l2(self._metric):
            least = math.sqrt(max(last - vanished, 0.0) * (1 - relative)) - self._away
            return found, max(least, 0.0) ** 2
        away = (self._away + relative * self._longest) * math.sqrt(query.precise @ query.precise) + vanished
        return found, (1.0 if self._metric == "cosine" else 0.0) - last - away
