"""Portions: what one Spark task reads of a scan or of a change feed, and the code that reads it there.

A portion names some blocks of the plan and may carry hot rows; if there are too many to send, they are staged in files.
It is plain bytes without secrets.  Portions of a clustered table are in key order, and a partition is not split unless
it is too large; Spark cannot be told, because its Python sources have no way to declare an order. ``Reading`` is what
all portions of a plan share; it opens the storage where it runs and never sees the catalog.
"""

from __future__ import annotations

import gc
import heapq
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from indexlake.arrow.batch_size import cut
from indexlake.blocks.formats import write_file
from indexlake.blocks.new_block import NewFile
from indexlake.blocks.open_files import OpenFiles
from indexlake.feed.carried import Carrier
from indexlake.feed.cut import cut as cut_feed
from indexlake.feed.plan import FeedPlan
from indexlake.feed.windows import Feed, feed_schema
from indexlake.scan.execute import hot_pieces, read_task
from indexlake.scan.plan import BlockTask, ScanPlan
from indexlake.schema import ROW_ID, Field
from indexlake.schema.change_columns import INSERT
from indexlake.spark.nulls import check_filled
from indexlake.spark.runner import opened
from indexlake.spark.types import arrow_schema, to_spark
from indexlake.storage import Storage, StorageSpec
from indexlake.storage.names import FileName
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.blocks.block_index import BlockIndex
    from indexlake.catalog.commits import RowCounts
    from indexlake.expr import Bound
    from indexlake.partitions.ranges import Ranges
    from indexlake.snapshots.state import TableState

MOST_BYTES = 128 << 20
"""The most bytes of files that one task reads."""
LEAST_BYTES = 16 << 20
"""The fewest bytes for a task: starting another one in Python costs Spark as much as reading this much."""
OPEN_BYTES = 1 << 20
"""The cost of opening a file, in bytes that could be read in the same time."""
HOT_BYTES = 8 << 20
"""Hot rows up to this size are sent with the plan, more of them in files."""


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """Hot rows as an Arrow stream, in Spark's types."""

    data: bytes


Part = BlockTask | CarriedRows | NewFile | FeedPlan
"""A portion is a tuple of these; a NewFile holds hot rows."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where rows may be staged: with the table's files, under a registered writer."""

    storage: Storage
    table_id: int
    writer: Callable[[], str]

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> NewFile:
        path = FileName.new(self.table_id, "stage", self.writer(), "arrow").path
        written = write_file(self.storage, path, "ipc", schema, batches, {})
        return NewFile(written.path, written.size, written.checksums.to_bytes())


