"""Verify: is every byte where the catalog says it is, and does the catalog agree with itself?

Reads every file that a retained snapshot reaches and compares each chunk with its checksum, decodes every block and
compares its row ids, versions and statistics with its record, looks up the first and last key of each segment, and
cross-checks the records; for clustered tables also ranges, order and keys (``verify_partitions``). What it compares
with is read from the catalog, not from this process's memory. It reports and never repairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, SupportsBytes, Unpack

import numpy as np
import pyarrow as pa

from indexlake.blocks.addresses import ranked
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.open_files import OpenFiles
from indexlake.blocks.statistics import StatisticsBuilder, stats_from_bytes
from indexlake.catalog import commits, files, segments
from indexlake.display import counted
from indexlake.errors import IndexLakeError, NotFoundError
from indexlake.indexes.index import Index
from indexlake.indexes.keys import key_to_bytes
from indexlake.indexes.kind import SegmentFile
from indexlake.partitions.partition import Partition
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.meta import MetaFile
from indexlake.pipeline.runner import Runner
from indexlake.pipeline.verify_meta import MetaNow, meta_now, metas_of, wrong_metas
from indexlake.pipeline.verify_partitions import KeyOrder, PartitionTask, key_twice, partition_tasks, wrong_records
from indexlake.schema import ROW_ID, VERSION, TableSchema
from indexlake.snapshots import state as table_state
from indexlake.snapshots.reading import Reading
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import TABLES

if TYPE_CHECKING:
    from indexlake.lake import Lake


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    table: str
    path: str | None
    what: str

    def __str__(self) -> str:
        return f"{self.table}: {self.path + ': ' if self.path else ''}{self.what}"


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What was checked, and what is wrong with it."""

    tables: int
    files: int
    bytes: int
    unreachable_files: int  # reached by no retained snapshot: vacuum will remove them in time
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        head = (
            f"{counted(self.tables, 'table')}, {counted(self.files, 'file')}, {counted(self.bytes, 'byte')} verified; "
            + ("no problems found" if self.ok else f"{counted(len(self.problems), 'problem')}:")
        )
        return "\n".join([head, *(f"  {p}" for p in self.problems)])


@dataclass(frozen=True, slots=True)
class Covering:
    """A segment and the blocks that it answers for, by ordinal."""

    index: Index
    segment: SegmentFile
    blocks: Mapping[int, BlockRecord]


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """One block with the segments whose first block it is."""

    table: str
    block: BlockRecord
    schema: TableSchema
    segments: tuple[Covering, ...]
    partition: Partition | None = None  # where a block of a clustered table belongs

    @property
    def paths(self) -> list[str]:
        return [self.block.path, *(c.segment.path for c in self.segments)]

    @property
    def size(self) -> int:
        return self.block.size + sum(c.segment.size for c in self.segments)


def verify(
    lake: Lake, tables: Sequence[tuple[str, int]], runner: Runner, lease: int, **watched: Unpack[Watched]
) -> VerifyResult:
    """Check the given tables, by name and id."""
    problems: list[Problem] = []
    seen: set[str] = set()
    size = count = 0
    with Job(lake, "verify", lease, **watched) as job:
        for name, table_id in tables:
            try:
                metas = _metas(lake, table_id)
                state, dangling, parts, now = _state(lake, name, table_id)
            except NotFoundError:
                continue  # it was dropped and has expired meanwhile
            except IndexLakeError as error:
                problems.append(Problem(name, None, str(error)))
                continue
            count += 1
            problems += _records(name, state)
            problems += [Problem(name, *wrong) for wrong in wrong_metas(lake.storage.uncached(), metas, state, now)]
            problems += [
                Problem(name, None, f"block {block} is linked to segment {segment}, which has no record")
                for block, segment in dangling
            ]
            tasks = list(_tasks(name, state))
            job.expect(tasks=len(tasks))
            with lake._pins.pin(state.at), closing(runner.map(run_task, tasks, job.check)) as results:
                for task, found in zip(tasks, results, strict=True):
                    problems += found
                    seen.update(task.paths)
                    size += task.size
                    job.add(rows=task.block.record_count, size=task.size)
            damaged = {p.path for p in problems}
            parts = [p for p in parts if not damaged & {b.block.path for b in p.blocks}]
            with lake._pins.pin(state.at), closing(runner.map(run_partition_task, parts, job.check)) as twice:
                problems += [problem for found in twice for problem in found]
    with lake.catalog.read() as r:
        known = set(files.reachable_paths(r))
    # What expired while it was being checked may be gone, and rightly so.
    lasting = tuple(p for p in problems if p.path is None or p.path in known or p.path.endswith(".meta"))
    unreachable = sum(f.path not in known for f in lake.storage.list(TABLES))
    return VerifyResult(count, len(seen), size, unreachable, lasting)


