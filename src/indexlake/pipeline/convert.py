"""Convert a heap table to a clustered one, or back, while others read and write it.

All blocks are rewritten in the other layout, in rounds: first the existing ones, then those added in the meantime,
until none is left. One commit then ends the old blocks, begins the new ones with their partitions, and changes the
layout; rows that were changed or deleted since their round was planned become delete entries of the new blocks. Until
then nothing changes, whatever happens to the job; earlier snapshots read the old blocks for as long as they are kept.

Other jobs that rewrite blocks wait for it. If one of them has ended a block all the same, everything starts over. If
others keep adding blocks, the last rounds take a turn: whatever adds blocks waits until they are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Unpack

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.open_files import OpenFiles
from indexlake.blocks.stream import BLOCK_BYTES, Target
from indexlake.catalog import activity, data_files, definitions, fields, partitions, table_heads
from indexlake.commit.effects import swap_blocks
from indexlake.commit.requirements import require_plan
from indexlake.commit.section import Section
from indexlake.commit.turns import slot_of
from indexlake.display.progress import ProgressBar
from indexlake.errors import NotFoundError, SchemaError
from indexlake.partitions.partition import Partition
from indexlake.partitions.ranges import Ranges
from indexlake.partitions.runs import Stretch, stretches
from indexlake.pipeline.job import Job, JobBusy, Watched
from indexlake.pipeline.meta import publish_meta
from indexlake.pipeline.rewrite import RewriteResult, live_rows
from indexlake.pipeline.runner import Runner, choose_runner
from indexlake.pipeline.sort_tasks import StagedRuns, remove, sort_tasks, sorted_blocks, stage
from indexlake.scan.plan import BlockTask, block_task
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage, faults

if TYPE_CHECKING:
    from indexlake.lake import Lake

TASK_BYTES = 128 << 20

OTHERS = (("compact", ""), ("freeze", ""), ("thaw", ""), ("merge", ""), ("merge", "due"), ("split", ""))
"""Kind and scope of the jobs that end blocks."""

FREE_ROUNDS = 3
"""If blocks were added during this many rounds, anything that adds more waits during the next ones."""

WAIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StageTask:
    """Stages the live rows of some blocks."""

    target: Target
    inputs: tuple[BlockTask, ...]

    @property
    def size(self) -> int:
        return sum(t.size for t in self.inputs)


@dataclass(slots=True)
class _Conversion:
    """What was written in the new layout so far."""

    state: TableState  # as it was at the start
    target: Target
    rounds: list[tuple[int, list[BlockRecord], list[NewBlock]]] = field(default_factory=list)
    """For each round: the snapshot it was planned at, the blocks it read and those it wrote."""

    @property
    def done(self) -> set[int]:
        return {block.data_file_id for _, inputs, _ in self.rounds for block in inputs}


def cluster_table(lake: Lake, name: str, layout: str, *, progress: bool | None) -> RewriteResult:
    lake._check(writing=True)
    definitions.check_layout(layout)
    table = lake.table(name)
    if layout == "clustered" and not lake._readings.latest(table._table_id).current.primary_key:
        raise SchemaError(
            f"Table {table.name!r} has no primary key, and a clustered table is sorted by it. Create a "
            "table with primary_key=… and insert the rows there."
        )
    bar = ProgressBar(f"cluster {table.name}", progress)
    result = convert(lake, table._table_id, layout, choose_runner(lake.storage), bar=bar)
    publish_meta(lake, table._table_id)
    return result


def convert(lake: Lake, table_id: int, layout: str, runner: Runner, **watched: Unpack[Watched]) -> RewriteResult:
    """Give a table the other layout; do nothing if it has that already."""
    with Job(lake, "cluster", table_id, **watched) as job, _excluding_others(job):
        while True:
            job.check()
            state = lake._readings.latest(table_id)
            if state.table.end_snapshot is not None:
                raise NotFoundError(f"Table {state.table.full_name!r} was dropped.", name=state.table.full_name)
            if state.table.layout == layout:
                return RewriteResult()
            with lake._pins.pin(state.at):
                result = _converted(job, runner, state)
            if result is not None:
                return result


@contextmanager
def _excluding_others(job: Job) -> Iterator[None]:
    """Keep other jobs from ending blocks of the table inside the ``with`` block."""
    with ExitStack() as held:
        for kind, scope in OTHERS:
            _hold_lease(held, job, kind, scope)
        yield


def _hold_lease(held: ExitStack, job: Job, kind: str, scope: str) -> None:
    """Wait until nobody runs a job on the table, and prevent others from starting it."""
    while True:
        try:
            other = Job(job.lake, kind, job.table_id, scope).__enter__()
            held.callback(other.__exit__, None, None, None)  # whatever happens to this job, that one did not fail
            return
        except JobBusy:
            job.check()
            time.sleep(WAIT_SECONDS)


def _without_new_blocks(held: ExitStack, job: Job) -> None:
    """Make anything that wants to add a block to the table wait for this job's turn from here on."""
    turns = job.lake._turns
    if turns.mine is None:
        turn = turns.catalog.turn(slot_of(job.table_id))
        while not turn.acquire(WAIT_SECONDS):
            job.check()
        held.callback(turn.release)
    _hold_lease(held, job, "dump", "")
    _hold_lease(held, job, *activity.LAST_ROUNDS)


