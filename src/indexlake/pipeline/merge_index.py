"""Folding index segments: several of one size become one, so that look-ups have fewer to search.

Folding is tiered: segments of one size class are folded when there are ``FOLD`` of them, so that a thousand equal ones
leave about twenty and each entry is written a few times. The commit moves the link of each block that still points to
an input; a block that was folded or compacted in the meantime keeps its link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from indexlake.catalog import segments, table_heads
from indexlake.commit.requirements import require_plan
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.indexes.builder import write_content
from indexlake.indexes.kind import SegmentFile
from indexlake.indexes.registry import kind_named
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.runner import Runner, ThreadRunner
from indexlake.storage import Storage, faults
from indexlake.storage.spill import spilling

if TYPE_CHECKING:
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.index import Index
    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState

KIND = "merge_index"

FOLD = 8
"""How many segments of one size class become one."""

SMALLEST_ROWS = 4_096
"""All segments with fewer rows are of one class."""


@dataclass(frozen=True, slots=True)
class FoldInput:
    """A segment, with the live blocks that it answers for: data file id, ordinal and rows of each."""

    segment_id: int
    segment: SegmentFile
    blocks: tuple[tuple[int, int, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, _, rows in self.blocks)


@dataclass(frozen=True, slots=True)
class FoldTask:
    table_id: int
    writer_id: str
    planned_at: int
    index: Index
    types: tuple[str, ...]
    inputs: tuple[FoldInput, ...]

    @property
    def size(self) -> int:
        return sum(each.segment.size for each in self.inputs)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.inputs)


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What a fold did."""

    segments_before: int = 0
    segments_after: int = 0
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{counted(self.segments_before, 'segment')} became {self.segments_after:,} of "
            f"{counted(self.bytes, 'byte')} with {counted(self.rows, 'row')}"
        )


def merge_index(
    lake: Lake, table_id: int, index_id: int, runner: Runner | None = None, **watched: Unpack[Watched]
) -> FoldResult:
    """Fold until no size class has enough segments left."""
    runner = runner or ThreadRunner(lake.storage)
    result = FoldResult()
    with Job(lake, KIND, table_id, str(index_id), **watched) as job:
        while True:
            job.check()
            tasks = plan(lake, table_id, index_id)
            faults.step("merge_index.planned")
            done = 0
            for task, segment in _run_and_commit(lake, job, runner, tasks):
                done += 1
                result = FoldResult(
                    result.segments_before + len(task.inputs), result.segments_after + 1, result.rows + task.rows,
                    result.bytes + segment.size,
                )  # fmt: skip
            if not done:
                return result


def plan(lake: Lake, table_id: int, index_id: int) -> list[FoldTask]:
    state = lake._readings.latest(table_id)
    coverage = state.indexes.get(index_id)
    if state.table.end_snapshot is not None or coverage is None or coverage.index.end_snapshot is not None:
        return []
    groups = due_folds(state, coverage)
    writer = lake._writer_id() if groups else ""
    index = coverage.index
    types = index.key_types(state.current)
    return [FoldTask(table_id, writer, state.at, index, types, tuple(group)) for group in groups]


def due_folds(state: TableState, coverage: Coverage) -> list[list[FoldInput]]:
    """Return groups of segments of one size whose fold is no larger than its kind allows."""
    most = kind_named(coverage.index.kind).most_rows
    classes: dict[int, list[FoldInput]] = {}
    if coverage.index.fits(state.current):
        for each in _inputs(state, coverage):
            if each.rows * 2 <= most:
                number = int(math.log(max(1, each.rows / SMALLEST_ROWS), FOLD)) if each.rows > SMALLEST_ROWS else 0
                classes.setdefault(number, []).append(each)
    found: list[list[FoldInput]] = []
    for members in classes.values():
        while len(members) >= FOLD:
            group = [members.pop(0)]
            while len(group) < FOLD and sum(each.rows for each in group) + members[0].rows <= most:
                group.append(members.pop(0))
            if len(group) > 1:
                found.append(group)
    return found


def _inputs(state: TableState, coverage: Coverage) -> Iterator[FoldInput]:
    ids = {link.segment.path: link.index_file_id for link in coverage.links.values()}
    for group in coverage.groups(state, state.at):
        blocks = tuple((block.data_file_id, ordinal, block.record_count) for block, ordinal in group.blocks)
        yield FoldInput(ids[group.segment.path], group.segment, blocks)


@spilling
def run_task(storage: Storage, task: FoldTask, check: Callable[[], None]) -> SegmentFile:
    """Read the segments and write one, without the catalog."""
    check()
    inputs = [
        (task.index.open(storage, each.segment), [ordinal for _, ordinal, _ in each.blocks]) for each in task.inputs
    ]
    starts = [0]
    for each in task.inputs:
        for _, _, rows in each.blocks:
            starts.append(starts[-1] + rows)
    content = kind_named(task.index.kind).merge(task.index, inputs)
    return write_content(storage, task.index, task.types, content, task.table_id, task.writer_id, starts)


def _run_and_commit(
    lake: Lake, job: Job, runner: Runner, tasks: Sequence[FoldTask]
) -> Iterator[tuple[FoldTask, SegmentFile]]:
    job.expect(tasks=len(tasks))
    if not tasks:
        return
    with lake._pins.pin(tasks[0].planned_at), closing(runner.map(run_task, tasks, job.check)) as results:
        for task, segment in zip(tasks, results, strict=True):
            faults.step("merge_index.written")
            moved = commit(lake, job, task, segment)
            faults.step("merge_index.committed")
            job.add(rows=task.rows, size=segment.size)
            if moved:
                yield task, segment


def commit(lake: Lake, job: Job, task: FoldTask, segment: SegmentFile) -> bool:
    """Move the links that still point to an input; return False if there are none."""
    with Section(lake.catalog, lake._hot) as section:
        if not require_plan(section, job, task.table_id, task.planned_at, task.writer_id):
            return False
        tx, s, index_id = section.tx, section.sequencer.next, task.index.index_id
        if index_id not in segments.live_index_ids(tx, task.table_id):
            return False
        planned = [(file_id, each.segment_id) for each in task.inputs for file_id, _, _ in each.blocks]
        live = segments.live_links(tx, index_id, [file_id for file_id, _ in planned])
        moved = {file_id for file_id, segment_id in planned if live.get(file_id) == segment_id}
        if not moved:
            return False
        segments.end_links(tx, index_id, moved, s)
        blocks = [file_id if file_id in moved else None for file_id, _ in planned]
        segments.add_segment(tx, task.table_id, segment, blocks, s)
        table_heads.touch_table(tx, task.table_id, s)
        section.sequencer.record(KIND, job=True)
        faults.step("merge_index.commit")
        section.commit()
    return True
