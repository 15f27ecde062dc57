"""A set of keys in memory: sorted once, searched for many keys at a time, without a Python object per key.

Immutable, and safe to share between threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import array_around, truths
from indexlake.indexes.keys import Key, KeyColumn, bisect_many


class KeySet:
    """The distinct keys of a column, in order, and which of its rows hold each of them."""

    def __init__(self, keys: KeyColumn) -> None:
        self.order = keys.argsort()  # rows of the column, grouped by key, each key's in their own order
        ordered = keys.take(self.order)
        first = _first_of_runs(ordered)
        self.starts = np.append(np.flatnonzero(first), len(ordered))  # where the rows of each key begin in `order`
        self.keys = ordered if first.all() else ordered.take(self.starts[:-1])
        self._common = len(self.keys.common_prefix())
        self._prefixes = self.keys.prefixes(self._common)

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: Key) -> bool:
        if self.keys.ints is not None:
            at = int(np.searchsorted(self.keys.ints, np.uint64(key)))
            return at < len(self) and int(self.keys.ints[at]) == key
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.keys[middle] < key:  # type: ignore[operator]
                low = middle + 1
            else:
                high = middle
        return low < len(self) and self.keys[low] == key

    def mask(self, keys: KeyColumn) -> npt.NDArray[np.bool_]:
        """Return which of the keys are in the set."""
        found = np.zeros(len(keys), np.bool_)
        found[self.find(keys)[0]] = True
        return found

    def find(self, keys: KeyColumn) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the indices into ``keys`` of those in the set, and their numbers in the set."""
        if not len(self) or not len(keys):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        prefixes = keys.prefixes(self._common)
        low = np.searchsorted(self._prefixes, prefixes, "left")
        inside = np.minimum(low, len(self) - 1)
        indices = np.flatnonzero(self._prefixes[inside] == prefixes)
        low = low[indices]
        if self.keys.ints is None:
            sought = keys.binary.take(array_around(indices))
            high = np.searchsorted(self._prefixes, prefixes[indices], "right")
            low = np.minimum(bisect_many(self.keys.binary, sought, low, high, pc.less), len(self) - 1)
            same = truths(pc.equal(self.keys.binary.take(array_around(low)), sought))
            indices, low = indices[same], low[same]
        return indices.astype(np.int64, copy=False), low.astype(np.int64, copy=False)


def _first_of_runs(ordered: KeyColumn) -> npt.NDArray[np.bool_]:
    first = np.ones(len(ordered), np.bool_)
    if len(ordered) > 1:
        if ordered.ints is not None:
            first[1:] = ordered.ints[1:] != ordered.ints[:-1]
        else:
            keys: Any = ordered.binary
            first[1:] = truths(pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)))
    return first