def _metas(lake: Lake, table_id: int) -> Sequence[MetaFile]:
    table = lake._readings.latest(table_id).table
    return metas_of(lake.storage.uncached(), table.namespace_id, table_id) if table.is_clustered else ()


def _state(
    lake: Lake, name: str, table_id: int
) -> tuple[TableState, list[tuple[int, int]], list[PartitionTask], MetaNow | None]:
    with lake.catalog.read() as r:
        state = table_state.load(r, table_id, commits.last_snapshot(r)[0])
        reading = Reading(r, state, state.at, lake._hot)
        parts = list(partition_tasks(name, reading))
        return state, segments.links_to_nothing(r, table_id), parts, meta_now(reading)


def _tasks(name: str, state: TableState) -> Iterator[VerifyTask]:
    first: dict[int, list[Covering]] = defaultdict(list)  # by the block with which a segment is checked
    for coverage in state.indexes.values():
        covered: dict[int, dict[int, BlockRecord]] = {}
        for block in state.blocks.records:
            link = coverage.links.get(block.data_file_id)
            if link is None:
                continue
            if link.index_file_id not in covered:
                covered[link.index_file_id] = {}
                first[block.data_file_id].append(Covering(coverage.index, link.segment, covered[link.index_file_id]))
            covered[link.index_file_id][link.ordinal] = block
    for block in state.blocks.records:
        schema = state.schema.at(block.schema_snapshot)
        own = None if state.ranges is None else state.ranges.by_id.get(block.partition_id or 0)
        yield VerifyTask(name, block, schema, tuple(first[block.data_file_id]), own)


def run_task(storage: Storage, task: VerifyTask, check: Callable[[], None]) -> list[Problem]:
    """Read every byte of the block and of its segments, as the store has it."""
    storage = storage.uncached()
    problems: list[Problem] = []

    def guarded(path: str, look: Callable[[], str | None]) -> bool:
        check()
        try:
            wrong = look()
        except IndexLakeError as error:
            wrong = str(error)
        except Exception as error:  # from a decoder whose input differs from its record
            wrong = f"cannot be read as its record says: {type(error).__name__}: {error}"
        if wrong is not None:
            problems.append(Problem(task.table, path, wrong))
        return wrong is None

    block = task.block
    if guarded(block.path, lambda: _bytes(storage, block.path, block.checksum)):
        guarded(block.path, lambda: _rows(storage, task))
    for covering in task.segments:
        segment = covering.segment
        if guarded(segment.path, partial(_bytes, storage, segment.path, segment.checksum)):
            guarded(segment.path, partial(_keys, storage, covering))
    return problems


def run_partition_task(storage: Storage, task: PartitionTask, check: Callable[[], None]) -> list[Problem]:
    check()
    try:
        wrong = key_twice(storage.uncached(), task)
    except IndexLakeError:  # in a file that its own task reports
        wrong = None
    return [] if wrong is None else [Problem(task.table, None, wrong)]


def _bytes(storage: Storage, path: str, checksum: SupportsBytes) -> None:
    with storage.open_file(path, Checksums.from_bytes(checksum)) as file:
        file.verify()


