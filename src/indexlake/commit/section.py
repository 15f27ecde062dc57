"""The critical section: validate one write-set against what was committed since it was read, then apply it.

Everything here runs inside one catalog transaction that excludes every other commit.  There is no storage I/O and
no user code in it.  The order of the rules is that of the design: token, horizon, definitions, touched rows,
absent values, keys; then closes before inserts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexlake import faults
from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.blocks.delete_vector import is_among
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.row_ids import RowIds
from indexlake.catalog import activity, commits, definitions, fields, inline, layout
from indexlake.catalog.clock import DOUBTFUL, correct_future
from indexlake.catalog.driver import Catalog, Transaction
from indexlake.catalog.layout import Head
from indexlake.commit.absent import AbsentLook, check_absent
from indexlake.commit.key_check import KeyLook, check_keys
from indexlake.commit.loaded import LoadedKeys
from indexlake.commit.turns import turn_needed
from indexlake.commit.write_set import TableWrites, WriteResult, WriteSet
from indexlake.errors import (
    ConflictError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
)


class Looks(NamedTuple):
    """What was found outside the section, for one table."""

    keys: KeyLook | None = None
    absent: AbsentLook | None = None
    loaded: LoadedKeys | None = None


class Section:
    """One critical section in progress: the transaction and the newest snapshot inside it."""

    def __init__(self, catalog: Catalog, tx: Transaction) -> None:
        self.catalog = catalog
        self.tx = tx
        self.newest: tuple[int, int] | None = None  # its number and commit time, once they are known
        self._server_clock: int | None = None  # what it said then
        self.writing = False  # whether the write-set in progress has passed its validation
        self._heads: dict[int, Head] = {}  # as far as the members of a group leave them as they are

    @property
    def last(self) -> int:
        """The newest snapshot."""
        return self._newest()[0]

    @property
    def committed_at(self) -> int:
        """When it was committed."""
        return self._newest()[1]

    def _newest(self) -> tuple[int, int]:
        if self.newest is None:
            number, committed_at, self._server_clock = commits.newest(self.tx)
            self.newest = number, committed_at
        return self.newest

    def next_snapshot(self, operation: str, summary: str | None, token: str | None) -> int:
        """Record the snapshot that the caller's changes carry.  Jobs have no summary: they change no row."""
        assert (summary is None) == (operation in commits.JOB_OPERATIONS), f"is {operation!r} a job?"
        last, committed_at = self._newest()
        time = self.catalog.time(self._server_clock, committed_at)
        if committed_at > time + DOUBTFUL:
            before = commits.snapshot_at_time(self.tx, time)
            if correct_future(self.tx, time, before, (last, committed_at)):
                committed_at = time
        self.newest = snapshot, at = last + 1, max(time, committed_at)
        commits.add_snapshot(self.tx, snapshot, at, operation, summary, token)
        return snapshot

    def commit(self, ws: WriteSet, looks: dict[int, Looks], commit_token: str | None) -> WriteResult:
        """Validate and apply.  Raises ``LookNeeded`` when new blocks must be looked at first.

        Apart from definitions nothing is written before everything is validated.
        """
        tx = self.tx
        self.writing = False
        if ws.token is not None:
            found = commits.token_result(tx, ws.token)
            if found is not None:
                return WriteResult(**found)
        # By the names of the files: the process may have another writer by now.
        if not all(activity.writer_is_alive(tx, writer) for writer in {b.file.writer_id for b in ws.files()}):
            raise StorageError(
                "This process was taken for dead while it wrote files, and vacuum may have removed them. "
                "Nothing was committed: run the write again."
            )
        heads: dict[int, Head] = {}
        for table_id, writes in ws.tables.items():
            if not writes.empty:
                heads[table_id] = self._validate(ws, writes, looks.get(table_id) or Looks())
        faults.step("commit.validated")
        self.writing = True
        snapshot = self.last + 1
        changed = [change.apply(tx, self.catalog, snapshot) for change in ws.definitions]
        if ws.definitions and not any(changed) and not heads:
            return WriteResult(0, self.last)
        summary = [
            f'"{change.table_id}":[0,0,0]'
            for change, done in zip(ws.definitions, changed, strict=True)
            if done and change.table_id is not None
        ]
        inserted = updated = deleted = 0
        for table_id, head in heads.items():
            writes = ws.tables[table_id]
            gone = writes.deleted + self._apply(ws, writes, head, snapshot)
            summary.append(f'"{table_id}":[{writes.inserted},{writes.updated},{gone}]')  # JSON
            inserted, updated, deleted = inserted + writes.inserted, updated + writes.updated, deleted + gone
            if writes.blocks or writes.truncate:
                self._heads.pop(table_id)
        if ws.definitions:
            self._heads.clear()
        total = WriteResult(inserted + updated + deleted, snapshot, inserted, updated, deleted)
        self.next_snapshot(ws.operation or "write", "{" + ",".join(summary) + "}", commit_token)
        if ws.token is not None:
            commits.add_token(tx, ws.token, snapshot, {**total.to_json(), "snapshot_id": snapshot}, self.committed_at)
        faults.step("commit.applied")
        return total

    # ------------------------------------------------------------ validation

    def _validate(self, ws: WriteSet, writes: TableWrites, look: Looks) -> Head:
        state, tx = writes.state, self.tx
        table_id, name = state.table.table_id, state.table.full_name
        head = self._heads.get(table_id) or layout.read_head(tx, table_id)
        if head is None or head.end_snapshot is not None:
            raise NotFoundError(f"Table {name!r} was dropped by another commit.", name=name)
        self._heads[table_id] = head
        if self.newest is None:
            self.newest, self._server_clock = (head.last, head.committed_at), head.server_clock
        rows = writes.closed | writes.locked if writes.locked else writes.closed
        if ws.base < head.horizon and (rows or not writes.blind):
            raise SnapshotExpiredError(
                f"The transaction on {name!r} began at snapshot {ws.base}, which is older than the history that is "
                f"kept (from {head.horizon} on). Run it again.",
                snapshot_id=ws.base,
                horizon=head.horizon,
            )
        if head.schema_version != state.table.schema_version:
            self._adopt(ws, writes)
        writer = commits.conflicting_since(tx, table_id, ws.base, rows) if rows else None
        if writer == commits.RESERVED:
            if ws.turn is None or not ws.turn.has(table_id):
                raise turn_needed(ws, [table_id])
        elif writer is not None:
            raise ConflictError(
                f"Rows of {name!r} that this transaction changes were changed by commit {writer} after it began "
                f"at {ws.base}. Run it again; lake.run does so by itself.",
                table=name,
                snapshot_id=writer,
            )
        if writes.truncate and not writes.blind and commits.changed_since(tx, table_id, ws.base):
            raise ConflictError(
                f"This transaction truncates {name!r}, whose rows were changed by another commit after it began at "
                f"{ws.base}. Run it again; lake.run does so by itself.",
                table=name,
            )
        if look.loaded is not None:
            look.loaded.check(tx, head, writes)
        if look.absent is not None:
            check_absent(tx, head, writes, ws.base, look.absent)
        if state.table.primary_key and not writes.truncate:
            check_keys(tx, head, writes, look.keys)
        return head

    def _adopt(self, ws: WriteSet, writes: TableWrites) -> None:
        """The table's columns are not those that the write-set was made for."""
        table = writes.state.table
        if ws.single:
            raise ConflictError(
                f"The definition of table {table.full_name!r} changed meanwhile. Run it again.", table=table.full_name
            )
        found = definitions.read_table(self.tx, table.table_id)
        assert found is not None
        writes.adopt(fields.read_schema(self.tx, found).current)

    # ------------------------------------------------------------ application

    def _apply(self, ws: WriteSet, writes: TableWrites, head: Head, s: int) -> int:
        """Closes before inserts.  Returns how many rows a truncate removed."""
        tx, table_id = self.tx, writes.state.table.table_id
        removed = self._truncate(table_id, head, s) if writes.truncate else 0
        self._close(writes, head, s, ws.base)
        if writes.truncate:
            commits.add_touched(tx, table_id, s, None)
        elif writes.closed:
            commits.add_touched(tx, table_id, s, writes.closed)
        if ws.turn is not None and ws.turn.owns(table_id):
            commits.clear_reservation(tx, table_id)
        if writes.locked:
            commits.add_locked(tx, table_id, s, writes.locked)
        if writes.rows:
            columns, stored = writes.stored()
            if len(writes.rows) == 1:
                ((row_id, values),) = stored
                inline.insert_row(tx, table_id, columns, s, row_id, values)
            else:
                inline.insert_rows(tx, table_id, columns, ((s, row_id, *values) for row_id, values in stored))
        for block in writes.own_live_blocks():
            self._add_block(writes, block, s)
        return removed

    def _truncate(self, table_id: int, head: Head, s: int) -> int:
        """Removes what is live now."""
        removed = inline.close_all(self.tx, table_id, head.hot_floor, s)
        removed += layout.live_row_count(self.tx, table_id)
        layout.end_live_blocks(self.tx, table_id, s)
        return removed

    def _close(self, writes: TableWrites, head: Head, s: int, base: int) -> None:
        tx, table_id = self.tx, writes.state.table.table_id
        hot, moved = [], []
        for row_id, begin in writes.hot_closes.items():
            if (begin, row_id) > head.hot_floor:
                hot.append((begin, row_id))
            else:
                moved.append(row_id)
        if hot and inline.close_rows(tx, table_id, hot, s) != len(hot):
            raise AssertionError("a hot row that passed validation is nowhere")
        deletes: dict[int, Any] = {}
        live = layout.live_block_ids(tx, list(writes.block_closes))
        for file_id, positions in writes.block_closes.items():
            if file_id in live:
                deletes[file_id] = positions
            else:
                ids = RowIds.from_bytes(writes.block_row_ids[file_id])
                moved += ids.row_ids_at(np.frombuffer(positions.to_array(), np.uint32)).tolist()
        if moved:
            for file_id, positions in self._resolve(table_id, np.array(sorted(moved), np.int64), base).items():
                deletes[file_id] = deletes[file_id] | positions if file_id in deletes else positions
        for file_id, positions in deletes.items():
            layout.add_delete(tx, table_id, file_id, s, positions, s)

    def _resolve(self, table_id: int, row_ids: npt.NDArray[np.int64], base: int) -> dict[int, Any]:
        """Where rows lie that a job has moved since ``base``: the block position that no delete entry covers."""
        found: dict[int, Any] = {}
        missing = row_ids
        for block in layout.live_blocks_with(self.tx, table_id, int(row_ids[0]), int(row_ids[-1]), base):
            positions = RowIds.from_bytes(block.row_ids).positions_of(missing)
            here = positions >= 0
            for dead in layout.deleted_positions(self.tx, block.data_file_id) if here.any() else ():
                here &= ~is_among(positions, dead)
            if here.any():
                found[block.data_file_id] = BitMap(positions[here].tolist())
                missing = missing[~here]
            if not len(missing):
                return found
        raise AssertionError(f"rows {missing[:5].tolist()} passed validation but are nowhere")

    def _add_block(self, writes: TableWrites, block: NewBlock, s: int) -> None:
        state = writes.state
        add_block(self.tx, state.table.table_id, state.primary_index, block, s, begin=s, version=(s, s))


