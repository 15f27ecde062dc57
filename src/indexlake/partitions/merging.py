"""Merge sources that are each in key order into one stream without a sort.

A source is opened when the stream comes to the first key that it may hold, so sources that do not overlap are read one
after the other and their batches passed on unchanged. Where sources overlap, the rows up to the smallest of the last
keys read are put in order, since no unread row can precede them. Memory holds one batch of each open source, and what
it reads ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.batch_size import BATCH_BYTES, batch_bytes
from indexlake.indexes.keys import Key, KeyColumn, key_to_bytes
from indexlake.partitions.ranges import key_column, lower_bound, upper_bound
from indexlake.schema import TableSchema
from indexlake.types.selection import gather, take

KeysOf = Callable[[pa.RecordBatch], KeyColumn]


class Source(Protocol):
    """Sorted rows, all of whose keys, as bytes, lie between ``first`` and ``last`` (None: not known)."""

    @property
    def first(self) -> bytes: ...

    @property
    def last(self) -> bytes | None: ...

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next rows, at least one; None: there are no more.

        In a descending stream the batches come last to first, each with its rows in ascending order.
        """


class Keyed:
    """Rows and their keys, which are computed when needed."""

    __slots__ = ("_keys", "_keys_of", "rows")

    def __init__(self, rows: pa.RecordBatch, keys_of: KeysOf, keys: KeyColumn | None = None) -> None:
        self.rows = rows
        self._keys_of = keys_of
        self._keys = keys

    @property
    def keys(self) -> KeyColumn:
        if self._keys is None:
            self._keys = self._keys_of(self.rows)
        return self._keys

    def key(self, row: int) -> Key:
        return self._keys[row] if self._keys is not None else self._keys_of(self.rows.slice(row, 1))[0]

    def slice(self, start: int, end: int) -> Keyed:
        keys = None if self._keys is None else self._keys.slice(start, end - start)
        return Keyed(self.rows.slice(start, end - start), self._keys_of, keys)


class Merge:
    """One merged stream, ascending or descending."""

    def __init__(self, sources: Iterable[Source], keys_of: KeysOf, *, descending: bool = False) -> None:
        self._keys_of = keys_of
        self._descending = descending
        self._heads: list[_Head] = []
        if descending:
            self.waiting = deque(sorted(sources, key=lambda s: (s.last is None, s.last or b""), reverse=True))
        else:
            self.waiting = deque(sorted(sources, key=lambda s: s.first))

    @property
    def open(self) -> list[Source]:
        """The sources being read; those in ``waiting`` follow in order."""
        return [head.source for head in self._heads]

    def __iter__(self) -> Iterator[Keyed]:
        """Yield the rows of all sources in the order of the stream."""
        while True:
            for head in self._heads.copy():
                if not head.fill():
                    self._heads.remove(head)
            if not self._heads:
                if not self.waiting:
                    return
                self._open_next()
            elif len(self._heads) == 1 and self._is_alone(self._heads[0].source):
                yield from self._ordered([self._heads[0].all()])
            else:
                edges = [head.edge(self._descending) for head in self._heads]
                limit = max(edges) if self._descending else min(edges)
                if self.waiting and self._may_precede(self.waiting[0], key_to_bytes(limit)):
                    self._open_next()
                else:
                    yield from self._ordered([head.up_to(limit, self._descending) for head in self._heads])

    def _open_next(self) -> None:
        self._heads.append(_Head(self.waiting.popleft(), self._keys_of))

    def _is_alone(self, source: Source) -> bool:
        """Return whether all of this source precedes the sources that wait."""
        if not self.waiting:
            return True
        lower, upper = (self.waiting[0], source) if self._descending else (source, self.waiting[0])
        return lower.last is not None and lower.last < upper.first

    def _may_precede(self, source: Source, key: bytes) -> bool:
        """Return whether the source may have rows that come no later than a key."""
        return source.last is None or source.last >= key if self._descending else source.first <= key

    def _ordered(self, parts: Sequence[Keyed]) -> Iterator[Keyed]:
        parts = [part for part in parts if part.rows.num_rows]
        if len(parts) == 1:
            yield Keyed(turned(parts[0].rows), self._keys_of) if self._descending else parts[0]
            return
        keys = KeyColumn.concat([part.keys for part in parts])
        order = keys.argsort(in_runs=True)[:: -1 if self._descending else 1]
        for rows in _in_order([part.rows for part in parts], order):
            yield Keyed(rows, self._keys_of)


class _Head:
    """An open source, and its rows that come next."""

    def __init__(self, source: Source, keys_of: KeysOf) -> None:
        self.source = source
        self._keys_of = keys_of
        self._next: Keyed | None = None
        self._edge: Key | None = None

    def fill(self) -> bool:
        """Read on if no rows are left; return False at the end."""
        if self._next is None:
            batch = self.source.next_batch()
            self._next = None if batch is None else Keyed(batch, self._keys_of)
            self._edge = None
        return self._next is not None

    def edge(self, descending: bool) -> Key:
        """Return the last key read, in the direction of the stream."""
        if self._edge is None:
            assert self._next is not None
            self._edge = self._next.key(0 if descending else self._next.rows.num_rows - 1)
        return self._edge

    def all(self) -> Keyed:
        found, self._next = self._next, None
        assert found is not None
        return found

    def up_to(self, limit: Key, descending: bool) -> Keyed:
        """Take the rows that come no later than a key."""
        if self._edge == limit:
            return self.all()
        assert self._next is not None
        keys, count = self._next.keys, self._next.rows.num_rows
        at = lower_bound(keys, key_to_bytes(limit)) if descending else upper_bound(keys, limit)
        lower, upper = self._next.slice(0, at), self._next.slice(at, count)
        given, self._next = (upper, lower) if descending else (lower, upper)  # the edge stays: some rows are left
        return given


def _in_order(parts: Sequence[pa.RecordBatch], order: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yield rows of sorted batches in the given order. Large ones are copied one batch at a time, when requested."""
    step = max(1, len(order) * BATCH_BYTES // max(1, sum(map(batch_bytes, parts))))
    if step >= len(order):
        yield from gather(parts, pa.array(order), parts[0].schema)
        return
    ends = np.cumsum([part.num_rows for part in parts])
    for start in range(0, len(order), step):
        some = order[start : start + step]
        of = np.searchsorted(ends, some, "right")
        places, slices, before = np.empty(len(some), np.int64), [], 0
        for number in np.unique(of).tolist():
            here = of == number
            first, last = some[here].min(), some[here].max()  # parts are sorted: all rows between are wanted
            slices.append(parts[number].slice(first - ends[number] + parts[number].num_rows, last - first + 1))
            places[here] = some[here] - first + before
            before += last - first + 1
        yield from gather(slices, pa.array(places), parts[0].schema)


def turned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows in reverse order."""
    return take(batch, pa.array(np.arange(batch.num_rows - 1, -1, -1)))


def merged_by_key(
    streams: Iterable[Iterator[pa.RecordBatch]], schema: TableSchema
) -> Iterator[tuple[pa.RecordBatch, KeyColumn]]:
    """Yield the rows of all streams in key order, with their keys. Rows are in the format of files."""
    for part in Merge(map(Stream, streams), lambda rows: key_column(rows, schema)):
        yield part.rows, part.keys


class Stream:
    """Sorted batches whose keys are unknown until they are read."""

    first: bytes = b""
    last: bytes | None = None

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def next_batch(self) -> pa.RecordBatch | None:
        return next((batch for batch in self._batches if batch.num_rows), None)
