"""An open key segment: a Bloom filter and a sorted run (see `header`) that find the slots of keys.

One look-up touches one chunk of each section, an absent key mostly one chunk of the filter.  Safe to share between
threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.errors import CorruptionError
from indexlake.indexes.btree import bloom
from indexlake.indexes.btree.header import HEADER_SIZE, Section, parse
from indexlake.indexes.btree.run import Run
from indexlake.indexes.keys import Key, KeyColumn, hash_key, hash_keys
from indexlake.indexes.kind import Found, Slots

if TYPE_CHECKING:
    from indexlake.storage import InputFile

_FEW = 32
_FILTER_PAYS = 8  # many times fewer keys than the segment has: ask the filter first


class Segment:
    """Opening one maps a local file, or reads the first chunk of a remote one."""

    __slots__ = ("_blooms", "_file", "_header", "_read", "path", "run", "starts")

    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._file = file
        self._read = file.read_at
        self._header = header = parse(self.path, file.size(), self._read(0, HEADER_SIZE))
        self.run = Run(self.path, self._read, header.run)
        self._blooms = header.bloom.size // bloom.BLOCK_BYTES
        self.starts: tuple[int, ...] = self._starts(header.starts)

    def _starts(self, section: Section | None) -> tuple[int, ...]:
        if section is None:
            return 0, self._header.slot_count
        starts = tuple(np.frombuffer(self._read(section.start, section.size), "<u8").tolist())
        if starts[0] != 0 or starts[-1] != self._header.slot_count or list(starts) != sorted(starts):
            raise CorruptionError(
                f"key segment {self.path!r} contradicts itself; restore the file or rebuild the index", path=self.path
            )
        return starts

    def __len__(self) -> int:
        return len(self.run)

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, {len(self)} keys)"

    # Keys

    def may_hold(self, hash_: int) -> bool:
        """Whether the segment may hold a key of this hash (`hash_key`); False is certain."""
        start = self._header.bloom.start + bloom.BLOCK_BYTES * bloom.block_of(hash_, self._blooms)
        return bloom.block_has(self._read(start, bloom.BLOCK_BYTES), hash_)

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        """The slots that hold a key, in order.  `hash_` saves hashing it once more."""
        if not self.may_hold(hash_key(key) if hash_ is None else hash_):
            return []
        low, high = self.run.rows_of(key)
        return self.run.slot_list(low, high) if low < high else []

    def find_many(self, keys: KeyColumn, hashes: npt.NDArray[np.uint64] | None = None) -> Found:
        """Which of the keys are there, and where: (indices into `keys`, ascending; slots).

        Sorted keys are found faster.  `hashes` (of `hash_keys`) saves hashing them once more.
        """
        self.run.check_kind(keys.is_int)
        if len(keys) <= _FEW:
            found = [(index, slot) for index, key in enumerate(keys) for slot in self.find(key)]
            pairs = np.array(found, np.int64).reshape(-1, 2)
            return pairs[:, 0], pairs[:, 1]
        if len(keys) * _FILTER_PAYS > len(self):
            return self._find_all(keys)
        hashes = hash_keys(keys) if hashes is None else hashes
        words = np.frombuffer(self._read(self._header.bloom.start, self._header.bloom.size), "<u8")
        passed = np.flatnonzero(bloom.may_hold(words, hashes))
        indices, slots = self._find_all(keys.take(passed))
        return passed[indices], slots

    def _find_all(self, keys: KeyColumn) -> Found:
        indices, low, high = self.run.rows_of_many(keys, unique=self.unique)
        slots = self.run.slots()
        counts = high - low
        if len(counts) and int(counts.max()) > 1:
            spread = np.repeat(indices, counts)
            rows = np.arange(len(spread)) + np.repeat(low - (np.cumsum(counts) - counts), counts)
            return spread.astype(np.int64, copy=False), slots[rows]
        return indices.astype(np.int64, copy=False), slots[low]

    # Whole segments

    @property
    def unique(self) -> bool:
        """Whether no key is there twice."""
        return self._header.unique

    def keys(self) -> KeyColumn:
        """All keys in order.  Rows without a key (null in a column of the key) are not among them."""
        return self.run.keys()

    def key_slots(self) -> Slots:
        """Where each of ``keys()`` is."""
        return self.run.slots()

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """The rows of ``keys()`` with low <= key < high; None is no bound."""
        return self.run.rows_between(low, high)

    def sample(self, count: int) -> list[Key]:
        """Up to so many of the keys, evenly spaced."""
        rows: Any = np.unique(np.linspace(0, len(self) - 1, min(count, len(self)), dtype=np.int64))
        return self.run.keys_at(rows.tolist())

    def close(self) -> None:
        """Let the file go.  Harmless when repeated."""
        self._file.close()
