"""The three distances.  For all of them, the smallest is the best.

l2       the squared Euclidean distance
cosine   1 - cosine of the angle: from 0 (same direction) to 2
ip       minus the inner product

A vector can be found if it contains no null, NaN or infinity and, under cosine, is not all zero.  Under cosine, vectors
are scaled to length one before they are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

METRICS = ("l2", "cosine", "ip")
"""In the order of their numbers in files."""

LIMIT = 1e36
"""Vectors with a greater squared length overflow float32: they are compared in float64, without a graph."""

LEAST = 1e-26
"""Vectors with smaller squared lengths, all of them, have no graph: the squares of their differences may vanish."""

Vectors = npt.NDArray[np.float32]


def is_l2(metric: str) -> bool:
    """Return whether the metric is 'l2'; the others are based on the inner product."""
    return metric == "l2"


def metric_number(library: Any, metric: str) -> int:
    """Return faiss' number of the metric that it computes for ours."""
    return int(library.METRIC_L2 if is_l2(metric) else library.METRIC_INNER_PRODUCT)


def lengths(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the length of each row, without overflow."""
    wide = vectors.astype(np.float64)
    squares: npt.NDArray[np.float64] = np.einsum("ij,ij->i", wide, wide)
    return np.sqrt(squares)


def unit(vectors: npt.NDArray[Any]) -> Vectors:
    """Return the rows scaled to length one; none of them may be zero."""
    return (vectors / lengths(vectors)[:, np.newaxis]).astype(np.float32)


def distances(metric: str, vectors: npt.NDArray[Any], query: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the distances that users see, in float64.  A vector's distance does not depend on the others in the array.

    Under cosine, the rows and the query must have length one.
    """
    found: npt.NDArray[np.float64]
    if is_l2(metric):
        away = vectors - query
        found = np.add.reduce(np.multiply(away, away, out=away), axis=1)
        return found
    found = np.add.reduce(vectors * query, axis=1)
    return np.clip(1.0 - found, 0.0, 2.0) if metric == "cosine" else -found
