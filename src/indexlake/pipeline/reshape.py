"""Reshaping a clustered table: merge, fold, split, join, cut and move are one job with different inputs and bounds.

A task reads the live rows of its inputs as of one snapshot and writes them in key order. The commit drops the work if a
partition or an input has ended since, so several jobs can run on one table. If ranges change, blocks added since the
plan are relabelled with the range that holds them; one that straddles a new bound is cut first, at a snapshot of its
own, and the commit is retried. Old ranges end and new ones begin in the same commit. Rows changed or deleted in the
meantime become delete entries of the outputs. Readers and writers never wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.new_block import NewBlock, Placed
from indexlake.blocks.open_files import OpenFiles
from indexlake.blocks.stream import Target
from indexlake.catalog import data_files, partitions, table_heads
from indexlake.commit.effects import swap_blocks
from indexlake.commit.requirements import blocks_live, require_plan
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.indexes.keys import KeyColumn, key_to_bytes
from indexlake.partitions.merging import merged_by_key
from indexlake.partitions.partition import Partition
from indexlake.partitions.ranges import lower_bound
from indexlake.pipeline import partition_policy
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.partition_policy import Beyond, Part, Step
from indexlake.pipeline.rewrite import checked, live_rows
from indexlake.pipeline.runner import Runner
from indexlake.scan.plan import BlockTask, block_task
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage, faults

if TYPE_CHECKING:
    from indexlake.lake import Lake

MOST_ROUNDS = 64
"""The result of one round may be due for another; what remains after this many is left to the next run."""

MOVES_PER_COMMIT = 256

Choose = Callable[[TableState, Beyond], Sequence[Step]]


@dataclass(frozen=True, slots=True)
class ReshapeTask:
    """The live rows of some blocks, and the partitions that they are written for."""

    target: Target
    inputs: tuple[BlockTask, ...]
    numbers: tuple[int, ...]  # of the partitions
    sizes: tuple[int, ...]  # rows of each but the last
    bounds: tuple[bytes, ...]  # or where each but the first begins
    is_delta: bool

    @property
    def size(self) -> int:
        return sum(t.size for t in self.inputs)


@dataclass(frozen=True, slots=True)
class ReshapeResult:
    """What was done to the partitions of a table."""

    merges: int = 0
    folds: int = 0
    splits: int = 0
    joins: int = 0
    moves: int = 0
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        steps = ("merge", self.merges), ("fold", self.folds), ("split", self.splits), ("join", self.joins)
        done = [counted(count, kind) for kind, count in (*steps, ("move", self.moves)) if count]
        wrote = f"{counted(self.rows, 'row')} rewritten, {counted(self.bytes, 'byte')}"
        return f"{', '.join(done)}: {wrote}" if done else "nothing to do"

    @property
    def did_something(self) -> bool:
        return bool(self.merges or self.folds or self.splits or self.joins or self.moves)

    def with_step(self, plan: _Plan) -> ReshapeResult:
        kind, new = plan.step.kind, len(plan.ranges) - len(plan.step.parts)
        blocks = [block for block, _ in plan.outputs]
        return ReshapeResult(
            self.merges + (kind == "merge"),
            self.folds + (kind == "fold"),
            self.splits + max(0, new),
            self.joins + max(0, -new),
            self.moves + (kind == "move"),
            self.rows + sum(b.record_count for b in blocks),
            self.bytes + sum(b.file.size for b in blocks),
        )


@dataclass(slots=True)
class _Plan:
    """A step on its way to its commit."""

    step: Step
    state: TableState
    target: Target
    numbers: list[int]  # of the resulting partitions
    inputs: list[BlockRecord]
    outputs: list[tuple[NewBlock, int]]  # with the snapshot as of which each was written
    ranges: list[partitions.Bounds]  # the ranges that replace the old ones

    @property
    def old(self) -> list[Partition]:
        return [part.partition for part in self.step.parts]


def merge(lake: Lake, table_id: int, runner: Runner, **watched: Unpack[Watched]) -> ReshapeResult:
    """Merge all deltas, due or not."""
    return reshape(lake, table_id, "merge", partition_policy.everything, runner, **watched)


def split(
    lake: Lake, table_id: int, runner: Runner, *, at: bytes | None = None, **watched: Unpack[Watched]
) -> ReshapeResult:
    """Split partitions that are too large, or the one that holds a given key, at that key."""

    def choose(state: TableState, beyond: Beyond) -> Sequence[Step]:
        return partition_policy.splits(state, beyond) if at is None else partition_policy.split_at(state, at)

    return reshape(lake, table_id, "split", choose, runner, **watched)


def keep_shape(lake: Lake, table_id: int, runner: Runner, **watched: Unpack[Watched]) -> ReshapeResult | None:
    """Do what is due; return None if there was nothing."""
    state = lake._readings.latest(table_id)
    if state.ranges is None or not partition_policy.due(state, lambda part: 0):
        return None
    return reshape(lake, table_id, "merge", partition_policy.due, runner, scope="due", **watched)


def reshape(
    lake: Lake, table_id: int, kind: str, choose: Choose, runner: Runner, scope: str = "", **watched: Unpack[Watched]
) -> ReshapeResult:
    """Plan, run and commit until nothing that was chosen remains."""
    result = ReshapeResult()
    with Job(lake, kind, table_id, scope, **watched) as job:
        for _ in range(MOST_ROUNDS):
            job.check()
            state = lake._readings.latest(table_id)
            if state.table.end_snapshot is not None or state.ranges is None:
                break
            steps = choose(state, lambda part, state=state: rows_beyond(lake, state, part))  # type: ignore[misc]
            if not steps:
                break
            faults.step("reshape.planned")
            for plan in _run_and_commit(job, runner, state, steps):
                result = result.with_step(plan)
    return result


def rows_beyond(lake: Lake, state: TableState, part: Part) -> int:
    """Return how many delta rows come after the data, using the primary key's segments if necessary."""
    last = max((b.last_key or b"" for b in part.data), default=b"")
    found = 0
    for delta in part.deltas:
        if (delta.first_key or b"") > last:
            found += delta.record_count
        elif (delta.last_key or b"") > last:
            assert state.primary is not None
            link = state.primary.links.get(delta.data_file_id)
            if link is not None and link.segment.min_key == delta.first_key:  # it covers this block alone
                segment = lake._files.segment(link.segment, state.primary.index.open)
                found += len(segment) - lower_bound(segment.keys(), last)
    return found


