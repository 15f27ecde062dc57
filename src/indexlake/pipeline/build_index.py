"""Building an index: segments for the live blocks that have none, while writers and other jobs carry on.

A task reads some blocks completely, including deleted rows, and writes one segment for them. Each segment is published
in a commit of its own. Until then its blocks are scanned, so a half-finished build only makes queries slower, and a
build that was killed resumes where it stopped. If a block was compacted away while its segment was built, it is linked
all the same, for readers of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.open_files import OpenFiles
from indexlake.catalog import data_files, segments, table_heads
from indexlake.commit.requirements import require_plan
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.indexes.kind import SegmentFile
from indexlake.indexes.registry import kind_named
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.publish_unique import publish_unique
from indexlake.pipeline.runner import Runner, ThreadRunner
from indexlake.scan.execute import read_task
from indexlake.scan.plan import BlockTask, block_task
from indexlake.schema import TableSchema
from indexlake.storage import Storage, faults
from indexlake.storage.spill import spilling

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState

KIND = "build_index"

GROUP_ROWS = 4_000_000
"""A task builds one segment for neighbouring blocks of up to this many rows, which limits its memory."""

MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Some blocks, and all that is needed to write their segment."""

    table_id: int
    writer_id: str
    planned_at: int
    index: Index
    schema: TableSchema
    blocks: tuple[BlockTask, ...]
    outdated: Mapping[int, int]  # blocks whose segment this one replaces: data file → segment

    @property
    def rows(self) -> int:
        return sum(block.record_count for block in self.blocks)

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build did."""

    segments: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{counted(self.segments, 'segment')} of {counted(self.bytes, 'byte')} for {counted(self.blocks, 'block')} "
            f"with {counted(self.rows, 'row')}"
        )

    def with_segment(self, task: BuildTask, segment: SegmentFile) -> BuildResult:
        return BuildResult(
            self.segments + 1, self.blocks + len(task.blocks), self.rows + task.rows, self.bytes + segment.size
        )


def build_index(
    lake: Lake,
    table_id: int,
    index_id: int,
    runner: Runner | None = None,
    *,
    group_rows: int | None = None,
    rebuild: bool = False,
    **watched: Unpack[Watched],
) -> BuildResult:
    """Cover every live block of the table with segments, with ``rebuild`` with new ones; harmless to repeat."""
    runner = runner or ThreadRunner(lake.storage)
    result = BuildResult()
    with Job(lake, KIND, table_id, str(index_id), **watched) as job:
        for n in range(MOST_ROUNDS):
            job.check()
            tasks = plan(lake, table_id, index_id, group_rows or GROUP_ROWS, rebuild=rebuild and n == 0)
            faults.step("build_index.planned")
            if not tasks:
                break
            for task, segment in _run_and_publish(lake, job, runner, tasks):
                result = result.with_segment(task, segment)
        publish_unique(lake, table_id, index_id)
    return result


def plan(lake: Lake, table_id: int, index_id: int, group_rows: int, *, rebuild: bool = False) -> list[BuildTask]:
    """Return groups of live blocks without a segment, with ``rebuild`` of all blocks, as of one read transaction."""
    state = lake._readings.latest(table_id)
    coverage = state.indexes.get(index_id)
    if state.table.end_snapshot is not None or coverage is None or coverage.index.end_snapshot is not None:
        return []
    index = coverage.index
    most = min(group_rows, kind_named(index.kind).most_rows)
    groups: list[list[BlockTask]] = []
    rows = 0
    for task in (_all_blocks if rebuild else uncovered_blocks)(state, index_id):
        if not groups or rows + task.record_count > most:
            groups.append([])
            rows = 0
        groups[-1].append(task)
        rows += task.record_count
    writer = lake._writer_id() if groups else ""
    links = coverage.links
    return [
        BuildTask(
            table_id, writer, state.at, index, state.current, tuple(group),
            {b.file_id: links[b.file_id].index_file_id for b in group if b.file_id in links},
        )
        for group in groups
    ]  # fmt: skip


def uncovered_blocks(state: TableState, index_id: int) -> Iterator[BlockTask]:
    """Yield the live blocks without a segment, with all their rows: even deleted ones and ones newer than a reader."""
    gaps = state.indexes[index_id].gaps
    for block in state.blocks.records if gaps else ():
        if block.data_file_id in gaps and block.end_snapshot is None:
            yield _whole(state, block)


def _all_blocks(state: TableState, index_id: int) -> Iterator[BlockTask]:
    """Yield the blocks with a segment, also those that only readers of the past see, and live ones without."""
    gaps = state.indexes[index_id].gaps
    for block in state.blocks.records:
        if block.role != "history" and (block.end_snapshot is None or block.data_file_id not in gaps):
            yield _whole(state, block)


def _whole(state: TableState, block: BlockRecord) -> BlockTask:
    return replace(block_task(state, block, state.at), deleted=None, versions_up_to=None)


def live_gaps(state: TableState, index_id: int) -> list[int]:
    """Return the live blocks that an index does not cover."""
    found = (state.blocks.record(f) for f in state.indexes[index_id].gaps)
    return [b.data_file_id for b in found if b is not None and b.end_snapshot is None]


@spilling
def run_task(storage: Storage, task: BuildTask, check: Callable[[], None]) -> SegmentFile:
    """Read the blocks and write their segment, without the catalog."""
    fields = task.index.all_fields(task.schema)
    writer = task.index.writer(task.schema)
    for block in task.blocks:
        files = OpenFiles(storage)  # separate for each block, so that what was read can be freed
        for batch in read_task(block, files, fields, None, row_id=False):
            check()
            writer.add_columns([batch.column(f.name) for f in fields], batch.num_rows)
        writer.end_block()
    return writer.finish(storage, task.table_id, task.writer_id)


def _run_and_publish(
    lake: Lake, job: Job, runner: Runner, tasks: Sequence[BuildTask]
) -> Iterator[tuple[BuildTask, SegmentFile]]:
    job.expect(tasks=len(tasks))
    with lake._pins.pin(tasks[0].planned_at), closing(runner.map(run_task, tasks, job.check)) as results:
        for task, segment in zip(tasks, results, strict=True):
            faults.step("build_index.written")
            published = publish(lake, job, task, segment)
            faults.step("build_index.published")
            job.add(rows=task.rows, size=segment.size)
            if published:
                yield task, segment


def publish(lake: Lake, job: Job, task: BuildTask, segment: SegmentFile) -> bool:
    """Link the blocks that still exist and that no other segment covers; return False if there is none or no index.

    Segments that the plan wants replaced are, unless another job did so in the meantime.
    """
    with Section(lake.catalog, lake._hot) as section:
        if not require_plan(section, job, task.table_id, task.planned_at, task.writer_id):
            return False
        tx, s = section.tx, section.sequencer.next
        if task.index.index_id not in segments.live_index_ids(tx, task.table_id):
            return False
        blocks = [block.file_id for block in task.blocks]
        live = segments.live_links(tx, task.index.index_id, blocks)
        linked = {b for b in data_files.recorded(tx, blocks) if b not in live or live[b] == task.outdated.get(b)}
        if not linked:
            return False
        segments.end_links(tx, task.index.index_id, linked & live.keys(), s)
        segments.add_segment(tx, task.table_id, segment, [b if b in linked else None for b in blocks], s)
        table_heads.touch_table(tx, task.table_id, s)
        section.sequencer.record(KIND, job=True)
        faults.step("build_index.commit")
        section.commit()
    return True
