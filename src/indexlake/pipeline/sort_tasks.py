"""Sorting rows across all tasks that have read them, by key or, for a heap table, by row id.

Each task stages sorted runs in a file of its own; the pieces of all runs tell where to cut, and a task for each stretch
reads it out of all files and writes it as a block. So a source is read once, every row is staged once and written to a
block once, and only names, offsets and a sample of keys go through the driver. Staged files are named like all others,
so vacuum finds what a killed job leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import Target
from indexlake.errors import IndexLakeError
from indexlake.partitions.runs import Run, Stretch, read_stretch, stretches, write_runs
from indexlake.partitions.writing import write_sorted
from indexlake.pipeline.loader import IdRange, give_back_ids, reserve_ids
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import FileName

if TYPE_CHECKING:
    from indexlake.pipeline.job import Job
    from indexlake.pipeline.runner import Runner


@dataclass(frozen=True, slots=True)
class StagedRuns:
    """A file of sorted runs."""

    path: str
    checksum: bytes
    runs: tuple[Run, ...]

    def within(self, stretch: Stretch) -> StagedRuns:
        found = (run.within(stretch) for run in self.runs)
        return replace(self, runs=tuple(run for run in found if run.pieces))

    @property
    def rows(self) -> int:
        return sum(piece.rows for run in self.runs for piece in run.pieces)

    @property
    def size(self) -> int:
        return sum(piece.length for run in self.runs for piece in run.pieces)


@dataclass(frozen=True, slots=True)
class SortTask:
    """One stretch, with the parts of staged files that may hold its rows."""

    target: Target
    stretch: Stretch
    files: tuple[StagedRuns, ...]
    number: int
    first_id: int | None  # of the first task; None: the rows have row ids
    is_delta: bool

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def stage(
    storage: Storage, target: Target, batches: Iterable[pa.RecordBatch], check: Callable[[], None] = lambda: None
) -> StagedRuns | None:
    """Sort rows in file format, and stage them; return None if there are none."""
    path = FileName.new(target.table_id, "stage", target.writer_id, "arrow").path
    with storage.create_file(path) as out:
        runs = write_runs(out, target, batches, check)
        if not runs:
            out.abort()
            return None
        out.close()
        return StagedRuns(path, out.checksums.to_bytes(), runs)


def sort_tasks(
    target: Target, cuts: Sequence[Stretch], staged: Sequence[StagedRuns], first_id: int | None, *, is_delta: bool
) -> list[SortTask]:
    found = []
    for number, stretch in enumerate(cuts):
        files = tuple(file for one in staged if (file := one.within(stretch)).runs)
        found.append(SortTask(target, stretch, files, number, first_id, is_delta))
    return found


def run_sort(storage: Storage, task: SortTask, check: Callable[[], None]) -> tuple[NewBlock, ...]:
    """Read a stretch, sort it in memory, and write it."""
    batches: list[pa.RecordBatch] = []
    with ExitStack() as opened:
        for staged in task.files:
            check()
            file = opened.enter_context(storage.open_file(staged.path, Checksums.from_bytes(staged.checksum)))
            batches += read_stretch(file.read_at, staged.runs, task.stretch, task.target)
    take_ids = None if task.first_id is None else IdRange(task.first_id, task.number).take
    blocks = write_sorted(storage, task.target, batches, take_ids, is_delta=task.is_delta) if batches else []
    for block in blocks:
        block.keys = {}  # the segment has them
    return tuple(blocks)


def sorted_blocks(job: Job, runner: Runner, tasks: Sequence[SortTask]) -> Iterator[NewBlock]:
    job.expect(tasks=len(tasks))
    with closing(runner.map(run_sort, tasks, job.check)) as results:
        for task, blocks in zip(tasks, results, strict=True):
            job.add(rows=sum(block.record_count for block in blocks), size=task.size)
            yield from blocks


def sorted_load(job: Job, runner: Runner, target: Target, staged: Sequence[StagedRuns]) -> list[NewBlock]:
    """Write new rows that are staged as blocks that do not overlap, and delete the staged files."""
    try:
        cuts = stretches((run for file in staged for run in file.runs), target)
        first = reserve_ids(job.lake, target.table_id, len(cuts))
        try:
            return list(sorted_blocks(job, runner, sort_tasks(target, cuts, staged, first, is_delta=True)))
        except BaseException:
            give_back_ids(job.lake, target.table_id, first, len(cuts), 0)
            raise
    finally:
        remove(job.lake.storage, staged)


def remove(storage: Storage, staged: Iterable[StagedRuns]) -> None:
    """Delete staged files, which were never part of the lake and are known to their job only."""
    with suppress(IndexLakeError):  # vacuum finds them
        for file in staged:
            storage.delete(file.path)
