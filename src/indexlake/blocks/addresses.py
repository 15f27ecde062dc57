"""Addresses: which row is at which position of a block, and back.

In a block ordered by row id, the position of a row is the rank of its id, and the block's record has all ids
(`RowIds`). A block in another order stores its row ids in a column, which has to be read.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from indexlake.blocks.row_ids import RowIds

Ints = npt.NDArray[np.int64]


class Addresses(Protocol):
    """The addresses of one block. Immutable, and safe to share between threads."""

    def row_id_at(self, position: int) -> int: ...
    def row_ids_at(self, positions: npt.ArrayLike) -> Ints: ...
    def positions_of(self, row_ids: npt.ArrayLike) -> Ints:
        """Return the position of each row id, -1 for ids that are not in the block."""
        ...


ranked = lru_cache(4096)(RowIds.from_bytes)
"""Returns the addresses of a block ordered by row id, from the ``row_ids`` of its record."""


class LookedUp:
    """The addresses of a block in any order, from its row ids by position."""

    def __init__(self, row_ids: Ints, *, ready: bool = False) -> None:
        """``ready``: prepare look-ups of positions now, for callers that must not wait later."""
        self._row_ids = row_ids
        if ready:
            _ = self._order

    @cached_property
    def _order(self) -> npt.NDArray[np.uint32]:
        return np.argsort(self._row_ids, kind="stable").astype(np.uint32)

    def row_id_at(self, position: int) -> int:
        return int(self._row_ids[position])

    def row_ids_at(self, positions: npt.ArrayLike) -> Ints:
        return self._row_ids[np.asarray(positions).astype(np.int64, copy=False)]

    def positions_of(self, row_ids: npt.ArrayLike) -> Ints:
        wanted = np.asarray(row_ids).astype(np.int64, copy=False)
        if not len(self._row_ids) or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        places = np.searchsorted(self._row_ids, wanted, sorter=self._order)
        found = self._order[np.minimum(places, len(self._order) - 1)].astype(np.int64)
        return np.where(self._row_ids[found] == wanted, found, -1)


class Noted:
    """The positions of some rows of a block, remembered in case the rows move."""

    def __init__(self, positions: Ints, row_ids: Ints) -> None:
        order = np.argsort(positions, kind="stable")
        self._positions, self._row_ids = positions[order], row_ids[order]

    def joined(self, other: Noted) -> Noted:
        return Noted(
            np.concatenate((self._positions, other._positions)), np.concatenate((self._row_ids, other._row_ids))
        )

    def row_ids_at(self, positions: npt.ArrayLike) -> Ints:
        """Return the row ids at positions that are among those remembered."""
        return self._row_ids[np.searchsorted(self._positions, np.asarray(positions).astype(np.int64, copy=False))]
