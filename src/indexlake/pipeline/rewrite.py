"""Rewrites: live rows of some blocks become new blocks; compact, freeze and thaw differ only in what they choose.

A task reads its inputs as of one snapshot and writes them in row-id order, with a batch of each input in memory. A
block of a clustered table is rewritten by itself, in its own order, and stays in its partition. The commit swaps inputs
for outputs: readers at earlier snapshots keep the inputs until the horizon. A task whose inputs are no longer live at
the commit is dropped and planned again; rows changed or deleted in the meantime become delete entries of the outputs,
found from the row ids in the results without reading a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pyarrow as pa

from indexlake.blocks.new_block import NewBlock, Placed
from indexlake.blocks.open_files import OpenFiles
from indexlake.blocks.stream import RowStream, Target
from indexlake.catalog import data_files
from indexlake.commit.effects import swap_blocks
from indexlake.commit.requirements import blocks_live, require_plan
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.indexes.keys import key_to_bytes
from indexlake.partitions.ranges import key_column
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.runner import Runner
from indexlake.scan.execute import read_task
from indexlake.scan.plan import BlockTask, block_task
from indexlake.schema import ROW_ID, TableSchema
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage, faults
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.catalog.driver import Transaction
    from indexlake.lake import Lake

TASKS_PER_COMMIT = 32
"""A few tasks share a commit: it stays short, and a job that is killed has kept most of its work."""

MOST_ROUNDS = 8
"""How often tasks whose inputs changed are planned again; what then remains is left to the next run."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The live rows of some blocks, and everything needed to rewrite them."""

    table_id: int
    target: Target
    planned_at: int
    inputs: tuple[BlockTask, ...]  # by smallest row id
    bounds: tuple[tuple[int, int], ...]  # smallest and largest row id of each input
    placed: Placed | None = None  # where the one input of a clustered table belongs

    @property
    def rows(self) -> int:
        return sum(t.record_count for t in self.inputs)

    @property
    def size(self) -> int:
        return sum(t.size for t in self.inputs)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The blocks that a task has written."""

    blocks: tuple[NewBlock, ...]

    @property
    def rows(self) -> int:
        return sum(b.record_count for b in self.blocks)


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a rewrite did."""

    blocks_before: int = 0
    blocks_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __str__(self) -> str:
        return (
            f"{counted(self.blocks_before, 'block')} of {counted(self.bytes_before, 'byte')} became "
            f"{self.blocks_after:,} of {counted(self.bytes_after, 'byte')} with {counted(self.rows, 'row')}"
        )

    def with_task(self, task: RewriteTask, done: Rewritten) -> RewriteResult:
        return RewriteResult(
            self.blocks_before + len(task.inputs),
            self.blocks_after + len(done.blocks),
            self.rows + done.rows,
            self.bytes_before + task.size,
            self.bytes_after + sum(b.file.size for b in done.blocks),
        )


RewriteGroup = tuple[Sequence["BlockRecord"], str]
"""Blocks to be rewritten together, and the format of the result."""

Choose = Callable[[TableState, int], Sequence[RewriteGroup]]
Done = tuple[RewriteTask, Rewritten]


def _run_and_commit(job: Job, runner: Runner, tasks: Sequence[RewriteTask]) -> Iterator[Done]:
    """Run the tasks and commit them in groups; yield the tasks whose outputs replaced their inputs."""
    job.expect(tasks=len(tasks))
    if not tasks:
        return
    with job.lake._pins.pin(tasks[0].planned_at), closing(runner.map(run_task, tasks, job.check)) as results:
        pairs = zip(tasks, results, strict=True)
        while group := list(islice(pairs, TASKS_PER_COMMIT)):
            faults.step("rewrite.written")
            for task, done in commit(job, group):
                job.add(rows=done.rows, size=task.size)
                yield task, done
            faults.step("rewrite.committed")


def rewrite(
    lake: Lake,
    table_id: int,
    kind: str,
    choose: Choose,
    runner: Runner,
    run: Callable[[Job, Runner, Sequence[RewriteTask]], Iterator[Done]] = _run_and_commit,
    **watched: Unpack[Watched],
) -> RewriteResult:
    """Plan, run and commit until nothing that was chosen remains."""
    result = RewriteResult()
    with Job(lake, kind, table_id, **watched) as job:
        for _ in range(MOST_ROUNDS):
            job.check()
            tasks = plan(lake, table_id, choose)
            faults.step("rewrite.planned")
            kept = 0
            for task, done in run(job, runner, tasks):
                kept += 1
                result = result.with_task(task, done)
            if kept == len(tasks):
                break
    return result


def plan(lake: Lake, table_id: int, choose: Choose) -> list[RewriteTask]:
    """Return the tasks, as of the read transaction that chose their inputs."""
    state = lake._readings.latest(table_id)
    if state.table.end_snapshot is not None:
        return []
    tasks = []
    for blocks, format in choose(state, state.at):
        ordered = sorted(blocks, key=lambda b: (b.min_row_id, b.data_file_id))
        inputs = tuple(block_task(state, b, state.at) for b in ordered)
        bounds = tuple((b.min_row_id, b.max_row_id) for b in ordered)
        target = Target.of(state, lake._writer_id(), format)
        tasks.append(RewriteTask(table_id, target, state.at, inputs, bounds, _place(ordered)))
    return tasks


def _place(blocks: Sequence[BlockRecord]) -> Placed | None:
    block = blocks[0]
    if block.partition_id is None:
        return None
    assert len(blocks) == 1, "blocks of clustered tables are rewritten one by one"
    assert block.first_key is not None
    assert block.last_key is not None
    return Placed(block.partition_id, block.first_key, block.last_key, block.role == "delta")


