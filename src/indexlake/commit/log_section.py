"""The critical section of a commit that goes only to the redo log.

The caller holds the sequencer's turn; no catalog transaction is opened. Requirements are checked against the states and
versions in memory; whatever these cannot answer is left to a section in the catalog (``CatalogNeeded``). Validation and
effects are the same as for every other commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from indexlake.catalog import commits
from indexlake.catalog.clock import DOUBTFUL
from indexlake.commit.section import Section
from indexlake.commit.sequencer import Sequencer
from indexlake.errors import IndexLakeError, StorageError
from indexlake.hot.inline import ReplicaStore
from indexlake.hot.memory.log_transaction import CatalogNeeded, LogTransaction
from indexlake.hot.memory.owned_catalog import OwnedCatalog
from indexlake.hot.memory.pressure import Pressure
from indexlake.hot.memory.record import Commit, pack
from indexlake.hot.memory.rotation import rotate
from indexlake.hot.memory.store import MOST_UNTOLD, MemoryStore
from indexlake.snapshots.memory_readings import MemoryReadings
from indexlake.snapshots.reading import Readings
from indexlake.snapshots.replica_readings import ReplicaReadings
from indexlake.storage import faults

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.catalog.driver import Catalog
    from indexlake.catalog.table_heads import Head
    from indexlake.commit.write_set import TableWrites
    from indexlake.hot.store import HotStore


class LogSection(Section):
    """A critical section without a catalog transaction; it begins when it is constructed."""

    __slots__ = ("_readings", "commits", "store")

    def __init__(self, store: MemoryStore, readings: MemoryReadings) -> None:
        self.store = store
        self.hot = store
        self._readings = readings
        self.heads = {}
        self.writing = False
        self._committed = False
        self.commits: list[Commit] = []
        store.check()
        tx = LogTransaction()
        self.tx: Any = tx
        self.sequencer = LogSequencer(store, tx, self.commits)

    def __exit__(self, *how: Any) -> None:
        if not self._committed:
            self.hot.undo(self.tx)

    def commit(self) -> None:
        store, log = self.store, self.store.log
        durable, end = False, None if log is None else log.end
        try:
            if log is not None and self.commits:
                log.append(b"".join([pack(commit, log.durable) for commit in self.commits]), self.commits[-1].number)
                if log.durability == "fdatasync":
                    log.sync()
                store.confirm()
            durable = True
            self._readings.publish(self.commits)
        except BaseException:
            if durable:  # interrupted after the write became durable
                store.published(self.commits)
            elif log is not None and end is not None:
                log.take_back(end)
            raise
        self._committed = True
        faults.step("log.published")
        if log is not None and log.is_full:
            with suppress(StorageError):  # the next commit reports it
                rotate(store)
        elif len(store.untold) >= MOST_UNTOLD:
            with suppress(IndexLakeError):  # whoever needs the catalog next reports it
                OwnedCatalog(store.catalog, store).tell()

    def _done(self) -> tuple[int, int]:
        return self.hot.done(self.tx), len(self.commits)

    def _undo(self, done: tuple[int, int]) -> None:
        self.tx.changes = {}
        del self.commits[done[1] :]
        self.hot.undo(self.tx, done[0])

    # ------------------------------------------------------------ what the catalog would answer

    def head(self, table_id: int) -> Head | None:
        head = self._readings.newest_head(table_id)
        if head.end_snapshot is not None:
            raise CatalogNeeded
        return head

    def live_blocks(self, writes: TableWrites, file_ids: Collection[int]) -> set[int]:
        known = self._readings.newest_state(writes.state.table.table_id).blocks
        records = [known.record(file_id) for file_id in file_ids]
        if any(record is None or record.end_snapshot is not None for record in records):
            raise CatalogNeeded  # the rows have moved
        return set(file_ids)

    def delete(self, table_id: int, file_id: int, snapshot: int, positions: Any) -> None:
        self.tx.change(table_id).deleted[file_id] = positions


class LogSections(NamedTuple):
    """Begins sections of the redo log, for a caller that holds the sequencer's turn in a ``with`` of its own.

    An interrupt may come between the beginning of a section and its ``with``, but not of a lock and its ``with``.
    """

    turn: threading.RLock
    begin: Callable[[], Section]


def readings_of(catalog: Catalog, hot: HotStore) -> tuple[Readings, LogSections | None]:
    """Return the lake's readings, and what begins sections of the redo log if its hot store has one."""
    if isinstance(hot, ReplicaStore):
        return ReplicaReadings(catalog, hot), None
    if not isinstance(hot, MemoryStore):
        return Readings(catalog, hot), None
    readings = MemoryReadings(catalog, hot)
    return readings, LogSections(hot.turn, partial(LogSection, hot, readings))


def pressure_of(hot: HotStore, limit: int, timeout: float, ask: Callable[[], bool]) -> Pressure | None:
    """Return what holds writers back when the hot store grows too large, or None if it may grow freely."""
    return Pressure(hot, limit, timeout, ask) if isinstance(hot, MemoryStore) else None


class LogSequencer(Sequencer):
    """Assigns the numbers and times of the owner process, and adds each recorded commit to its group."""

    __slots__ = ("_commits", "_store")

    def __init__(self, store: MemoryStore, tx: LogTransaction, recorded: list[Commit]) -> None:
        super().__init__(store.catalog, tx)  # type: ignore[arg-type]
        self._store = store
        self._commits = recorded
        self.newest = store.visible, store.committed_at

    def record(self, operation: str, *, job: bool, summary: str | None = None, token: str | None = None) -> None:
        assert summary is not None
        assert not job
        last, committed_at = self.newest or self._newest()
        tx: Any = self._tx
        time = self._store.time(committed_at)
        if committed_at > time + DOUBTFUL:
            raise CatalogNeeded  # the catalog corrects dates that a wrong clock has given
        self.newest = number, time = last + 1, max(time, committed_at)
        self._commits.append(Commit(number, time, operation, summary, token, None, None, tx.changes))
        tx.changes = {}

    def result_of(self, token: str) -> dict[str, Any] | None:
        found = next((c.result for c in reversed(self._commits) if c.token == token), None) or self._store.token(token)
        if found is None:
            with self._catalog.read() as r:
                found = commits.token_result(r, token)
        return found

    def keep_result(self, token: str, result: dict[str, Any]) -> None:
        commit = self._commits[-1]
        commit.token, commit.result = token, {**result, "snapshot_id": commit.number}

    def touch(self, table_id: int, snapshot: int, row_ids: BitMap64 | None) -> None:
        if row_ids is None:
            raise CatalogNeeded
        tx: Any = self._tx
        tx.change(table_id).closed = row_ids

    def lock(self, table_id: int, snapshot: int, row_ids: BitMap64) -> None:
        tx: Any = self._tx
        tx.change(table_id).locked = row_ids

    def end_reservation(self, table_id: int) -> None:
        """Do nothing: no other process can beat this one, so there are no reservations."""

    def first_conflict(self, table_id: int, since: int, row_ids: BitMap64) -> int | None:
        if not self._store.knows_changes_since(since):
            raise CatalogNeeded
        for commit in self._commits:  # earlier commits of the same group
            change = commit.tables.get(table_id)
            for rows in () if change is None else (change.closed, change.locked):
                if rows and not row_ids.isdisjoint(rows):
                    return commit.number
        return self._store.conflict(table_id, since, row_ids)
