"""A key segment: an immutable file that finds the addresses of keys in the blocks that it covers.

The file (see `header`) is a Bloom filter and a sorted run.  It is read through the storage's verified reads:
a damaged byte raises `CorruptionError`, never gives a wrong answer.  One look-up touches one chunk of each
section, an absent key mostly one chunk of the filter.  An open segment is safe to share between threads.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import CorruptionError
from indexlake.indexes.btree import bloom
from indexlake.indexes.btree.header import FENCE_STEP, HEADER_SIZE, Section, parse
from indexlake.indexes.keys import Key, KeyColumn, hash_key, hash_keys
from indexlake.indexes.kind import Found
from indexlake.storage.checksum import Checksums

if TYPE_CHECKING:
    from indexlake.storage import InputFile, Storage

_FEW = 32
_FILTER_PAYS = 8  # many times fewer keys than the segment has: ask the filter first
_LITTLE = sys.byteorder == "little"


def open_segment(storage: Storage, path: str, size: int, checksums: Checksums) -> Segment:
    """Open a segment file: maps a local one, reads the first chunk of a remote one."""
    if size != checksums.size:
        raise CorruptionError(
            f"key segment {path!r}: the catalog says {size} bytes and its checksums {checksums.size}; "
            "the catalog record is damaged, restore it",
            path=path,
        )
    return Segment(storage.open_file(path, checksums))


class Segment:
    """An open key segment."""

    __slots__ = ("_blooms", "_common", "_fences", "_file", "_header", "_prefix_start", "_read", "path", "several")

    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._file = file
        self._read = file.read_at
        if file.size() < HEADER_SIZE:
            raise CorruptionError(f"key segment {self.path!r} is shorter than its header", path=self.path)
        self._header = header = parse(self.path, file.size(), self._read(0, HEADER_SIZE))
        self._common = bytes(self._section(header.common))
        self._fences: list[int] = np.frombuffer(self._section(header.fences), "<u8").tolist()
        self._blooms = header.bloom.size // bloom.BLOCK_BYTES
        self._prefix_start = len(self._common)
        self.several = header.positions.size > 4 * header.key_count

    def __len__(self) -> int:
        return self._header.key_count

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, {len(self)} keys)"

    def may_hold(self, hash_: int) -> bool:
        """Whether the segment may hold a key of this hash (`hash_key`); False is certain."""
        start = self._header.bloom.start + bloom.BLOCK_BYTES * bloom.block_of(hash_, self._blooms)
        return bloom.block_has(self._read(start, bloom.BLOCK_BYTES), hash_)

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        """The addresses that hold a key, in order.  `hash_` saves hashing it once more."""
        if not self.may_hold(hash_key(key) if hash_ is None else hash_):
            return []
        return self._find_run(key)

    def find_many(self, keys: KeyColumn, hashes: npt.NDArray[np.uint64] | None = None) -> Found:
        """Which of the keys are there, and where: (indices into `keys`, ascending; addresses).

        Sorted keys are found faster.  `hashes` (of `hash_keys`) saves hashing them once more.
        """
        self._check_kind(keys.is_int)
        if len(keys) <= _FEW or len(keys) * _FILTER_PAYS > len(self):
            return self._find_all(keys)
        hashes = hash_keys(keys) if hashes is None else hashes
        passed = np.flatnonzero(bloom.may_hold(self._array(self._header.bloom, "<u8"), hashes))
        indices, positions = self._find_all(keys.take(passed))
        return passed[indices], positions

    def keys(self) -> KeyColumn:
        """All keys in order."""
        if self._header.is_int:
            return KeyColumn(ints=self._array(self._header.prefixes, "<u8"))
        return KeyColumn(binary=self._stored_keys())

    def addresses(self) -> npt.NDArray[np.int64]:
        """Where each of ``keys()`` is."""
        return self._addresses().astype(np.int64)

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """The rows of ``keys()`` with low <= key < high; None is no bound."""
        first = 0 if low is None else self._row_of(low)
        return first, len(self) if high is None else max(first, self._row_of(high))

    def _row_of(self, key: Key) -> int:
        """The first row whose key is not less."""
        if isinstance(key, int):
            return int(np.searchsorted(self._array(self._header.prefixes, "<u8"), np.uint64(key)))
        return bisect_left(range(len(self)), key, key=self._key_at)

    def sample(self, count: int) -> list[Key]:
        """Up to so many of the keys, evenly spaced."""
        rows = np.unique(np.linspace(0, len(self) - 1, min(count, len(self)), dtype=np.int64)).tolist()
        if self._header.is_int:
            run = self._array(self._header.prefixes, "<u8")
            return [int(run[row]) for row in rows]
        return [self._key_at(row) for row in rows]

    @property
    def unique(self) -> bool:
        """Whether no key is there twice."""
        return self._header.unique

    def close(self) -> None:
        """Let the file go.  Harmless when repeated."""
        self._file.close()

    # One key

    def _find_run(self, key: Key) -> list[int]:
        header = self._header
        self._check_kind(isinstance(key, int))
        if isinstance(key, int):
            prefix = key
        elif key.startswith(self._common):
            prefix = int.from_bytes(key[self._prefix_start : self._prefix_start + 8].ljust(8, b"\0"), "big")
        else:
            return []
        page = max(bisect_left(self._fences, prefix) - 1, 0) * FENCE_STEP
        end = min(bisect_right(self._fences, prefix, page // FENCE_STEP) * FENCE_STEP, header.key_count)
        if end <= page:
            return []
        run = self._numbers(header.prefixes.start + 8 * page, end - page, "Q")
        low = bisect_left(run, prefix)
        high = bisect_right(run, prefix, low)
        low, high = page + low, page + high
        if not isinstance(key, int):
            low, high = self._narrow(key, low, high)
        if low == high:
            return []
        if self.several:
            return sorted(self._numbers(header.positions.start + 8 * low, high - low, "Q"))
        return sorted(self._numbers(header.positions.start + 4 * low, high - low, "I"))

    def _narrow(self, key: bytes, low: int, high: int) -> tuple[int, int]:
        """The rows among those of one prefix that hold a whole key."""
        if high - low == 1:
            return (low, high) if self._key_at(low) == key else (low, low)
        rows = range(low, high)
        first = bisect_left(rows, key, key=self._key_at)
        return low + first, low + bisect_right(rows, key, first, key=self._key_at)

    def _key_at(self, row: int) -> bytes:
        header = self._header
        if header.width:
            return bytes(self._read(header.keys.start + row * header.width, header.width))
        size = header.offsets.size // (header.key_count + 1)
        start, end = self._numbers(header.offsets.start + row * size, 2, "I" if size == 4 else "Q")
        if not start <= end <= header.keys.size:
            raise self._nonsense()
        return bytes(self._read(header.keys.start + start, end - start))

    # Many keys

    def _find_all(self, keys: KeyColumn) -> Found:
        if len(keys) > _FEW:
            return self._find_ints(keys.ints) if keys.ints is not None else self._find_binary(keys)
        found = [(index, address) for index, key in enumerate(keys) for address in self.find(key)]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _find_ints(self, keys: npt.NDArray[np.uint64]) -> Found:
        low, high = self._rows_of(keys)
        return self._answer(np.arange(len(keys)), low, high)

    def _find_binary(self, keys: KeyColumn) -> Found:
        low, high = self._rows_of(keys.prefixes(self._prefix_start))
        indices = np.flatnonzero(high > low)
        low, high = low[indices], high[indices]
        if not len(indices):
            return self._answer(indices, low, high)
        sought = keys.binary if len(indices) == len(keys) else keys.binary.take(pa.array(indices))
        stored = self._stored_keys()
        low = bisect_many(stored, sought, low, high, pc.less)
        there = low < high
        there[there] = np.asarray(pc.equal(stored.take(pa.array(low[there])), _only(sought, there)))
        indices, low, high = indices[there], low[there], high[there]
        if self._header.unique:
            return self._answer(indices, low, low + 1)
        return self._answer(indices, low, bisect_many(stored, _only(sought, there), low, high, pc.less_equal))

    def _rows_of(self, prefixes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows [low, high) of each prefix."""
        run = self._array(self._header.prefixes, "<u8")
        if not len(run):
            return np.zeros(len(prefixes), np.int64), np.zeros(len(prefixes), np.int64)
        order = KeyColumn(ints=prefixes).argsort()
        wanted = prefixes[order]  # searching in order is many times faster
        low, high = np.empty((2, len(wanted)), np.int64)
        first = np.searchsorted(run, wanted, "left")
        low[order] = first
        alone = self._header.is_int and self._header.unique
        if not alone and bool((run[1:] == run[:-1]).any()):
            high[order] = np.searchsorted(run, wanted, "right")
        else:
            inside = np.minimum(first, len(run) - 1)
            high[order] = first + (run[inside] == wanted)
        return low, high

    def _answer(self, indices: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Found:
        """Key number indices[i] is in rows low[i] to high[i]: spread that out."""
        addresses = self._addresses()
        counts = high - low
        if len(counts) and int(counts.max()) > 1:
            spread = np.repeat(indices, counts)
            rows = np.arange(len(spread)) + np.repeat(low - (np.cumsum(counts) - counts), counts)
            found = addresses[rows].astype(np.int64)
            return spread.astype(np.int64, copy=False), found[np.lexsort((found, spread))]
        there = counts > 0
        return indices[there].astype(np.int64, copy=False), addresses[low[there]].astype(np.int64)

    def _addresses(self) -> npt.NDArray[Any]:
        return self._array(self._header.positions, "<u8" if self.several else "<u4")

    def _stored_keys(self) -> pa.LargeBinaryArray:
        header = self._header
        data = self._section(header.keys)
        if header.width:
            offsets = np.arange(0, header.keys.size + 1, header.width, dtype=np.int64)
        else:
            dtype = "<u4" if header.keys.size < 1 << 32 else "<u8"
            offsets = self._array(header.offsets, dtype).astype(np.int64)
            if offsets[0] != 0 or offsets[-1] != header.keys.size or bool((np.diff(offsets) < 0).any()):
                raise self._nonsense()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), header.key_count, buffers)

    # Bytes

    def _section(self, section: Section) -> memoryview:
        return self._read(section.start, section.size)

    def _array(self, section: Section, dtype: str) -> npt.NDArray[Any]:
        return np.frombuffer(self._section(section), dtype)

    def _numbers(self, start: int, count: int, code: Literal["I", "Q"]) -> Any:
        size = 8 if code == "Q" else 4
        data = self._read(start, count * size)
        return data.cast(code) if _LITTLE else np.frombuffer(data, f"<u{size}").tolist()

    def _check_kind(self, is_int: bool) -> None:
        if is_int != self._header.is_int:
            raise CorruptionError(
                f"key segment {self.path!r} holds keys of another kind than asked for: it is not the segment "
                "of this index; restore the catalog",
                path=self.path,
            )

    def _nonsense(self) -> CorruptionError:
        return CorruptionError(
            f"key segment {self.path!r} contradicts itself; restore the file or rebuild the index",
            path=self.path,
        )


def bisect_many(
    stored: Any, sought: Any, low: npt.NDArray[Any], high: npt.NDArray[Any], before: Any
) -> npt.NDArray[Any]:
    """Binary search of many keys at once, each in its own range of sorted keys.

    A range of one key is left alone by `pc.less`: its key is compared afterwards anyway.
    """
    low, high = low.copy(), high.copy()
    smallest = 1 if before is pc.less else 0
    active = np.flatnonzero(high - low > smallest)
    while len(active):
        middle = (low[active] + high[active]) // 2
        right = np.asarray(before(stored.take(pa.array(middle)), sought.take(pa.array(active))))
        low[active] = np.where(right, middle + 1, low[active])
        high[active] = np.where(right, high[active], middle)
        active = active[low[active] < high[active]]
    return low


def _only(keys: Any, mask: npt.NDArray[np.bool_]) -> Any:
    return keys if mask.all() else keys.filter(pa.array(mask))
