"""One table at one snapshot, as one read transaction sees it.

The state of the table and its hot rows come from the same read transaction, so a concurrent job can neither hide nor
duplicate a row. ``hot`` and ``transaction`` end with the transaction; the other parts stay valid, and files are read
after it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from indexlake.catalog import commits, table_heads
from indexlake.errors import ConvertedError
from indexlake.snapshots.sequences import Sequences
from indexlake.snapshots.state import Stale, StateCache, TableState, refresh

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog, ReadTransaction, Transaction
    from indexlake.commit.write_set import TableWrites
    from indexlake.hot.store import HotStore, HotTable
    from indexlake.schema import TableSchema


class Reading:
    """One table at one snapshot; ``state`` has that snapshot's columns, ``writes`` are the transaction's own."""

    __slots__ = ("hot", "newest", "snapshot", "state", "transaction", "writes")

    def __init__(
        self,
        transaction: ReadTransaction | Transaction,
        state: TableState,
        snapshot: int,
        store: HotStore,
        writes: TableWrites | None = None,
    ) -> None:
        self.transaction = transaction
        self.state = state.as_of(snapshot)
        self.snapshot = snapshot
        self.newest = snapshot == state.at  # no commit is later, as far as the transaction knows
        self.hot: HotTable = store.table(
            transaction,
            state.table.table_id,
            state.table,
            self.state.current,
            snapshot,
            at=state.at,
            newest=self.newest,
        )
        self.writes = writes

    @property
    def schema(self) -> TableSchema:
        """The columns at the snapshot."""
        return self.state.current

    @property
    def truncated(self) -> bool:
        """Whether the reading transaction has removed everything that was committed."""
        return self.writes is not None and self.writes.truncate


Choose = Callable[[TableState], "tuple[int, TableWrites | None]"]
"""Decides which snapshot of a table to read, and with whose writes; may raise to refuse."""


class Readings:
    """Opens tables of one lake, each with the state that this process already knows, brought up to date."""

    def __init__(self, catalog: Catalog, store: HotStore) -> None:
        self.catalog = catalog
        self.store = store
        self.states = StateCache()
        self.sequences = Sequences(catalog)
        self.successor: Callable[[ConvertedError, Readings], Readings] = _no_successor

    def open(self, table_id: int, choose: Choose | None = None) -> OpenReading:
        """Return a context manager that gives a ``Reading`` of the newest snapshot, unless another is chosen."""
        return OpenReading(self, table_id, choose)

    def unchanged(self, reading: Reading) -> bool:
        """Return whether a reading of the newest snapshot is known to be current; cheaper than another reading."""
        return table_heads.last_if_known(self.catalog, reading.state.table.table_id) == reading.snapshot

    def newest(self) -> int:
        with self.catalog.read() as r:
            return commits.last_snapshot(r)[0]

    def seen(self, r: ReadTransaction, snapshot: int | None) -> int | None:
        """Return the snapshot at which to look up tables in a read transaction; None: now."""
        return snapshot

    def token_result(self, token: str) -> dict[str, Any] | None:
        """Return what was kept of the last write with a user's token, or None if there was none."""
        with self.catalog.read() as r:
            return commits.token_result(r, token)

    def state_in(self, transaction: ReadTransaction, table_id: int) -> TableState:
        """Return the table's state as of a read transaction; raise ``Stale`` if a newer transaction is needed."""
        known = self.states.get(table_id)
        state = refresh(transaction, table_id, known, self.store)
        if state is known:
            return state
        state = self.asking(state)
        self.states.offer(state)
        return state

    def asking(self, state: TableState, sequences: Sequences | None = None) -> TableState:
        """Return the same state, with defaults that take numbers from these sequences, or from the lake's."""
        if not state.schema.asks_sequences:
            return state
        schema = state.schema.asking(sequences or self.sequences)
        return state._replace(schema=schema, current=schema.current)

    def latest(self, table_id: int) -> TableState:
        """Return the table's state as of now."""
        with self.open(table_id) as reading:
            return reading.state


def _no_successor(error: ConvertedError, readings: Readings) -> Readings:
    raise error


class OpenReading:
    """A read transaction that ends with the ``with`` block."""

    __slots__ = ("_choose", "_readings", "_table_id", "_transaction")

    def __init__(self, readings: Readings, table_id: int, choose: Choose | None) -> None:
        self._readings = readings
        self._table_id = table_id
        self._choose = choose

    def __enter__(self) -> Reading:
        readings, choose = self._readings, self._choose
        while True:
            transaction = self._transaction = readings.catalog.read()
            try:
                state = readings.state_in(transaction, self._table_id)
                snapshot, writes = (state.newest, None) if choose is None else choose(state)
                return Reading(transaction, state, snapshot, readings.store, writes)
            except Stale:  # another thread has read further: begin again
                transaction.close()
            except ConvertedError as error:
                transaction.close()
                readings = self._readings = readings.successor(error, readings)
            except BaseException:
                transaction.close()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transaction.__exit__(kind, error, trace)
