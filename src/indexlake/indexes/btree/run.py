"""A sorted run of keys in a segment file: finds the rows that hold a key or lie between two keys, and their slots.

It is read through verified reads: a damaged byte raises `CorruptionError`, never gives a wrong answer.  Finding one key
or one bound reads a single page of prefixes, however long the run is.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import array_around, truths
from indexlake.errors import CorruptionError
from indexlake.indexes.btree.header import FENCE_STEP, RunLayout, Section
from indexlake.indexes.keys import Key, KeyColumn, bisect_many
from indexlake.indexes.kind import Slots
from indexlake.types.selection import as_mask

Rows = npt.NDArray[np.int64]

_MOST = (1 << 64) - 1
_LITTLE = sys.byteorder == "little"


class Run:
    """The keys of a segment in order, and the slot of each."""

    __slots__ = ("_common", "_fences", "_layout", "_prefix_start", "_read", "path")

    def __init__(self, path: str, read: Callable[[int, int], memoryview], layout: RunLayout) -> None:
        self.path = path
        self._read = read
        self._layout = layout
        self._common = bytes(self._section(layout.common))
        self._prefix_start = len(self._common)
        self._fences: list[int] = np.frombuffer(self._section(layout.fences), "<u8").tolist()

    def __len__(self) -> int:
        return self._layout.count

    @property
    def is_int(self) -> bool:
        return self._layout.is_int

    # One key

    def rows_of(self, key: Key) -> tuple[int, int]:
        """Return the rows [low, high) that hold the key."""
        self.check_kind(isinstance(key, int))
        if isinstance(key, int):
            return self._rows_of_prefix(key)
        if not key.startswith(self._common):
            return 0, 0
        low, high = self._rows_of_prefix(self._prefix(key))
        if high - low == 1:
            return (low, high) if self._key_at(low) == key else (low, low)
        rows = range(low, high)
        first = bisect_left(rows, key, key=self._key_at)
        return low + first, low + bisect_right(rows, key, first, key=self._key_at)

    def row_of(self, key: Key) -> int:
        """Return the first row whose key is not less."""
        self.check_kind(isinstance(key, int))
        if isinstance(key, int):
            return len(self) if key >= 1 << 64 else self._rows_of_prefix(key)[0]
        if not key.startswith(self._common):
            return 0 if key < self._common else len(self)
        low, high = self._rows_of_prefix(self._prefix(key))
        return low + bisect_left(range(low, high), key, key=self._key_at)

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """Return the rows with low <= key < high, where None means unbounded."""
        first = 0 if low is None else self.row_of(low)
        return first, len(self) if high is None else max(first, self.row_of(high))

    def _prefix(self, key: bytes) -> int:
        return int.from_bytes(key[self._prefix_start : self._prefix_start + 8].ljust(8, b"\0"), "big")

    def _rows_of_prefix(self, prefix: int) -> tuple[int, int]:
        """Return the rows with this prefix, or an empty range where they would be."""
        first = bisect_left(self._fences, prefix)  # the first row is before this fence, or at it
        last = bisect_right(self._fences, prefix, first)
        if last == 0:
            return 0, 0
        start, page = self._page(last - 1)
        high = start + bisect_right(page, prefix)
        if first == last:
            return start + bisect_left(page, prefix), high
        if first == 0:
            return 0, high
        start, page = self._page(first - 1)
        return start + bisect_left(page, prefix), high

    def _page(self, number: int) -> tuple[int, Any]:
        start = number * FENCE_STEP
        count = min(FENCE_STEP, self._layout.count - start)
        return start, self._numbers(self._layout.prefixes.start + 8 * start, count, 8)

    def _key_at(self, row: int) -> bytes:
        layout = self._layout
        if layout.width:
            return bytes(self._read(layout.keys.start + row * layout.width, layout.width))
        size = layout.offsets.size // (layout.count + 1)
        start, end = self._numbers(layout.offsets.start + row * size, 2, size)
        if not start <= end <= layout.keys.size:
            raise self._nonsense()
        return bytes(self._read(layout.keys.start + start, end - start))

    def keys_at(self, rows: list[int]) -> list[Key]:
        """Return the keys of a few rows."""
        if self.is_int:
            start = self._layout.prefixes.start
            return [int(self._numbers(start + 8 * row, 1, 8)[0]) for row in rows]
        return [self._key_at(row) for row in rows]

    # Many keys

    def rows_of_many(self, keys: KeyColumn, *, unique: bool) -> tuple[Rows, Rows, Rows]:
        """Find many keys: return the indices of those found, ascending, and for each its first row and the row after
        its last.

        ``unique``: no key occurs twice in the run.
        """
        self.check_kind(keys.is_int)
        low, high = self._rows_of_prefixes(keys.prefixes(self._prefix_start), unique=self.is_int and unique)
        indices = np.flatnonzero(high > low)
        low, high = low[indices], high[indices]
        if self.is_int or not len(indices):
            return indices, low, high
        sought = keys.binary if len(indices) == len(keys) else keys.binary.take(array_around(indices))
        stored = self._stored_keys()
        low = bisect_many(stored, sought, low, high, pc.less)
        found = low < high
        found[found] = truths(pc.equal(stored.take(array_around(low[found])), _only(sought, found)))
        indices, low, high = indices[found], low[found], high[found]
        if unique:
            return indices, low, low + 1
        return indices, low, bisect_many(stored, _only(sought, found), low, high, pc.less_equal)

    def rows_before(self, keys: Sequence[Key]) -> Rows:
        """Return for each key how many rows have a lesser one."""
        if self.is_int:
            capped = np.array([min(key, _MOST) for key in keys], np.uint64)
            found = np.searchsorted(self._array(self._layout.prefixes, "<u8"), capped)
            found[[key > _MOST for key in keys]] = len(self)  # type: ignore[operator]
            return found
        rows = np.array([0 if key < self._common else len(self) for key in keys], np.int64)  # type: ignore[operator]
        inside = np.flatnonzero([key.startswith(self._common) for key in keys])  # type: ignore[union-attr]
        sought = KeyColumn.from_keys([keys[n] for n in inside.tolist()], ints=False)
        low, high = self._rows_of_prefixes(sought.prefixes(self._prefix_start), unique=False)
        rows[inside] = bisect_many(self._stored_keys(), sought.binary, low, high, pc.less, whole=True)
        return rows

    def _rows_of_prefixes(self, prefixes: npt.NDArray[np.uint64], *, unique: bool) -> tuple[Rows, Rows]:
        run = self._array(self._layout.prefixes, "<u8")
        if not len(run):
            return np.zeros(len(prefixes), np.int64), np.zeros(len(prefixes), np.int64)
        order = KeyColumn(ints=prefixes).argsort()
        wanted = prefixes[order]  # searching in order is many times faster
        low, high = np.empty((2, len(wanted)), np.int64)
        first = np.searchsorted(run, wanted, "left")
        low[order] = first
        if not unique and bool((run[1:] == run[:-1]).any()):
            high[order] = np.searchsorted(run, wanted, "right")
        else:
            inside = np.minimum(first, len(run) - 1)
            high[order] = first + (run[inside] == wanted)
        return low, high

    def keys(self, first: int = 0, end: int | None = None) -> KeyColumn:
        """Return the keys of the rows [first, end), in order."""
        end = len(self) if end is None else end
        if self.is_int:
            start = self._layout.prefixes.start + 8 * first
            return KeyColumn(ints=np.frombuffer(self._read(start, 8 * (end - first)), "<u8"))
        return KeyColumn(binary=self._stored_keys(first, end))

    def bytes_between(self, first: int, end: int) -> int:
        """Return the size of the keys of the rows [first, end)."""
        if self.is_int or self._layout.width:
            return (end - first) * (self._layout.width or 8)
        return self._starts_at(end) - self._starts_at(first) if first < end else 0

    def _starts_at(self, row: int) -> int:
        """Return where a key of varying length starts."""
        size = self._layout.offsets.size // (self._layout.count + 1)
        return int(self._numbers(self._layout.offsets.start + row * size, 1, size)[0])

    def _stored_keys(self, first: int = 0, end: int | None = None) -> pa.LargeBinaryArray:
        layout = self._layout
        end = layout.count if end is None else end
        if layout.width:
            offsets = np.arange(first * layout.width, end * layout.width + 1, layout.width, dtype=np.int64)
        elif not layout.count:
            offsets = np.zeros(1, np.int64)
        else:
            size = layout.offsets.size // (layout.count + 1)
            data = self._read(layout.offsets.start + size * first, size * (end - first + 1))
            offsets = np.frombuffer(data, f"<u{size}").astype(np.int64)
            wrong = (first == 0 and offsets[0] != 0) or (end == layout.count and offsets[-1] != layout.keys.size)
            if wrong or bool((np.diff(offsets) < 0).any()) or offsets[-1] > layout.keys.size:
                raise self._nonsense()
        keys = self._read(layout.keys.start + int(offsets[0]), int(offsets[-1] - offsets[0]))
        buffers = [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(keys)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), end - first, buffers)

    # Slots

    def slots(self, first: int = 0, end: int | None = None) -> Slots:
        """Return the slots of the rows [first, end), in key order."""
        size, start = self._layout.slot_size, self._layout.positions.start
        count = (self._layout.count if end is None else end) - first
        return np.frombuffer(self._read(start + first * size, count * size), f"<u{size}").astype(np.int64)

    def slot_list(self, first: int, end: int) -> list[int]:
        """Return the slots of a few rows as a list."""
        size = self._layout.slot_size
        return list(self._numbers(self._layout.positions.start + first * size, end - first, size))

    # Bytes

    def _section(self, section: Section) -> memoryview:
        return self._read(section.start, section.size)

    def _array(self, section: Section, dtype: str) -> npt.NDArray[Any]:
        return np.frombuffer(self._section(section), dtype)

    def _numbers(self, start: int, count: int, size: int) -> Any:
        data = self._read(start, count * size)
        return data.cast("Q" if size == 8 else "I") if _LITTLE else np.frombuffer(data, f"<u{size}").tolist()

    def check_kind(self, is_int: bool) -> None:
        """Raise an error for keys that cannot be in the run."""
        if is_int != self._layout.is_int:
            raise CorruptionError(
                f"key segment {self.path!r} holds keys of a different kind from its index: it is not the segment "
                "of this index; restore the catalog",
                path=self.path,
            )

    def _nonsense(self) -> CorruptionError:
        return CorruptionError(
            f"key segment {self.path!r} contradicts itself; restore the file or rebuild the index", path=self.path
        )


def _only(keys: Any, mask: npt.NDArray[np.bool_]) -> Any:
    return keys if mask.all() else keys.filter(as_mask(mask))
