"""The three distances.  The least is the best, so all of them order rows alike.

l2       the squared Euclidean distance
cosine   1 - cosine of the angle: from 0 (same direction) to 2
ip       minus the inner product

A vector can be found if it has no null, NaN or infinity in it and, under cosine, is not all zero.  Under cosine vectors
are compared at length one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

METRICS = ("l2", "cosine", "ip")
"""In the order of their numbers in files."""

LIMIT = 1e36
"""Squared lengths above it do not leave float32 enough room: such vectors are compared in float64, without a graph."""

Vectors = npt.NDArray[np.float32]


def is_l2(metric: str) -> bool:
    """Under the others the inner product decides."""
    return metric == "l2"


def lengths(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The length of each row, which never overflows."""
    wide = vectors.astype(np.float64)
    squares: npt.NDArray[np.float64] = np.einsum("ij,ij->i", wide, wide)
    return np.sqrt(squares)


def unit(vectors: npt.NDArray[Any]) -> Vectors:
    """The rows at length one.  None of them is zero."""
    return (vectors / lengths(vectors)[:, np.newaxis]).astype(np.float32)


def distances(metric: str, vectors: npt.NDArray[Any], query: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What users see, in float64.  The distance of a vector does not depend on which others it stands among.

    Under cosine the rows and the query have length one.
    """
    rows = vectors.astype(np.float64)
    if is_l2(metric):
        rows -= query
        rows *= rows
    else:
        rows *= query
    found: npt.NDArray[np.float64] = rows.sum(axis=1)
    if metric == "cosine":
        return np.clip(1.0 - found, 0.0, 2.0)
    return found if is_l2(metric) else -found
