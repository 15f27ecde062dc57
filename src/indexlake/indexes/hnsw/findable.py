"""The rows of a segment that may be found, according to a mask of its slots.

Searches of the same form bring the same read-only mask, so what follows from it is kept with the segment.  If the rows
are often asked for and their distances computed, their vectors are copied into one place, in half precision.
All of this takes at most an eighth of the memory of the vectors, or 1 MiB; one mask at most half of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexlake.blocks.open_files import Recent
from indexlake.indexes.hnsw.copied import Copied
from indexlake.indexes.hnsw.metric import Vectors

if TYPE_CHECKING:
    from indexlake.indexes.hnsw.places import Places

Mask = npt.NDArray[np.bool_]

_MASKS = 16
_LEAST = 1 << 20
_SHARE = 8
_OFTEN = 16  # a copy costs about as much as ten searches


class Findable:
    """The rows that may be found according to one mask."""

    def __init__(self, mask: Mask, places: Places) -> None:
        self.mask = mask
        self.live = places.live_rows(mask)
        self.rows: npt.NDArray[np.int64] = np.flatnonzero(self.live)
        self.asked = 0
        self.may_be_copied = False  # whether copies of their vectors are at hand, or may be made
        self.copied: Copied | None = None

    @property
    def size(self) -> int:
        return self.mask.nbytes + self.live.nbytes + self.rows.nbytes


class FindableRows:
    """The findable rows of one segment for the latest masks.  Safe to share between threads."""

    def __init__(self, metric: str, vectors: Vectors) -> None:
        self._metric = metric
        self._vectors = vectors
        self._most = max(_LEAST, vectors.nbytes // _SHARE)
        self._known: Recent[Findable] = Recent(_MASKS, self._most)

    def by(self, mask: Mask, places: Places) -> Findable:
        key = id(mask)
        found = self._known.get(key)
        if found is None or found.mask is not mask:
            found = Findable(mask, places)
            if not mask.flags.writeable:
                self._known.put(key, found, found.size)
            return found
        found.asked += 1
        if found.asked == _OFTEN:
            found.may_be_copied = 2 * self._size(found) <= self._most
        return found

    def copied(self, some: Findable) -> Copied | None:
        """Return copies of the vectors of these rows; None if they are not worth it, or not possible."""
        if some.may_be_copied and some.copied is None:
            copied = Copied(self._metric, self._vectors[some.rows])
            if copied.is_good:
                some.copied = copied
                self._known.put(id(some.mask), some, self._size(some))
            else:
                some.may_be_copied = False
        return some.copied

    def _size(self, some: Findable) -> int:
        return some.size + len(some.rows) * self._vectors[:1].nbytes // 2