# ---------------------------------------------------------------- the task: files only, no catalog


def run_task(storage: Storage, task: RewriteTask, check: Callable[[], None]) -> Rewritten:
    """Read the inputs' live rows and write them as full blocks, in row-id order."""
    files = OpenFiles(storage)
    inputs = [
        (low, partial(live_rows, (block,), files, task.target.schema))
        for block, (low, _) in zip(task.inputs, task.bounds, strict=True)
    ]
    try:
        if task.placed is not None:
            return _write_placed(storage, task, checked(inputs[0][1](), check))
        return write_rows(storage, task.target, in_row_id_order(inputs), task.target.block_row_count, check)
    finally:
        files.clear()


def _write_placed(storage: Storage, task: RewriteTask, batches: Iterator[pa.RecordBatch]) -> Rewritten:
    """Write one block, whose bounds are those of the rows that are left."""
    rows = RowStream(batches)
    if task.placed is None or not rows.more():
        return Rewritten(())
    firsts: list[bytes] = []
    last = b""

    def noted() -> Iterator[pa.RecordBatch]:
        nonlocal last
        for batch in rows.rest():
            if batch.num_rows:
                keys = key_column(batch, task.target.schema)
                firsts.append(key_to_bytes(keys[0]))
                last = key_to_bytes(keys[len(keys) - 1])
            yield batch

    block = task.target.write_placed(storage, noted(), task.placed)
    block.placed = replace(task.placed, first_key=firsts[0], last_key=last)
    block.keys = {}  # the rows keep their keys: nobody has to look them up
    return Rewritten((block,))


def write_rows(
    storage: Storage, target: Target, batches: Iterator[pa.RecordBatch], block_rows: int, check: Callable[[], None]
) -> Rewritten:
    """Write a stream of rows as blocks of ``block_rows`` rows."""
    rows = RowStream(checked(batches, check))
    written: list[NewBlock] = []
    while rows.more():
        block = target.write(storage, rows.take(block_rows), lasting=True)
        block.keys = {}  # the rows keep their keys: nobody has to look them up
        written.append(block)
    return Rewritten(tuple(written))


def checked(batches: Iterable[pa.RecordBatch], check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, calling ``check`` before each, so that the job can be stopped."""
    for batch in batches:
        check()
        yield batch


def in_row_id_order(
    inputs: Iterable[tuple[int, Callable[[], Iterator[pa.RecordBatch]]]],
) -> Iterator[pa.RecordBatch]:
    """Merge the rows of several inputs, each in row-id order, into one stream.

    Each input comes with a lower bound of its row ids, and is opened when the others have reached that.
    """
    waiting = sorted(inputs, key=lambda one: one[0], reverse=True)
    heads: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []

    def advance(stream: Iterator[pa.RecordBatch]) -> None:
        head = next(stream, None)
        if head is not None:
            heads.append((head, stream))

    while heads or waiting:
        limit = min((_last_id(head) for head, _ in heads), default=None)
        while waiting and (limit is None or waiting[-1][0] <= limit):
            advance(waiting.pop()[1]())
            limit = min((_last_id(head) for head, _ in heads), default=None)
        if limit is None:
            continue
        parts, open_heads = [], heads
        heads = []
        for head, stream in open_heads:
            ids = head.column(ROW_ID).to_numpy()
            count = int(np.searchsorted(ids, limit, "right"))
            if count:
                parts.append(head.slice(0, count))
            if count < len(ids):
                heads.append((head.slice(count), stream))
            else:
                advance(stream)
        yield from _sorted(parts)


def _last_id(batch: pa.RecordBatch) -> int:
    return int(batch.column(ROW_ID)[-1].as_py())


def _sorted(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(parts) == 1:
        return parts
    ids = np.concatenate([part.column(ROW_ID).to_numpy() for part in parts])
    return gather(parts, pa.array(np.argsort(ids, kind="stable")), parts[0].schema)


def live_rows(blocks: Iterable[BlockTask], files: OpenFiles, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of the blocks with the current columns, in the format of files."""
    for block in blocks:
        for batch in read_task(block, files, schema.fields, None, row_id=True, version=True):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema.file)


# ---------------------------------------------------------------- the commit


def commit(job: Job, group: Sequence[Done]) -> list[Done]:
    """Swap inputs for outputs in one critical section; return the tasks whose inputs were still live."""
    first = group[0][0]
    done: list[Done] = []
    with Section(job.lake.catalog, job.lake._hot) as section:
        clustered = first.target.ranges is not None
        if not require_plan(
            section, job, first.table_id, first.planned_at, first.target.writer_id, clustered=clustered
        ):
            return []
        tx, s = section.tx, section.sequencer.next
        touched = section.sequencer.touched_since(first.table_id, first.planned_at)
        for task, rewritten in group:
            inputs = [t.file_id for t in task.inputs]
            if blocks_live(tx, inputs):
                _follow_labels(tx, inputs, rewritten.blocks)
                swap_blocks(tx, task.table_id, inputs, rewritten.blocks, touched, s)
                done.append((task, rewritten))
        if done:
            section.sequencer.record(job.kind, job=True)
            faults.step("rewrite.commit")
            section.commit()
    return done


def _follow_labels(tx: Transaction, inputs: Sequence[int], outputs: Iterable[NewBlock]) -> None:
    """Update the partitions of new blocks from their inputs, which may have got another one since the plan."""
    for block in outputs:
        if block.placed is not None:
            block.placed = replace(block.placed, partition_id=data_files.label(tx, inputs[0]))
