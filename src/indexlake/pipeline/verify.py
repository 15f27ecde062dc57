"""Verify: is every byte where the catalog says it is, and does the catalog agree with itself?

Reads every file that a retained snapshot reaches and compares each chunk with its checksum, decodes the row ids of
every data block and looks each key segment's bounds up, and cross-checks the records.  It reports and never repairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.blocks.checksum import Checksums
from indexlake.blocks.open_files import OpenFiles
from indexlake.catalog import files
from indexlake.errors import IndexLakeError
from indexlake.keys.encoding import key_from_bytes
from indexlake.pipeline.job import Job
from indexlake.pipeline.runner import Runner
from indexlake.schema import ROW_ID, TableSchema
from indexlake.storage import Storage

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.state import TableState


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
    """What was looked at and what is wrong with it."""

    tables: int
    files: int
    bytes: int
    unreachable_files: int  # no retained snapshot reaches them: vacuum will remove them in time
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        head = f"{self.tables:,} tables, {self.files:,} files, {self.bytes:,} bytes verified; " + (
            "no problem found" if self.ok else f"{len(self.problems):,} problems:"
        )
        return "\n".join([head, *(f"  {p}" for p in self.problems)])


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """One block with its key segment."""

    table: str
    block: BlockRecord
    schema: TableSchema
    segment: SegmentRecord | None


def verify(lake: Lake, job: Job, table_ids: list[int], runner: Runner) -> VerifyResult:
    """Check the given tables."""
    problems: list[Problem] = []
    seen: set[str] = set()
    count = size = 0
    for table_id in table_ids:
        with lake._reading(table_id) as (_, state, last):
            pass
        problems += _records(state)
        tasks = list(_tasks(state))
        job.expect(tasks=len(tasks))
        for task, found in zip(tasks, runner.map(run_task, tasks, job.check), strict=True):
            problems += found
            read = [task.block.path, *([task.segment.path] if task.segment else [])]
            seen.update(read)
            count += len(read)
            size += task.block.size + (task.segment.size if task.segment else 0)
            job.add(rows=task.block.record_count, size=task.block.size)
    return VerifyResult(len(table_ids), count, size, _unreachable(lake, seen), tuple(problems))


def _tasks(state: TableState) -> Iterator[VerifyTask]:
    for block in state.blocks.records:
        schema = state.schema.at(block.schema_snapshot)
        yield VerifyTask(state.table.full_name, block, schema, state.segments.get(block.data_file_id))


def run_task(storage: Storage, task: VerifyTask, check: Callable[[], None]) -> list[Problem]:
    """Read every byte of the block and of its segment."""
    problems: list[Problem] = []

    def guarded(path: str, look: Callable[[], str | None]) -> bool:
        check()
        try:
            wrong = look()
        except IndexLakeError as error:
            wrong = str(error)
        if wrong is not None:
            problems.append(Problem(task.table, path, wrong))
        return wrong is None

    block, segment = task.block, task.segment
    if guarded(block.path, lambda: _bytes(storage, block.path, block.checksum)):
        guarded(block.path, lambda: _rows(storage, task))
    if segment is not None and guarded(segment.path, lambda: _bytes(storage, segment.path, segment.checksum)):
        guarded(segment.path, lambda: _keys(storage, task, segment))
    return problems


def _bytes(storage: Storage, path: str, checksum: bytes) -> None:
    with storage.open_file(path, Checksums.from_bytes(checksum)) as file:
        file.verify()


def _rows(storage: Storage, task: VerifyTask) -> str | None:
    """Whether the row ids in the file are those of the record."""
    block = task.block
    schema = task.schema.history_file if block.role == "history" else task.schema.file
    reader = OpenFiles(storage).reader(block, schema)
    parts = [batch.column(ROW_ID).to_numpy() for batch in reader.read([ROW_ID])]
    ids = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if len(ids) != block.record_count:
        return f"holds {len(ids):,} rows; its record says {block.record_count:,}"
    if len(ids) and (int(ids.min()), int(ids.max())) != (block.min_row_id, block.max_row_id):
        return f"holds row ids {ids.min()}–{ids.max()}; its record says {block.min_row_id}–{block.max_row_id}"
    if block.role == "data" and block.row_order == "row_id":
        from indexlake.blocks.row_ids import RowIds

        if not bool((RowIds.from_bytes(block.row_ids).to_array() == ids).all()):
            return "holds other row ids than its record says"
    return None


def _keys(storage: Storage, task: VerifyTask, segment: SegmentRecord) -> str | None:
    """Whether the smallest and the largest key are found where the block has rows."""
    found = OpenFiles(storage).segment(segment)
    for bound in (segment.min_key, segment.max_key):
        positions = found.find(key_from_bytes(task.schema.key_codecs, bound))
        if not positions:
            return "does not find the smallest or the largest of its own keys"
        if any(not 0 <= p < task.block.record_count for p in positions):
            return f"points at rows that {task.block.path} does not have"
    return None


def _records(state: TableState) -> Iterator[Problem]:
    """What the records of a table say about each other."""
    name = state.table.full_name
    known = {b.data_file_id: b for b in state.blocks.records}
    for path, times in Counter(b.path for b in state.blocks.records).items():
        if times > 1:
            yield Problem(name, path, f"is named by {times} blocks")
    for file_id, log in state.deletes.items():
        block = known.get(file_id)
        if block is None:
            yield Problem(name, None, f"deletes are recorded for block {file_id}, which has no record")
        elif (gone := log.at(state.at)) and gone.max() >= block.record_count:
            yield Problem(name, block.path, f"row {gone.max()} of {block.record_count} is recorded as deleted")
    for block in state.blocks.records:
        keyed = state.current.primary_key and block.role == "data"
        if keyed and block.data_file_id not in state.segments:
            yield Problem(name, block.path, "has no key segment, so its primary keys cannot be found")
    for file_id in state.segments.keys() - known.keys():
        yield Problem(name, state.segments[file_id].path, f"covers block {file_id}, which has no record")


def _unreachable(lake: Lake, seen: set[str]) -> int:
    """Files below the tables' folders that no record names."""
    with lake.catalog.read() as r:
        known = set(files.reachable_paths(r)) | seen
    return sum(f.path not in known for f in lake.storage.list("tables"))
