"""The graph of a segment: built by faiss, stored as plain arrays, and searched by faiss in place.

The arrays are checked before faiss sees them: no link leads out of the graph.  How broad a search must be for good
recall depends on the vectors, so it is measured on a sample when the graph is built, and stored with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.errors import CorruptionError
from indexlake.indexes.hnsw import costs
from indexlake.indexes.hnsw.header import wrong
from indexlake.indexes.hnsw.library import building_threads, faiss
from indexlake.indexes.hnsw.metric import LEAST, LIMIT, Vectors, metric_number

_BREADTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_SAMPLE = 200
_GOOD = 0.98
_TOP = 10
_USUAL = 64  # no graph is tried for so few rows that it would not pay at this breadth
_MOST_LEVELS = 64
_MOST_PARAMETERS = 64


@dataclass(frozen=True, slots=True)
class Links:
    """A graph as arrays; see `header`."""

    m: int
    breadth: int
    entry: int
    levels: npt.NDArray[np.uint8]
    links: npt.NDArray[np.int32]


def is_possible(vectors: Vectors) -> bool:
    """Return whether float32 has room for all distances, and can tell them from zero."""
    return bool(LEAST < np.einsum("ij,ij->i", vectors, vectors).max() <= LIMIT)


def may_pay(rows: int, dimension: int, breadth: int | None) -> bool:
    """Return whether searching a graph of this many rows would be faster than computing all distances."""
    return costs.by_graph(breadth or _USUAL, dimension) < costs.in_order(rows, dimension)


def build(metric: str, vectors: Vectors, m: int, ef_construction: int, breadth: int | None) -> Links | None:
    """Build a graph of the vectors.  None if exact search is faster.  A given ``breadth`` is used without measuring."""
    rows, dimension = vectors.shape
    library = faiss()
    index = library.IndexHNSWFlat(dimension, m, metric_number(library, metric))
    hnsw = index.hnsw
    hnsw.efConstruction = ef_construction
    with building_threads():
        index.add(vectors)  # at once, because faiss then begins with the upper levels
        breadth = _measured(library, index, vectors) if breadth is None else breadth
    if breadth is None or not may_pay(rows, dimension, breadth):
        return None
    links = library.rev_swig_ptr(hnsw.neighbors.data(), hnsw.neighbors.size()).astype("<i4")
    levels = library.vector_to_array(hnsw.levels).astype(np.uint8)
    return Links(m, breadth, int(hnsw.entry_point), levels, links)


class Graph:
    """A graph over vectors that can be searched from any thread."""

    def __init__(self, path: str, metric: str, vectors: Vectors, stored: Links) -> None:
        library = faiss()
        storage = library.IndexFlat(vectors.shape[1], metric_number(library, metric))
        storage.codes = _view(library, library.MaybeOwnedVectorUInt8, vectors.reshape(-1).view(np.uint8))
        storage.ntotal = len(vectors)
        index = library.IndexHNSW(storage, stored.m)
        offsets = _offsets(path, library.vector_to_array(index.hnsw.cum_nneighbor_per_level), stored)
        hnsw = index.hnsw
        hnsw.neighbors = _view(library, library.MaybeOwnedVectorInt32, stored.links)
        library.copy_array_to_vector(stored.levels.astype(np.int32), hnsw.levels)
        library.copy_array_to_vector(offsets, hnsw.offsets)
        hnsw.entry_point = stored.entry
        hnsw.max_level = int(stored.levels[stored.entry]) - 1
        index.ntotal = len(vectors)
        self.breadth = stored.breadth
        self._index = index
        self._kept = (storage, vectors, stored.links)  # keeps alive the memory that faiss points to
        self._library = library
        self._parameters: dict[int, Any] = {}  # by breadth

    def search(self, query: Vectors, k: int, ef: int) -> npt.NDArray[np.int64]:
        """Return approximately the k nearest, nearest first.  The query must be contiguous."""
        pointer = self._library.swig_ptr
        far, found = np.empty(k, np.float32), np.empty(k, np.int64)
        asked = self._parameters.get(ef) or self._searched(max(ef, k))
        self._index.search_c(1, pointer(query), k, pointer(far), pointer(found), asked)  # without the Python wrapper
        return found if found[-1] >= 0 else found[found >= 0]

    def _searched(self, ef: int) -> Any:
        known = self._parameters.get(ef)
        if known is None:
            if len(self._parameters) >= _MOST_PARAMETERS:
                self._parameters = {}
            known = self._parameters[ef] = self._library.SearchParametersHNSW(efSearch=ef)
        return known


def _view(library: Any, kind: Any, array: npt.NDArray[Any]) -> Any:
    """Return a faiss vector over the array's memory; the array has to outlive it."""
    return kind.create_view(library.swig_ptr(array), array.size, kind().owner)


def _offsets(path: str, sizes: npt.NDArray[np.int32], stored: Links) -> npt.NDArray[np.uint64]:
    """Return where the links of each vector begin.  Raises if levels and links do not fit together."""
    levels, links = stored.levels, stored.links
    if not 1 <= int(levels.min()) <= int(levels.max()) < min(len(sizes), _MOST_LEVELS):
        raise _nonsense(path)
    offsets = np.zeros(len(levels) + 1, np.uint64)
    np.cumsum(sizes.astype(np.uint64)[levels], out=offsets[1:])
    if (
        int(offsets[-1]) != len(links)
        or int(levels[stored.entry]) != int(levels.max())
        or int(links.min()) < -1
        or int(links.max()) >= len(levels)
    ):
        raise _nonsense(path)
    return offsets


def _nonsense(path: str) -> CorruptionError:
    return wrong(path, "its graph contradicts itself")


def _measured(library: Any, index: Any, vectors: Vectors) -> int | None:
    """Return the smallest breadth that gives good answers for a sample, or None if no breadth tried is enough.

    Each query of the sample is one of the vectors, moved as far as its nearest neighbour is away, in the direction from
    one of its other neighbours to another: this is where more vectors of the same kind would lie.
    """
    some = np.random.default_rng(len(vectors)).choice(len(vectors), _SAMPLE, replace=False)
    queries = vectors[some]
    near = index.storage.search(queries, _TOP)[1]
    steps = vectors[near[:, 2]] - vectors[near[:, -1]]
    far = np.linalg.norm(vectors[near[:, 1]] - queries, axis=1) / np.maximum(np.linalg.norm(steps, axis=1), 1e-30)
    queries = queries + steps * far[:, np.newaxis]
    last = index.storage.search(queries, _TOP)[0][:, -1:]
    rounding = 1e-5 * (np.abs(last) + np.einsum("ij,ij->i", queries, queries)[:, np.newaxis])
    for breadth in _BREADTHS:
        found = index.search(queries, _TOP, params=library.SearchParametersHNSW(efSearch=breadth))[0]
        right = found <= last + rounding if index.metric_type == library.METRIC_L2 else found >= last - rounding
        if right.mean() >= _GOOD:
            return breadth
    return None
