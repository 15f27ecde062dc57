"""An open key segment: a Bloom filter and sorted runs (see `header`) that find the slots of keys.

One look-up reads one chunk of each section; for an absent key mostly just one chunk of the filter.  Safe to share
between threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import CorruptionError
from indexlake.indexes.btree import bloom
from indexlake.indexes.btree.header import HEADER_SIZE, Section, parse
from indexlake.indexes.btree.ordered import Ordered
from indexlake.indexes.btree.probe import KeyProbe, Ranges
from indexlake.indexes.btree.run import Run
from indexlake.indexes.btree.values import Values
from indexlake.indexes.keys import Key, KeyColumn, hash_key, hash_keys
from indexlake.indexes.kind import Answer, Found, Slots

if TYPE_CHECKING:
    from indexlake.storage import InputFile

_FEW = 32
_FILTER_PAYS = 8  # use the filter first if there are this many times fewer keys than the segment has
_FIRST = 64
_NOTHING = np.zeros(0, np.int64)
_NO_ANSWER = Answer(0, lambda: _NOTHING)


class Segment:
    """Opening one maps a local file, or reads the first chunk of a remote one."""

    __slots__ = ("_blooms", "_file", "_header", "_read", "_values", "partial", "path", "run", "starts")

    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._file = file
        self._read = file.read_at
        self._header = header = parse(self.path, file.size(), self._read(0, HEADER_SIZE))
        self.run = Run(self.path, self._read, header.run)
        self.partial = None if header.partial is None else Run(self.path, self._read, header.partial)
        self._values: Values | None = None
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
        """Return whether the segment may hold a key with this hash (`hash_key`); False is certain."""
        start = self._header.bloom.start + bloom.BLOCK_BYTES * bloom.block_of(hash_, self._blooms)
        return bloom.block_has(self._read(start, bloom.BLOCK_BYTES), hash_)

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        """Return the slots that hold a key, in order.  Pass `hash_` if the key's hash is known already."""
        low, high = self._rows_of(key, hash_)
        return self.run.slot_list(low, high) if low < high else []

    def _rows_of(self, key: Key, hash_: int | None = None) -> tuple[int, int]:
        if not self.may_hold(hash_key(key) if hash_ is None else hash_):
            return 0, 0
        return self.run.rows_of(key)

    def find_many(self, keys: KeyColumn, hashes: npt.NDArray[np.uint64] | None = None) -> Found:
        """Return which of the keys are present and where: indices into `keys`, ascending, and slots.

        Sorted keys are found faster.  Pass `hashes` (from `hash_keys`) if they are known already.
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

    # Probes

    def ask(self, probe: KeyProbe) -> Answer:
        """Return the slots that the probe finds; the count is of entries."""
        if probe.nulls:
            nulls = self.nulls()
            return Answer(len(nulls), lambda: nulls)
        if len(probe.keys) == 1:  # without ranges: the most common probe
            first, end = self._rows_of(probe.keys[0])
            return Answer(end - first, partial(self.run.slots, first, end)) if first < end else _NO_ANSWER
        spans = list(self._spans(probe))
        return Answer(sum([end - first for _, first, end in spans]), partial(self._slots, probe.keys, spans))

    def _slots(self, keys: Sequence[Key], spans: Sequence[tuple[Run, int, int]]) -> Slots:
        if len(keys) > _FEW:
            found = [self.find_many(KeyColumn.from_keys(keys, ints=self.run.is_int))[1]]
        else:
            found = [run.slots(first, end) for run, first, end in spans]
        return _ascending(np.concatenate([_NOTHING, *found]), self.starts[-1])

    def _spans(self, probe: KeyProbe) -> Iterator[tuple[Run, int, int]]:
        """Yield the spans of rows that the probe finds."""
        for first, end in self._key_rows(probe.keys):
            yield self.run, first, end
        for first, end in _range_rows(self.run, probe.ranges):
            yield self.run, first, end
        if self.partial is not None:
            for first, end in _range_rows(self.partial, probe.partial):
                yield self.partial, first, end

    def _key_rows(self, keys: Sequence[Key]) -> list[tuple[int, int]]:
        if len(keys) <= _FEW:
            rows = [self._rows_of(key) for key in keys]
        else:
            column = KeyColumn.from_keys(keys, ints=self.run.is_int)
            _, low, high = self.run.rows_of_many(column, unique=self.unique)
            rows = list(zip(low.tolist(), high.tolist(), strict=True))
        return [(first, end) for first, end in rows if first < end]

    def nulls(self) -> Slots:
        """Return the slots of the rows whose only key column is null."""
        section = self._header.nulls
        if section is None:
            return _NOTHING
        size = self._header.run.slot_size
        return np.frombuffer(self._read(section.start, section.size), f"<u{size}").astype(np.int64)

    def in_order(self, probe: KeyProbe | None, descending: bool, step: int = 4096) -> Iterator[Slots]:
        """Yield the slots that the probe finds, or all slots, in key order, at most ``step`` at a time, at first fewer.

        Requires that `BTree.orders` returned True.  Nulls come last in both directions.
        """
        if probe is None:
            runs = [(self.run, 0, len(self.run))]
            runs += [] if self.partial is None else [(self.partial, 0, len(self.partial))]
        else:
            runs = list(self._spans(probe))
        ordered = Ordered(
            self.run, [(first, end) for run, first, end in runs if run is self.run],
            self.partial, [(first, end) for run, first, end in runs if run is not self.run],
        )  # fmt: skip
        size = min(_FIRST, step)
        for run, first, end in ordered.backward() if descending else ordered.forward():
            while first < end:
                count = min(size, end - first)
                if descending:
                    yield run.slots(end - count, end)[::-1]
                    end -= count
                else:
                    yield run.slots(first, first + count)
                    first += count
                size = min(2 * size, step)
        nulls = self.nulls() if probe is None or probe.nulls else _NOTHING
        for start in range(0, len(nulls), step):
            yield nulls[start : start + step]

    # Columns

    def rows(self, slots: Slots) -> list[pa.RecordBatch]:
        """Return the key columns and the included columns at some slots, in the order of the slots.

        Only for an index that includes columns.  One batch, unless the dictionary of a column would be too large.
        """
        values = self.values()
        if values is None:
            raise CorruptionError(
                f"key segment {self.path!r} has no columns: it is not the segment of this index; restore the catalog",
                path=self.path,
            )
        return values.rows(slots)

    def values(self) -> Values | None:
        """Return the columns that the segment keeps, or None if it has none."""
        streams, ends = self._header.values, self._header.value_ends
        if streams is None or ends is None or not streams.size:
            return None
        if self._values is None:
            self._values = Values(self.path, self._read, streams, ends, self._header.slot_count)
        return self._values

    # Whole segments

    @property
    def unique(self) -> bool:
        """Whether no key occurs twice."""
        return self._header.unique

    def keys(self, first: int = 0, end: int | None = None) -> KeyColumn:
        """Return the keys in order, all or some.  Rows with a null in their key are left out."""
        return self.run.keys(first, end)

    def key_slots(self, first: int = 0, end: int | None = None) -> Slots:
        """Return the slot of each of ``keys()``."""
        return self.run.slots(first, end)

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """Return the rows of ``keys()`` with low <= key < high, where None means unbounded."""
        return self.run.rows_between(low, high)

    def sample(self, count: int) -> list[Key]:
        """Return up to ``count`` of the keys, evenly spaced."""
        rows: Any = np.unique(np.linspace(0, len(self) - 1, min(count, len(self)), dtype=np.int64))
        return self.run.keys_at(rows.tolist())

    def let_go(self) -> None:
        """Release the memory of what was read, when the whole segment is gone through only once."""
        self._file.let_go()

    def close(self) -> None:
        """Close the file.  May be called repeatedly."""
        self._file.close()


def _ascending(slots: Slots, count: int) -> Slots:
    """Sort distinct slots, all less than ``count``."""
    if bool(np.all(slots[1:] > slots[:-1])):  # the case if blocks are sorted by key
        return slots
    if len(slots) < count >> 6:
        return np.sort(slots)
    present = np.zeros(count, np.bool_)
    present[slots] = True
    return np.flatnonzero(present)


def _range_rows(run: Run, ranges: Ranges) -> list[tuple[int, int]]:
    if len(ranges) <= _FEW:
        rows = [run.rows_between(low, high) for low, high in ranges]
    else:
        low, high = np.zeros(len(ranges), np.int64), np.full(len(ranges), len(run))
        for found, side in ((low, 0), (high, 1)):
            bounds = {n: key for n, each in enumerate(ranges) if (key := each[side]) is not None}
            found[list(bounds)] = run.rows_before(list(bounds.values()))
        rows = list(zip(low.tolist(), high.tolist(), strict=True))
    return [(first, end) for first, end in rows if first < end]