def _run_and_commit(job: Job, runner: Runner, state: TableState, steps: Sequence[Step]) -> Iterator[_Plan]:
    """Yield the steps that were committed."""
    if not steps:
        return
    lake = job.lake
    with lake._pins.pin(state.at):
        target = Target.of(state, lake._writer_id())
        plans = [_plan(lake, state, target, step) for step in steps]
        moves = [plan for plan in plans if plan.step.kind == "move"]
        for n in range(0, len(moves), MOVES_PER_COMMIT):
            yield from _move(job, moves[n : n + MOVES_PER_COMMIT])
        for plan in plans:
            if not plan.inputs and plan.step.kind != "move" and _commit(job, plan):
                yield plan
        written = [plan for plan in plans if plan.inputs]
        tasks = [_task(plan) for plan in written]
        job.expect(tasks=len(tasks))
        with closing(runner.map(run_task, tasks, job.check)) as results:
            for plan, task, blocks in zip(written, tasks, results, strict=True):
                faults.step("reshape.written")
                _take(plan, blocks)
                if _commit(job, plan):
                    job.add(rows=sum(b.record_count for b in blocks), size=task.size)
                    yield plan
                faults.step("reshape.committed")


def _plan(lake: Lake, state: TableState, target: Target, step: Step) -> _Plan:
    old = [part.partition for part in step.parts]
    count = 1 + len(step.sizes or step.bounds)
    numbers = [old[0].partition_id]
    if step.changes_ranges:
        with lake.catalog.transaction() as tx:
            numbers = partitions.new_partition_ids(tx, count)
            tx.commit()
    edges = [old[0].begin_key, *step.bounds, old[-1].end_key]
    ranges = [(n, *edge) for n, edge in zip(numbers, pairwise(edges), strict=False)]
    return _Plan(step, state, target, numbers, list(step.inputs), [], ranges)


