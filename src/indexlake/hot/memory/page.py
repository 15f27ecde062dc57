"""Row pages: a fixed number of row versions, column by column.

A version is written once and never changed: an update adds another version and ends the one before.  So readers need
no latch, and which versions a snapshot shows is one comparison of three columns of numbers.  A version that began in a
commit that is not visible yet, or was undone, is shown by no snapshot.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
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
"""The end of a version that no commit has superseded, and where a version has moved that no block holds."""

_ZEROS = bytes(8 * PAGE_ROWS)
Mask = npt.NDArray[np.bool_]


class Page:
    """Versions with the same columns, in the order in which they were written.

    ``number << BITS | slot`` names a version for good; numbers are not given twice.
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
        self.bytes = 0  # about what it takes, trees included
        self.row_ids = array("q", _ZEROS)
        self.begins = array("q", _ZEROS)
        self.ends = array("q", _ZEROS)
        self.moved = array("q", _ZEROS)  # the commit since which a block holds the version
        self.previous = array("q", _ZEROS)  # the version of the same row before, -1: none here
        self.values: list[list[Any]] = [[] for _ in columns]
        self._arrow: dict[str, Any] = {}  # what was asked for of a full page, which does not change
        self._begins, self._ends, self._moved = map(_numbers, (self.begins, self.ends, self.moved))

    def add(self, row_id: int, begin: int, values: Any, previous: int) -> int:
        """The slot of a new version."""
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
        self, row_ids: list[int], begins: list[int], ends: list[int], previous: list[int], values: list[list[Any]]
    ) -> None:
        """Versions for which there is room; ``values`` by column."""
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
            column += held
        self.count = slots.stop

    def cut(self) -> None:
        """Forget the values of a version that was not added to the end."""
        for column in self.values:
            del column[self.count :]

    def void(self, slot: int) -> None:
        """The version was undone: no reader ever sees it."""
        self.begins[slot] = LIVE
        self.ends[slot] = self.moved[slot] = 0

    # -- many versions at once

    def visible(self, snapshot: int, at: int) -> Mask:
        """Those that a snapshot shows and that no block of a state as of ``at`` holds."""
        n = self.count
        mask: Mask = (self._begins[:n] <= snapshot) & (self._ends[:n] > snapshot) & (self._moved[:n] > at)
        return mask

    def here(self, at: int) -> Mask:
        """Those that no block of a state as of ``at`` holds, superseded or not."""
        n = self.count
        return (self._moved[:n] > at) & (self._begins[:n] < LIVE)

    def live(self) -> Mask:
        n = self.count
        mask: Mask = (self._ends[:n] == LIVE) & (self._moved[:n] == LIVE)
        return mask

    def numbers(self, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(row ids, begins, ends) of the first ``count`` versions."""
        return _numbers(self.row_ids)[:count], self._begins[:count], self._ends[:count]

    def moved_numbers(self) -> npt.NDArray[np.int64]:
        """To be changed in place."""
        return self._moved

    def is_gone(self, before: int, horizon: int) -> bool:
        """Whether nobody who reads a state as of ``before`` or later, or a retained snapshot, asks for any of it."""
        n = self.count
        return bool(((self._moved[:n] <= before) | (self._ends[:n] <= horizon)).all())

    def column(self, name: str, mask: Mask | None) -> list[Any]:
        """The values of a column, of the versions that a mask over the first of them keeps; nulls where it has none."""
        place = self.place.get(name)
        count = self.count if mask is None else len(mask)
        if place is None:
            return [None] * (count if mask is None else int(mask.sum()))
        held = self.values[place]
        if mask is None or mask.all():
            return held if count == PAGE_ROWS else held[:count]  # a full page does not change
        return list(compress(held, mask.tolist()))

    def array(self, name: str, codec: Codec, mask: Mask) -> Any:
        """The same decoded, as Arrow has them; of a full page they are decoded once."""
        if len(mask) < PAGE_ROWS:
            return codec.decode(self.column(name, mask))
        found = self._arrow.get(name)
        if found is None:
            found = self._arrow[name] = codec.decode(self.column(name, None))
        return found if mask.all() else take(found, pa.array(np.flatnonzero(mask)))

    def row(self, slot: int, columns: tuple[str, ...]) -> list[Any]:
        """The values of one version in some columns."""
        if columns == self.columns:
            return [column[slot] for column in self.values]
        place, values = self.place, self.values
        return [values[place[name]][slot] if name in place else None for name in columns]


def masked(pages: Iterable[Page], of: str, *of_what: int) -> Iterator[tuple[Page, Mask]]:
    """Pages with the versions that a method of theirs keeps, where there are any."""
    for page in pages:
        mask = getattr(page, of)(*of_what)
        if mask.any():
            yield page, mask


def _numbers(of: array[int]) -> npt.NDArray[np.int64]:
    return np.frombuffer(of, np.int64)
