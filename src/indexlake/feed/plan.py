"""The plan of a feed: every place where versions begin or end in the requested commits.

It is made in one read transaction, which also reads the hot rows concerned; after that, nothing depends on the catalog.

Each copy of a row version is visible from max(block begin, version) to min(block end, delete entry). A copy that begins
or ends in the commit of a job was only moved: there is another copy, and nothing has changed. Versions, delete entries
and the ends of hot rows always belong to the commit that changed the row, so only the begin and the end of a whole
block can be a job's. What a job did retroactively (dumps) looks the same as before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexlake.arrow.buffers import fixed_values
from indexlake.blocks.addresses import ranked
from indexlake.blocks.block import BlockRecord
from indexlake.catalog import commits
from indexlake.catalog.checksums import bytes_of
from indexlake.feed.events import (
    EVERY_ID,
    BlockRows,
    Events,
    EventSet,
    InBlock,
    Listed,
    SpooledRows,
)
from indexlake.feed.unread import HistoryBlock, KeyedBlock, Unread, VersionedBlock
from indexlake.scan.plan import BlockTask
from indexlake.scan.spool import Spool
from indexlake.schema import ROW_ID, VERSION, Field
from indexlake.storage.spill import Spill

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.snapshots.reading import Reading

NEVER = 0
"""The snapshot of delete entries for rows that no snapshot shows in that block."""


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What happened in the commits in (since, until]."""

    since: int
    until: int
    known: Sequence[EventSet]
    unread: Sequence[Unread]

    def within(self, since: int, until: int, low: int = 0, high: int = EVERY_ID) -> FeedPlan:
        """Return the plan for the commits in (since, until] and rows with ids in [low, high)."""
        known = (s.within(since, until, low, high) for s in self.known)
        unread = (b.within(since, until, low, high) for b in self.unread)
        return FeedPlan(since, until, [s for s in known if s is not None], [b for b in unread if b is not None])


def plan_feed(
    reading: Reading, since: int, until: int, files: OpenFiles, fields: Sequence[Field], *, sent: bool = False
) -> FeedPlan:
    """Plan inside the read transaction; ``fields`` are the columns to read.

    ``sent``: the plan will be sent elsewhere with the checksums of its files, so they are read together.
    """
    hot = list(_hot(reading, since, until, fields, files.storage.spill))
    blocks = _Blocks(reading, since, until, files, tuple(fields))
    if sent:
        blocks.read_checksums()
    known, unread = _in_blocks(blocks)
    return FeedPlan(since, until, [*hot, *known], unread)


def count_changes(reading: Reading, since: int, until: int, files: OpenFiles) -> int:
    """Count the versions that begin or end. No row is read; only blocks made by a dump are opened."""
    known, unread = _in_blocks(_Blocks(reading, since, until, files, ()))
    for block in unread:
        known += block.open(since, until)
    return reading.hot.count_changes(since, until) + sum(int(s.counts()[1].sum()) for s in known)


def _in_blocks(blocks: _Blocks) -> tuple[list[EventSet], list[Unread]]:
    found = list(blocks.event_sets())
    return [s for s in found if not isinstance(s, Unread)], [s for s in found if isinstance(s, Unread)]


