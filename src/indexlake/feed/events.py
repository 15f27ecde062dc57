"""Where changes are: row versions that begin or end in known commits, and how to read those rows.

A set of events holds (commit, row id, position) without the rows themselves, which are fetched by position when their
turn comes. Everything here is fixed once the feed is planned: no set reads the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexlake.blocks.formats import Positions
from indexlake.blocks.row_ids import RowIds
from indexlake.scan.execute import read_task
from indexlake.scan.plan import BlockTask
from indexlake.schema import Field, TableSchema
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles

Ints = npt.NDArray[np.int64]

NOTHING = np.zeros(0, np.int64)

EVERY_ID = int(np.iinfo(np.int64).max)
"""Greater than every row id."""


class Events(NamedTuple):
    """Versions that begin, or that end, as columns of equal length."""

    snapshots: Ints
    row_ids: Ints
    positions: Ints  # where their reader finds the rows


class RowReader(Protocol):
    """Fetches the rows of events."""

    def read(self, positions: Positions) -> list[pa.RecordBatch]:
        """Return the rows at sorted, distinct positions, with the columns of the feed."""


class EventSet(Protocol):
    """Versions in one place that all begin, or all end, in commits from ``first`` to ``last``."""

    begins: bool
    rows: RowReader

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...

    def counts(self) -> tuple[Ints, Ints]:
        """Return its commits, distinct and in order, and how many events each has."""

    def below(self, snapshot: int, row_id: int) -> int:
        """Return how many events of a commit concern smaller row ids."""

    def events(self, after: int, upto: int, low: int, high: int) -> Events:
        """Return the events of the commits in (after, upto] that concern row ids in [low, high)."""

    def within(self, since: int, until: int, low: int, high: int) -> EventSet | None:
        """Return the set of these events; None if there are none."""

    def sample(self, snapshot: int, step: int) -> Ints:
        """Return the row id of every ``step``-th event of a commit."""


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows of a block, including deleted ones, with the columns of the feed."""

    task: BlockTask
    files: OpenFiles
    fields: tuple[Field, ...]

    def read(self, positions: Positions) -> list[pa.RecordBatch]:
        task = replace(self.task, only=positions)
        return list(read_task(task, self.files, self.fields, None, row_id=False))

    def hidden(self, *columns: str) -> list[Any]:
        """Return whole hidden columns of the file."""
        task = self.task
        schema = TableSchema(task.fields)
        file_schema = schema.history_file if task.kind == "history" else schema.file
        reader = self.files.reader_of(task.path, task.format, task.size, task.checksum, file_schema)
        found = pa.Table.from_batches(
            reader.read(columns), pa.schema([file_schema.field(column) for column in columns])
        )
        return [found.column(column) for column in columns]


class Batches(Protocol):
    """Record batches by number."""

    def batch(self, number: int) -> pa.RecordBatch: ...


class SpooledRows:
    """Rows that were read from the catalog while the feed was planned."""

    def __init__(self, batches: Batches, starts: Sequence[int]) -> None:
        self._batches = batches
        self._starts = np.array(starts, np.uint64)  # the position of the first row of each batch, then the end

    def read(self, positions: Positions) -> list[pa.RecordBatch]:
        result = []
        bounds = np.searchsorted(positions, self._starts)
        for number in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            inside = positions[bounds[number] : bounds[number + 1]] - self._starts[number]
            batch = self._batches.batch(number)
            result.append(batch if len(inside) == batch.num_rows else take(batch, pa.array(inside)))
        return result


# ---------------------------------------------------------------- sets of events


