"""What must hold inside the critical section before anything is written.

A user's commit that fails a requirement raises an error; a job's plan that no longer holds is dropped and made again. A
user's requirements are checked in this order: horizon, definitions, touched rows, absent values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from indexlake.catalog import (
    activity,
    commits,
    data_files,
    definitions,
    fields,
    log_records,
    segments,
    table_heads,
)  # fmt: skip
from indexlake.catalog.commits import RESERVED
from indexlake.commit import absence, moved, placement
from indexlake.commit.turns import TurnNeeded, turn_needed
from indexlake.errors import ConflictError, NotFoundError, SnapshotExpiredError, StorageError

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.catalog.driver import Query, Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.commit.absence import Look
    from indexlake.commit.section import Section
    from indexlake.commit.write_set import TableWrites, WriteSet
    from indexlake.hot.store import HotStore, HotTable
    from indexlake.pipeline.job import Job


def require(section: Section, ws: WriteSet, writes: TableWrites, looks: Sequence[Look]) -> HotTable:
    """Check everything that a write-set requires of one table, and return the table's current hot rows."""
    head = _table_live(section, writes)
    rows = writes.closed | writes.locked if writes.locked else writes.closed
    if ws.base < head.horizon and (rows or not writes.blind):
        raise SnapshotExpiredError(
            f"The transaction on {writes.state.table.full_name!r} began at snapshot {ws.base}, which is older than the "
            f"history that is kept (from {head.horizon} on). Run it again.",
            snapshot_id=ws.base,
            horizon=head.horizon,
        )
    if head.schema_version != writes.state.table.schema_version:
        _schema_fits(section.tx, ws, writes)
    if rows:
        _rows_untouched(section, ws, writes, rows)
    state = writes.state
    if writes.blocks:
        # Writers are identified by the files' names: the process may have another writer by now.
        advice = ", and vacuum may have removed them. Nothing was committed: run the write again."
        require_writers(section.tx, {block.file.writer_id for block in writes.blocks}, advice)
        _no_layout_job(section, ws, writes)
    if state.ranges is not None:
        moved.check(section.tx, head, writes)
        placement.place(section.tx, state.table.table_id, writes.blocks)
    last = section.sequencer.last
    hot = section.hot.table(section.tx, state.table.table_id, head, state.current, last, at=last, newest=True)
    if (
        (writes.whole or (writes.truncate and not writes.blind))  # it may have read what it removes
        and (hot.has_begun_since(ws.base) or section.sequencer.has_changed_since(state.table.table_id, ws.base))
    ):
        name = state.table.full_name
        does = "truncates" if writes.truncate else "depends on all rows of"
        raise ConflictError(
            f"This transaction {does} {name!r}, whose rows were changed by another commit after it began at {ws.base}. "
            "Run it again; lake.run does so by itself.",
            table=name,
        )
    enforced: set[int] | None = None  # None: the indexes are those that the write-set knows
    if head.changed_in > state.at and (writes.rows or writes.blocks):
        enforced = segments.enforced_index_ids(section.tx, state.table.table_id)
        if not enforced <= writes.checked:
            raise absence.LookNeeded  # an index became unique after the transaction began
    for found in looks:
        index = found.wanted.index
        if enforced is None or index is None or index.index_id in enforced:  # otherwise the index was dropped
            absence.check(section.tx, head, hot, writes, found)
    return hot


def foreseen(hot: HotStore, ws: WriteSet, looks: Mapping[int, Sequence[Look]]) -> Iterator[Query]:
    """Yield the queries that checking a write-set will most likely make."""
    if ws.token is not None:
        yield commits.token_query(ws.token.name)
    yield log_records.EPOCH
    if ws.definitions:
        return  # tables may be new or different by then
    for table_id, writes in ws.tables.items():
        yield table_heads.head_query(table_id)
        if writes.closed or writes.locked:
            yield commits.touched_or_locked_query(table_id, ws.base)
        for wanted, *_ in looks.get(table_id, ()):
            if wanted.keys is not None and wanted.index is not None:
                yield from hot.foreseen(table_id, wanted.fields, wanted.keys)


