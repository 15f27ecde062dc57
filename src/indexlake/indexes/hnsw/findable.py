"""The rows of a segment that may be found, according to a mask of its slots.

Searches of the same form bring the same read-only mask, so what follows from it is kept with the segment.  If the rows
are few and often asked for, their vectors are copied into one array: distances to them take less than half the time.
All of this takes at most an eighth of the memory of the vectors, or 1 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexlake.blocks.open_files import Recent
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
        self.packed: Vectors | None = None  # copies of their vectors

    @property
    def size(self) -> int:
        packed = 0 if self.packed is None else self.packed.nbytes
        return self.mask.nbytes + self.live.nbytes + self.rows.nbytes + packed


class FindableRows:
    """The findable rows of one segment for the latest masks.  Safe to share between threads."""

    def __init__(self, vectors: Vectors) -> None:
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
        if found.asked == _OFTEN and found.size + len(found.rows) * self._vectors[:1].nbytes <= self._most:
            found.packed = self._vectors[found.rows]
            self._known.put(key, found, found.size)
        return found
