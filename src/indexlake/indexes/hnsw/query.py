"""The query of a vector search: a vector, and how hard to look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import ExpressionError
from indexlake.indexes.hnsw.metric import LIMIT, Vectors
from indexlake.indexes.kind import whole_number

_OPTIONS = ("ef", "exact")
MAX_EF = 1 << 16


class VectorQuery(NamedTuple):
    """`vector` (float32) finds candidates, `precise` (float64) gives distances; of length one under cosine.

    ``ef``: how broadly to search graphs, overriding the index.  ``exact``: use no graph.  ``is_huge``: the squared
    length overflows float32.
    """

    vector: Vectors
    precise: npt.NDArray[np.float64]
    ef: int | None = None
    exact: bool = False
    is_huge: bool = False

    def __repr__(self) -> str:
        options = "".join([f", ef={self.ef}" if self.ef else "", ", exact" if self.exact else ""])
        return f"nearest to a vector of {len(self.vector)} numbers{options}"


def vector_query(column: str, dimension: int, metric: str, given: Any, options: Mapping[str, Any]) -> VectorQuery:
    ef, exact = _checked(options) if options else (None, False)
    numbers = _numbers(column, dimension, given)
    if len(numbers) != dimension:
        raise ExpressionError(
            f"The query vector has {len(numbers)} numbers, but the vectors of column {column!r} have {dimension}. "
            "Make it with the same model as the column's vectors."
        )
    if numbers.dtype == np.float32:
        vector = np.ascontiguousarray(numbers)
    else:
        with np.errstate(over="ignore"):
            vector = numbers.astype(np.float32)
    precise = vector.astype(np.float64)
    square = float(precise.dot(precise))  # float64 has room for it, so it is finite if the numbers are
    if not math.isfinite(square):
        raise ExpressionError(
            f"The query vector for column {column!r} contains NaN, infinity or a number too large for float32. "
            "Give finite numbers."
        )
    if metric == "cosine":
        if not square:
            raise ExpressionError(
                f"The query vector for column {column!r} is all zeros. It has no direction, and so no cosine "
                "distance to anything. Give another vector, or create an index with metric='l2'."
            )
        precise = precise / math.sqrt(square)
        vector, square = precise.astype(np.float32), 1.0
    return VectorQuery(vector, precise, ef, exact, square > LIMIT)


def _checked(options: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return the options ``ef`` and ``exact``."""
    for name in options:
        if name not in _OPTIONS:
            raise ExpressionError(
                f"A vector search has no option {name!r}; it has ef (how broadly the graph is searched) and exact=True."
            )
    ef, exact = options.get("ef"), options.get("exact", False)
    if ef is not None:
        ef, given = whole_number(ef), ef
        if ef is None or not 1 <= ef <= MAX_EF:
            raise ExpressionError(f"The option 'ef' is a whole number from 1 to {MAX_EF}, not {given!r}.")
    if not isinstance(exact, bool):
        raise ExpressionError(f"The option 'exact' is True or False, not {exact!r}.")
    return ef, exact


def _numbers(column: str, dimension: int, given: Any) -> npt.NDArray[Any]:
    """Return the numbers of a list, a tuple, an array or an Arrow value."""
    if type(given) is np.ndarray and given.ndim == 1 and given.dtype.kind in "iuf":
        return given
    example = f"a list, tuple, NumPy array or Arrow array of {dimension} numbers"
    asked = f"Column {column!r} is searched with {example}"
    if isinstance(given, pa.Scalar):
        given = given.as_py()
    elif isinstance(given, (pa.Array, pa.ChunkedArray)):
        given = given.to_pylist()
    if given is None:
        raise ExpressionError(f"{asked}, not with null.")
    if not isinstance(given, (list, tuple)) and not hasattr(given, "__array__"):
        raise ExpressionError(f"{asked}, not with {type(given).__name__}.")
    try:
        found = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        raise ExpressionError(f"{asked}; this is not a flat list of numbers.") from None
    if found.ndim != 1:
        raise ExpressionError(f"{asked}; this has {found.ndim} dimensions. Search for one vector at a time.")
    if len(found) and found.dtype.kind not in "iuf":
        if found.dtype.kind == "O" and any(n is None for n in found):
            raise ExpressionError(f"{asked}; this one contains null.")
        raise ExpressionError(f"{asked}; this one contains something that is not a number.")
    return found