def require_plan(
    section: Section, job: Job, table_id: int, planned_at: int, writer_id: str, *, clustered: bool | None = None
) -> bool:
    """Check everything that a job requires of its table; False: the plan is out of date and must be made again.

    ``clustered``: whether the planned blocks are for a clustered table; None if they suit either kind.
    """
    job.fence(section.tx)
    require_writers(section.tx, (writer_id,), ". Nothing was committed.")
    table = definitions.read_table(section.tx, table_id)
    if table is None or table.end_snapshot is not None or table.horizon > planned_at:
        return False
    return clustered is None or table.is_clustered == clustered


def require_writers(tx: Transaction, writers: Iterable[str], advice: str) -> None:
    """Check that the writers of new files still count as alive: only then are their files safe from vacuum."""
    if not all(activity.writer_is_alive(tx, writer) for writer in writers):
        raise StorageError(f"This process was declared dead while it was writing files{advice}")


def blocks_live(tx: Transaction, file_ids: Collection[int]) -> bool:
    """Return whether all the blocks are still live."""
    return len(data_files.live_block_ids(tx, list(file_ids))) == len(file_ids)


def _table_live(section: Section, writes: TableWrites) -> Head:
    table = writes.state.table
    head = section.heads.get(table.table_id) or section.head(table.table_id)
    if head is None or head.end_snapshot is not None:
        raise NotFoundError(f"Table {table.full_name!r} was dropped by another commit.", name=table.full_name)
    section.heads[table.table_id] = head
    section.sequencer.learn(head)
    return head


def _schema_fits(tx: Transaction, ws: WriteSet, writes: TableWrites) -> None:
    """Adapt the write-set to the table's new columns, or raise ``ConflictError`` if that is impossible."""
    table = writes.state.table
    if ws.single:
        raise ConflictError(
            f"The definition of table {table.full_name!r} changed meanwhile. Run it again.", table=table.full_name
        )
    found = definitions.read_table(tx, table.table_id)
    assert found is not None
    if found.layout != table.layout:
        raise ConflictError(
            f"The layout of table {table.full_name!r} changed after this transaction began. Run it again; lake.run "
            "does so by itself.",
            table=table.full_name,
        )
    writes.adopt(fields.read_schema(tx, found))


def _no_layout_job(section: Section, ws: WriteSet, writes: TableWrites) -> None:
    """Raise ``TurnNeeded`` if a job is about to finish changing the table's layout, unless it is this writer's turn."""
    table = writes.state.table
    job = activity.running_job(section.tx, table.table_id, *activity.LAST_ROUNDS)
    if job is None:
        return
    if ws.turn is None or not ws.turn.has(table.table_id):
        raise TurnNeeded(
            f"The layout of table {table.full_name!r} is being changed. Run it again; lake.run does so by itself.",
            table=table.full_name,
            tables=[table.table_id],
        )
    if ws.turn.owns(table.table_id):  # the job died, and its turn with it
        activity.end_job(section.tx, job.job_id, "lost", job.heartbeat_at, job.progress, "its owner is gone")


def _rows_untouched(section: Section, ws: WriteSet, writes: TableWrites, rows: BitMap64) -> None:
    table = writes.state.table
    writer = section.sequencer.first_conflict(table.table_id, ws.base, rows)
    if writer == RESERVED:
        if ws.turn is None or not ws.turn.has(table.table_id):
            raise turn_needed(ws, [table.table_id])
    elif writer is not None:
        raise ConflictError(
            f"Rows of {table.full_name!r} that this transaction changes were changed by commit {writer} after it began "
            f"at {ws.base}. Run it again; lake.run does so by itself.",
            table=table.full_name,
            snapshot_id=writer,
        )
