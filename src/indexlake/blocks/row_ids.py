"""The set of row ids of a block that is ordered by row id: row id ↔ position, both ways.

A consecutive range, the usual case, takes 17 bytes and arithmetic; any other set is a roaring bitmap. Immutable, and
safe to share between threads.
"""

from __future__ import annotations

import struct
from array import array as typed_array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from indexlake.errors import CorruptionError

_RANGE = struct.Struct("<BQQ")
_RANGE_TAG = 1
_BITMAP_TAG = 2
_FEW = 32


class RowIds:
    """A sorted set of row ids. The position of a row id is its rank."""

    __slots__ = ("_array", "_bitmap", "_count", "_start")

    def __init__(self, start: int, count: int, bitmap: Any = None) -> None:
        self._start = start
        self._count = count
        self._bitmap = bitmap
        self._array: npt.NDArray[np.int64] | None = None

    @classmethod
    def from_range(cls, start: int, count: int) -> RowIds:
        """Return the set of the row ids `start`, `start + 1`, … (`count` of them)."""
        return cls(start if count else 0, count)

    @classmethod
    def from_array(cls, row_ids: npt.ArrayLike) -> RowIds:
        """Return the set of the given row ids, which must be strictly increasing and not negative."""
        array = np.asarray(row_ids)
        count = len(array)
        if count == 0:
            return cls(0, 0)
        array = array.astype(np.int64, copy=False)
        if int(array[0]) < 0 or not bool((array[1:] > array[:-1]).all()):
            raise ValueError("the row ids of a block ordered by row id must be strictly increasing")
        if int(array[-1]) - int(array[0]) + 1 == count:
            return cls(int(array[0]), count)
        bitmap = BitMap64(typed_array("Q", array.tobytes()))
        bitmap.run_optimize()
        return cls(int(array[0]), count, bitmap)

    def to_bytes(self) -> bytes:
        """Return a stable form for the catalog."""
        if self._bitmap is None:
            return _RANGE.pack(_RANGE_TAG, self._start, self._count)
        data: bytes = self._bitmap.serialize()
        return bytes([_BITMAP_TAG]) + data

    @classmethod
    def from_bytes(cls, data: bytes) -> RowIds:
        """Return the set that `to_bytes` was called on."""
        if len(data) == _RANGE.size and data[0] == _RANGE_TAG:
            _, start, count = _RANGE.unpack(data)
            return cls(start, count)
        if data[:1] != bytes([_BITMAP_TAG]):
            raise _damaged()
        try:
            bitmap = BitMap64.deserialize(data[1:])
        except Exception:
            raise _damaged() from None
        return cls(bitmap.min() if len(bitmap) else 0, len(bitmap), bitmap)

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Leave out the array, which can be made again from the rest."""
        return None, {"_start": self._start, "_count": self._count, "_bitmap": self._bitmap, "_array": None}

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[int]:
        if self._bitmap is None:
            return iter(range(self._start, self._start + self._count))
        return iter(self._bitmap)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowIds):
            return NotImplemented
        return self._count == other._count and bool((self.to_array() == other.to_array()).all())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self._count:
            return "RowIds(empty)"
        kind = "range" if self._bitmap is None else "set"
        return f"RowIds({kind} of {self._count}, {self.min}..{self.max})"

    def __contains__(self, row_id: int) -> bool:
        if self._bitmap is None:
            return 0 <= row_id - self._start < self._count
        return row_id >= 0 and row_id in self._bitmap

    @property
    def min(self) -> int:
        """The smallest row id; the set must not be empty."""
        return self._start

    @property
    def max(self) -> int:
        """The largest row id; the set must not be empty."""
        if self._bitmap is None:
            return self._start + self._count - 1
        return int(self._bitmap.max())

    def position_of(self, row_id: int) -> int | None:
        if self._bitmap is None:
            position = row_id - self._start
            return position if 0 <= position < self._count else None
        if row_id < 0 or row_id not in self._bitmap:
            return None
        return int(self._bitmap.rank(row_id)) - 1

    def positions_of(self, row_ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the position of each row id, -1 for ids that are not in the block."""
        wanted = np.asarray(row_ids).astype(np.int64, copy=False)
        if self._bitmap is None:
            positions = wanted - np.int64(self._start)
            inside = (wanted >= self._start) & (positions < self._count)
            return np.where(inside, positions, np.int64(-1))
        if len(wanted) <= _FEW and self._array is None:
            found = (self.position_of(row_id) for row_id in wanted.tolist())
            return np.fromiter((-1 if p is None else p for p in found), np.int64, len(wanted))
        array = self.to_array()
        positions = np.searchsorted(array, wanted)
        inside = positions < len(array)
        inside[inside] = array[positions[inside]] == wanted[inside]
        return np.where(inside, positions, -1).astype(np.int64, copy=False)

    def count_below(self, row_id: int) -> int:
        """Return how many row ids are smaller, which is the position of the first that is not."""
        if self._bitmap is None:
            return min(max(row_id - self._start, 0), self._count)
        return int(self._bitmap.rank(row_id - 1)) if row_id > 0 else 0

    def row_id_at(self, position: int) -> int:
        if not 0 <= position < self._count:
            raise IndexError(f"position {position} is outside a block of {self._count} rows")
        if self._bitmap is None:
            return self._start + position
        return int(self._bitmap[position])

    def row_ids_at(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the row ids at some positions, all of which must be inside the block."""
        at = np.asarray(positions).astype(np.int64, copy=False)
        if len(at) and (int(at.min()) < 0 or int(at.max()) >= self._count):
            raise IndexError(f"a position is outside a block of {self._count} rows")
        if self._bitmap is None:
            return at + np.int64(self._start)
        return self.to_array()[at]

    def to_array(self) -> npt.NDArray[np.int64]:
        """Return all row ids in order. The array is read-only."""
        if self._array is None:
            if self._bitmap is None:
                array = np.arange(self._start, self._start + self._count, dtype=np.int64)
                array.flags.writeable = False
                return array
            array = np.frombuffer(self._bitmap.to_array(), np.uint64).astype(np.int64)
            array.flags.writeable = False
            self._array = array
        return self._array


def _damaged() -> CorruptionError:
    return CorruptionError("the row ids of a block cannot be read: the catalog record is damaged; restore the catalog")
