"""Clustering: redistribute rows so that blocks cover narrow ranges of some columns and statistics prune well.

Three rounds of tasks: sample the columns, scatter the rows into as many buckets as there will be blocks, gather each
bucket into blocks; then one commit, as for every rewrite. Inside a block, rows are in row-id order, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, Unpack

import numpy as np
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.open_files import OpenFiles
from indexlake.blocks.statistics import stats_from_bytes
from indexlake.errors import IndexLakeError, SchemaError
from indexlake.pipeline.compact import deleted_rows, lasting_format, live_blocks
from indexlake.pipeline.curve import Curve, check_curve, comparable, cuts
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.rewrite import Done, RewriteGroup, RewriteResult, RewriteTask, Rewritten, commit, rewrite
from indexlake.pipeline.runner import Runner
from indexlake.pipeline.scatter import GatherTask, ScatterTask, StagedFile, StagedRun, gather, scatter
from indexlake.scan.execute import read_task
from indexlake.scan.plan import BlockTask
from indexlake.schema import Field
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage, faults
from indexlake.types import selection

if TYPE_CHECKING:
    from indexlake.lake import Lake

MOST_TOGETHER = 256
"""How many blocks' worth of rows are redistributed at a time, which limits the runs that a staged file is cut into."""

SAMPLES = 2_000
"""Rows that are sampled for each block that will be written."""

T = TypeVar("T")


def cluster(
    lake: Lake,
    table_id: int,
    runner: Runner,
    columns: Sequence[str],
    order: str = "sort",
    **watched: Unpack[Watched],
) -> RewriteResult:
    """Rewrite all rows so that rows close to each other in the columns share a block."""
    own: set[str] = set()  # what this run has written is not rewritten again
    known = lake._readings.latest(table_id)
    if known.ranges is not None:
        raise SchemaError(
            f"Table {known.table.full_name!r} is clustered: its rows are sorted by primary key. Leave cluster_by out."
        )

    def choose(state: TableState, snapshot: int) -> list[RewriteGroup]:
        if state.ranges is not None:
            return []  # it was clustered meanwhile
        return _groups_to_cluster(state, snapshot, check_curve(state.current, columns, order)[0], own)

    def run(job: Job, runner: Runner, tasks: Sequence[RewriteTask]) -> Iterator[Done]:
        for task, done in _run_and_commit(job, runner, tasks, columns, order):
            own.update(block.file.path for block in done.blocks)
            job.add(tasks=0, rows=done.rows, size=task.size)
            yield task, done

    return rewrite(lake, table_id, "compact", choose, runner, run, **watched)


def _groups_to_cluster(state: TableState, snapshot: int, leading: Field, own: set[str]) -> list[RewriteGroup]:
    """Return groups of blocks of one format; if there are several groups, blocks close in the first column share
    one."""
    by_format: dict[str, list[BlockRecord]] = {}
    for block in live_blocks(state, snapshot):
        if block.path not in own:
            by_format.setdefault(lasting_format(state, block), []).append(block)
    most = MOST_TOGETHER * state.table.config.block_row_count
    found: list[RewriteGroup] = []
    for format, blocks in by_format.items():
        ordered = sorted(blocks, key=lambda block: _smallest(block, leading))
        for group in _packed(ordered, lambda b: b.record_count, most):
            if len(group) > 1 or deleted_rows(state, group[0], snapshot) or group[0].format != format:
                found.append((group, format))
    return found


def _smallest(block: BlockRecord, field: Field) -> tuple[bool, int | bytes]:
    known = stats_from_bytes(block.column_stats).get(field.column)
    return (True, known.min) if known is not None and known.min is not None else (False, 0)


