"""The columns that a segment keeps of its rows, so that they need not be fetched from the blocks.

There is one Arrow stream for every 1024 slots, so a row is found without a search and a few rows cost a few kilobytes.
Values are bit-identical to those of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import CorruptionError
from indexlake.indexes.btree.header import VALUE_STEP, Section
from indexlake.indexes.kind import Slots
from indexlake.indexes.spool import Spool
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.schema import Field


def value_schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([pa.field(f.column, f.type) for f in fields])


def value_sections(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> dict[str, Any]:
    """Return the sections for the rows of all slots, which come in slot order."""
    streams = Spool()
    ends: list[int] = []

    def add(stream: pa.Buffer) -> None:
        streams.write(stream)
        ends.append(streams.size)

    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        first = 0
        while count - first >= VALUE_STEP:
            add(_stream(waiting, first, VALUE_STEP, schema))
            first += VALUE_STEP
        waiting, count = _without_first(waiting, first), count - first
    if count or not ends:
        add(_stream(waiting, 0, count, schema))
    return {"values": streams, "value_ends": np.array(ends, "<u8")}


def _stream(batches: Sequence[pa.RecordBatch], first: int, count: int, schema: pa.Schema) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if count:  # not sliced: only these rows and the texts that occur are written
            for batch in gather(batches, pa.array(np.arange(first, first + count)), schema):
                writer.write_batch(batch)
    return sink.getvalue()


def _without_first(batches: Sequence[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    """Return the batches without their first ``rows`` rows."""
    left = []
    for batch in batches:
        if rows < batch.num_rows:
            left.append(batch.slice(rows))
        rows = max(0, rows - batch.num_rows)
    return left


class Values:
    """The columns of an open segment."""

    def __init__(
        self, path: str, read: Callable[[int, int], memoryview], streams: Section, ends: Section, slot_count: int
    ) -> None:
        self._path = path
        self._read = read
        self._start = streams.start
        found = np.frombuffer(read(ends.start, ends.size), "<u8").astype(np.int64)
        self._ends: npt.NDArray[np.int64] = np.concatenate((np.zeros(1, np.int64), found))
        self._slot_count = slot_count
        if bool((np.diff(self._ends) <= 0).any()) or self._ends[-1] != streams.size:
            raise self._nonsense()

    def rows(self, slots: Slots) -> list[pa.RecordBatch]:
        """Return the rows at some slots, in slot order; one batch unless a dictionary would be too large."""
        numbers, inside = np.divmod(np.asarray(slots, np.int64), VALUE_STEP)
        if not len(numbers):
            return [self._batches(0)[0].slice(0, 0)]
        if bool((numbers == numbers[0]).all()):
            batches = self._batches(int(numbers[0]))
            return gather(batches, pa.array(inside), batches[0].schema)
        needed, at = np.unique(numbers, return_inverse=True)
        batches = [batch for number in needed.tolist() for batch in self._batches(number)]
        places = np.arange(len(needed)) * VALUE_STEP  # every stream but the segment's last has VALUE_STEP rows
        return gather(batches, pa.array(places[at] + inside), batches[0].schema)

    def between(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows [first, end), as they are stored."""
        for number in range(first // VALUE_STEP, -(-end // VALUE_STEP)):
            slot = number * VALUE_STEP
            for batch in self._batches(number):
                low, high = max(first - slot, 0), min(end - slot, batch.num_rows)
                if low < high:
                    yield batch.slice(low, high - low)
                slot += batch.num_rows

    @property
    def schema(self) -> pa.Schema:
        return self._batches(0)[0].schema

    def _batches(self, number: int) -> list[pa.RecordBatch]:
        """Return the rows of one stream; for an empty segment, one batch without rows."""
        start, end = self._ends[number : number + 2].tolist()
        data = self._read(self._start + start, end - start)
        try:
            with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
                batches = list(reader) or [pa.RecordBatch.from_pylist([], reader.schema)]
        except (pa.ArrowException, OSError):
            raise self._nonsense() from None
        expected = min(VALUE_STEP, self._slot_count - number * VALUE_STEP)
        if sum(batch.num_rows for batch in batches) != expected:
            raise self._nonsense()
        return batches

    def _nonsense(self) -> CorruptionError:
        return CorruptionError(
            f"key segment {self._path!r} contradicts itself; restore the file or rebuild the index", path=self._path
        )
