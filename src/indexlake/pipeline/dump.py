"""Dump: hot rows become blocks, superseded versions become history blocks.

Oldest versions first, in block-sized chunks.  Files are written outside any catalog transaction; the commit of a
chunk adds its block and advances the floor by compare-and-swap, in constant time.  A version that was superseded
while its chunk was written gets a delete entry at snapshot 0: its inline history stays the authority.  So a dump
is invisible at every snapshot, a double dump is harmless, and a killed one leaves only a file for vacuum.

A block holds rows that were written with the same columns, those that snapshots of their time show; of rows older
than the horizon, with the columns at the horizon.  So a chunk may become several blocks, one for each such set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from indexlake import faults
from indexlake.batch_size import row_chunks
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.writer import sorted_by_row_id, write_block
from indexlake.catalog import activity, commits, definitions, inline, layout
from indexlake.commit.section import Section, add_block
from indexlake.display import counted
from indexlake.errors import ConstraintError, StorageError
from indexlake.evolution.lineage import InlineColumns
from indexlake.pipeline.job import Job, holding
from indexlake.pipeline.runner import Runner, ThreadRunner
from indexlake.schema import END, VERSION, TableSchema
from indexlake.state import TableState
from indexlake.storage import Storage

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.progress import ProgressBar

FETCH_ROWS = 20_000
CHUNK_BYTES = 256 << 20
ROUND_BYTES = 512 << 20
"""What is read from the hot store before the first of it is written, however many tasks run at a time."""

PURGE_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class DumpPart:
    """The rows of a chunk that have the same columns: those of one block."""

    schema: TableSchema
    schema_snapshot: int
    rows: pa.Table
    versions: tuple[int, int]  # smallest and largest begin
    last_end: int | None  # of history


@dataclass(frozen=True, slots=True)
class DumpTask:
    """One chunk: the rows, the floor they lie above, and all that is needed to write their blocks."""

    table_id: int
    folder: str
    writer_id: str
    primary_index: int | None
    format: str
    history: bool
    planned_at: int
    floor: tuple[int, int]
    new_floor: tuple[int, int]
    parts: tuple[DumpPart, ...]
    everything: bool  # nothing lay above these rows when they were read

    @property
    def row_count(self) -> int:
        return sum(part.rows.num_rows for part in self.parts)

    @property
    def size(self) -> int:
        return sum(int(part.rows.nbytes) for part in self.parts)


@dataclass(frozen=True, slots=True)
class DumpResult:
    """What a dump did."""

    rows: int = 0
    history_rows: int = 0
    blocks: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{counted(self.rows, 'row')} and {self.history_rows:,} superseded moved to "
            f"{counted(self.blocks, 'block')} of {counted(self.bytes, 'byte')}"
        )

    def with_block(self, block: NewBlock, *, history: bool) -> DumpResult:
        moved = block.record_count
        return DumpResult(
            self.rows + (0 if history else moved),
            self.history_rows + (moved if history else 0),
            self.blocks + 1,
            self.bytes + block.file.size,
        )


def dump(
    lake: Lake,
    table_id: int,
    *,
    live: bool = True,
    history: bool = True,
    runner: Runner | None = None,
    stop: threading.Event | None = None,
    bar: ProgressBar | None = None,
) -> DumpResult:
    """Move all hot rows of a table to blocks, a few chunks at a time; each chunk is a commit of its own."""
    runner = runner or ThreadRunner(lake.storage)
    result = DumpResult()
    with Job(lake, "dump", table_id, stop=stop, bar=bar) as job:
        purge(lake, table_id, job)
        for kind in [k for k, wanted in ((False, live), (True, history)) if wanted]:
            ended = False
            while not ended:
                job.check()
                tasks = plan(lake, table_id, job, history=kind, most=runner.width)
                faults.step("dump.planned")
                moved = 0
                for blocks in _move(lake, job, runner, tasks):
                    moved += 1
                    job.add(rows=sum(b.record_count for b in blocks), size=sum(b.file.size for b in blocks))
                    for block in blocks:
                        result = result.with_block(block, history=kind)
                # What is committed meanwhile is for the next dump: this one comes to an end.
                ended = moved == len(tasks) and (not tasks or tasks[-1].everything)
                purge(lake, table_id, job)
                faults.step("dump.purged")
    return result


def _move(lake: Lake, job: Job, runner: Runner, tasks: list[DumpTask]) -> Iterator[tuple[NewBlock, ...]]:
    """The blocks of each task that was committed, up to the first whose inputs had changed."""
    if not tasks:
        return
    with holding(lake, tasks[0].planned_at), closing(runner.map(run_task, tasks, job.check)) as results:
        for task, blocks in zip(tasks, results, strict=True):
            faults.step("dump.written")
            if not commit_chunk(lake, job, task, blocks):
                return
            faults.step("dump.committed")
            yield blocks


def plan(lake: Lake, table_id: int, job: Job, *, history: bool, most: int) -> list[DumpTask]:
    """Up to ``most`` chunks, each above the one before."""
    tasks: list[DumpTask] = []
    while len(tasks) < most and not (tasks and tasks[-1].everything) and sum(t.size for t in tasks) < ROUND_BYTES:
        task = plan_chunk(lake, table_id, job, history=history, above=tasks[-1].new_floor if tasks else None)
        if task is None:
            break
        tasks.append(task)
    return tasks


def plan_chunk(
    lake: Lake, table_id: int, job: Job | None = None, *, history: bool, above: tuple[int, int] | None = None
) -> DumpTask | None:
    """Read the oldest versions above the floor; their snapshot is that of the same read transaction."""
    with lake._reading(table_id) as (r, state, last):
        table = state.table
        if table.end_snapshot is not None:
            return None
        floor = above or (table.history_floor if history else table.hot_floor)
        size = table.config.block_row_count
        select = inline.oldest_dead if history else inline.oldest_live
        collected = _Collected(state, history=history)
        count = 0
        final: tuple[Any, ...] | None = None
        for chunk in row_chunks(select(r, table_id, floor, collected.columns, size), FETCH_ROWS):
            if job is not None:
                job.check()
            collected.add(chunk)
            final = chunk[-1]
            count += len(chunk)
            if collected.bytes > CHUNK_BYTES:
                count = size  # there may be more
                break
    if final is None:
        return None
    return DumpTask(
        table_id=table_id,
        folder=table.folder,
        writer_id=lake._writer_id(),
        primary_index=state.primary_index,
        format=table.config.dump_format,
        history=history,
        planned_at=last,
        floor=floor,
        new_floor=(final[2] if history else final[0], final[1]),
        parts=collected.parts(),
        everything=count < size,
    )


class _Collected:
    """Rows of a chunk, by the columns that they are written with."""

    def __init__(self, state: TableState, *, history: bool) -> None:
        self._history = history
        self._horizon = state.table.horizon
        self._schemas = state.schema
        self.bytes = 0
        self._batches: dict[tuple[str, ...], list[pa.RecordBatch]] = {}
        self._written_with: dict[tuple[str, ...], tuple[TableSchema, int]] = {}
        kept = state.schema.since(max(self._horizon, state.table.begin_snapshot))
        self._inline = InlineColumns({f.field_id: f for schema in kept for f in schema.fields}.values())
        self.columns = self._inline.columns
        self._alike = all(schema.columns == kept[0].columns for schema in kept)

    def add(self, chunk: list[tuple[Any, ...]]) -> None:
        if self._alike:
            self._add(chunk, chunk[0][0])
            return
        groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        for row in chunk:
            groups.setdefault(self._schema(row[0]).columns, []).append(row)
        for rows in groups.values():
            self._add(rows, rows[0][0])

    def _schema(self, begin: int) -> TableSchema:
        """No snapshot before the horizon will be read again."""
        return self._schemas.at(max(begin, self._horizon))

    def _add(self, rows: list[tuple[Any, ...]], begin: int) -> None:
        schema = self._schema(begin)
        key = schema.columns
        self._written_with.setdefault(key, (schema, max(begin, self._horizon)))
        try:
            batch = _batch(rows, schema, self._inline.only(schema.fields), history=self._history)
        except ConstraintError:
            # More distinct values than the index type of a dictionary column can number: half as many may fit.
            half = len(rows) // 2
            if not half:
                raise
            self._add(rows[:half], begin)
            self._add(rows[half:], begin)
            return
        self._batches.setdefault(key, []).append(batch)
        self.bytes += batch.nbytes

    def parts(self) -> tuple[DumpPart, ...]:
        found = []
        for key, batches in self._batches.items():
            schema, snapshot = self._written_with[key]
            rows = pa.Table.from_batches(batches)
            begins = rows.column(VERSION).to_numpy()
            last_end = int(rows.column(END).to_numpy().max()) if self._history else None
            rows = rows if self._history else sorted_by_row_id(rows)
            found.append(DumpPart(schema, snapshot, rows, (int(begins.min()), int(begins.max())), last_end))
        return tuple(found)


def _batch(
    chunk: list[tuple[Any, ...]], schema: TableSchema, inline_columns: InlineColumns, *, history: bool
) -> pa.RecordBatch:
    begins, row_ids, ends, *columns = zip(*chunk, strict=True)
    values = inline_columns.values(begins, columns)
    arrays = [f.codec.decode(column) for f, column in zip(schema.fields, values, strict=True)]
    arrays += [pa.array(row_ids, pa.int64()), pa.array(begins, pa.int64())]
    if history:
        arrays.append(pa.array(ends, pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.history_file if history else schema.file)


def run_task(storage: Storage, task: DumpTask, check: Callable[[], None]) -> tuple[NewBlock, ...]:
    """Write the chunk's files; no catalog here."""

    def batches(part: DumpPart) -> Iterator[pa.RecordBatch]:
        for batch in part.rows.to_batches(65_536):
            check()
            yield batch

    return tuple(
        write_block(
            storage, task.folder, task.writer_id, part.schema, part.schema_snapshot, task.format, batches(part),
            history=task.history,
        )
        for part in task.parts
    )  # fmt: skip