def _rows(storage: Storage, task: VerifyTask) -> str | None:
    """Return how the row ids, versions and values in the file differ from its record, or None."""
    block = task.block
    schema = task.schema.history_file if block.role == "history" else task.schema.file
    reader = OpenFiles(storage).reader(block, schema)
    parts = [np.zeros(0, np.int64)]
    low, high = block.max_snapshot, block.min_snapshot
    statistics = StatisticsBuilder(pa.schema([f.arrow(f.column) for f in task.schema.fields]))
    order = None if task.partition is None else KeyOrder(block, task.partition, task.schema)
    for batch in reader.read([*task.schema.columns, ROW_ID, VERSION]):
        statistics.add(batch)
        if order is not None:
            order.add(batch)
        parts.append(batch.column(ROW_ID).to_numpy())
        versions = batch.column(VERSION).fill_null(block.begin_snapshot).to_numpy()
        low, high = min(low, int(versions.min())), max(high, int(versions.max()))
    ids = np.concatenate(parts)
    if len(ids) != block.record_count:
        return f"holds {len(ids):,} rows; its record says {block.record_count:,}"
    if len(ids) and (int(ids.min()), int(ids.max())) != (block.min_row_id, block.max_row_id):
        return f"holds row ids {ids.min()}–{ids.max()}; its record says {block.min_row_id}–{block.max_row_id}"
    if low < block.min_snapshot or high > block.max_snapshot:
        return f"holds versions {low}–{high}; its record says {block.min_snapshot}–{block.max_snapshot}"
    if (
        block.role != "history"
        and block.row_order == "row_id"
        and not np.array_equal(ranked(block.row_ids).to_array(), ids)
    ):
        return "holds other row ids than its record says"
    recorded, found = stats_from_bytes(block.column_stats), statistics.finish()
    for f in task.schema.fields:
        if f.column in recorded and not recorded[f.column].covers(found[f.column]):
            return f"column {f.name!r} has {found[f.column]}; its record says {recorded[f.column]}"
    return None if order is None else order.wrong()


def _keys(storage: Storage, covering: Covering) -> str | None:
    """Return what is wrong with a segment: the rows of its blocks, or finding its smallest and largest key."""
    segment = covering.segment
    found = covering.index.open(storage, segment)
    for ordinal, block in covering.blocks.items():
        if ordinal + 1 >= len(found.starts) or found.starts[ordinal + 1] - found.starts[ordinal] != block.record_count:
            return f"covers a different number of rows than {block.path} has"
    if not hasattr(found, "sample"):
        return None  # of a kind without keys
    for key in found.sample(2):
        slots = found.find(key)
        if not slots or not segment.min_key <= key_to_bytes(key) <= segment.max_key:
            return "does not find the smallest or the largest of its own keys"
        if not all(0 <= slot < found.starts[-1] for slot in slots):
            return "points at rows that its blocks do not have"
    return None


def _records(name: str, state: TableState) -> Iterator[Problem]:
    """Yield contradictions between the records of a table."""
    known = {b.data_file_id: b for b in state.blocks.records}
    for path, what in wrong_records(state):
        yield Problem(name, path, what)
    for path, times in Counter(b.path for b in state.blocks.records).items():
        if times > 1:
            yield Problem(name, path, f"is named by {times} blocks")
    for file_id, log in state.deletes.items():
        block = known.get(file_id)
        if block is None:
            yield Problem(name, None, f"deletes are recorded for block {file_id}, which has no record")
        elif (gone := log.at(state.at)) and gone.max() >= block.record_count:
            yield Problem(name, block.path, f"row {gone.max()} of {block.record_count} is recorded as deleted")
    for file_id in state.primary.gaps if state.primary is not None else ():
        yield Problem(name, known[file_id].path, "has no key segment, so its primary keys cannot be found")
    for coverage in state.indexes.values():
        for file_id in coverage.links.keys() - known.keys():
            yield Problem(name, coverage.links[file_id].segment.path, f"covers block {file_id}, which has no record")