def _task(plan: _Plan) -> ReshapeTask:
    state, step = plan.state, plan.step
    inputs = tuple(block_task(state, block, state.at) for block in plan.inputs)
    return ReshapeTask(plan.target, inputs, tuple(plan.numbers), step.sizes, step.bounds, step.kind == "fold")


def _take(plan: _Plan, blocks: Sequence[NewBlock]) -> None:
    """Record what a task has written; if it cut by rows, the keys there become the new bounds."""
    plan.outputs = [(block, plan.state.at) for block in blocks]
    if plan.step.sizes:
        places = [block.placed for block in blocks if block.placed is not None]
        edges = [plan.old[0].begin_key, *(p.first_key for p in places[1:]), plan.old[-1].end_key]
        numbers = [p.partition_id for p in places] or plan.numbers[:1]
        plan.ranges = [(n, *edge) for n, edge in zip(numbers, pairwise(edges), strict=True)]


# ---------------------------------------------------------------- the task: files only, no catalog


def run_task(storage: Storage, task: ReshapeTask, check: Callable[[], None]) -> tuple[NewBlock, ...]:
    """Read the inputs' live rows and write them in key order, a block for each partition."""
    files, schema = OpenFiles(storage), task.target.schema
    try:
        streams = [checked(live_rows((block,), files, schema), check) for block in task.inputs]
        rows = _Keyed(merged_by_key(streams, schema))
        written = []
        for n, number in enumerate(task.numbers):
            most = task.sizes[n] if n < len(task.sizes) else None
            before = task.bounds[n] if n < len(task.bounds) else None
            if rows.more(before):
                block = task.target.write_placed(
                    storage, rows.take(most, before), Placed(number, b"", b"", task.is_delta)
                )
                block.keys = {}  # the rows keep their keys: nobody has to look them up
                block.placed = Placed(number, rows.first, rows.last, task.is_delta)
                written.append(block)
        return tuple(written)
    finally:
        files.clear()


class _Keyed:
    """Rows in key order, to be taken by number or up to a bound; remembers the first and last key taken."""

    def __init__(self, batches: Iterator[tuple[pa.RecordBatch, KeyColumn]]) -> None:
        self._batches = batches
        self._rest: tuple[pa.RecordBatch, KeyColumn] | None = None
        self.first = self.last = b""

    def more(self, before: bytes | None = None) -> bool:
        """Return whether there is another row (before a bound)."""
        while self._rest is None or not self._rest[0].num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return False
        return before is None or key_to_bytes(self._rest[1][0]) < before

    def take(self, rows: int | None, before: bytes | None) -> Iterator[pa.RecordBatch]:
        begun = False
        while (rows is None or rows > 0) and self.more(before):
            assert self._rest is not None
            batch, keys = self._rest
            count = batch.num_rows if rows is None else min(rows, batch.num_rows)
            if before is not None:
                count = min(count, lower_bound(keys, before))
            if not begun:
                self.first, begun = key_to_bytes(keys[0]), True
            self.last = key_to_bytes(keys[count - 1])
            self._rest = batch.slice(count), keys.slice(count)
            rows = None if rows is None else rows - count
            yield batch.slice(0, count)


# ---------------------------------------------------------------- the commit