class _Blocks:
    def __init__(
        self,
        reading: Reading,
        since: int,
        until: int,
        files: OpenFiles,
        fields: tuple[Field, ...],
    ) -> None:
        state = self._state = reading.state
        self._since, self._until = since, until
        self._files, self._fields = files, fields
        self._rows: dict[int, BlockRows] = {}
        self._checksums: dict[int, bytes] = {}
        number = state.blocks.numbers
        edges = np.concatenate((number("begin_snapshot"), number("end_snapshot")))
        inside = np.unique(edges[(edges > since) & (edges <= until)])
        self._jobs = commits.job_snapshots(reading.transaction, inside.tolist())

    def _counts(self, snapshot: int | None) -> bool:
        """Return whether a block beginning or ending in this commit makes changes in the range."""
        return snapshot is not None and self._since < snapshot <= self._until and snapshot not in self._jobs

    def concerned(self) -> Iterator[BlockRecord]:
        """Yield the blocks with versions that may begin in the range, or that end in it."""
        number, since, until = self._state.blocks.numbers, self._since, self._until
        begin, end = number("begin_snapshot"), number("end_snapshot")
        youngest = np.maximum(begin, number("max_snapshot"))
        begun = (youngest > since) & (begin <= until)
        ended = (end > since) & (end <= until)
        history = np.array([b.role == "history" for b in self._state.blocks.records], np.bool_)
        spread = history & (end > since) & (begin <= until)  # its rows may end in any commit after it begins
        for index in np.flatnonzero(begun | ended | spread).tolist():
            yield self._state.blocks.records[index]

    def read_checksums(self) -> None:
        gone = (self._state.blocks.record(file_id) for file_id, _ in self._deleted())
        found = {b.data_file_id: b.checksum for b in (*self.concerned(), *gone) if b is not None}
        self._checksums = dict(zip(found, bytes_of(list(found.values())), strict=True))

    def event_sets(self) -> Iterator[EventSet | Unread]:
        for block in self.concerned():
            if block.role == "history":
                yield self.history(block)
                continue
            begun = self.begun(block)
            if begun is not None:
                yield begun
            yield from self.ended(block)
        yield from self.deleted()

    def rows(self, block: BlockRecord) -> BlockRows:
        found = self._rows.get(block.data_file_id)
        if found is None:
            found = self._rows[block.data_file_id] = self._block_rows(block)
        return found

    def _block_rows(self, block: BlockRecord) -> BlockRows:
        task = BlockTask(
            "history" if block.role == "history" else "block", block.data_file_id, block.path, block.format,
            block.size, self._checksums.get(block.data_file_id, block.checksum), block.record_count,
            self._state.schema.at(block.schema_snapshot).fields, block.begin_snapshot, deleted=None, only=None,
            versions_up_to=None,
        )  # fmt: skip
        return BlockRows(task, self._files, self._fields)

    def _in_block(self, block: BlockRecord, entries: Sequence[tuple[int, Any]], *, begins: bool) -> EventSet | Unread:
        """Return the events for rows at some positions of a block that begin, or that end."""
        if block.row_order == "row_id":
            return InBlock(self.rows(block), ranked(block.row_ids), entries, begins=begins)
        snapshots = [snapshot for snapshot, _ in entries]
        return KeyedBlock(self._block_rows(block), min(snapshots), max(snapshots), *_ids(block), tuple(entries), begins)

    def history(self, block: BlockRecord) -> HistoryBlock:
        assert block.end_snapshot is not None, "it ends with the last of its versions"
        first = max(block.min_snapshot, self._since + 1)
        return HistoryBlock(self.rows(block), first, min(block.end_snapshot, self._until), *_ids(block))

    def begun(self, block: BlockRecord) -> EventSet | Unread | None:
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
            last = min(youngest, self._until)
            return VersionedBlock(self.rows(block), first, last, *_ids(block), never, begin, counts)
        if not self._counts(youngest):
            return None
        return self._whole(block, youngest, never, begins=True)

    def ended(self, block: BlockRecord) -> list[EventSet | Unread]:
        end = block.end_snapshot
        if not self._counts(end):
            return []
        assert end is not None
        log = self._state.deletes.get(block.data_file_id)
        gone = log.at(end - 1) if log is not None else None
        return [self._whole(block, end, gone, begins=False)]

    def _whole(self, block: BlockRecord, snapshot: int, gone: Any | None, *, begins: bool) -> EventSet | Unread:
        """Return the events for all rows of a block, except those that are gone, in one commit."""
        positions = BitMap(range(block.record_count))
        if gone is not None:
            positions -= gone
        return self._in_block(block, [(snapshot, positions)], begins=begins)

    def _deleted(self) -> Iterator[tuple[int, Sequence[tuple[int, Any]]]]:
        """Yield the blocks that have deletes in the range, and these: commits and positions."""
        for file_id, log in self._state.deletes.items():
            if entries := log.between(self._since, self._until):
                yield file_id, entries

    def deleted(self) -> Iterator[EventSet | Unread]:
        for file_id, entries in self._deleted():
            block = self._state.blocks.record(file_id)
            if block is None:
                continue
            # A rewrite carries over what was deleted while it ran: its output never showed those rows.
            shown = [(s, positions) for s, positions in entries if s > block.begin_snapshot]
            if shown:
                yield self._in_block(block, shown, begins=False)


def _ids(block: BlockRecord) -> tuple[int, int]:
    """Return the range of the block's row ids, without its end."""
    return block.min_row_id, block.max_row_id + 1


def _hot(reading: Reading, since: int, until: int, fields: Sequence[Field], spill: Spill) -> Iterator[EventSet]:
    for begins, read in ((True, reading.hot.begun), (False, reading.hot.ended)):
        spool, starts = Spool(spill=spill), [0]
        snapshots, row_ids = array("q"), array("q")
        for batch in read(since, until, fields):
            snapshots.frombytes(fixed_values(batch.column(VERSION), np.int64).tobytes())
            row_ids.frombytes(fixed_values(batch.column(ROW_ID), np.int64).tobytes())
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