class InBlock:
    """Rows of a block that begin, or that end, in some commits: bitmaps of their positions.

    A direct write adds all rows at once and a truncate ends them; other commits delete or replace some.
    """

    def __init__(
        self, rows: RowReader, row_ids: RowIds, entries: Iterable[tuple[int, Any]], *, begins: bool = False
    ) -> None:
        self.rows = rows
        self.begins = begins
        self._row_ids = row_ids
        self._entries = sorted(entries, key=lambda entry: entry[0])  # (snapshot, positions)
        self._snapshots = np.array([snapshot for snapshot, _ in self._entries], np.int64)
        self.first, self.last = int(self._snapshots[0]), int(self._snapshots[-1])

    def counts(self) -> tuple[Ints, Ints]:
        return self._snapshots, np.array([len(positions) for _, positions in self._entries], np.int64)

    def below(self, snapshot: int, row_id: int) -> int:
        position = self._row_ids.count_below(row_id)
        at = int(np.searchsorted(self._snapshots, snapshot))
        if not position or at == len(self._entries) or self._entries[at][0] != snapshot:
            return 0
        return int(self._entries[at][1].rank(position - 1))

    def events(self, after: int, upto: int, low: int, high: int) -> Events:
        found = [(s, positions_of(p)) for s, p in self._between(after, upto, low, high)]
        if not found:
            return Events(NOTHING, NOTHING, NOTHING)
        positions = np.concatenate([p for _, p in found])
        snapshots = np.repeat([s for s, _ in found], [len(p) for _, p in found])
        return Events(snapshots.astype(np.int64), self._row_ids.row_ids_at(positions), positions)

    def within(self, since: int, until: int, low: int, high: int) -> InBlock | None:
        found = [(s, p) for s, p in self._between(since, until, low, high) if p]
        return InBlock(self.rows, self._row_ids, found, begins=self.begins) if found else None

    def sample(self, snapshot: int, step: int) -> Ints:
        found = [positions_of(p)[::step] for _, p in self._between(snapshot - 1, snapshot, 0, EVERY_ID)]
        return self._row_ids.row_ids_at(np.concatenate(found)) if found else NOTHING

    def _between(self, after: int, upto: int, low: int, high: int) -> list[tuple[int, Any]]:
        begin, end = np.searchsorted(self._snapshots, [after, upto], "right")
        found = self._entries[begin:end]
        first, stop = self._row_ids.count_below(low), self._row_ids.count_below(high)
        if first == 0 and stop == len(self._row_ids):
            return found
        span = BitMap(range(first, stop))
        return [(snapshot, positions & span) for snapshot, positions in found]


class Listed:
    """Events held as arrays, in (commit, row id) order: 24 bytes each."""

    def __init__(self, rows: RowReader, events: Events, *, begins: bool) -> None:
        self.rows = rows
        self.begins = begins
        self._events = events
        self.snapshots = events.snapshots
        self.first, self.last = int(events.snapshots[0]), int(events.snapshots[-1])

    def counts(self) -> tuple[Ints, Ints]:
        snapshots, counts = np.unique(self._events.snapshots, return_counts=True)
        return snapshots, counts.astype(np.int64)

    def below(self, snapshot: int, row_id: int) -> int:
        begin, end = self._between(snapshot - 1, snapshot)
        return int(np.searchsorted(self._events.row_ids[begin:end], row_id))

    def events(self, after: int, upto: int, low: int, high: int) -> Events:
        begin, end = self._between(after, upto)
        found = Events(*(column[begin:end] for column in self._events))
        inside = (found.row_ids >= low) & (found.row_ids < high)
        return found if inside.all() else Events(*(column[inside] for column in found))

    def within(self, since: int, until: int, low: int, high: int) -> Listed | None:
        events = self.events(since, until, low, high)
        return Listed(self.rows, events, begins=self.begins) if len(events.snapshots) else None

    def sample(self, snapshot: int, step: int) -> Ints:
        begin, end = self._between(snapshot - 1, snapshot)
        return self._events.row_ids[begin:end:step]

    def read_all(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all events in their order, some at a time; for rows that were listed in their own order."""
        for start in range(0, len(self.snapshots), rows):
            yield from self.rows.read(self._events.positions[start : start + rows].astype(np.uint64))

    def with_rows(self, rows: RowReader) -> Listed:
        """Return the same events, whose rows are now numbered in their order."""
        positions = np.arange(len(self.snapshots), dtype=np.int64)
        return Listed(rows, self._events._replace(positions=positions), begins=self.begins)

    def shortened(self, upto: int) -> Listed | None:
        """Return the events of commits up to one as a copy, so that the others can be freed; None if there are none."""
        _, end = self._between(0, upto)
        events = Events(*(column[:end].copy() for column in self._events))
        return Listed(self.rows, events, begins=self.begins) if end else None

    def _between(self, after: int, upto: int) -> tuple[int, int]:
        begin, end = np.searchsorted(self._events.snapshots, [after, upto], "right")
        return int(begin), int(end)


def positions_of(bitmap: Any) -> Ints:
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)
