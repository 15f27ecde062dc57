"""Fusing several rankings into one.

Reciprocal rank fusion: a row scores 1 / (60 + rank) in each ranking that has it, and the scores are added up.  With
weights, each ranking's scores are first scaled to the range from 0 (its last row) to 1 (its best), and their weighted
sum counts.  Ties go to the lower row id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.errors import ExpressionError

RANK_CONSTANT = 60


def fuse_weights(fuse: Any, count: int) -> tuple[float, ...] | None:
    """Return the weight of each ranking, or None to fuse by rank."""
    if isinstance(fuse, str) and fuse == "rrf":
        return None
    weights = list(fuse) if isinstance(fuse, list | tuple | np.ndarray) else []
    if len(weights) != count or not all(isinstance(w, int | float | np.number) and 0 <= w < np.inf for w in weights):
        raise ExpressionError(
            f'fuse is "rrf", or a list with one weight, 0 or more, for each search ({count} here); got {fuse!r}.'
        )
    return tuple(float(w) for w in weights)


def fused(
    row_ids: Sequence[npt.NDArray[np.int64]],
    scores: Sequence[npt.NDArray[np.float64]],
    greatest_first: Sequence[bool],
    weights: Sequence[float] | None,
) -> tuple[list[tuple[int, int]], npt.NDArray[np.float64]]:
    """Return, best first, a ranking that has each row and its place there, and the rows' fused scores."""
    total: dict[int, float] = {}
    place: dict[int, tuple[int, int]] = {}
    for number, (ids, values) in enumerate(zip(row_ids, scores, strict=True)):
        if weights is None:
            worth = 1.0 / (RANK_CONSTANT + 1 + np.arange(len(ids)))
        else:
            worth = weights[number] * _normal(values if greatest_first[number] else -values)
        for n, (row_id, each) in enumerate(zip(ids.tolist(), worth.tolist(), strict=True)):
            total[row_id] = total.get(row_id, 0.0) + each
            place.setdefault(row_id, (number, n))
    best = sorted(total, key=lambda row_id: (-total[row_id], row_id))
    return [place[row_id] for row_id in best], np.array([total[row_id] for row_id in best], np.float64)


def _normal(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return np.ones(len(values)) if high == low else (values - low) / (high - low)