def add_block(
    tx: Transaction,
    table_id: int,
    primary_index: int | None,
    block: NewBlock,
    s: int,
    *,
    begin: int,
    version: tuple[int, int],
    end: int | None = None,
    role: str = "data",
) -> int:
    """Add the records of a finished block and of its segment; own dead positions are never visible."""
    record = BlockRecord(
        data_file_id=0, table_id=table_id, path=block.file.path, format=block.format, role=role,  # type: ignore[arg-type]
        row_order="row_id", size=block.file.size, record_count=block.record_count,
        row_ids=block.row_ids.to_bytes() if role != "history" else b"",
        min_row_id=block.bounds[0], max_row_id=block.bounds[1],
        min_snapshot=version[0], max_snapshot=version[1], column_stats=block.column_stats,
        checksum=block.file.checksum, partition_id=None, schema_snapshot=block.schema_snapshot,
        begin_snapshot=begin, end_snapshot=end, changed_in=s,
    )  # fmt: skip
    file_id = layout.add_block(tx, record)
    if block.segment is not None and primary_index is not None:
        file = block.segment.file
        layout.add_segment(
            tx,
            table_id,
            SegmentRecord(
                0,
                primary_index,
                (file_id,),
                file.path,
                file.size,
                file.checksum,
                block.segment.min_key,
                block.segment.max_key,
                begin,
                end,
                s,
            ),
        )
    if block.dead:
        layout.add_delete(tx, table_id, file_id, 0, block.dead, s)
    return file_id