@dataclass(frozen=True, slots=True)
class AsChanges:
    """Which changes are shown, and which of their columns."""

    names: tuple[str, ...]
    predicate: Bound | None
    inserted_at: int | None = None  # rows of a scan are shown as inserted by this commit

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a feed, or those of a scan with their row ids, as they are shown."""
        if self.inserted_at is not None:
            *columns, row_ids = batch.columns
            added = [pa.repeat(INSERT, len(batch)), pa.repeat(pa.scalar(self.inserted_at, pa.int64()), len(batch))]
            schema = feed_schema(batch.schema.remove(len(columns)))
            batch = pa.RecordBatch.from_arrays([*columns, *added, row_ids], schema=schema)
        if self.predicate is not None:
            batch = keep(batch, self.predicate.mask(batch))
        return batch.select(self.names)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the portions of one plan are read, wherever that happens."""

    spec: StorageSpec
    secrets: Mapping[str, str] = field(repr=False)
    fields: tuple[Field, ...]
    row_id: bool
    predicate: Bound | None
    columns: tuple[tuple[Field, ...], ...]  # of the files and of the snapshot; portions refer to them by number
    schema: pa.Schema  # of the rows as Spark gets them
    filled: frozenset[str] = frozenset()  # columns that Spark need not check for nulls
    changes: AsChanges | None = None  # None: rows are shown as they are

    @staticmethod
    def of(storage: Storage, plan: ScanPlan, fields: Sequence[Field], *, row_id: bool) -> Reading:
        shown = [f.arrow() for f in fields] + ([pa.field(ROW_ID, pa.int64())] if row_id else [])
        columns = {id(found): found for task in plan.tasks for found in (task.fields, task.shown)}
        return Reading(
            storage.spec(), storage.secrets, tuple(fields), row_id, plan.predicate, tuple(columns.values()),
            arrow_schema(shown),
        )  # fmt: skip

    def packed(self, portion: tuple[Part, ...]) -> bytes:
        sink = io.BytesIO()
        _Pack(sink, self.columns).dump(portion)
        return sink.getvalue()

    def rows(self, portion: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a portion, in Spark's types."""
        files = OpenFiles(opened(self.spec, self.secrets))
        try:
            for part in _Unpack(io.BytesIO(portion), self.columns, files).load():
                yield from self._rows_of(part, files)
        finally:
            files.clear()
            _settle()

    def _rows_of(self, part: Part, files: OpenFiles) -> Iterator[pa.RecordBatch]:
        if isinstance(part, CarriedRows):
            with pa.ipc.open_stream(part.data) as stream:
                yield from stream
        elif isinstance(part, FeedPlan):
            for batch in Feed(part, pa.schema([f.arrow() for f in self.fields])).batches():
                yield from self.shown(batch)
        elif isinstance(part, NewFile):
            reader = files.reader_of(part.path, "ipc", part.size, part.checksum, self.schema)
            yield from reader.read(self.schema.names)
        else:
            for batch in read_task(part, files, self.fields, self.predicate, row_id=self.row_id):
                for rows in self.shown(batch):
                    check_filled(rows, self.filled, part.path)
                    yield rows

    def shown(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows as Spark gets them."""
        found = batch if self.changes is None else self.changes.of(batch)
        if found.num_rows:
            for some in cut(found):
                yield to_spark(some, self.schema)


_FILES = -1


class _Pack(pickle.Pickler):
    """Pickles the columns that all portions share as numbers, as there may be thousands of both.

    Open files are left out: the process that unpickles has its own.
    """

    def __init__(self, sink: IO[bytes], shared: Sequence[object]) -> None:
        super().__init__(sink, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(found): n for n, found in enumerate(shared)}

    def persistent_id(self, found: object) -> int | None:
        return _FILES if isinstance(found, OpenFiles) else self._numbers.get(id(found))


class _Unpack(pickle.Unpickler):
    def __init__(self, source: IO[bytes], shared: Sequence[object], files: OpenFiles) -> None:
        super().__init__(source)
        self._shared = shared
        self._files = files

    def persistent_load(self, number: int) -> object:
        return self._files if number == _FILES else self._shared[number]


def portions(
    plan: ScanPlan, tasks: Sequence[BlockTask], state: TableState, reading: Reading, parallelism: int,
    stage: Stage | None,
) -> list[bytes]:  # fmt: skip
    """Return everything to be read of a plan, divided for ``parallelism`` tasks at a time."""
    named = {f.name for f in reading.fields} | (set(reading.predicate.columns) if reading.predicate else set())
    parts: list[tuple[int, Part]] = [(_cost(task, len(named)), task) for task in tasks]
    hot: list[tuple[int, Part]] = list(_hot_parts(plan, reading, stage))
    if state.ranges is None:
        return [reading.packed(tuple(group)) for group in groups([*parts, *hot], parallelism)]
    units = list(_by_partition(parts, state.ranges, state.blocks))
    units += [[part] for part in hot]
    return [reading.packed(tuple(group)) for group in groups_in_order(units, parallelism)]


def feed_portions(
    plan: FeedPlan, commits: Sequence[RowCounts], reading: Reading, parallelism: int, files: OpenFiles,
    stage: Stage | None,
) -> list[bytes]:  # fmt: skip
    """Return everything to be read of a feed, whose range has these commits; a small feed is one portion."""
    carrier = Carrier(HOT_BYTES, files, None if stage is None else stage.write)
    return [reading.packed((carrier.carry(part),)) for part in cut_feed(plan, commits, parallelism)]


def groups(parts: Sequence[tuple[int, Part]], parallelism: int) -> list[list[Part]]:
    """Divide the parts into similar groups: one per core, fewer if they would be tiny, more if they would be huge.

    If more, a multiple of the number of cores, so that none waits for the last few.
    """
    number = _number(sum(cost for cost, _ in parts), len(parts), parallelism)
    found: list[list[Part]] = [[] for _ in range(number)]
    loads = [(0, n) for n in range(number)]
    for cost, part in sorted(parts, key=lambda pair: -pair[0]):
        load, n = heapq.heappop(loads)
        found[n].append(part)
        heapq.heappush(loads, (load + cost, n))
    return found


def groups_in_order(units: Sequence[Sequence[tuple[int, Part]]], parallelism: int) -> list[list[Part]]:
    """Divide the units into the same number of groups, keeping units whole and in order."""
    total = sum(cost for unit in units for cost, _ in unit)
    number = _number(total, len(units), parallelism)
    found: list[list[Part]] = [[] for _ in range(number)]
    before = 0
    for unit in units:
        cost = sum(cost for cost, _ in unit)
        found[min(number - 1, int((before + cost / 2) * number / total))] += [part for _, part in unit]
        before += cost
    return [group for group in found if group]


def _number(total: int, count: int, parallelism: int) -> int:
    waves = max(1, ceil(total / MOST_BYTES / parallelism))
    return min(count, waves * parallelism, ceil(total / LEAST_BYTES))


def _by_partition(
    parts: Sequence[tuple[int, Part]], ranges: Ranges, blocks: BlockIndex
) -> Iterator[list[tuple[int, Part]]]:
    """Yield the blocks of each partition together, in key order, then those that are in no partition."""
    placed: dict[int, list[tuple[int, Part]]] = {}
    others: list[tuple[int, Part]] = []
    for cost, part in parts:
        record = blocks.record(part.file_id) if isinstance(part, BlockTask) else None
        number = None if record is None else record.partition_id
        home = others if number is None or number not in ranges.by_id else placed.setdefault(number, [])
        home.append((cost, part))
    for number in sorted(placed, key=lambda number: ranges.by_id[number].begin_key or b""):
        unit = placed[number]
        if sum(cost for cost, _ in unit) > MOST_BYTES:
            yield from ([part] for part in unit)
        else:
            yield unit
    yield from ([part] for part in others)


def _cost(task: BlockTask, column_count: int) -> int:
    """Estimate the bytes to read of a file by its share of rows and columns, taken to be equally large."""
    rows = 1.0 if task.only is None else min(1.0, len(task.only) / max(1, task.record_count))
    columns = min(1.0, max(1, column_count) / max(1, len(task.fields)))
    return OPEN_BYTES + int(task.size * rows * columns)


def _hot_parts(plan: ScanPlan, reading: Reading, stage: Stage | None) -> Iterator[tuple[int, CarriedRows | NewFile]]:
    """Yield hot rows: full batches are staged, the rest is sent with the plan."""
    held: list[pa.RecordBatch] = []
    size = 0
    for piece in hot_pieces(plan, reading.fields, row_id=reading.row_id):
        for batch in reading.shown(piece.batch):
            held.append(batch)
            size += batch.nbytes
        if stage is not None and size >= HOT_BYTES:
            yield size, stage.write(reading.schema, held)
            held, size = [], 0
    if held:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, reading.schema) as writer:
            for batch in held:
                writer.write_batch(batch)
        yield size, CarriedRows(sink.getvalue().to_pybytes())


_settled = False


def _settle() -> None:
    """Once in each Spark worker, which collects garbage after each task: exempt everything loaded so far.

    Otherwise, going through everything ever imported would take longer than a small task.
    """
    global _settled
    if not _settled:
        from pyspark import TaskContext

        _settled = True
        if TaskContext.get() is not None:
            gc.collect()
            gc.freeze()
