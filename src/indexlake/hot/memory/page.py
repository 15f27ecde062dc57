"""Pages of row versions, stored by column, with a fixed number of rows.

A version is written once and never changed: an update adds another version and ends the previous one. So readers need
no latch, and comparing three columns of numbers tells which versions a snapshot shows. Versions of a commit that is not
visible yet, or was undone, are shown by no snapshot.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.types import Codec
from indexlake.types.selection import take

BITS = 12
PAGE_ROWS = 1 << BITS
SLOT = PAGE_ROWS - 1
LIVE = 1 << 62
"""The end of a version that no commit has superseded, and the ``moved`` of one that is in no block."""

_ZEROS = bytes(8 * PAGE_ROWS)
Mask = npt.NDArray[np.bool_]


class Page:
    """Versions with the same columns, in the order in which they were written.

    ``number << BITS | slot`` identifies a version permanently; page numbers are never reused.
    """

    __slots__ = (
        "_arrow", "_begins", "_ends", "_moved", "begins", "bytes", "columns", "count", "ends", "moved", "number",
        "place", "previous", "row_ids", "values",
    )  # fmt: skip

    def __init__(self, number: int, columns: tuple[str, ...]) -> None:
        self.number = number
        self.columns = columns
        self.place = {name: n for n, name in enumerate(columns)}
        self.count = 0
        self.bytes = 0  # approximate memory used, trees included
        self.row_ids = array("q", _ZEROS)
        self.begins = array("q", _ZEROS)
        self.ends = array("q", _ZEROS)
        self.moved = array("q", _ZEROS)  # the commit from which on a block holds the version
        self.previous = array("q", _ZEROS)  # the previous version of the same row; -1: none in memory
        self.values: list[list[Any]] = [[] for _ in columns]
        self._arrow: dict[str, Any] = {}  # decoded columns of a full page, which no longer changes
        self._begins, self._ends, self._moved = map(_as_numpy, (self.begins, self.ends, self.moved))

    def add(self, row_id: int, begin: int, values: Any, previous: int) -> int:
        """Add a version and return its slot."""
        slot = self.count
        self.row_ids[slot] = row_id
        self.begins[slot] = begin
        self.ends[slot] = self.moved[slot] = LIVE
        self.previous[slot] = previous
        for place, column in enumerate(self.values):
            column.append(values[place])
        self.count = slot + 1
        return slot

    def add_many(
        self,
        row_ids: Sequence[int],
        begins: Sequence[int],
        ends: Sequence[int],
        previous: Sequence[int],
        values: Sequence[Sequence[Any]],
    ) -> None:
        """Add versions, for which the page must have room; ``values`` are given by column."""
        slots = slice(self.count, self.count + len(row_ids))
        for numbers, new in (
            (self.row_ids, row_ids),
            (self.begins, begins),
            (self.ends, ends),
            (self.previous, previous),
        ):
            numbers[slots] = array("q", new)
        self._moved[slots] = LIVE
        for column, held in zip(self.values, values, strict=True):
            column.extend(held)
        self.count = slots.stop

    def cut(self) -> None:
        """Remove values left by a version whose insertion was interrupted."""
        for column in self.values:
            del column[self.count :]

    def void(self, slot: int) -> None:
        """Hide an undone version from every reader for good."""
        self.begins[slot] = LIVE
        self.ends[slot] = self.moved[slot] = 0

    # -- many versions at once

    def visible(self, snapshot: int, at: int) -> Mask:
        """Return a mask of the versions that a snapshot shows and that no block of a state as of ``at`` holds."""
        n = self.count
        mask: Mask = (self._begins[:n] <= snapshot) & (self._ends[:n] > snapshot) & (self._moved[:n] > at)
        return mask

    def here(self, at: int) -> Mask:
        """Return a mask of the versions that no block of a state as of ``at`` holds, superseded or not."""
        n = self.count
        return (self._moved[:n] > at) & (self._begins[:n] < LIVE)

    def live(self) -> Mask:
        n = self.count
        mask: Mask = (self._ends[:n] == LIVE) & (self._moved[:n] == LIVE)
        return mask

    def numbers(self, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return (row ids, begins, ends) of the first ``count`` versions."""
        return _as_numpy(self.row_ids)[:count], self._begins[:count], self._ends[:count]

    def moved_numbers(self) -> npt.NDArray[np.int64]:
        """Return the ``moved`` column as an array that may be changed in place."""
        return self._moved

    def is_gone(self, before: int, horizon: int) -> bool:
        """Return whether no reader of a state as of ``before`` or later, or of a retained snapshot, needs this page."""
        n = self.count
        return bool(((self._moved[:n] <= before) | (self._ends[:n] <= horizon)).all())

    def column(self, name: str, mask: Mask | None) -> list[Any]:
        """Return a column's values for the masked versions (the page's first ones), or nulls if it lacks the column."""
        place = self.place.get(name)
        count = self.count if mask is None else len(mask)
        if place is None:
            return [None] * (count if mask is None else int(mask.sum()))
        held = self.values[place]
        if mask is None or mask.all():
            return held if count == PAGE_ROWS else held[:count]  # a full page does not change
        return list(compress(held, mask.tolist()))

    def array(self, name: str, codec: Codec, mask: Mask) -> Any:
        """Return a column's values for the masked versions as an Arrow array; a full page is decoded only once."""
        if len(mask) < PAGE_ROWS:
            return codec.decode(self.column(name, mask))
        found = self._arrow.get(name)
        if found is None:
            found = self._arrow[name] = codec.decode(self.column(name, None))
        return found if mask.all() else take(found, pa.array(np.flatnonzero(mask)))

    def row(self, slot: int, columns: tuple[str, ...]) -> list[Any]:
        """Return the values of one version in some columns."""
        if columns == self.columns:
            return [column[slot] for column in self.values]
        place, values = self.place, self.values
        return [values[place[name]][slot] if name in place else None for name in columns]


def masked(pages: Iterable[Page], method: str, *args: int) -> Iterator[tuple[Page, Mask]]:
    """Yield each page with the mask that a method of ``Page`` returns, unless the mask is empty."""
    for page in pages:
        mask = getattr(page, method)(*args)
        if mask.any():
            yield page, mask


def _as_numpy(numbers: array[int]) -> npt.NDArray[np.int64]:
    return np.frombuffer(numbers, np.int64)
