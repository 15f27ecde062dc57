"""Dump: hot rows become blocks, superseded versions become history blocks.

Oldest versions first, in block-sized chunks.  Files are written outside any catalog transaction; the commit of a
chunk adds its block and advances the floor by compare-and-swap, in constant time.  A version that was superseded
while its chunk was written gets a delete entry at snapshot 0: its inline history stays the authority.  So a dump
is invisible at every snapshot, a double dump is harmless, and a killed one leaves only a file for vacuum.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from indexlake import faults
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.writer import sorted_by_row_id, write_block
from indexlake.catalog import activity, commits, definitions, inline, layout
from indexlake.commit.section import Section, add_block
from indexlake.errors import StorageError
from indexlake.pipeline.job import Job
from indexlake.pipeline.runner import Runner, ThreadRunner
from indexlake.schema import VERSION, TableSchema
from indexlake.storage import Storage

if TYPE_CHECKING:
    from indexlake.lake import Lake

FETCH_ROWS = 20_000
CHUNK_BYTES = 256 << 20
PURGE_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class DumpTask:
    """One chunk: the rows, the floor they lie above, and all that is needed to write their block."""

    table_id: int
    folder: str
    writer_id: str
    schema: TableSchema
    schema_version: int
    primary_index: int | None
    format: str
    history: bool
    planned_at: int
    floor: tuple[int, int]
    new_floor: tuple[int, int]
    rows: pa.Table
    versions: tuple[int, int]  # smallest and largest begin
    last_end: int | None
    everything: bool  # nothing lay above these rows when they were read


@dataclass(frozen=True, slots=True)
class DumpResult:
    """What a dump did."""

    rows: int = 0
    history_rows: int = 0
    blocks: int = 0
    bytes: int = 0

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
) -> DumpResult:
    """Move all hot rows of a table to blocks, a few chunks at a time; each chunk is a commit of its own."""
    runner = runner or ThreadRunner(lake.storage)
    result = DumpResult()
    with Job(lake, "dump", table_id, stop=stop) as job:
        purge(lake, table_id, job)
        for kind in [k for k, wanted in ((False, live), (True, history)) if wanted]:
            ended = False
            while not ended:
                job.check()
                tasks = plan(lake, table_id, job, history=kind, most=runner.width)
                faults.step("dump.planned")
                # What is committed meanwhile is for the next dump: this one comes to an end.
                ended = not tasks or tasks[-1].everything
                for task, block in zip(tasks, runner.map(run_task, tasks, job.check), strict=False):
                    faults.step("dump.written")
                    if not commit_chunk(lake, job, task, block):
                        ended = False  # something moved the floor or the horizon: plan again
                        break
                    faults.step("dump.committed")
                    job.add(rows=block.record_count, size=block.file.size)
                    result = result.with_block(block, history=kind)
                purge(lake, table_id, job)
                faults.step("dump.purged")
    return result


def plan(lake: Lake, table_id: int, job: Job, *, history: bool, most: int) -> list[DumpTask]:
    """Up to ``most`` chunks, each above the one before."""
    tasks: list[DumpTask] = []
    while len(tasks) < most and not (tasks and tasks[-1].everything):
        task = plan_chunk(lake, table_id, job, history=history, above=tasks[-1].new_floor if tasks else None)
        if task is None or (tasks and task.schema_version != tasks[-1].schema_version):
            break
        tasks.append(task)
    return tasks


def plan_chunk(
    lake: Lake, table_id: int, job: Job | None = None, *, history: bool, above: tuple[int, int] | None = None
) -> DumpTask | None:
    """Read the oldest versions above the floor; their snapshot is that of the same read transaction."""
    with lake._reading(table_id) as (r, state, last):
        table, schema = state.table, state.current
        if table.end_snapshot is not None:
            return None
        floor = above or (table.history_floor if history else table.hot_floor)
        size = table.config.block_row_count
        select = inline.oldest_dead if history else inline.oldest_live
        batches: list[pa.RecordBatch] = []
        held = count = 0
        final: tuple[Any, ...] | None = None
        for chunk in _chunks(select(r, table_id, floor, schema.columns, size)):
            if job is not None:
                job.check()
            batches.append(_batch(chunk, schema, history=history))
            held += batches[-1].nbytes
            final = chunk[-1]
            count += len(chunk)
            if held > CHUNK_BYTES:
                count = size  # there may be more
                break
    if final is None:
        return None
    rows = pa.Table.from_batches(batches)
    begins = rows.column(VERSION).to_numpy()
    return DumpTask(
        table_id=table_id,
        folder=table.folder,
        writer_id=lake._writer_id(),
        schema=schema,
        schema_version=table.schema_version,
        primary_index=state.primary_index,
        format=table.config.dump_format,
        history=history,
        planned_at=last,
        floor=floor,
        new_floor=(final[2] if history else final[0], final[1]),
        rows=rows if history else sorted_by_row_id(rows),
        versions=(int(begins.min()), int(begins.max())),
        last_end=final[2],
        everything=count < size,
    )


def _chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(islice(rows, FETCH_ROWS)):
        yield chunk


def _batch(chunk: list[tuple[Any, ...]], schema: TableSchema, *, history: bool) -> pa.RecordBatch:
    begins, row_ids, ends, *columns = zip(*chunk, strict=True)
    arrays = [f.codec.decode(values) for f, values in zip(schema.fields, columns, strict=True)]
    arrays += [pa.array(row_ids, pa.int64()), pa.array(begins, pa.int64())]
    if history:
        arrays.append(pa.array(ends, pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.history_file if history else schema.file)


def run_task(storage: Storage, task: DumpTask, check: Callable[[], None]) -> NewBlock:
    """Write the chunk's file; no catalog here."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in task.rows.to_batches(65_536):
            check()
            yield batch

    return write_block(
        storage, task.folder, task.writer_id, task.schema, task.planned_at, task.format, batches(),
        history=task.history,
    )  # fmt: skip


def commit_chunk(lake: Lake, job: Job, task: DumpTask, block: NewBlock) -> bool:
    """One critical section.  False: the chunk's inputs changed and it must be planned again."""
    with lake.catalog.transaction() as tx:
        section = Section(lake.catalog, tx)
        job.fence(tx)
        if not activity.writer_is_alive(tx, task.writer_id):
            raise StorageError("This process was taken for dead while it wrote files. Nothing was committed.")
        table = definitions.read_table(tx, task.table_id)
        if table is None or table.schema_version != task.schema_version or table.horizon > task.planned_at:
            return False
        s = section.last + 1
        name = "history_floor" if task.history else "hot_floor"
        if not layout.set_floor(tx, task.table_id, name, task.floor, task.new_floor, s):
            return False
        if task.history:
            add_block(tx, task.table_id, None, block, s, begin=task.versions[0], version=task.versions,
                      end=task.last_end, role="history")  # fmt: skip
        else:
            block.dead = _superseded(commits.touched_since(tx, task.table_id, task.planned_at), block)
            add_block(tx, task.table_id, task.primary_index, block, s, begin=task.versions[0], version=task.versions)
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
