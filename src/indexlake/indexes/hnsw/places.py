"""Which slots each vector belongs to.

A graph over equal vectors falls apart, because they only link to each other.  So a segment that may get a graph keeps
equal vectors once, with all their slots, and puts near ones together.  Vectors are numbered by *row*; slots without a
vector have no row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from indexlake.indexes.kind import Slots

Mask = npt.NDArray[np.bool_]
Far = npt.NDArray[np.float64]

_SLICE = 1 << 14


class Places:
    """``slots``: those with a vector, ascending; None: all.  ``groups``: the row of each; None: numbered alike."""

    def __init__(self, rows: int, slots: Slots | None, groups: npt.NDArray[np.uint32] | None) -> None:
        self._rows = rows
        self._slots = slots
        self._groups = groups
        if groups is not None:
            self._order = np.argsort(groups, kind="stable")
            self._starts = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=rows))))
            self._once = len(groups) == rows  # whether each vector has one slot

    def live_rows(self, live: Mask) -> Mask:
        """Return the rows that have a live slot."""
        live_vectors = live if self._slots is None else live[self._slots]
        if self._groups is None:
            return live_vectors
        if self._once:
            return live_vectors[self._order]
        found = np.zeros(self._rows, np.bool_)
        found[self._groups[live_vectors]] = True
        return found

    def rows_of(self, slots: Slots) -> Slots:
        """Return the rows of slots that have one."""
        found = slots if self._slots is None else np.searchsorted(self._slots, slots)
        return found if self._groups is None else self._groups[found].astype(np.int64)

    def nearest(self, rows: Slots, far: Far, live: Mask | None, k: int) -> tuple[Slots, Far]:
        """Return the k nearest live slots of the rows, nearest first.  Each of the rows must have a live slot."""
        if self._groups is None or self._once:
            places = rows if self._groups is None else self._order[rows]
            order = np.lexsort((places, far))[:k]
            places, far = places[order], far[order]
            return places if self._slots is None else self._slots[places], far
        order = np.lexsort((self._order[self._starts[rows]], far))[:k]
        rows, far = rows[order], far[order]
        counts = self._starts[rows + 1] - self._starts[rows]
        if live is None:  # every slot is live, so the first rows have enough
            enough = int(np.searchsorted(np.cumsum(counts), k)) + 1
            rows, far, counts = rows[:enough], far[:enough], counts[:enough]
        first = np.repeat(self._starts[rows] - (np.cumsum(counts) - counts), counts)
        places = self._order[first + np.arange(len(first))]
        slots = places if self._slots is None else self._slots[places]
        far = np.repeat(far, counts)
        if live is not None:
            kept = live[slots]
            slots, far = slots[kept], far[kept]
        return slots[:k], far[:k]


def grouped(vectors: npt.NDArray[np.floating]) -> tuple[Slots, npt.NDArray[np.uint32]]:
    """Return where each distinct vector occurs first, and the number of each vector's."""
    words = vectors.view(np.uint16 if vectors.itemsize == 2 else np.uint32)
    factors = np.random.default_rng(1).integers(0, 1 << 64, words.shape[1], np.uint64)
    hashes = np.empty(len(words), np.uint64)
    for at in range(0, len(words), _SLICE):
        hashes[at : at + _SLICE] = (words[at : at + _SLICE] * factors).sum(axis=1)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group] != np.arange(len(vectors)))
    if not np.array_equal(vectors[again], vectors[first[group[again]]]):
        first = group = np.arange(len(vectors))  # different vectors with the same hash: about one in 2**64 pairs
    order = np.argsort(first)
    rank = np.empty(len(order), np.uint32)
    rank[order] = np.arange(len(order))
    return first[order], rank[group]
