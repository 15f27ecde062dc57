"""The plan of a feed: every place where versions begin or end in the commits asked for.

Made in one read transaction, which also takes out the hot rows concerned; after it nothing depends on the catalog.

Each copy of a row version is visible from max(block begin, version) to min(block end, delete entry).  Where a copy
begins or ends in the commit of a job, the job only moved it: there is another copy, and nothing has changed.  Versions,
delete entries and the ends of hot rows are always those of the commit that changed the row; so only the begin and the
end of a whole block can be a job's.  What a job did retroactively (dumps) cannot be told from the way it was before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake.batch_size import row_chunks
from indexlake.blocks.block import BlockRecord
from indexlake.catalog import commits, inline
from indexlake.catalog.driver import ReadTransaction
from indexlake.feed.sources import (
    BlockRows,
    Deleted,
    Events,
    HistoryBlock,
    Listed,
    Source,
    SpooledRows,
    VersionedBlock,
    Whole,
)
from indexlake.scan.hot_rows import BATCH_ROWS, HotRows
from indexlake.scan.plan import BlockTask
from indexlake.scan.spool import Spool
from indexlake.schema import ROW_ID, Field
from indexlake.state import TableState
from indexlake.storage.spill import Spill

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles

NEVER = 0
"""The snapshot of delete entries for rows that no snapshot shows in that block."""


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What happened in the commits in (since, until]."""

    since: int
    until: int
    known: Sequence[Source]
    unread: Sequence[VersionedBlock | HistoryBlock]  # opened when the feed comes to their first commit


def plan_feed(
    r: ReadTransaction, state: TableState, since: int, until: int, files: OpenFiles, fields: Sequence[Field]
) -> FeedPlan:
    """Plan inside a read transaction; ``fields`` are the columns to read, of the table at ``until``."""
    hot = list(_hot(r, state, since, until, fields, files.storage.spill))
    known, unread = _in_blocks(_Blocks(r, state, since, until, files, tuple(fields)))
    return FeedPlan(since, until, [*hot, *known], unread)


def count_changes(r: ReadTransaction, state: TableState, since: int, until: int, files: OpenFiles) -> int:
    """How many versions begin and how many end.  No row is read; only blocks that a dump has made are opened."""
    known, unread = _in_blocks(_Blocks(r, state, since, until, files, ()))
    for block in unread:
        known += block.open(since, until)
    return inline.count_changes(r, state.table, since, until) + sum(int(s.counts()[1].sum()) for s in known)


def _in_blocks(blocks: _Blocks) -> tuple[list[Source], list[VersionedBlock | HistoryBlock]]:
    known: list[Source] = []
    unread: list[VersionedBlock | HistoryBlock] = []
    for block in blocks.concerned():
        if block.role == "history":
            unread.append(blocks.history(block))
            continue
        begun = blocks.begun(block)
        if isinstance(begun, VersionedBlock):
            unread.append(begun)
        elif begun is not None:
            known.append(begun)
        known += blocks.ended(block)
    return [*known, *blocks.deleted()], unread


