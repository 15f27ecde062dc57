"""Which slots of a segment are live, and what follows from it.  Leaving out dead rows costs about as much as there are.

What has been worked out for the latest mask is kept with the segment, provided the mask is read-only and therefore
cannot change.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.indexes.bm25.matching import Rows, match

if TYPE_CHECKING:
    from indexlake.indexes.bm25.segment import Entry, Segment

Mask = npt.NDArray[np.bool_]

_CHEAP = 4096  # with up to this many postings, check each against the mask
_FEWER = 16  # with this many times fewer slots than postings, look the slots up among the postings
_REMEMBERED = 4096


class Liveness:
    """The live slots of one segment.  Safe to share between threads."""

    def __init__(self, segment: Segment, mask: Mask | None) -> None:
        slots = segment.header.slots
        self._lengths = segment.lengths
        self._every = segment.header.documents, segment.header.length
        self._slots = slots
        self._count = slots
        self._dead_postings: dict[int, int] = {}
        self.given = self.mask = mask
        if mask is not None:
            if len(mask) != slots:
                raise ValueError(f"{len(mask)} live flags for {slots} slots")
            self._count = int(np.count_nonzero(mask))
            if self._count == slots:
                self.mask = None

    @property
    def _few_are_live(self) -> bool:
        return 2 * self._count < self._slots

    @cached_property
    def _few(self) -> npt.NDArray[np.uint32]:
        """The live slots or the dead ones, whichever are fewer."""
        assert self.mask is not None
        return np.flatnonzero(self.mask if self._few_are_live else ~self.mask).astype(np.uint32)

    @cached_property
    def statistics(self) -> tuple[int, int]:
        """The number of live documents and their total length."""
        if self.mask is None:
            return self._every
        lengths = self._lengths()
        found = lengths[self._few]
        found = found[found != np.iinfo(lengths.dtype).max]
        count, length = len(found), int(found.sum(dtype=np.int64))
        return (count, length) if self._few_are_live else (self._every[0] - count, self._every[1] - length)

    def live_postings(self, entry: Entry, slots: npt.NDArray[Any]) -> tuple[Rows | None, int]:
        """Return the indices of a term's live postings (None: nearly all, see the mask), and how many there are."""
        if self.mask is None:
            return None, len(slots)
        if len(slots) > _CHEAP and len(self._few) * _FEWER < len(slots):
            if not self._few_are_live:
                return None, len(slots) - self._dead(entry, slots)
            _, rows = match(self._few, slots, self._slots)
        else:
            rows = np.flatnonzero(self.mask[slots])
        return rows, len(rows)

    def _dead(self, entry: Entry, slots: npt.NDArray[Any]) -> int:
        found = self._dead_postings.get(entry.first)
        if found is None:
            if len(self._dead_postings) >= _REMEMBERED:
                self._dead_postings.clear()
            found = self._dead_postings[entry.first] = len(match(self._few, slots, self._slots)[0])
        return found


def liveness(segment: Segment, mask: Mask | None) -> Liveness:
    """Return the liveness of a segment under a mask, from the cache if possible."""
    if mask is None or mask.flags.writeable:
        return Liveness(segment, mask)
    last = segment.last_liveness
    if last is None or last.given is not mask:
        last = segment.last_liveness = Liveness(segment, mask)
    return last
