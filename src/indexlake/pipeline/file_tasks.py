"""Loading files by tasks: each reads some files, or some row groups of one, and writes blocks of its own.

The code that reads them is the same as for ``insert``, so results are the same; a task that cannot read a file names it
in the error. Rows do not leave the task, but those of a clustered table are sorted across all tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import Target
from indexlake.partitions.writing import without_ids, write_many
from indexlake.pipeline.loader import IdRange, give_back_ids, reserve_ids
from indexlake.pipeline.sort_tasks import StagedRuns, remove, sorted_load, stage
from indexlake.sources.files import Files, SourceFile
from indexlake.sources.rows import gathered
from indexlake.sources.rules import conform
from indexlake.sources.stream import FileStream, checked_files, pieces
from indexlake.storage import Storage

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.pipeline.job import Job
    from indexlake.pipeline.runner import Runner
    from indexlake.snapshots.state import TableState

TASK_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class FileTask:
    files: tuple[SourceFile, ...]
    target: Target
    number: int
    first_id: int  # of the first task

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def _rows(task: FileTask, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    schema = task.target.schema
    for batch in gathered(FileStream(task.files, schema)):
        check()
        yield conform(batch, schema)


def run_task(storage: Storage, task: FileTask, check: Callable[[], None]) -> tuple[NewBlock, ...]:
    blocks = tuple(write_many(storage, task.target, _rows(task, check), IdRange(task.first_id, task.number).take))
    for block in blocks:
        block.keys = {}  # the segment has them
    return blocks


def run_stage(storage: Storage, task: FileTask, check: Callable[[], None]) -> StagedRuns | None:
    """Stage a task's rows for a clustered table, to be sorted together with those of other tasks."""
    return stage(storage, task.target, without_ids(_rows(task, check), task.target.schema))


def write_files(lake: Lake, files: Files, state: TableState, runner: Runner, job: Job) -> list[NewBlock]:
    """Write the rows of the files to blocks that are not part of the lake yet."""
    found = checked_files(files, state.current)
    shares = list(_shares([replace(file, path=os.path.abspath(file.path)) for file in found]))
    target = Target.of(state, lake._writer_id())
    if target.ranges is not None and len(shares) > 1:
        return _sorted_files(shares, target, runner, job)
    table_id = state.table.table_id
    first = reserve_ids(lake, table_id, len(shares))
    tasks = [FileTask(share, target, n, first) for n, share in enumerate(shares)]
    job.expect(tasks=len(tasks))
    blocks: list[NewBlock] = []
    try:
        with closing(runner.map(run_task, tasks, job.check)) as results:
            for task, done in zip(tasks, results, strict=True):
                blocks += done
                job.add(rows=sum(block.record_count for block in done), size=task.size)
    except BaseException:
        give_back_ids(lake, table_id, first, len(shares), 0)
        raise
    return blocks


def _sorted_files(shares: Sequence[tuple[SourceFile, ...]], target: Target, runner: Runner, job: Job) -> list[NewBlock]:
    tasks = [FileTask(share, target, n, 0) for n, share in enumerate(shares)]
    job.expect(tasks=len(tasks))
    staged: list[StagedRuns] = []
    try:
        with closing(runner.map(run_stage, tasks, job.check)) as results:
            for task, done in zip(tasks, results, strict=True):
                staged += [done] if done is not None else []
                job.add(size=task.size)
    except BaseException:
        remove(job.lake.storage, staged)
        raise
    return sorted_load(job, runner, target, staged)


def _shares(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, ...]]:
    """Group small files, and cut large ones into pieces if possible."""
    share: list[SourceFile] = []
    for piece in (piece for file in files for piece in pieces(file, TASK_BYTES)):
        if share and sum(other.size for other in share) + piece.size > TASK_BYTES:
            yield tuple(share)
            share = []
        share.append(piece)
    if share:
        yield tuple(share)
