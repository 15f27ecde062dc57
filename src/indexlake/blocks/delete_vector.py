"""What was deleted from one block, by which commit.

A `DeleteLog` is a value: `add` returns a new log and leaves the old one unchanged. Successive logs share one
append-only history, so adding the hundred-thousandth single delete costs as much as the first, and checking one
position builds no bitmap. The state at a snapshot is the union of the entries of commits up to it; entries of snapshot
0 hold at every snapshot. Logs are safe to share between threads.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexlake.errors import CorruptionError

_SMALL = 16


class _History:
    """Entries in the order in which they were added; only ever appended to, under its lock."""

    __slots__ = ("all", "bulk", "entries", "lock", "max_snapshot", "small", "union")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: list[tuple[int, Any]] = []
        self.all = BitMap()
        self.max_snapshot = 0
        # To find a position: small entries are indexed by position, larger ones are searched one by one.
        self.small: dict[int, int | tuple[int, ...]] = {}
        self.bulk: list[int] = []
        self.union: tuple[int, int, Any] | None = None

    def append(self, snapshot_id: int, positions: Any) -> None:
        ordinal = len(self.entries)
        self.entries.append((snapshot_id, positions))
        if len(positions) <= _SMALL:
            for position in positions:
                before = self.small.get(position)
                if before is None:
                    self.small[position] = ordinal
                elif isinstance(before, int):
                    self.small[position] = (before, ordinal)
                else:
                    self.small[position] = (*before, ordinal)
        else:
            self.bulk.append(ordinal)
        self.all |= positions
        self.max_snapshot = max(self.max_snapshot, snapshot_id)

    def goes_on(self, length: int, snapshot_id: int, positions: Any) -> bool:
        """Append the entry after the first `length`; return False if another one is there.

        Two readers that bring the same log up to date add equal entries, which they then share.
        """
        if len(self.entries) == length:
            self.append(snapshot_id, positions)
            return True
        return bool(self.entries[length] == (snapshot_id, positions))


class DeleteLog:
    """The deletes of one block: entries of (snapshot id, positions)."""

    __slots__ = ("_history", "_length")

    def __init__(self, entries: Iterable[tuple[int, Iterable[int]]] = ()) -> None:
        self._history = _History()
        for snapshot_id, positions in entries:
            self._history.append(snapshot_id, positions_bitmap(positions))
        self._length = len(self._history.entries)

    def add(self, snapshot_id: int, positions: Iterable[int]) -> DeleteLog:
        """Return this log with one more entry; this log itself is unchanged."""
        bitmap = positions_bitmap(positions)
        history = self._history
        with history.lock:
            if not self._length or not history.goes_on(self._length, snapshot_id, bitmap):
                history = self._fork()
                history.append(snapshot_id, bitmap)
        log = DeleteLog.__new__(DeleteLog)
        log._history = history
        log._length = self._length + 1
        return log

    def _fork(self) -> _History:
        """Return another history with the entries of this log, for when the old one was extended by another log."""
        history = _History()
        for snapshot_id, positions in self._history.entries[: self._length]:
            history.append(snapshot_id, positions)
        return history

    def entries(self) -> list[tuple[int, Any]]:
        """Return the entries (snapshot id, bitmap) in the order in which they were added. Do not change the bitmaps."""
        return self._history.entries[: self._length]

    def between(self, after: int, upto: int) -> list[tuple[int, Any]]:
        """Return the entries of commits in (after, upto]. Do not change the bitmaps."""
        if self._history.max_snapshot <= after:
            return []
        return [entry for entry in self.entries() if after < entry[0] <= upto]

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"DeleteLog({self._length} entries)"

    def _is_whole(self, snapshot_id: int) -> bool:
        history = self._history
        return snapshot_id >= history.max_snapshot and self._length == len(history.entries)

    def at(self, snapshot_id: int) -> Any | None:
        """Return the positions deleted at a snapshot (a `BitMap`, not to be changed), or None if there are none."""
        if not self._length:
            return None
        history = self._history
        with history.lock:
            whole = self._is_whole(snapshot_id)
            # The whole is the same at every later snapshot, so it is kept under the largest one.
            known_as = history.max_snapshot if whole else snapshot_id
            kept = history.union
            if kept is not None and kept[0] == self._length and kept[1] == known_as:
                union = kept[2]
            else:
                union = history.all.copy() if whole else self._union(snapshot_id)
                history.union = (self._length, known_as, union)
        return union or None

    def _union(self, snapshot_id: int) -> Any:
        parts = [p for s, p in self._history.entries[: self._length] if s <= snapshot_id]
        return BitMap.union(*parts) if parts else BitMap()

    def count_at(self, snapshot_id: int) -> int:
        """Return how many positions are deleted at a snapshot."""
        if not self._length:
            return 0
        with self._history.lock:
            if self._is_whole(snapshot_id):
                return len(self._history.all)
        positions = self.at(snapshot_id)
        return len(positions) if positions is not None else 0

    def contains(self, position: int, snapshot_id: int) -> bool:
        """Return whether one position is deleted at a snapshot, without building a bitmap."""
        history = self._history
        if not self._length or position not in history.all:
            return False
        with history.lock:
            if self._is_whole(snapshot_id):
                return True
            ordinals = history.small.get(position, ())
            for ordinal in (ordinals,) if isinstance(ordinals, int) else ordinals:
                if ordinal < self._length and history.entries[ordinal][0] <= snapshot_id:
                    return True
            for ordinal in history.bulk:
                if ordinal >= self._length:
                    return False
                entry_snapshot, positions = history.entries[ordinal]
                if entry_snapshot <= snapshot_id and position in positions:
                    return True
        return False


def positions_bitmap(positions: Iterable[int]) -> Any:
    """Return a new bitmap with the given positions; NumPy arrays are converted without a Python loop."""
    if isinstance(positions, np.ndarray):
        return BitMap(array("I", positions.astype(np.uint32, copy=False).tobytes()))
    return BitMap(positions)


def positions_to_bytes(positions: Iterable[int]) -> bytes:
    """Return a set of positions in the form stored in the catalog."""
    bitmap = positions_bitmap(positions)
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def is_among(positions: npt.NDArray[Any], deleted: Any) -> npt.NDArray[np.bool_]:
    """Return which of some positions are in a bitmap; a few positions in a large bitmap cost little."""
    gone = np.frombuffer(deleted.to_array(), np.uint32).astype(np.int64)
    if not len(gone):
        return np.zeros(len(positions), np.bool_)
    wanted = positions.astype(np.int64, copy=False)
    places = np.minimum(np.searchsorted(gone, wanted), len(gone) - 1)
    found: npt.NDArray[np.bool_] = gone[places] == wanted
    return found


def positions_from_bytes(data: bytes) -> Any:
    """Return the bitmap that `positions_to_bytes` has stored."""
    try:
        return BitMap.deserialize(data)
    except Exception as error:
        raise CorruptionError(
            f"the deleted positions of a block cannot be read ({error}): "
            "the catalog record is damaged; restore the catalog"
        ) from None
