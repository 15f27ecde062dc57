"""Turns: how a writer that keeps losing to others still gets through.

A write that has lost a few times waits for its *turn*: a lock granted in order of arrival, among threads and among
processes, and released when the process holding it dies. From then on, losers compete one at a time. Writers that have
not lost yet do not ask for turns and could beat the holder, so while the turn lasts, the rows that the holder lost
belong to it. Anyone else who wants to commit a change to them waits for a turn first. Threads of this process know
these rows from memory; other processes learn them from a reservation in the catalog, which is made once one of them has
beaten the holder in spite of its turn. Other rows of the table are always free.

A turn provides order, not safety: every commit is validated as usual. A thread that has a turn never waits for another,
and several turns are always taken in the same order, so turns cannot wait for each other in a circle.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from indexlake.commit.sequencer import Sequencer
from indexlake.errors import ConflictError, IndexLakeError, SchemaError, SnapshotExpiredError

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.commit.write_set import WriteSet

RowIdsOrAll = BitMap64 | None
"""Row ids; None: all rows, including rows added later (truncate)."""

RETRY_TIMEOUT = 30.0
LONGEST = 1_000_000.0
"""Seconds (eleven days): longer timeouts count as for ever, and locks accept no more."""

FREE_LOSSES = 2
"""After this many losses a writer asks for its turn."""

SLOTS = 16
"""How many locks the turns of all tables share."""


class TurnNeeded(ConflictError):
    """Rows of the write-set belong to a writer whose turn it is."""

    tables: Collection[int] = ()


class Turns:
    """The turns of one lake in this process; ``alone``: no other process writes to the lake."""

    def __init__(self, catalog: Catalog, timeout: float) -> None:
        self.catalog = catalog
        self.alone = False
        self.timeout = timeout
        self.wanted: dict[Turn, dict[int, RowIdsOrAll]] = {}  # wanted rows of each writer in its turn or waiting for it
        self._of_thread = threading.local()

    @property
    def mine(self) -> Turn | None:
        """The turn that this thread has or is waiting for."""
        return getattr(self._of_thread, "turn", None)

    @mine.setter
    def mine(self, turn: Turn | None) -> None:
        self._of_thread.turn = turn

    def check(self, ws: WriteSet) -> None:
        """Raise ``TurnNeeded`` if another writer has a turn on rows of the write-set, or is waiting for one."""
        found = {
            table_id
            for tables in list(self.wanted.values())
            for table_id, rows in tables.items()
            if table_id in ws.tables and not (ws.turn and ws.turn.has(table_id)) and _overlap(rows, _rows(ws, table_id))
        }
        if found and self.mine is None:
            raise turn_needed(ws, found)


class Turn:
    """The turn of one write, from its first loss to its end.  A context manager: leaving it ends the turn.

    Parameters
    ----------
    retries
        Give up after this many losses; None: only the timeout counts.
    """

    def __init__(self, turns: Turns, timeout: float | None = None, retries: int | None = None) -> None:
        self._turns = turns
        self._timeout = turns.timeout if timeout is None else timeout
        self._retries = retries
        self._began = time.monotonic()
        self._losses = 0
        self._tables: set[int] = set()
        self._slots: list[int] = []
        self._in_catalog: set[int] = set()  # tables whose reservation is in the catalog
        self._passes = False

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def has(self, table_id: int) -> bool:
        """Return whether this writer may change reserved rows of the table."""
        return self._passes or table_id in self._tables

    def owns(self, table_id: int) -> bool:
        """Return whether the table's reservation is this writer's own, or left by a writer that is gone."""
        return table_id in self._tables

    def lost(self, error: ConflictError | SnapshotExpiredError, ws: WriteSet) -> None:
        """Handle a loss: return when it is time to try again, or raise if the write has to give up."""
        if not isinstance(error, TurnNeeded):
            self._losses += 1
        tried = time.monotonic() - self._began
        if (self._retries is not None and self._losses > self._retries) or tried >= self._timeout:
            raise self._given_up(error, f"It was tried for {tried:.1f} s and lost {self._losses} times")
        tables = _lost_tables(error, ws)
        if tables and (self._losses >= FREE_LOSSES or isinstance(error, TurnNeeded)):
            self.take(tables, ws, error)
        if not self._slots:
            pause(self._losses)

    def take(self, tables: Collection[int], ws: WriteSet, error: ConflictError | SnapshotExpiredError) -> None:
        """Wait for the turn on these tables and those taken before, and claim the rows that were lost."""
        if self._turns.mine not in (None, self):
            self._passes = True  # this thread runs inside a function that has a turn
            return
        wanted = dict(self._turns.wanted.get(self, {}))
        for table_id in tables:
            wanted[table_id] = _union(wanted.get(table_id, BitMap64()), _rows(ws, table_id))
        self._turns.wanted[self] = wanted
        if self._tables.issuperset(tables):  # another process won in spite of the turn
            if not self._turns.alone:
                self._reserve(wanted)
        else:
            self._wait(set(wanted), error)

    def _wait(self, tables: set[int], error: ConflictError | SnapshotExpiredError) -> None:
        slots = sorted({slot_of(t) for t in tables})
        if slots != self._slots:
            self._leave()
            self._turns.mine = self
            for slot in slots:
                left = self._began + self._timeout - time.monotonic()
                if left <= 0 or not self._turns.catalog.turn(slot).acquire(left):
                    waited = time.monotonic() - self._began
                    raise self._given_up(error, f"It waited {waited:.1f} s for its turn")
                self._slots.append(slot)
        self._tables = tables

    def _reserve(self, wanted: dict[int, RowIdsOrAll]) -> None:
        with self._turns.catalog.transaction() as tx:
            sequencer = Sequencer(self._turns.catalog, tx)
            for table_id, rows in wanted.items():
                if rows:
                    sequencer.reserve(table_id, rows)
                    self._in_catalog.add(table_id)
            tx.commit()

    def release(self) -> None:
        """End the turn."""
        self._turns.wanted.pop(self, None)
        self._leave()
        if self._turns.mine is self:
            self._turns.mine = None

    def _leave(self) -> None:
        if self._in_catalog:
            # A reservation left behind by a failure here is cleared by the next turn.
            with suppress(IndexLakeError), self._turns.catalog.transaction() as tx:
                sequencer = Sequencer(self._turns.catalog, tx)
                for table_id in self._in_catalog:
                    sequencer.end_reservation(table_id)
                tx.commit()
        self._in_catalog, self._tables = set(), set()
        while self._slots:
            self._turns.catalog.turn(self._slots.pop()).release()

    def committed(self, ws: WriteSet) -> None:
        """Note that the commit has removed the reservations of the tables it wrote."""
        self._in_catalog.difference_update(t for t, writes in ws.tables.items() if not writes.empty)

    def _given_up(self, error: ConflictError | SnapshotExpiredError, tried: str) -> IndexLakeError:
        text = str(error).split(" Run it again")[0]
        if self._retries is not None and self._losses > self._retries:
            limit = f"retries={self._retries}"
        else:
            limit = f"retry_timeout={self._timeout:g}; a longer one gives it more time"
        kind = ConflictError if isinstance(error, TurnNeeded) else type(error)
        return kind(f"{text} {tried} ({limit}).", **{k: v for k, v in error.details.items() if k != "tables"})


def checked_timeout(seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise SchemaError(f"retry_timeout must be a number of seconds, zero or more; got {seconds!r}.")
    return min(seconds, LONGEST)


def checked_retries(retries: int | None) -> int | None:
    if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 0):
        raise SchemaError(f"retries must be a whole number, zero or more; got {retries!r}.")
    return retries


def turn_needed(ws: WriteSet, tables: Iterable[int]) -> TurnNeeded:
    tables = list(tables)
    name = ws.tables[tables[0]].state.table.full_name
    return TurnNeeded(
        f"Rows of {name!r} that this transaction changes are being changed by another writer, whose turn it is. "
        "Run it again; lake.run does so by itself.",
        table=name,
        tables=tables,
    )


def slot_of(table_id: int) -> int:
    """Return which of the locks serves turns on the table."""
    return table_id % SLOTS


def pause(losses: int) -> None:
    """Sleep for a random time: up to 1 ms after the first loss, up to 100 ms later."""
    time.sleep(random.random() * min(0.1, 0.001 * 2 ** min(losses - 1, 10)))


def _lost_tables(error: ConflictError | SnapshotExpiredError, ws: WriteSet) -> list[int]:
    if isinstance(error, TurnNeeded):
        return [t for t in error.tables if t in ws.tables]
    if isinstance(error, SnapshotExpiredError):
        return []
    return [t for t, w in ws.tables.items() if error.table in (None, w.state.table.full_name)]


def _rows(ws: WriteSet, table_id: int) -> RowIdsOrAll:
    writes = ws.tables[table_id]
    return None if writes.truncate else writes.closed | writes.locked


def _union(one: RowIdsOrAll, other: RowIdsOrAll) -> RowIdsOrAll:
    return None if one is None or other is None else one | other


def _overlap(wanted: RowIdsOrAll, changed: RowIdsOrAll) -> bool:
    if wanted is None or changed is None:
        return True
    return not wanted.isdisjoint(changed)