def _converted(job: Job, runner: Runner, state: TableState) -> RewriteResult | None:
    """Rewrite and commit the table; return None if a block that was read has ended meanwhile."""
    work = _Conversion(state, _target(job.lake, state))
    with ExitStack() as held:
        while True:
            state = job.lake._readings.latest(work.target.table_id)
            done = work.done
            blocks = [b for b in state.blocks.records if is_live(b) and b.data_file_id not in done]
            if blocks or not work.rounds:
                _round(job, runner, work, state, blocks)
                faults.step("convert.round")
            found = _commit(job, work)
            if found is not None:
                return _result(work) if found else None
            job.check()
            if len(work.rounds) == FREE_ROUNDS:
                _without_new_blocks(held, job)


def is_live(block: BlockRecord) -> bool:
    return block.end_snapshot is None and block.role != "history"


def _target(lake: Lake, state: TableState) -> Target:
    """Return the target for blocks of the layout that the table does not have yet."""
    target, config = Target.of(state, lake._writer_id()), state.table.config
    if state.ranges is not None:
        return replace(
            target, format=config.dump_format, block_row_count=config.block_row_count, block_bytes=BLOCK_BYTES,
            ranges=None,
        )  # fmt: skip
    whole = Partition(0, target.table_id, None, None, state.at, None, state.at)
    return replace(
        target, format="ipc", block_row_count=config.partition_row_count, block_bytes=config.partition_bytes,
        ranges=Ranges([whole]),
    )  # fmt: skip


def _round(job: Job, runner: Runner, work: _Conversion, state: TableState, blocks: Sequence[BlockRecord]) -> None:
    """Rewrite some blocks, as of the state's snapshot."""
    # With the current columns, and segments for the current indexes.
    work.target = replace(
        work.target.with_schema(state.current, state.table.schema_version),
        indexes=state.live_indexes, planned_at=state.at,
    )  # fmt: skip
    staged: list[StagedRuns] = []
    try:
        tasks = list(_stage_tasks(work.target, state, blocks))
        job.expect(tasks=len(tasks))
        with closing(runner.map(run_stage, tasks, job.check)) as results:
            for task, found in zip(tasks, results, strict=True):
                staged += [found] if found is not None else []
                job.add(size=task.size)
        cuts = stretches((run for file in staged for run in file.runs), work.target)
        first = not work.rounds
        if first and work.target.ranges is not None:
            work.target = replace(work.target, ranges=_new_ranges(job.lake, state, cuts))
        written = list(sorted_blocks(job, runner, sort_tasks(work.target, cuts, staged, None, is_delta=not first)))
    finally:
        remove(job.lake.storage, staged)
    work.rounds.append((state.at, list(blocks), written))


def _new_ranges(lake: Lake, state: TableState, cuts: Sequence[Stretch]) -> Ranges:
    """Return a partition for each stretch; the commit adds their records."""
    with lake.catalog.transaction() as tx:
        numbers = partitions.new_partition_ids(tx, len(cuts))
        tx.commit()
    table_id, at = state.table.table_id, state.at
    return Ranges(Partition(n, table_id, c.low, c.high, at, None, at) for n, c in zip(numbers, cuts, strict=True))


def _stage_tasks(target: Target, state: TableState, blocks: Sequence[BlockRecord]) -> Iterator[StageTask]:
    share: list[BlockTask] = []
    for block in blocks:
        share.append(block_task(state, block, state.at))
        if sum(task.size for task in share) > TASK_BYTES:
            yield StageTask(target, tuple(share))
            share = []
    if share:
        yield StageTask(target, tuple(share))


def run_stage(storage: Storage, task: StageTask, check: Callable[[], None]) -> StagedRuns | None:
    files = OpenFiles(storage)
    try:
        return stage(storage, task.target, live_rows(task.inputs, files, task.target.schema), check)
    finally:
        files.clear()


# ---------------------------------------------------------------- the commit


def _commit(job: Job, work: _Conversion) -> bool | None:
    """Commit the conversion in one critical section.

    None: blocks were added meanwhile. False: a block has ended, or the key has changed.
    """
    target, old = work.target, work.state.table
    table_id, to_clustered = old.table_id, target.ranges is not None
    with Section(job.lake.catalog, job.lake._hot) as section:
        planned_at = work.rounds[0][0]
        if not require_plan(section, job, table_id, planned_at, target.writer_id, clustered=not to_clustered):
            return False
        tx, s = section.tx, section.sequencer.next
        live, done = data_files.live_ids(tx, table_id), work.done
        if not done <= live:
            return False
        table = definitions.read_table(tx, table_id)
        assert table is not None
        keys = fields.read_schema(tx, table).current.key_fields
        if to_clustered and [f.field_id for f in keys] != [f.field_id for f in work.state.current.key_fields]:
            return False
        if live - done:
            return None
        table_heads.count_bytes_anew(tx, table_id)
        for planned_at, inputs, outputs in work.rounds:
            touched = section.sequencer.touched_since(table_id, planned_at)
            swap_blocks(tx, table_id, [b.data_file_id for b in inputs], outputs, touched, s, given=True)
        if target.ranges is not None:
            bounds = [(p.partition_id, p.begin_key, p.end_key) for p in target.ranges.live]
            partitions.add_partitions(tx, table_id, bounds, s)
        else:
            ended = [p.partition_id for p in partitions.live_partitions(tx, table_id)]
            partitions.end_partitions(tx, ended, s)
        definitions.set_layout(tx, table_id, "clustered" if to_clustered else "heap", s)
        section.sequencer.record("cluster", job=True)
        faults.step("convert.commit")
        section.commit()
    return True


def _result(work: _Conversion) -> RewriteResult:
    inputs = [block for _, blocks, _ in work.rounds for block in blocks]
    outputs = [block for _, _, blocks in work.rounds for block in blocks]
    return RewriteResult(
        len(inputs), len(outputs), sum(b.record_count for b in outputs), sum(b.size for b in inputs),
        sum(b.file.size for b in outputs),
    )  # fmt: skip
