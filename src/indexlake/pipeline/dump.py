"""Dump: hot rows become blocks, superseded versions become history blocks.

Oldest versions come first, in block-sized chunks. Files are written outside any catalog transaction; the commit of a
chunk adds its blocks and tells the hot store to release it, in constant time. A version that was superseded while its
chunk was written gets a delete entry: at snapshot 0 if the hot store keeps its history, otherwise at the snapshot of
the commit that superseded it. So a dump is invisible at every snapshot, a double dump is harmless, and a killed one
leaves only a file for vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa
from pyroaring import BitMap

from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import Target
from indexlake.blocks.writer import write_block
from indexlake.catalog import definitions
from indexlake.commit import placement
from indexlake.commit.effects import add_block, carry_deletes, touched_positions
from indexlake.commit.requirements import require_plan
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.hot.store import Chunk, ChunkPart
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.runner import Runner, ThreadRunner
from indexlake.storage import Storage, faults

if TYPE_CHECKING:
    from indexlake.lake import Lake

ROUND_BYTES = 512 << 20
"""How many bytes are read from the hot store before any is written, however many tasks run at a time."""

PURGE_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class DumpTask:
    """One chunk of hot rows, and all that is needed to write its blocks."""

    target: Target
    chunk: Chunk

    @property
    def table_id(self) -> int:
        return self.target.table_id

    @property
    def planned_at(self) -> int:
        return self.chunk.at

    @property
    def size(self) -> int:
        return self.chunk.size


@dataclass(frozen=True, slots=True)
class DumpResult:
    """What a dump did."""

    rows: int = 0
    history_rows: int = 0
    blocks: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        superseded = f" and {counted(self.history_rows, 'superseded version')}" if self.history_rows else ""
        return (
            f"{counted(self.rows, 'row')}{superseded} moved to "
            f"{counted(self.blocks, 'block')} of {counted(self.bytes, 'byte')}"
        )

    def with_block(self, block: NewBlock) -> DumpResult:
        moved, history = block.record_count, block.last_end is not None
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
    **watched: Unpack[Watched],
) -> DumpResult:
    """Move all hot rows of a table to blocks, a few chunks at a time; each chunk is a commit of its own."""
    runner = runner or ThreadRunner(lake.storage)
    result = DumpResult()
    with Job(lake, "dump", table_id, **watched) as job:
        purge(lake, table_id, job)
        kinds = [k for k, wanted in ((False, live), (True, history)) if wanted]
        for kind in kinds if lake._hot.keeps_superseded else kinds and [False]:
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
                        result = result.with_block(block)
                # Rows committed meanwhile are left to the next dump, so that this one ends.
                ended = moved == len(tasks) and (not tasks or tasks[-1].chunk.everything)
            purge(lake, table_id, job)  # once, because SQLite drops all rows together in no time
            faults.step("dump.purged")
    return result


def _move(lake: Lake, job: Job, runner: Runner, tasks: list[DumpTask]) -> Iterator[tuple[NewBlock, ...]]:
    """Yield the blocks of each committed task, up to the first whose inputs have changed."""
    if not tasks:
        return
    with lake._pins.pin(tasks[0].planned_at), closing(runner.map(run_task, tasks, job.check)) as results:
        for task, blocks in zip(tasks, results, strict=True):
            faults.step("dump.written")
            if not commit_chunk(lake, job, task, blocks):
                return
            faults.step("dump.committed")
            yield blocks


def plan(lake: Lake, table_id: int, job: Job, *, history: bool, most: int) -> list[DumpTask]:
    """Return tasks for up to ``most`` chunks, each above the previous one."""
    tasks: list[DumpTask] = []
    while len(tasks) < most and not (tasks and tasks[-1].chunk.everything) and sum(t.size for t in tasks) < ROUND_BYTES:
        task = plan_chunk(lake, table_id, job, history=history, above=tasks[-1].chunk if tasks else None)
        if task is None:
            break
        tasks.append(task)
    return tasks


def plan_chunk(
    lake: Lake, table_id: int, job: Job | None = None, *, history: bool, above: Chunk | None = None
) -> DumpTask | None:
    """Read the oldest versions, as of the snapshot of the same read transaction."""
    with lake._readings.open(table_id) as reading:
        state = reading.state
        if state.table.end_snapshot is not None:
            return None
        chunk = reading.hot.chunk(
            state, history=history, above=above, check=job.check if job is not None else lambda: None
        )
    if chunk is None:
        return None
    return DumpTask(Target.of(state, lake._writer_id()), chunk)


def run_task(storage: Storage, task: DumpTask, check: Callable[[], None]) -> tuple[NewBlock, ...]:
    """Write the chunk's files, without the catalog."""

    def batches(part: ChunkPart) -> Iterator[pa.RecordBatch]:
        for batch in part.rows.to_batches(65_536):
            check()
            yield batch

    target, written = task.target, []
    for part in task.chunk.parts:
        if part.history:
            written.append(
                write_block(
                    storage, task.table_id, target.writer_id, part.schema, part.schema_snapshot, target.format,
                    batches(part), (), history=True,
                )
            )  # fmt: skip
            written[-1].last_end = part.last_end
        else:
            written += target.with_schema(part.schema, part.schema_snapshot).write_rows(
                storage, batches(part), lasting=True
            )
    return tuple(written)


def commit_chunk(lake: Lake, job: Job, task: DumpTask, blocks: Sequence[NewBlock]) -> bool:
    """Commit a chunk, cutting its blocks again whenever their partitions have changed in the meantime."""
    while True:
        try:
            return _commit(lake, job, task, blocks)
        except placement.CutNeeded:
            job.check()
            faults.step("dump.cut")
            blocks = placement.cut(lake._readings.latest(task.table_id), lake._files, blocks)


def _commit(lake: Lake, job: Job, task: DumpTask, blocks: Sequence[NewBlock]) -> bool:
    """Commit in one critical section; return False if the chunk's inputs have changed and it must be planned again."""
    table_id = task.table_id
    with Section(lake.catalog, lake._hot) as section:
        clustered = task.target.ranges is not None
        if not require_plan(section, job, table_id, task.planned_at, task.target.writer_id, clustered=clustered):
            return False
        tx, s = section.tx, section.sequencer.next
        if not section.hot.release(tx, table_id, task.chunk, s):
            return False
        placement.place(tx, table_id, blocks)
        touched = section.sequencer.touched_since(table_id, task.planned_at)
        for block in blocks:
            assert block.versions is not None
            begin, end = block.versions[0], block.last_end
            if end is not None:
                add_block(tx, table_id, block, s, begin=begin, end=end, history=True)
                continue
            if section.hot.keeps_superseded:
                block.dead = BitMap.union(BitMap(), *(rows for _, rows in touched_positions(touched, block)))
            file_id = add_block(tx, table_id, block, s, begin=begin)
            if not section.hot.keeps_superseded:
                carry_deletes(tx, table_id, file_id, block, touched, s)
        section.sequencer.record("dump", job=True)
        faults.step("dump.commit")
        section.commit()
    return True


def purge(lake: Lake, table_id: int, job: Job | None = None) -> int:
    """Remove hot versions that blocks hold, in small transactions; return how many."""
    total = 0
    while True:
        if job is not None:
            job.check()
        with Section(lake.catalog, lake._hot) as section:
            table = definitions.read_table(section.tx, table_id)
            gone = section.hot.purge(section.tx, table, PURGE_ROWS) if table is not None else 0
            section.commit()
        total += gone
        if not gone:
            lake._hot.settle()
            return total
