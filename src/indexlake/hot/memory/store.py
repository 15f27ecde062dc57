"""``MemoryStore``: the versions of all tables, commits that the catalog does not know yet, and the redo log.

One process owns the lake and numbers its commits. Most of them go only to the log; jobs, definitions, large loads and
whatever else needs the catalog are committed in the catalog, in the same sequence. Before anyone reads or writes the
catalog, it is *told* of the commits it does not know: their times, tokens, touched and deleted rows, everything but the
new versions themselves. So code that reads the catalog need not know that there is a log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from indexlake.catalog import commits, delete_entries, log_records
from indexlake.catalog.clock import now
from indexlake.catalog.inline import inline_table
from indexlake.errors import CatalogError, ConvertedError, OwnershipError
from indexlake.hot.inline import InlineStore, InlineTable
from indexlake.hot.memory.log_transaction import LogTransaction
from indexlake.hot.memory.ownership import CHECK_SECONDS, described
from indexlake.hot.memory.page import BITS, LIVE, SLOT
from indexlake.hot.memory.record import Change, Commit
from indexlake.hot.memory.redo import RedoLog
from indexlake.hot.memory.versions import Versions
from indexlake.hot.memory.view import PRIMARY, MemoryTable

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import Catalog, Query, ReadTransaction, Transaction
    from indexlake.hot.store import Chunk, HotTable
    from indexlake.indexes.keys import KeyColumn
    from indexlake.schema import Field, TableSchema
    from indexlake.storage.spill import Spill

MOST_UNTOLD = 10_000
"""When this many commits are unknown to the catalog, it is told of them, because they take memory."""

MOST_TOUCHED = 20_000
"""How many changes to rows of a table are remembered; transactions that began earlier consult the catalog."""


class Reader(Protocol):
    """A reader of a state as of ``at``: versions that move to blocks later are kept for it."""

    at: int


class MemoryStore:
    """The hot store of a lake in the memory of its owner."""

    keeps_superseded = False

    def __init__(self, catalog: Catalog, spill: Spill) -> None:
        self.catalog = catalog
        self.spill = spill
        self.inline = InlineStore(catalog, spill)
        self.turn = threading.RLock()  # the sequencer: held by every commit, in the log or in the catalog
        self.tables: dict[int, Versions] = {}
        self.log: RedoLog | None = None  # None: nothing survives the process
        self.epoch = 0
        self.lost: str | None = None  # why this process no longer owns the lake
        self.converted = False  # the lake has another hot store now
        self.visible = 0  # the newest commit
        self.committed_at = 0
        self.layout = 0  # the newest commit made in the catalog
        self.marked: dict[int, int] = {}  # per table, the newest commit that deleted rows of its blocks
        self.untold: list[Commit] = []
        self.readers: set[Reader] = set()
        self.left: set[int] = set()  # dropped tables whose rows only the catalog holds
        self._bounds: dict[int, int] = {}
        self._horizons: dict[int, int] = {}
        self._in_catalog: set[int] = set()  # tables with versions that the catalog also holds as inline rows
        self._touched: dict[int, list[tuple[int, BitMap64 | None]]] = {}
        self._touched_from = 0
        self._tokens: dict[str, dict[str, Any]] = {}
        self.time: Callable[[int], int] = partial(catalog.time, None)
        """Returns the lake's time, given the time of the newest commit."""
        self._confirmed = time.monotonic()  # when the lease was last read
        self._at_close: list[Callable[[], None]] = []
        self._writer: Any = None
        self._undo: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    # ------------------------------------------------------------ the protocol of hot stores

    def table(
        self, r: Any, table_id: int, moved: Any, schema: TableSchema, snapshot: int, *, at: int, newest: bool
    ) -> HotTable:
        of = self.tables.get(table_id)
        if of is None:
            if table_id in self.left:
                return self.inline.table(r, table_id, moved, schema, snapshot, at=at, newest=False)
            of = self.versions(table_id)
        return MemoryTable(self, r, table_id, of, schema, snapshot, at)

    def versions(self, table_id: int) -> Versions:
        found = self.tables.get(table_id)
        return found if found is not None else self.tables.setdefault(table_id, Versions())

    def check_width(self, tx: Transaction, table_id: int) -> None:
        self.inline.check_width(tx, table_id)

    def create(self, tx: Transaction, table_id: int, fields: Sequence[Field], key: Sequence[int]) -> None:
        self.inline.create(tx, table_id, fields, key)
        of = self.versions(table_id)
        self.note(tx, self.tables.pop, table_id, None)
        if key:
            by_id = {f.field_id: f for f in fields}
            of.add_tree(PRIMARY, [by_id[field_id] for field_id in key])

    def drop(self, tx: Transaction, table_id: int) -> None:
        self.inline.drop(tx, table_id)
        if (of := self.tables.pop(table_id, None)) is not None:
            self.note(tx, self.tables.__setitem__, table_id, of)

    def add_columns(self, tx: Transaction, table_id: int, fields: Sequence[Field]) -> None:
        self.inline.add_columns(tx, table_id, fields)

    def drop_column(self, tx: Transaction, table_id: int, field_id: int) -> None:
        self.inline.drop_column(tx, table_id, field_id)

    def add_index(self, tx: Transaction, table_id: int, index_id: int, fields: Sequence[Field]) -> None:
        self.inline.add_index(tx, table_id, index_id, fields)
        of = self.versions(table_id)
        self.note(tx, of.drop_tree, index_id)
        of.add_tree(index_id, fields)

    def drop_index(self, tx: Transaction, table_id: int, index_id: int) -> None:
        self.inline.drop_index(tx, table_id, index_id)
        of = self.versions(table_id)
        if (tree := of.drop_tree(index_id)) is not None:
            self.note(tx, of.put_back_tree, index_id, tree)

    def bounds(self, tx: Transaction, table_id: int, f: Field) -> tuple[Any, Any] | None:
        if f.released:
            return None
        values = [
            value
            for page, mask in self.versions(table_id).masked("live")
            for value in page.column(f.column, mask)
            if value is not None
        ]
        return (min(values), max(values)) if values else None

    def oldest(self, tx: Transaction, table_id: int) -> int | None:
        return self.inline.oldest(tx, table_id) if table_id in self.left else self.versions(table_id).oldest()

    def release(self, tx: Transaction, table_id: int, chunk: Chunk, snapshot: int) -> bool:
        of, before = self.versions(table_id), self._bounds.get(table_id, 0)
        until, chosen = chunk.mark
        if any((page.moved_numbers()[: len(mask)][mask] != LIVE).any() for page, mask in chosen):
            return False
        if not log_records.move_bound(tx, table_id, before, until, snapshot):
            return False
        self.note(tx, setattr, of, "count", of.count)
        for page, mask in chosen:
            self.note(tx, _move_back, page, mask)
            page.moved_numbers()[: len(mask)][mask] = snapshot
            of.count -= int(mask.sum())
        self._bounds[table_id] = until
        self.note(tx, self._bounds.__setitem__, table_id, before)
        if table_id in self._in_catalog:
            tx.execute(f"delete from {inline_table(table_id)} where _begin <= ?", (until,))
        bound = self.bound(snapshot)
        log_records.set_bound(tx, bound)
        log_records.unlist_up_to(tx, bound)
        return True

    def bound(self, newest: int) -> int:
        """Return the commit up to which the catalog and its files hold everything, given that they hold ``newest``."""
        alone = [of.first_after(self._bounds.get(table_id, 0)) for table_id, of in self.tables.items()]
        return min([newest, *(number - 1 for number in alone if number is not None)])

    def has_alone(self, table_id: int) -> bool:
        """Return whether the catalog lacks versions of the table, or their ends."""
        of = self.tables.get(table_id)
        return of is not None and of.first_after(self._bounds.get(table_id, 0)) is not None

    def move_bound(self, tx: Transaction, newest: int) -> None:
        """Move the lake's bound to a commit of the catalog if no versions are only in memory."""
        if newest > self.visible and not any(of.count for of in self.tables.values()):
            log_records.set_bound(tx, newest)

    def purge(self, tx: Transaction, table: TableRecord, limit: int) -> int:
        self._horizons[table.table_id] = table.horizon
        before = min([reader.at for reader in list(self.readers)], default=self.visible)
        of = self.tables.get(table.table_id)
        return 0 if of is None else of.release(before, table.horizon)

    def settle(self) -> None:
        from indexlake.hot.memory.rotation import trim

        trim(self)

    def locations(self, table_id: int, row_ids: Sequence[int]) -> list[str]:
        if table_id in self.left:
            return self.inline.locations(table_id, row_ids)
        newest = self.versions(table_id).newest
        versions = [newest.get(row_id, -1) for row_id in row_ids]
        return [f"memory:{v >> BITS}:{v & SLOT}" for v in versions]

    def foreseen(self, table_id: int, fields: Sequence[Field], keys: KeyColumn) -> Iterable[Query]:
        return ()

    def still_there(self, r: ReadTransaction | Transaction, newest: int) -> None:
        self.check_lease(r)

    def committed(self, number: int) -> None:
        """Do nothing: the lease is checked in every catalog transaction."""

    def done(self, tx: Transaction | LogTransaction) -> int:
        return len(self._undo) if self._writer is tx else 0

    def undo(self, tx: Transaction | LogTransaction, done: int = 0) -> None:
        if self._writer is not tx:
            return
        interrupted: KeyboardInterrupt | None = None
        try:
            while self._undo[done:]:
                try:
                    function, args = self._undo[-1]
                    function(*args)
                    self._undo.pop()
                except KeyboardInterrupt as error:
                    interrupted = error
        except BaseException:
            self.lost = "A commit was abandoned and may be partly in memory. Close the lake and connect again."
            raise
        if interrupted is not None:
            raise interrupted

    # ------------------------------------------------------------ for its tables

    def note(self, tx: Any, function: Callable[..., Any], *args: Any) -> None:
        """Note how to undo what the transaction is about to do; ``function`` must tolerate being called twice."""
        if self._writer is not tx:  # the previous writer has ended: only one writes at a time
            self._writer = tx
            self._undo.clear()
        self._undo.append((function, args))

    def inserted(
        self, tx: Any, table_id: int, columns: tuple[str, ...], rows: Collection[tuple[int, Any]], snapshot: int
    ) -> None:
        """Make new versions durable with their commit: in the log, or in the catalog."""
        if isinstance(tx, LogTransaction):
            change = tx.change(table_id)
            change.columns, change.rows = columns, rows
        else:
            self._in_catalog.add(table_id)
            into: Any = InlineTable(tx, table_id, None, None, snapshot, True, self.spill)  # type: ignore[arg-type]
            into.insert(columns, rows, snapshot)

    @property
    def size(self) -> int:
        """Approximate size of the versions in bytes."""
        return sum([of.bytes for of in list(self.tables.values())])

    def open_table(self, table_id: int, bound: int, horizon: int) -> Versions:
        """Return a table's versions, given that blocks and the catalog hold everything up to ``bound``."""
        self._bounds[table_id], self._horizons[table_id] = bound, horizon
        return self.versions(table_id)

    def begin_at(self, newest: int) -> None:
        """Begin with this as the newest commit; only the catalog knows which rows were touched up to then."""
        self.visible = self._touched_from = newest

    def leave(self, table_id: int) -> None:
        """Let go of the versions of a dropped table, all of which the catalog holds."""
        self.left.add(table_id)
        self.tables.pop(table_id, None)

    def holds_inline(self, table_id: int) -> None:
        """Note that the catalog holds versions of the table as inline rows."""
        self._in_catalog.add(table_id)

    def remember(self, token: str, result: dict[str, Any]) -> None:
        self._tokens[token] = result

    def horizon(self, table_id: int) -> int:
        return self._horizons.get(table_id, 0)

    # ------------------------------------------------------------ commits of the log

    def set_clock(self, r: ReadTransaction | Transaction) -> None:
        """Measure how far the clock of a database server, which is the lake's, is ahead of this machine's."""
        server = commits.newest(r)[2]
        if server is not None:
            ahead = server - now()
            self.time = lambda last: now() + ahead

    def check(self) -> None:
        """Raise if this process cannot commit."""
        if self.converted:
            raise ConvertedError(
                "The hot store of this lake was changed with lake.convert after you opened it. Connect again."
            )
        if self.lost is not None:
            raise OwnershipError(self.lost)
        if self.log is not None:
            self.log.tidy()
            self.log.check()

    def check_lease(self, r: ReadTransaction | Transaction) -> None:
        """Raise if another process owns the lake."""
        if self.converted:
            self.check()
        if log_records.read_epoch(r) != self.epoch:
            owner = log_records.read_owner(r)
            self.lost = (
                f"This process does not own the lake any more: {described(owner)} has taken it over. What was being "
                "committed may be lost. Close the lake and connect again."
            )
            self.check()

    def confirm(self) -> None:
        """Check, before commits are acknowledged, that this process owned the lake at most a second ago.

        While the catalog cannot be read, the lock on the folder has to suffice.
        """
        began = time.monotonic()
        if began > self._confirmed + CHECK_SECONDS:
            with suppress(CatalogError), self.catalog.read() as r:
                self.check_lease(r)
            self._confirmed = began

    def conflict(self, table_id: int, since: int, rows: BitMap64) -> int | None:
        """Return the first commit after ``since`` that changed or locked one of the rows."""
        found = None
        for number, touched in reversed(self._touched.get(table_id, ())):
            if number <= since:
                break
            if touched is None or not rows.isdisjoint(touched):
                found = number
        return found

    def knows_changes_since(self, since: int) -> bool:
        return since >= self._touched_from

    def token(self, token: str) -> dict[str, Any] | None:
        return self._tokens.get(token)

    def published(self, done: Iterable[Commit]) -> None:
        """Make durable commits visible to everybody; may be called again for the same commits."""
        self._undo.clear()
        for commit in done:
            if commit.number <= self.visible:
                continue  # already published before an interrupt
            for table_id, change in list(commit.tables.items()):
                change.rows = ()  # the pages hold these versions
                if change.closed or change.locked:
                    self._touch(table_id, commit.number, change)
                else:
                    del commit.tables[table_id]
            if commit.token is not None and commit.result is not None:
                self.remember(commit.token, commit.result)
            if not self.untold or self.untold[-1].number < commit.number:
                self.untold.append(commit)
            self.committed_at = commit.committed_at
            self.visible = commit.number

    def _touch(self, table_id: int, number: int, change: Change) -> None:
        touched = self._touched.setdefault(table_id, [])
        if change.closed:
            touched.append((number, change.closed))
        if change.locked:
            touched.append((number, change.locked))
        if change.deleted:
            self.marked[table_id] = number
        if len(touched) > MOST_TOUCHED:
            self._touched_from = max(self._touched_from, touched[MOST_TOUCHED // 2][0])
            del touched[: MOST_TOUCHED // 2 + 1]

    # ------------------------------------------------------------ commits of the catalog

    def tell(self, tx: Transaction) -> int:
        """Write commits that the catalog does not know; return the newest it knew before."""
        known = commits.last_snapshot(tx)[0]
        told = [commit for commit in self.untold if commit.number > known]
        if not told:
            return known
        if self.log is not None:
            self.log.sync_through(told[-1].number)
            log_records.set_told(tx, told[-1].number)
        commits.add_snapshots(tx, [(c.number, c.committed_at, c.operation, c.summary, c.commit_token) for c in told])
        changes = [(c.number, table_id, change) for c in told for table_id, change in c.tables.items()]
        commits.add_all_touched(tx, [(t, n, change.closed.serialize()) for n, t, change in changes if change.closed])
        commits.add_all_locked(tx, [(t, n, change.locked.serialize()) for n, t, change in changes if change.locked])
        delete_entries.add_deletes(
            tx,
            [
                (table_id, file_id, n, positions)
                for n, table_id, change in changes
                for file_id, positions in change.deleted.items()
            ],
        )
        for c in told:
            if c.token is not None and c.result is not None:
                commits.add_token(tx, c.token, c.number, c.result, c.committed_at)
        return known

    def told(self, newest: tuple[int, int]) -> None:
        """Note that a catalog transaction has committed, so that the catalog knows everything up to ``newest``."""
        self._undo.clear()
        self.untold, self._tokens = [], {}  # the catalog has them
        number, committed_at = newest
        if number > self.visible:
            self._touched.clear()  # the catalog knows what this commit touched
            self._touched_from = number
            self.committed_at = committed_at
            self.layout = number
            self.visible = number

    def on_close(self, function: Callable[[], None]) -> None:
        self._at_close.append(function)

    def close(self) -> None:
        with self.turn:
            self.lost = self.lost or "This lake is closed. Call il.connect again."
            try:
                if self.log is not None:
                    self.log.close()
            finally:
                while self._at_close:
                    self._at_close.pop()()


def _move_back(page: Any, mask: Any) -> None:
    page.moved_numbers()[: len(mask)][mask] = LIVE