def _packed(items: Sequence[T], rows: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Group consecutive items with up to ``most`` rows together; a larger item is alone."""
    group: list[T] = []
    held = 0
    for item in items:
        if group and held + rows(item) > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += rows(item)
    if group:
        yield group


def _run_and_commit(
    job: Job, runner: Runner, tasks: Sequence[RewriteTask], columns: Sequence[str], order: str
) -> Iterator[Done]:
    """Yield the groups whose rows were redistributed."""
    if not tasks:
        return
    with job.lake._pins.pin(tasks[0].planned_at):
        for task in tasks:
            staged: list[StagedFile] = []
            try:
                done = _redistribute(job, runner, task, check_curve(task.target.schema, columns, order), order, staged)
                faults.step("rewrite.written")
                yield from commit(job, [(task, done)])
                faults.step("rewrite.committed")
            finally:
                _remove(job.lake.storage, staged)


def _redistribute(
    job: Job, runner: Runner, task: RewriteTask, fields: tuple[Field, ...], order: str, staged: list[StagedFile]
) -> Rewritten:
    full = task.target.block_row_count
    parts = list(_packed(task.inputs, lambda t: t.record_count, full))
    share = min(1.0, SAMPLES / full)
    samples = list(_run(job, runner, sample, [SampleTask(tuple(part), fields, share) for part in parts]))
    columns = [pa.concat_arrays([s.columns[n] for s in samples]) for n in range(len(fields))]
    curve = Curve.through(fields, order, columns)
    buckets = max(1, round(sum(s.rows for s in samples) / full))
    cut = cuts(curve.codes(columns), buckets)
    scattered = [ScatterTask(task.target, tuple(p), curve, cut) for p in parts]
    for file in _run(job, runner, scatter, scattered):
        staged.append(file)
    gathered = list(_run(job, runner, gather, _gather_tasks(task, staged)))
    return Rewritten(tuple(block for one in gathered for block in one.blocks))


def _run(job: Job, runner: Runner, run: Callable[..., T], tasks: Sequence[object]) -> Iterator[T]:
    job.expect(tasks=len(tasks))
    with closing(runner.map(run, tasks, job.check)) as results:
        for result in results:
            job.add()
            yield result


def _gather_tasks(task: RewriteTask, staged: Sequence[StagedFile]) -> list[GatherTask]:
    by_bucket: dict[int, list[StagedFile]] = {}
    for file in staged:
        runs: dict[int, list[StagedRun]] = {}
        for run in file.runs:
            runs.setdefault(run.bucket, []).append(run)
        for bucket, found in runs.items():
            by_bucket.setdefault(bucket, []).append(replace(file, runs=tuple(found)))
    return [GatherTask(task.target, tuple(by_bucket[bucket])) for bucket in sorted(by_bucket)]


def _remove(storage: Storage, staged: Sequence[StagedFile]) -> None:
    """Delete staged files, which were never part of the lake and are known to this job only."""
    with suppress(IndexLakeError):  # vacuum finds them
        for file in staged:
            storage.delete(file.path)


# ---------------------------------------------------------------- sampling


@dataclass(frozen=True, slots=True)
class SampleTask:
    """A pseudo-random sample of the rows of some blocks, the same each time."""

    inputs: tuple[BlockTask, ...]
    fields: tuple[Field, ...]
    share: float

    @property
    def size(self) -> int:
        return sum(t.size for t in self.inputs)


@dataclass(frozen=True, slots=True)
class Sample:
    rows: int  # the number of all rows
    columns: tuple[pa.Array, ...]  # comparable values of the sampled rows


def sample(storage: Storage, task: SampleTask, check: Callable[[], None]) -> Sample:
    files = OpenFiles(storage)
    rows = 0
    chosen: list[list[pa.Array]] = [[comparable(f, pa.nulls(0, f.type))] for f in task.fields]
    try:
        for block in task.inputs:
            chance = np.random.default_rng(block.file_id)
            for batch in read_task(block, files, task.fields, None, row_id=False):
                check()
                rows += batch.num_rows
                some = pa.array(np.flatnonzero(chance.random(batch.num_rows) < task.share))
                for n, field in enumerate(task.fields):
                    chosen[n].append(comparable(field, selection.take(batch.column(field.name), some)))
    finally:
        files.clear()
    return Sample(rows, tuple(pa.concat_arrays(values) for values in chosen))
