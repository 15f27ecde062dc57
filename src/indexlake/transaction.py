"""A transaction: a snapshot to read, and a write-set to commit.

Transactions have snapshot isolation.  Writes stay in the client until the commit, which applies all of them or none;
the transaction's own reads see them.  A transaction belongs to the thread that began it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from indexlake.catalog.index_definitions import CreateIndex
from indexlake.catalog.table_heads import reserve_row_ids
from indexlake.commit.draft import Draft, Tried
from indexlake.commit.keys_so_far import KeysSoFar
from indexlake.commit.token import Token, TokenLike
from indexlake.commit.write_set import TableWrites, WriteResult, WriteSet
from indexlake.errors import IndexLakeError, OwnershipError, SnapshotExpiredError
from indexlake.lake_definitions import LakeDefinitions
from indexlake.snapshots.reading import OpenReading, Reading, Readings
from indexlake.snapshots.seen import Seen
from indexlake.snapshots.state import TableState
from indexlake.writes.row_ids import RowIdAllocator

if TYPE_CHECKING:
    from indexlake.catalog.definitions import DefinitionChange
    from indexlake.catalog.driver import Transaction as CatalogTransaction
    from indexlake.hot.store import HotStore
    from indexlake.lake import Lake
    from indexlake.snapshots.pins import Pin
    from indexlake.sql.run.result import SqlResult
    from indexlake.writes.changed_rows import ChangedRows


class Transaction(LakeDefinitions):
    """Returned by ``lake.transaction()``.  As a context manager it commits at the end, or rolls back on an error."""

    reads_anew = False  # it lost before, perhaps because of cached state
    watching: ChangedRows | None = None  # notified of each change before it is made
    draft: Draft | None = None  # what it has defined
    result: WriteResult | None = None
    state = "open"
    _pin: Pin | None = None

    def __init__(
        self, lake: Lake, token: TokenLike | None = None, *, base: int | None = None, read_only: bool = False
    ) -> None:
        self._lake = lake
        self.read_only = read_only
        self._thread = threading.get_ident()
        self._base = base
        self.is_statement = base is None  # a single statement, which finds its snapshot when it first reads
        self._numbered: set[int] = set()  # tables that it has created, even if it has dropped them again
        self._undo: list[Callable[[], None]] = []
        self._keys: dict[int, KeysSoFar] = {}
        self.write_set = WriteSet(base if base is not None else -1, Token.of(token), single=base is None)

    def __repr__(self) -> str:
        return f"<Transaction at snapshot {self._base}, {self.state}, {len(self.write_set.tables)} table(s) written>"

    def __reduce__(self) -> Any:
        raise TypeError("A Transaction belongs to the process that began it and cannot be pickled.")

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that the transaction reads."""
        return self._base

    def sql(
        self,
        text: str,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        namespace: str | None = None,
        engine: str = "duckdb",
    ) -> SqlResult:
        """``lake.sql`` inside this transaction: it reads its snapshot and its own writes, and commits with it."""
        from indexlake.sql.run.statements import run

        return run(self._lake, text, params, namespace=namespace, engine=engine, transaction=self)

    def commit(self) -> WriteResult:
        """Apply all writes, or none."""
        self._check()
        self.state = "committing"
        try:
            if self.draft is not None:
                self.write_set.definitions += [RowsNumbered(self._lake._row_ids, n) for n in self.draft.created]
            self.result = self._lake._commit(self.write_set)
        except BaseException:
            self.state = "failed"
            self._undone()
            raise
        finally:
            self.unpin()
            self._forget_new_tables()
        self.state = "committed"
        if self.draft is not None:
            draft = self.draft
            self._lake._forget_tables(sorted(draft.created | draft.altered | draft.dropped))
            self._build_indexes(draft)
        return self.result

    def rollback(self) -> None:
        """Discard all writes.  Vacuum removes files that were already written for large inserts."""
        self.unpin()
        self._forget_new_tables()
        if self.state == "open":
            self.state = "rolled back"
            self._undone()
            if self.draft is not None:
                with suppress(IndexLakeError):  # what is left is never asked for
                    self._lake._readings.sequences.forget(self.draft.named_ids())

    def __enter__(self) -> Transaction:
        self._check()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.rollback()
        elif self.state == "open":
            self.commit()

    # ------------------------------------------------------------ for the table operations

    def _check(self, *, writing: bool = False) -> None:
        self._lake._check(writing=writing)
        if self._thread != threading.get_ident():
            raise OwnershipError("A transaction belongs to the thread that began it. Begin one in this thread.")
        if self.state != "open":
            raise OwnershipError(f"This transaction is {self.state}. Begin another one.")
        if writing and self.read_only:
            raise OwnershipError("This transaction began READ ONLY. Begin another one to write.")

    def _set_base(self, snapshot: int) -> None:
        if self._base is None:
            self._base = self.write_set.base = snapshot

    def pin(self) -> None:
        """Keep the snapshot until the commit, however long that takes."""
        if self._pin is None and self._base is not None:
            self._pin = self._lake._pins.pin(self._base)

    def unpin(self) -> None:
        if self._pin is not None:
            self._pin.release()
            self._pin = None

    def reading(self, table_id: int) -> OpenReading:
        """Open a table at the transaction's snapshot, with its own definitions and writes."""
        if self.draft is not None and self.draft.touches(table_id):
            return _TriedReading(self._lake._readings, table_id, self._choose, self.draft)
        return self._lake._readings.open(table_id, self._choose)

    def _choose(self, state: TableState) -> tuple[int, TableWrites | None]:
        base = self._base
        if base is None:
            base = self._base = self.write_set.base = state.at
        if base < state.table.horizon:
            raise SnapshotExpiredError(
                f"Snapshot {base} of {state.table.full_name!r} is older than the history that is kept "
                f"(from {state.table.horizon} on). Begin a new transaction.",
                snapshot_id=base,
                horizon=state.table.horizon,
            )
        return base, self.write_set.tables.get(state.table.table_id)

    def state_to_write(self, table_id: int) -> TableState:
        """Return a state to insert with; a cached one is enough, because the commit checks what it misses.

        A transaction that already has its snapshot writes with the columns of that snapshot.
        """
        known = self.write_set.tables.get(table_id)
        if known is not None:
            return known.state
        if self.draft is not None and self.draft.touches(table_id):
            return self.state_of(table_id)
        readings = self._lake._readings
        state = readings.states.get(table_id)
        if state is None or self.reads_anew or (self._base is not None and state.at < self._base):
            state = readings.latest(table_id)
        self._set_base(state.at)
        assert self._base is not None
        return state.as_of(self._base)

    # ------------------------------------------------------------ definitions

    def state_of(self, table_id: int) -> TableState:
        """Return a table's state with the columns that the transaction sees."""
        with self.reading(table_id) as reading:
            return reading.state

    @property
    def _transaction(self) -> Transaction:  # type: ignore[override]
        return self

    def when_undone(self, function: Callable[[], None]) -> None:
        """Call a function if the transaction is not committed."""
        self._undo.append(function)

    def _undone(self) -> None:
        while self._undo:
            self._undo.pop()()

    def depend_on(self, table_id: int) -> None:
        """Conflict with every other commit that changes rows of the table: a definition depends on all of them."""
        self.writes(self.state_to_write(table_id)).whole = True

    def _seen(self, snapshot: int | None = None) -> Seen:
        readings = self._lake._readings
        return Seen(readings, self._base) if self.draft is None else Tried(readings, self.draft)

    def _define(self, change: DefinitionChange, operation: str) -> WriteResult:
        """Check a change of definitions and keep it for the commit."""
        self._check(writing=True)
        assert self._base is not None
        lake, before = self._lake, self.draft or Draft(self._base)
        draft = before.with_change(lake.catalog, lake._hot, change, lake._readings.sequences)
        if draft is before:
            return WriteResult(0)
        self.draft, tables = draft, dict(self.write_set.tables)
        try:
            for table_id, writes in self.write_set.tables.items():
                if table_id in draft.dropped:
                    del tables[table_id]
                elif draft.touches(table_id):
                    tables[table_id] = writes.redefined(self.state_of(table_id))
        except BaseException:
            self.draft = before if before.changes else None
            raise
        for table_id in draft.created - self._numbered:
            lake._row_ids.begin(table_id)
            self._numbered.add(table_id)
        self._take(draft, tables)
        return WriteResult(0)

    def _take(self, draft: Draft | None, tables: dict[int, TableWrites]) -> None:
        ws, self.draft = self.write_set, draft
        ws.tables, ws.draft, ws.definitions = tables, draft, [] if draft is None else list(draft.changes)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo what several steps have done in the transaction if one of them fails."""
        draft, tables = self.draft, {number: writes.copied() for number, writes in self.write_set.tables.items()}
        try:
            yield
        except BaseException:
            if self.state == "open":
                self._take(draft, tables)
            raise

    def _build_indexes(self, draft: Draft) -> None:
        """Index the rows for which the transaction has created indexes; until that is done, they are scanned."""
        from indexlake.pipeline.create_index import build

        for change in (drafted.change for drafted in draft.changes):
            if isinstance(change, CreateIndex) and change.table_id not in draft.dropped:
                with suppress(IndexLakeError):  # background work builds it
                    build(self._lake, change)

    def _forget_new_tables(self) -> None:
        while self._numbered:
            self._lake._row_ids.end(self._numbered.pop())

    def check_keys(self, table_id: int) -> None:
        """End the transaction if what it has written to a table repeats a key: it could not be committed."""
        writes = self.own_writes(table_id)
        if writes is None or not writes.state.enforced:
            return
        readings = None if self.write_set.is_new(table_id) else self._lake._readings
        try:
            self._keys.setdefault(table_id, KeysSoFar(self.write_set.base)).check(writes, readings, self._lake._files)
        except BaseException:
            self.rollback()
            self.state = "failed"
            raise

    def is_outdated(self, state: TableState) -> bool:
        """Return whether a statement was made for columns that the table no longer has."""
        if not self.write_set.single:
            return False
        newest = self._lake._readings.latest(state.table.table_id)
        return newest.table.schema_version != state.table.schema_version

    def writes(self, state: TableState) -> TableWrites:
        return self.write_set.writes(state)

    def own_writes(self, table_id: int) -> TableWrites | None:
        return self.write_set.tables.get(table_id)


class _TriedReading(OpenReading):
    """A reading of a table that the transaction has created or altered."""

    __slots__ = ("_draft",)

    def __init__(self, readings: Readings, table_id: int, choose: Any, draft: Draft) -> None:
        super().__init__(readings, table_id, choose)
        self._draft = draft

    def __enter__(self) -> Reading:
        tried: Any = Tried(self._readings, self._draft)
        self._transaction = tried.__enter__()
        try:
            state = tried.state(self._table_id)
            assert self._choose is not None
            snapshot, writes = self._choose(state)
            return tried.reading(state, snapshot, writes)  # type: ignore[no-any-return]
        except BaseException as error:
            tried.__exit__(type(error), error, error.__traceback__)
            raise


class RowsNumbered:
    """Records how many rows were numbered in a new table before it was committed."""

    table_id: None = None

    def __init__(self, row_ids: RowIdAllocator, number: int) -> None:
        self._row_ids = row_ids
        self._of = number

    def apply(self, tx: CatalogTransaction, hot: HotStore, snapshot: int) -> bool:
        reserve_row_ids(tx, self._of, self._row_ids.next(self._of) - 1)
        return False
