"""Where two sorted arrays have the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]

# Nanoseconds, measured: a binary search for ascending numbers, a number looked up in a table, a row of the table.
_SEARCH, _LOOK, _ROW = 40.0, 4.0, 0.5


def match(some: npt.NDArray[Any], others: npt.NDArray[Any], span: int) -> tuple[Rows, Rows]:
    """The rows of both arrays that hold the same number; both ascend without doubles, from 0 to below ``span``."""
    if len(some) > len(others):
        right, left = match(others, some, span)
        return left, right
    if not len(some):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if len(some) * _SEARCH > len(others) * _LOOK + span * _ROW:
        numbers = np.full(span, -1, np.int32)
        numbers[some] = np.arange(len(some), dtype=np.int32)
        found = numbers[others]
        there = np.flatnonzero(found >= 0)
        return found[there].astype(np.int64), there
    wanted = some.astype(others.dtype, copy=False)
    at = np.searchsorted(others, wanted)
    np.minimum(at, len(others) - 1, out=at)
    there = np.flatnonzero(others[at] == wanted)
    return there, at[there]
