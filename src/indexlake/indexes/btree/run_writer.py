"""Writes the sections of a run from sorted keys that come in batches; what has been added is not kept in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree import bloom
from indexlake.indexes.btree.header import FENCE_STEP, slot_size
from indexlake.indexes.btree.partial import NULL
from indexlake.indexes.keys import Key, KeyColumn, binary_parts, hash_keys
from indexlake.indexes.kind import Slots
from indexlake.indexes.spool import Spool

_ROWS = 1 << 17


class RunWriter:
    """Takes the keys of a run in order, with their slots.

    ``common``: the prefix that all keys share.  ``filtered``: whether to build a Bloom filter.  ``whole``: all keys
    come in one batch, so they are in memory anyway.
    """

    def __init__(
        self, common: bytes, *, ints: bool, slot_count: int, filtered: bool = False, whole: bool = False
    ) -> None:
        self.count = 0
        self.is_int = ints
        self.unique = True
        self.first: Key | None = None
        self.last: Key | None = None
        self.last_valued: Key | None = None  # of a partial run: the last key that does not start with a null
        self._common = common
        self._slot_type = f"<u{slot_size(slot_count)}"
        self._filtered = filtered
        self._fences: list[npt.NDArray[np.uint64]] = [np.zeros(0, "<u8")]
        most = sys.maxsize if whole else None
        self._prefixes, self._positions, self._lengths, self._keys, self._hashes = (Spool(most) for _ in range(5))
        self._hash_ends: list[int] = []  # of stretches in which hashes ascend
        self._widths: tuple[int, int] | None = None

    def add(self, keys: KeyColumn, slots: Slots) -> None:
        if not len(keys):
            return
        prefixes = np.ascontiguousarray(keys.prefixes(len(self._common)).astype("<u8", copy=False))
        self._fences.append(prefixes[-self.count % FENCE_STEP :: FENCE_STEP].copy())
        self._prefixes.write(prefixes)
        self._positions.write(slots.astype(self._slot_type))
        if self._filtered:
            hashes = hash_keys(keys)
            hashes.sort()
            self._hashes.write(hashes)
            self._hash_ends.append(self.count + len(keys))
        if not self.is_int:
            offsets, data = binary_parts(keys.binary)
            lengths = np.diff(offsets)
            shortest, longest = int(lengths.min()), int(lengths.max())
            low, high = self._widths or (shortest, longest)
            self._widths = min(low, shortest), max(high, longest)
            self._lengths.write(lengths.astype(np.uint32))
            self._keys.write(data)
        first = keys[0]
        self.unique = self.unique and first != self.last and _all_differ(keys, prefixes)
        self.first = first if self.first is None else self.first
        self.last = keys[len(keys) - 1]
        self.count += len(keys)

    def note_valued(self, keys: KeyColumn) -> None:
        """Note the last of the added keys that does not start with a null; for partial runs."""
        valued = pc.sum(pc.less(keys.binary, pa.scalar(NULL, pa.large_binary()))).as_py()
        if valued:
            self.last_valued = keys[valued - 1]

    @property
    def width(self) -> int:
        """The size of every key, or 0 if it varies."""
        if self.is_int:
            return 8
        low, high = self._widths or (0, 0)
        return low if low == high else 0

    def sections(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "common": self._common,
            "fences": np.concatenate(self._fences),
            "prefixes": self._prefixes,
            "positions": self._positions,
        }
        if not self.is_int:
            found["keys"] = self._keys
            if not self.width:
                found["offsets"] = _Offsets(self._lengths, self.count, self._keys.size)
        return found

    def bloom(self) -> Any:
        return _Filter(self._hashes, self._hash_ends) if self._filtered else bloom.full()


class _Offsets:
    """The offsets of keys, computed from their lengths."""

    def __init__(self, lengths: Spool, count: int, key_bytes: int) -> None:
        self._lengths = lengths
        self._count = count
        self._type = np.dtype("<u4" if key_bytes < 1 << 32 else "<u8")
        self.size = self._type.itemsize * (count + 1)

    def pieces(self) -> Iterator[Any]:
        yield np.zeros(1, self._type)
        at = np.int64(0)
        for first in range(0, self._count, _ROWS):
            lengths = self._lengths.read(4 * first, min(_ROWS, self._count - first), np.uint32)
            ends = np.cumsum(lengths, dtype=np.int64) + at
            at = ends[-1]
            yield ends.astype(self._type)


class _Filter:
    """The Bloom filter of hashes in a spool, which ascend up to each of the ends."""

    def __init__(self, hashes: Spool, ends: Sequence[int]) -> None:
        self._hashes = hashes
        self._ends = ends
        self._blocks = bloom.block_count(ends[-1] if ends else 0)
        self.size = self._blocks * bloom.BLOCK_BYTES

    def pieces(self) -> Iterator[Any]:
        return bloom.pieces(self._slices, self._blocks)

    def _slices(self) -> Iterator[npt.NDArray[np.uint64]]:
        for begin, end in pairwise([0, *self._ends]):
            for first in range(begin, end, _ROWS):
                yield self._hashes.read(8 * first, min(_ROWS, end - first), np.uint64)


def _all_differ(keys: KeyColumn, prefixes: npt.NDArray[np.uint64]) -> bool:
    """Return whether all of the sorted keys are distinct."""
    if not (prefixes[1:] == prefixes[:-1]).any():
        return True
    return not (keys.is_int or same_as_next(keys).any())


def same_as_next(keys: KeyColumn) -> npt.NDArray[np.bool_]:
    if keys.ints is not None:
        same: npt.NDArray[np.bool_] = keys.ints[1:] == keys.ints[:-1]
        return same
    return np.asarray(pc.equal(keys.binary.slice(1), keys.binary.slice(0, len(keys) - 1)))
