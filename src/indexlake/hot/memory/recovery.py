"""From a catalog and a redo log to the versions in memory, and to a log that goes on.

The opener raises the epoch before it reads the log, so that a former owner that still writes acknowledges nothing that
is not read here.  The good records of the open file are copied into a file of this epoch before anything of them is
shown: they may have been in the page cache only, and a former owner might still append to the old file.  A crash
anywhere leaves a log that is read again in the same way.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyroaring import BitMap64

from indexlake.catalog import commits, definitions, fields, log_records, segments
from indexlake.catalog.inline import select_rows
from indexlake.catalog.log_records import LogOwner, Segment
from indexlake.display import counted, html_facts
from indexlake.display.progress import ProgressBar
from indexlake.errors import CorruptionError, OwnershipError
from indexlake.hot.memory import record
from indexlake.hot.memory.ownership import become_owner
from indexlake.hot.memory.redo import Durability, RedoLog, segment_name, sync_folder, write_all
from indexlake.hot.memory.view import PRIMARY
from indexlake.indexes.registry import kind_if_known
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import Catalog, ReadTransaction
    from indexlake.hot.memory.ownership import FolderLock
    from indexlake.hot.memory.record import Commit
    from indexlake.hot.memory.store import MemoryStore


@dataclass(slots=True)
class Recovery:
    """What opening the lake found in its redo log."""

    epoch: int = 0
    files: int = 0
    commits: int = 0
    """Commits that were replayed."""
    rows: int = 0
    """Row versions that they brought back."""
    cut_off: int = 0
    """Bytes at the end of the log that were no whole record: of commits that nobody was told of."""
    last_commit: int = 0

    def __str__(self) -> str:
        text = f"epoch {self.epoch}: {counted(self.commits, 'commit')} with {counted(self.rows, 'row')} replayed"
        text += f" from {counted(self.files, 'file')} of the redo log, up to snapshot {self.last_commit}"
        return text + (f"; {counted(self.cut_off, 'byte')} at its end were no whole record" if self.cut_off else "")

    def _repr_html_(self) -> str:
        facts = {"epoch": self.epoch, "files": self.files, "commits": self.commits, "rows": self.rows}
        return html_facts("recovery", {**facts, "cut off": self.cut_off, "last commit": self.last_commit})


@dataclass(slots=True)
class _Log:
    """What was read of the log."""

    commits: list[Commit] = field(default_factory=list)
    tail: list[bytes] = field(default_factory=list)  # the records of the open file, as they are
    tail_last: int = 0
    open: Segment | None = None


def recover(
    store: MemoryStore, catalog: Catalog, lock: FolderLock, durability: Durability, *, take_over: bool
) -> Recovery:
    """Take the lake over and bring back what its log holds."""
    found, folder = Recovery(), lock.folder
    with catalog.transaction() as tx:
        store.epoch, wait = become_owner(tx, lock, commits.last_snapshot(tx)[0], take_over=take_over)
        lake = tx.rows("select lake_id, incarnation from indexlake_lake")[0]
        tx.commit()
    found.epoch = store.epoch
    faults.step("recovery.epoch")
    time.sleep(wait)
    with catalog.read() as r:
        owner = log_records.read_owner(r)
        assert owner is not None
        listed = log_records.read_segments(r)
        log = _read(folder, listed, lake[0], found)
        last, committed_at = commits.last_snapshot(r)
        store.set_clock(r)
        _check_gaps(r, log, owner, last)
    _go_on(store, catalog, folder, lake, log, durability)
    with catalog.read() as r:
        _replay(store, r, log, found)
    newest = log.commits[-1] if log.commits and log.commits[-1].number > last else None
    store.layout = last
    store.visible = found.last_commit = last if newest is None else newest.number
    store.committed_at = committed_at if newest is None else max(committed_at, newest.committed_at)
    store.untold = [commit for commit in log.commits if commit.number > last]
    for commit in store.untold:
        if commit.token is not None and commit.result is not None:
            store.remember(commit.token, commit.result)
    faults.step("recovery.done")
    return found


# ---------------------------------------------------------------- reading


def _read(folder: str, listed: list[Segment], lake_id: str, found: Recovery) -> _Log:
    log = _Log()
    for segment in listed:
        path = os.path.join(folder, segment_name(segment.epoch, segment.number))
        sealed = segment.last_commit is not None
        try:
            size = os.path.getsize(path)
        except FileNotFoundError:
            raise _damaged(path, "is missing") from None
        if sealed and size < (segment.size or 0):
            raise _damaged(path, f"has {size:,} bytes instead of {segment.size:,}")
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                _read_one(log, found, segment, path, data[: segment.size] if sealed else data, lake_id)
            finally:
                data.release()
        found.files += 1
    return log


def _read_one(log: _Log, found: Recovery, segment: Segment, path: str, data: memoryview, lake_id: str) -> None:
    head = next(record.parts(data), None)
    if (
        head is None
        or head[0][:3] != (record.MAGIC, record.FORMAT, lake_id)
        or head[0][4:]
        != (
            segment.epoch,
            segment.number,
        )
    ):
        raise _damaged(path, "does not begin as a file of this lake's log")
    sealed, end = segment.last_commit is not None, head[1]
    for each in record.records(data, end):
        log.commits.append(each.commit)
        if not sealed:
            log.tail.append(bytes(data[end : each.end]))
            log.tail_last = each.commit.number
        end = each.end
    if end < len(data):
        after = log.commits[-1].number if log.commits else 0
        if sealed:
            raise _damaged(path, f"is damaged after commit {after}")
        if record.is_evidence(data, end + 1, after + 1):
            raise _damaged(path, f"is damaged after commit {after}, and later records show that the next was durable")
        found.cut_off = len(data) - end
    data.release()
    if not sealed:
        log.open = segment


def _damaged(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"The redo log's file {path} {what}: commits that were acknowledged are lost. Nothing was changed. Bring the "
        "file back, or restore the lake from a backup.",
        path=path,
    )


def _check_gaps(r: ReadTransaction, log: _Log, owner: LogOwner, last: int) -> None:
    """Each number above the bound is in the log or is a commit of the catalog."""
    bound, there = owner.bound, {commit.number for commit in log.commits}
    end = max(there, default=0)
    if owner.told > max(bound, end):
        raise CorruptionError(
            f"The redo log ends with commit {end}, but the catalog knows that commit {owner.told} was in it: a part of "
            "the log is lost. Nothing was changed. Bring the log's files back, or restore the lake from a backup."
        )
    newest = max([last, *there])
    missing = [n for n in range(bound + 1, newest + 1) if n not in there]
    known = {n for (n,) in r.rows("select snapshot_id from indexlake_snapshot where snapshot_id > ?", (bound,))}
    gap = next((n for n in missing if n not in known), None)
    if gap is not None:
        raise CorruptionError(
            f"Commit {gap} is neither in the redo log nor in the catalog: a part of the log is lost. Nothing was "
            "changed. Bring the log's files back, or restore the lake from a backup."
        )


def _go_on(
    store: MemoryStore, catalog: Catalog, folder: str, lake: tuple[str, int], log: _Log, durability: Durability
) -> None:
    """Copy the tail into a sealed file of this epoch, and begin the next file."""
    number, copied = 1, 0
    if log.tail:
        path = os.path.join(folder, segment_name(store.epoch, number))
        content = record.header(*lake, store.epoch, number) + b"".join(log.tail)
        handle = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_folder(folder)
        faults.step("recovery.copied")
        number, copied = 2, len(content)
    store.log = RedoLog(folder, lake, store.epoch, number, durability)
    with catalog.transaction() as tx:
        if log_records.read_epoch(tx) != store.epoch:
            store.log.close()
            raise OwnershipError("Another process took the lake over while it was opened. Connect again.")
        if log.open is not None:
            log_records.unlist(tx, log.open.epoch, log.open.number)
        if log.tail:
            log_records.list_segment(tx, Segment(store.epoch, 1, log.tail_last, copied))
        log_records.list_segment(tx, Segment(store.epoch, number, None, None))
        faults.step("recovery.listed")
        tx.commit()


# ---------------------------------------------------------------- replaying


def _replay(store: MemoryStore, r: ReadTransaction, log: _Log, found: Recovery) -> None:
    bounds = log_records.read_bounds(r)
    tables = [*definitions.list_tables(r), *definitions.list_dropped_tables(r)]
    for table in tables:
        _open_table(store, r, table, bounds[table.table_id])
    replayed = set()
    with ProgressBar("replaying the redo log", None) as bar:
        events = sorted(_events(store, r, log, tables, bounds), key=lambda event: (event.number, bool(event.rows)))
        for done, event in enumerate(events):
            of = store.versions(event.table_id)
            for version in of.live_versions() if event.closed is None else map(of.live_version, event.closed):
                if version is not None:
                    of.end(version, event.number)
            for row_id, values in event.rows:
                of.add(event.columns, row_id, values, event.number)
            found.rows += len(event.rows)
            replayed.add(event.number)
            if done % 10_000 == 0:
                bar.show(done, len(events), rows=found.rows, size=0)
    found.commits = len(replayed)


class _Event(NamedTuple):
    """What a commit did to the versions of a table: it ended some of them, None: all, then brought new ones."""

    number: int
    table_id: int
    closed: Iterable[int] | None
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[int, Any]] = ()


def _open_table(store: MemoryStore, r: ReadTransaction, table: TableRecord, bound: int) -> None:
    schema = fields.read_schema(r, table).current
    of = store.open_table(table.table_id, bound, table.horizon)
    if table.primary_key:
        of.add_tree(PRIMARY, [schema.by_id[i] for i in table.primary_key])
    for index in segments.read_indexes(r, table.table_id):
        kind = None if index.is_primary or index.end_snapshot is not None else kind_if_known(index.kind)
        if kind is not None and index.fits(schema) and (kept := kind.hot_fields(index.fields(schema))):
            of.add_tree(index.index_id, kept)


def _events(
    store: MemoryStore, r: ReadTransaction, log: _Log, tables: Sequence[TableRecord], bounds: Mapping[int, int]
) -> Iterator[_Event]:
    """Of the log, above each table's bound; of commits of the catalog, which the log does not have."""
    logged = {commit.number for commit in log.commits}
    for commit in log.commits:
        for table_id, change in commit.tables.items():
            if commit.number > bounds.get(table_id, commit.number):  # else the table is gone, or blocks hold it
                yield _Event(commit.number, table_id, change.closed or (), change.columns, change.rows)
    for table in tables:
        table_id = table.table_id
        for number, data in commits.touched_since(r, table_id, bounds[table_id]):
            if number not in logged:
                yield _Event(number, table_id, None if data is None else BitMap64.deserialize(data))
        for begin, row_id, end, columns, values in _inline_rows(r, table):
            store.holds_inline(table_id)
            yield _Event(begin, table_id, (), columns, [(row_id, values)])
            if end is not None:
                yield _Event(end, table_id, (row_id,))


def _inline_rows(r: ReadTransaction, table: TableRecord) -> Iterator[tuple[int, int, int | None, Any, Any]]:
    """Versions that the catalog holds and no block does."""
    columns = fields.held_columns(r, table.table_id)
    for begin, row_id, end, *values in r.query(select_rows(table.table_id, columns)):
        floor = table.hot_floor if end is None else table.history_floor
        if (begin if end is None else end, row_id) > floor:
            yield begin, row_id, end, columns, values
