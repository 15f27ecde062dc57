"""Readings of a lake whose hot rows are in this process's memory, without a catalog transaction unless one is needed.

The cached state stays correct until a commit of the catalog, or until a commit of the log deletes rows from its blocks;
the latter is added here when it becomes visible. If the cached state is too old, the catalog is read, after it has been
told of all commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from indexlake.blocks.delete_vector import DeleteLog
from indexlake.catalog import commits
from indexlake.catalog.table_heads import Head
from indexlake.hot.memory.store import MemoryStore
from indexlake.snapshots.reading import Choose, OpenReading, Reading, Readings
from indexlake.snapshots.state import TableState

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.hot.memory.record import Commit


class MemoryReadings(Readings):
    def __init__(self, catalog: Catalog, store: MemoryStore) -> None:
        super().__init__(catalog, store)
        self._store = store
        self._heads: dict[int, tuple[TableState, Head]] = {}

    def open(self, table_id: int, choose: Choose | None = None) -> OpenReading:
        return _OpenReading(self, table_id, choose)

    def unchanged(self, reading: Reading) -> bool:
        return self.at_hand(reading.state.table.table_id) is reading.state

    def newest(self) -> int:
        return self._store.visible

    def token_result(self, token: str) -> dict[str, Any] | None:
        found = self._store.token(token)
        if found is None:
            with self._store.catalog.read() as r:  # the catalog also knows tokens that are no longer in memory
                found = commits.token_result(r, token)
        return found

    def _known(self, table_id: int) -> TableState | None:
        """Return a cached state that is still correct, or None; its ``at`` may be behind the newest snapshot."""
        store, state = self._store, self.states.get(table_id)
        if state is None or state.at < store.layout or state.at < store.marked.get(table_id, 0):
            return None
        return state

    def at_hand(self, table_id: int) -> TableState | None:
        """Return the table's newest state if it is known without the catalog, otherwise None."""
        visible = self._store.visible  # read before the state, which already contains whatever is visible
        state = self._known(table_id)
        if state is not None and state.at < visible:
            state = state.still_at(visible)
            self.states.offer(state)
        return state

    def newest_state(self, table_id: int) -> TableState:
        """Return the newest state, for a caller that has the sequencer's turn; only its ``at`` may be behind."""
        return self._known(table_id) or self.latest(table_id)

    def newest_head(self, table_id: int) -> Head:
        """Return the table's head as the catalog would, except for the newest commit, which the sequencer knows."""
        state = self.newest_state(table_id)
        known, head = self._heads.get(table_id, (None, None))
        if head is None or known is None or known.table is not state.table or known.blocks is not state.blocks:
            t = state.table
            head = Head(
                -1, 0, t.schema_version, t.hot_floor, t.history_floor, t.horizon, t.purge_number, t.end_snapshot,
                t.changed_in, state.blocks.changed_in, state.at, None,
            )  # fmt: skip
            self._heads[table_id] = state, head
        return head

    def publish(self, done: Sequence[Commit]) -> None:
        """Make durable commits visible, and add the rows they deleted from blocks to cached states.

        Until then, those states count as too old to be used. States that were out of date before are left alone.
        """
        deleting = []
        for commit in done:
            for table_id, change in commit.tables.items():
                if change.deleted:
                    deleting.append((commit.number, table_id, change.deleted))
        marked = dict(self._store.marked) if deleting else {}
        self._store.published(done)
        for number, table_id, deleted in deleting:
            state = self.states.get(table_id)
            if state is None or state.at < self._store.layout or state.at < marked.get(table_id, 0):
                continue  # it will be read from the catalog
            deletes = dict(state.deletes)
            for file_id, positions in deleted.items():
                deletes[file_id] = deletes.get(file_id, _NONE).add(number, positions)
            self.states.offer(state._replace(deletes=deletes, at=number))


_NONE = DeleteLog()


class _OpenReading(OpenReading):
    """A reader of the store, with a catalog transaction that begins on first use."""

    __slots__ = ("_store", "at")

    def __enter__(self) -> Reading:
        readings: Any = self._readings
        store: MemoryStore = readings._store
        begun: Any = None
        self._store, self._transaction, self.at = store, begun, -1
        store.readers.add(self)  # before choosing the state, so that versions missing from its blocks stay in memory
        try:
            state = readings.at_hand(self._table_id)
            if state is not None:
                self.at, choose = state.at, self._choose
                snapshot, writes = (state.at, None) if choose is None else choose(state)
                transaction: Any = self
                return Reading(transaction, state, snapshot, store, writes)
            return super().__enter__()
        except BaseException:
            store.readers.discard(self)
            raise

    def __getattr__(self, name: str) -> Any:
        if self._transaction is None:
            self._transaction = self._readings.catalog.read()
        return getattr(self._transaction, name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.readers.discard(self)
        if self._transaction is not None:
            self._transaction.__exit__(kind, error, trace)