def _move(job: Job, plans: Sequence[_Plan]) -> list[_Plan]:
    """Turn lone deltas into data; return the plans whose deltas were still alone."""
    first = plans[0]
    done: list[_Plan] = []
    with Section(job.lake.catalog, job.lake._hot) as section:
        tx, table_id = section.tx, first.target.table_id
        if not require_plan(section, job, table_id, first.state.at, first.target.writer_id, clustered=True):
            return []
        s = section.sequencer.next
        live = partitions.live_among(tx, [p.partition_id for plan in plans for p in plan.old])
        for plan in plans:
            (part,) = plan.step.parts
            number = part.partition.partition_id
            present = data_files.live_blocks_of(tx, [number])
            if number in live and [b.data_file_id for b in present] == [b.data_file_id for b in part.deltas]:
                data_files.relabel(tx, [(present[0].data_file_id, number)], s, role="data")
                done.append(plan)
        if done:
            table_heads.touch_table(tx, table_id, s)
            section.sequencer.record("move", job=True)
            faults.step("reshape.commit")
            section.commit()
    return done


def _commit(job: Job, plan: _Plan) -> bool:
    """Publish a step, first cutting blocks that were added since its plan and straddle a new bound."""
    with ExitStack() as pins:
        while True:
            late = _publish(job, plan)
            if late is None:
                return False
            if not late:
                return True
            job.check()
            faults.step("reshape.late")
            state = job.lake._readings.latest(plan.target.table_id)
            pins.enter_context(job.lake._pins.pin(state.at))
            _cut_late(job, plan, state, late)


def _cut_late(job: Job, plan: _Plan, state: TableState, late: Sequence[BlockRecord]) -> None:
    """Rewrite blocks that were added meanwhile as deltas of the new ranges, as of a snapshot of their own."""
    target = Target.of(state, plan.target.writer_id)
    bounds = tuple(begin for _, begin, _ in plan.ranges[1:] if begin is not None)
    for block in late:
        known = state.blocks.record(block.data_file_id)
        if known is None or known.end_snapshot is not None:
            continue
        inputs = (block_task(state, known, state.at),)
        task = ReshapeTask(target, inputs, tuple(n for n, _, _ in plan.ranges), (), bounds, is_delta=True)
        written = run_task(job.lake.storage, task, job.check)
        plan.inputs.append(known)
        plan.outputs += [(new, state.at) for new in written]


def _publish(job: Job, plan: _Plan) -> list[BlockRecord] | None:
    """Publish in one critical section.

    None: the work is dropped. Otherwise: the blocks that have to be cut first; none if it is done.
    """
    step, table_id, state = plan.step, plan.target.table_id, plan.state
    with Section(job.lake.catalog, job.lake._hot) as section:
        tx, sequencer = section.tx, section.sequencer
        if not require_plan(section, job, table_id, state.at, plan.target.writer_id, clustered=True):
            return None
        old = [p.partition_id for p in plan.old]
        inputs = [block.data_file_id for block in plan.inputs]
        if len(partitions.live_among(tx, old)) < len(old) or not blocks_live(tx, inputs):
            return None
        s = sequencer.next
        present = [b for b in data_files.live_blocks_of(tx, old) if b.data_file_id not in inputs]
        if step.changes_ranges:
            begins = [begin or b"" for _, begin, _ in plan.ranges]
            labels = [(block, _range_of(block, plan.ranges, begins)) for block in present]
            late = [block for block, number in labels if number is None]
            if late:
                return late
            partitions.end_partitions(tx, old, s)
            partitions.add_partitions(tx, table_id, plan.ranges, s)
            data_files.relabel(tx, [(b.data_file_id, number) for b, number in labels if number is not None], s)
        for planned_at in {at for _, at in plan.outputs}:
            outputs = [block for block, at in plan.outputs if at == planned_at]
            swap_blocks(tx, table_id, (), outputs, sequencer.touched_since(table_id, planned_at), s)
        data_files.end_blocks(tx, inputs, s)
        table_heads.touch_table(tx, table_id, s)
        sequencer.record(step.kind, job=True)
        faults.step("reshape.commit")
        section.commit()
    return []


def _range_of(block: BlockRecord, ranges: Sequence[partitions.Bounds], begins: Sequence[bytes]) -> int | None:
    """Return the new partition that holds all rows of a block."""
    assert block.first_key is not None
    assert block.last_key is not None
    number, _, end = ranges[bisect_right(begins, block.first_key) - 1]
    return number if end is None or block.last_key < end else None