class _Blocks:
    def __init__(
        self,
        r: ReadTransaction,
        state: TableState,
        since: int,
        until: int,
        files: OpenFiles,
        fields: tuple[Field, ...],
    ) -> None:
        self._state, self._since, self._until = state, since, until
        self._files, self._fields = files, fields
        self._rows: dict[int, BlockRows] = {}
        number = state.blocks.numbers
        edges = np.concatenate((number("begin_snapshot"), number("end_snapshot")))
        inside = np.unique(edges[(edges > since) & (edges <= until)])
        self._jobs = commits.job_snapshots(r, inside.tolist())

    def _counts(self, snapshot: int | None) -> bool:
        """Whether a block that begins or ends there makes changes in the range."""
        return snapshot is not None and self._since < snapshot <= self._until and snapshot not in self._jobs

    def concerned(self) -> Iterator[BlockRecord]:
        """The blocks with versions that may begin in the range, or that end in it."""
        number, since, until = self._state.blocks.numbers, self._since, self._until
        begin, end = number("begin_snapshot"), number("end_snapshot")
        youngest = np.maximum(begin, number("max_snapshot"))
        begun = (youngest > since) & (begin <= until)
        ended = (end > since) & (end <= until)
        history = np.array([b.role == "history" for b in self._state.blocks.records], np.bool_)
        spread = history & (end > since) & (begin <= until)  # its rows end at any time from its begin on
        for index in np.flatnonzero(begun | ended | spread).tolist():
            yield self._state.blocks.records[index]

    def rows(self, block: BlockRecord) -> BlockRows:
        found = self._rows.get(block.data_file_id)
        if found is None:
            task = BlockTask(
                "history" if block.role == "history" else "block", block.data_file_id, block.path, block.format,
                block.size, block.checksum, block.record_count, self._state.schema.at(block.schema_snapshot).fields,
                block.begin_snapshot, deleted=None, only=None, versions_up_to=None,
            )  # fmt: skip
            found = self._rows[block.data_file_id] = BlockRows(task, self._files, self._fields)
        return found

    def history(self, block: BlockRecord) -> HistoryBlock:
        return HistoryBlock(self.rows(block), max(block.min_snapshot, self._since + 1))

    def begun(self, block: BlockRecord) -> Source | VersionedBlock | None:
        begin = block.begin_snapshot
        youngest = max(begin, block.max_snapshot)
        if youngest <= self._since:
            return None
        log = self._state.deletes.get(block.data_file_id)
        never = log.at(NEVER) if log is not None else None
        oldest = max(begin, block.min_snapshot)
        if oldest < youngest:
            first = max(oldest, self._since + 1)
            counts = begin not in self._jobs
            return VersionedBlock(self.rows(block), self._state.row_ids(block), never, first, begin, counts)
        if not self._counts(youngest):
            return None
        return Whole(self.rows(block), self._state.row_ids(block), youngest, begins=True, without=never)

    def ended(self, block: BlockRecord) -> list[Source]:
        end = block.end_snapshot
        if not self._counts(end):
            return []
        assert end is not None
        log = self._state.deletes.get(block.data_file_id)
        gone = log.at(end - 1) if log is not None else None
        return [Whole(self.rows(block), self._state.row_ids(block), end, begins=False, without=gone)]

    def deleted(self) -> Iterator[Source]:
        for file_id, log in self._state.deletes.items():
            entries = log.between(self._since, self._until)
            block = self._state.blocks.record(file_id) if entries else None
            if block is None:
                continue
            # A rewrite carries over what was deleted while it ran: its output never showed those rows.
            shown = [(s, positions) for s, positions in entries if s > block.begin_snapshot]
            if shown:
                yield Deleted(self.rows(block), self._state.row_ids(block), shown)


def _hot(
    r: ReadTransaction, state: TableState, since: int, until: int, fields: Sequence[Field], spill: Spill
) -> Iterator[Source]:
    columns = HotRows(fields).columns  # also those that older versions of the columns are read from
    for begins, rows in (
        (True, inline.begun_between(r, state.table, since, until, columns)),
        (False, inline.ended_between(r, state.table, since, until, columns)),
    ):
        spool, starts = Spool(spill=spill), [0]
        snapshots, row_ids = array("q"), array("q")
        for chunk in row_chunks(rows, BATCH_ROWS):
            snapshots.extend(row[0 if begins else 2] for row in chunk)
            row_ids.extend(row[1] for row in chunk)
            hot = HotRows(fields, spill)
            hot.read(iter(chunk))
            for batch in hot.batches():
                spool.add(_shown(batch, fields))
                starts.append(starts[-1] + batch.num_rows)
        if snapshots:
            positions = np.arange(len(snapshots), dtype=np.int64)
            events = Events(np.frombuffer(snapshots, np.int64), np.frombuffer(row_ids, np.int64), positions)
            yield Listed(SpooledRows(spool, starts), events, begins=begins)


def _shown(batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
    if not fields:
        return pa.RecordBatch.from_arrays([batch.column(ROW_ID)], [ROW_ID])
    return pa.RecordBatch.from_arrays(batch.columns[: len(fields)], schema=pa.schema([f.arrow() for f in fields]))
