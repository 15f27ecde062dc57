"""The block index: which blocks may hold certain rows, by snapshot, row id or column statistics.

A few vectorised comparisons over columnar arrays answer everything, so the cost hardly grows with the number of blocks
that do not qualify. The arrays of a column are built on first use and carried over to the next index when blocks come
and go. An index is immutable, and threads may share it.

Pruning never drops a block that may hold a matching row: missing statistics count as a match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.prune import Bounds, Mask, nulls_of, prune, read_bounds
from indexlake.expr.test import Test
from indexlake.types import Codec

_FOREVER = np.iinfo(np.int64).max


class BlockIndex:
    """An ordered collection of block records. Masks and indices refer to that order."""

    def __init__(self, records: Iterable[BlockRecord] = ()) -> None:
        self.records: tuple[BlockRecord, ...] = tuple(records)
        self._numbers: dict[str, npt.NDArray[np.int64]] = {}
        self._bounds: dict[tuple[str, str], Bounds] = {}
        self._nulls: dict[str, Mask] | None = None
        self._by_id: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"BlockIndex({len(self.records)} blocks)"

    @cached_property
    def changed_in(self) -> int:
        """The newest commit that wrote a record of a block; -1 if there are none."""
        return int(self.numbers("changed_in").max()) if self.records else -1

    def record(self, data_file_id: int) -> BlockRecord | None:
        index = self.index_of(data_file_id)
        return None if index is None else self.records[index]

    def index_of(self, data_file_id: int) -> int | None:
        """Return the index of a block in the order, or None."""
        if self._by_id is None:
            self._by_id = {record.data_file_id: index for index, record in enumerate(self.records)}
        return self._by_id.get(data_file_id)

    def indices_of(self, data_file_ids: Sequence[int]) -> npt.NDArray[np.intp] | None:
        """Return the indices of blocks in the order, or None if any of them is missing."""
        known, wanted = self.numbers("data_file_id"), np.array(data_file_ids, np.int64)
        if np.array_equal(known, wanted):
            return np.arange(len(known))  # of a scan of everything
        order = np.argsort(known, kind="stable")
        found = np.searchsorted(known, wanted, sorter=order)
        if len(wanted) and (found.max() == len(known) or (known[order[found]] != wanted).any()):
            return None
        return order[found]

    def with_blocks(self, added: Sequence[BlockRecord], removed_ids: Collection[int] = ()) -> BlockIndex:
        """Return an index without the removed blocks and with the added ones at the end.

        An added block replaces the one with the same id.
        """
        kept = self.without(added, removed_ids)
        new = BlockIndex()
        fresh = BlockIndex(added)
        if kept.all():
            new.records = (*self.records, *added)
        else:
            new.records = (*compress(self.records, kept.tolist()), *added)
        # Other threads may be adding columns to this index meanwhile: copy the dictionaries first.
        for name, numbers in dict(self._numbers).items():
            new._numbers[name] = np.concatenate((numbers[kept], fresh.numbers(name)))
        for (column, kind), bounds in dict(self._bounds).items():
            old: Any = bounds.keep(kept)
            new._bounds[column, kind] = old.extend(fresh._bounds_of(column, kind)) if added else old
        if (held := self._nulls) is not None:
            more = fresh._null_masks()
            every = np.ones(len(self.records), np.bool_), np.ones(len(added), np.bool_)
            new._nulls = {
                name: np.concatenate((held.get(name, every[0])[kept], more.get(name, every[1])))
                for name in {**held, **more}
            }
        return new

    def without(self, added: Sequence[BlockRecord], removed_ids: Collection[int] = ()) -> Mask:
        """Return a mask of the blocks that are neither removed nor replaced by an added one."""
        gone = {*removed_ids, *(record.data_file_id for record in added)}
        return ~np.isin(self.numbers("data_file_id"), np.fromiter(gone, np.int64, len(gone)))

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """Return one integer field of all records as an array; None, as in a live `end_snapshot`, is the maximum."""
        array = self._numbers.get(name)
        if array is None:
            values: Iterable[int | None] = map(attrgetter(name), self.records)
            if name == "end_snapshot":
                values = (_FOREVER if v is None else v for v in values)
            array = np.fromiter(values, np.int64, len(self.records))
            self._numbers[name] = array
        return array

    def visible_at(self, snapshot_id: int, among: npt.NDArray[np.intp] | None = None) -> Mask:
        """Return a mask of the blocks that a reader at a snapshot reads, among all or among those with some indices."""
        begin, end = self.numbers("begin_snapshot"), self.numbers("end_snapshot")
        if among is not None:
            begin, end = begin[among], end[among]
        return (begin <= snapshot_id) & (end > snapshot_id)

    def with_row_id(self, row_id: int) -> npt.NDArray[np.intp]:
        """Return the indices of blocks whose row-id bounds include a row id."""
        return np.flatnonzero((self.numbers("min_row_id") <= row_id) & (self.numbers("max_row_id") >= row_id))

    def candidates(self, test: Test, codecs: Mapping[str, Codec], snapshot_id: int) -> npt.NDArray[np.intp]:
        """Return the indices of blocks that are visible at a snapshot and may hold a row that satisfies a test."""
        found = np.flatnonzero(self.prune(test, codecs))
        return found[self.visible_at(snapshot_id, found)]

    def prune(self, test: Test, codecs: Mapping[str, Codec]) -> Mask:
        """Return a mask of the blocks that may hold a row that satisfies a test, by their column statistics.

        Columns are named as in the statistics (`f<field_id>`); a column without codec is not used.
        """
        return prune(test, codecs, len(self.records), self._bounds_of)

    def may_hold_null(self, column: str, among: Sequence[int] | npt.NDArray[np.intp]) -> bool:
        """Return whether any of these blocks holds a null in a column, or lacks statistics of it."""
        held = self._null_masks().get(column)
        if held is None:
            return bool(len(among))
        return bool(held.any() and held[np.asarray(among, np.intp)].any())

    def _null_masks(self) -> dict[str, Mask]:
        """Return, for each column, a mask of the blocks that hold a null or lack statistics of it."""
        if self._nulls is None:
            self._nulls = nulls_of([record.column_stats for record in self.records])
        return self._nulls

    def _bounds_of(self, column: str, kind: str) -> Bounds:
        bounds = self._bounds.get((column, kind))
        if bounds is None:
            bounds = read_bounds([record.column_stats for record in self.records], column, kind)
            self._bounds[column, kind] = bounds
        return bounds