def commit_chunk(lake: Lake, job: Job, task: DumpTask, blocks: Sequence[NewBlock]) -> bool:
    """One critical section.  False: the chunk's inputs changed and it must be planned again."""
    with lake.catalog.transaction() as tx:
        section = Section(lake.catalog, tx)
        job.fence(tx)
        if not activity.writer_is_alive(tx, task.writer_id):
            raise StorageError("This process was taken for dead while it wrote files. Nothing was committed.")
        table = definitions.read_table(tx, task.table_id)
        if table is None or table.end_snapshot is not None or table.horizon > task.planned_at:
            return False
        s = section.last + 1
        name = "history_floor" if task.history else "hot_floor"
        if not layout.set_floor(tx, task.table_id, name, task.floor, task.new_floor, s):
            return False
        for part, block in zip(task.parts, blocks, strict=True):
            begin, version = part.versions[0], part.versions
            if task.history:
                add_block(tx, task.table_id, None, block, s, begin=begin, version=version, end=part.last_end,
                          role="history")  # fmt: skip
            else:
                block.dead = _superseded(commits.touched_since(tx, task.table_id, task.planned_at), block)
                add_block(tx, task.table_id, task.primary_index, block, s, begin=begin, version=version)
        section.next_snapshot("dump", None, None)
        faults.step("dump.commit")
        tx.commit()
    return True


def _superseded(touched: list[tuple[int, BitMap64 | None]], block: NewBlock) -> Any:
    """Positions of rows that a commit touched after the plan; None in the list stands for all rows."""
    dead = BitMap()
    for _, row_ids in touched:
        if row_ids is None:
            return BitMap(range(block.record_count))
        ids = np.frombuffer(row_ids.to_array(), np.uint64).astype(np.int64)
        ids = ids[(ids >= block.bounds[0]) & (ids <= block.bounds[1])]
        positions = block.row_ids.positions_of(ids)
        dead |= BitMap(positions[positions >= 0].tolist())
    return dead


def purge(lake: Lake, table_id: int, job: Job | None = None) -> int:
    """Remove inline versions that lie in blocks, in small transactions."""
    total = 0
    while True:
        if job is not None:
            job.check()
        with lake.catalog.transaction() as tx:
            table = definitions.read_table(tx, table_id)
            gone = inline.purge(tx, table, PURGE_ROWS) if table is not None else 0
            tx.commit()
        total += gone
        if not gone:
            return total
