"""Group commit: write-sets that arrive while another is being committed are committed together, in one database
transaction.

Each write-set of a group has its own snapshot and fails alone. A thread gets back its own result or its own error; a
failure of the database itself goes to every member, and then none was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from indexlake.catalog import table_heads
from indexlake.catalog.driver import Catalog, CommitUnknown, DatabaseError
from indexlake.commit import moved, placement
from indexlake.commit.absence import Look, LookNeeded, first_look, look_again
from indexlake.commit.relay import Relay, Ticket
from indexlake.commit.section import Section
from indexlake.commit.sequencer import new_token
from indexlake.commit.turns import Turn, TurnNeeded, Turns
from indexlake.commit.write_set import TableWrites, WriteResult, WriteSet
from indexlake.errors import CatalogError, IndexLakeError
from indexlake.hot.memory.log_transaction import CatalogNeeded
from indexlake.snapshots.reading import Reading, Readings
from indexlake.snapshots.state import refresh
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.log_section import LogSections
    from indexlake.hot.store import HotStore

ROUNDS_OUTSIDE = 3
"""After this many looks outside the critical section, the next one is made inside it."""

COMMIT_AGAIN = 2
"""How many times a write-set is committed again after its COMMIT has failed."""

GROUP_LIMIT = 256

_ALONE: Any = nullcontext()

Looks = Mapping[int, Sequence[Look]]
"""What was found outside the section, by table id."""


class _Ticket(Ticket):
    result: WriteResult | None = None
    error: BaseException | None = None
    committed_at = 0
    sure = False  # whether the result is known to be committed
    lost: CommitUnknown | None = None  # set when a COMMIT failed and turned out not to have happened
    look = False  # another look is needed before it can be committed

    def __init__(self, ws: WriteSet, looks: Looks, token: str | None, inside: bool, in_catalog: bool = True) -> None:
        self.ws = ws
        self.looks = looks
        self.token = token
        self.inside = inside  # look inside the section if another look is needed
        self.in_catalog = in_catalog  # whether it needs a catalog transaction


class Committer:
    """Commits write-sets to one catalog.  Shared by all threads of the process."""

    def __init__(
        self,
        catalog: Catalog,
        hot: HotStore,
        files: OpenFiles,
        readings: Readings,
        turns: Turns,
        log: LogSections | None = None,
    ) -> None:
        self._catalog = catalog
        self._log = log  # None without a redo log
        self._turn: Any = _ALONE if log is None else log.turn
        self._hot = hot
        self._files = files
        self._readings = readings
        self._turns = turns
        self._with_tokens = catalog.database() != "sqlite"  # SQLite identifies a commit by its number and time alone
        self._relay = Relay(self._commit_group, _fits)
        self.commits = 0  # write-sets committed
        self.groups = 0  # database transactions used for them

    def commit(self, ws: WriteSet) -> WriteResult:
        """Commit a write-set, waiting for a turn if its rows belong to another writer.

        A caller that can run the write again gets ``TurnNeeded`` instead and waits for the turn itself.
        """
        try:
            if self._turns.wanted:
                self._turns.check(ws)
            return self._commit(ws)
        except TurnNeeded as error:
            if ws.turn is not None or ws.repeats:
                raise
            with Turn(self._turns) as turn:  # a transaction that nobody can run again
                turn.take(error.tables, ws, error)
                ws.turn = turn
                return self._commit(ws)

    def _commit(self, ws: WriteSet) -> WriteResult:
        looks = self._first_looks(ws)
        token = new_token() if self._with_tokens else None
        rounds = failures = 0
        in_catalog = self._log is None or not ws.rows_alone
        while True:
            ticket = _Ticket(ws, looks, token, rounds >= ROUNDS_OUTSIDE, in_catalog)
            self._relay.submit(ticket)
            if ticket.in_catalog and not in_catalog:
                in_catalog = True
                continue
            if ticket.error is not None:
                raise ticket.error
            if ticket.result is not None:
                if not ticket.sure:
                    raise CatalogError(
                        "The thread that committed a group of writes was interrupted, and again while it found out "
                        "whether they are committed, so that is not known. Check the data, or repeat the write with "
                        "the same token= to be sure."
                    )
                if ws.turn is not None:
                    ws.turn.committed(ws)
                return ticket.result
            if ticket.lost is not None:
                failures += 1
                if failures > COMMIT_AGAIN:
                    raise DatabaseError(f"{ticket.lost} Nothing was changed.", **ticket.lost.details)
            rounds += 1
            looks = self._look_again(ws, looks)

    # ------------------------------------------------------------ looking

    def _first_looks(self, ws: WriteSet) -> Looks:
        """Return the looks of each table where something must be absent."""
        looks: dict[int, Sequence[Look]] = {}
        for table_id, writes in ws.tables.items():
            known = None if ws.is_new(table_id) else self._readings
            if found := first_look(writes, ws.base, known, self._files):
                looks[table_id] = found
        return looks

    def _look_again(self, ws: WriteSet, looks: Looks) -> Looks:
        found = {**looks}
        for table_id, writes in ws.tables.items():
            if ws.is_new(table_id):
                continue
            with self._readings.open(table_id) as reading:
                found[table_id] = self._look(looks.get(table_id, ()), reading, writes, ws.base)
        return found

    def _look(self, before: Sequence[Look], reading: Reading, writes: TableWrites, base: int) -> Sequence[Look]:
        if reading.state.ranges is not None:
            moved.locate(writes, reading, self._files, base)
            writes.blocks = placement.cut(reading.state, self._files, writes.blocks)
        return look_again(before, reading, writes, self._files)

    def _look_inside(self, section: Section, ws: WriteSet, looks: Looks) -> Looks:
        """Look again inside the section after several rounds outside: the only storage I/O allowed there."""
        found = {**looks}
        for table_id, writes in ws.tables.items():
            if ws.is_new(table_id):
                continue
            state = refresh(section.tx, table_id, None)
            reading = Reading(section.tx, state, state.at, self._hot)
            found[table_id] = self._look(looks.get(table_id, ()), reading, writes, ws.base)
        return found

    # ------------------------------------------------------------ the group

    def _commit_group(self, group: list[_Ticket], mine: _Ticket) -> None:
        committing = False
        try:
            faults.step("commit.begin")
            with self._turn, self._section(group[0]) as section:
                if len(group) == 1:
                    self._one(section, group[0])
                    done = 1
                else:
                    done = sum([self._one_of_many(section, ticket) for ticket in group])
                if done:
                    committing = True
                    section.commit()
                    for ticket in group:
                        ticket.sure = True
                    self.commits += done
                    self.groups += 1
        except LookNeeded:
            group[0].look = True
        except CatalogNeeded:
            group[0].in_catalog = True
        except CommitUnknown as error:
            for ticket in group:
                if ticket.result is not None:
                    self._settle(ticket, error)
        except Exception as error:
            for ticket in group:
                if ticket.error is None:
                    ticket.error = error if ticket is mine else for_another_thread(error)
                ticket.result = None
        except BaseException as error:  # Ctrl-C in this thread: the others go round again
            for ticket in group:
                if ticket is not mine and committing and ticket.result is not None:
                    self._settle(ticket, CommitUnknown("The thread that committed a group of writes was interrupted."))
                else:
                    ticket.result = None
            mine.error = error

    def _section(self, first: _Ticket) -> Section:
        if self._log is not None and not first.in_catalog:
            return self._log.begin()
        return Section(self._catalog, self._hot, first.ws, first.looks)

    def _one(self, section: Section, ticket: _Ticket) -> None:
        try:
            result = section.write(ticket.ws, ticket.looks, ticket.token)
        except LookNeeded:
            if not ticket.inside:
                raise
            looks = self._look_inside(section, ticket.ws, ticket.looks)
            result = section.write(ticket.ws, looks, ticket.token)
        ticket.result, ticket.committed_at = result, section.sequencer.committed_at

    def _one_of_many(self, section: Section, ticket: _Ticket) -> bool:
        """Commit one member of a group so that it leaves nothing behind if it fails; return whether it succeeded.

        Rows are validated before any is written. Definitions are checked as they are written.
        """
        before = section.sequencer.newest
        try:
            self._one(section, ticket)
            return True
        except LookNeeded:
            ticket.look = True
            section.sequencer.newest = before
        except CatalogNeeded:
            ticket.in_catalog = True
            section.sequencer.newest = before
        except CatalogError:
            raise
        except IndexLakeError as error:
            if section.writing and not ticket.ws.definitions:
                raise
            ticket.error = error
            section.sequencer.newest = before
        return False

    def _settle(self, ticket: _Ticket, error: CommitUnknown) -> None:
        """Find out, in a new critical section, whether a commit with an unknown outcome has happened."""
        assert ticket.result is not None
        try:
            with Section(self._catalog, self._hot) as section:
                happened = section.sequencer.has_happened(ticket.token, ticket.result.snapshot_id, ticket.committed_at)
                known = [table_id for table_id in ticket.ws.tables if not ticket.ws.is_new(table_id)]
                heads = [table_heads.read_head(section.tx, table_id) for table_id in known]
                expired = any(head is None or ticket.ws.base < head.horizon for head in heads)
                section.commit()
        except IndexLakeError as later:
            ticket.error, ticket.result = (
                CatalogError(
                    "The connection was lost during a commit and its outcome is not known: "
                    f"{later} Check the data, or repeat the write with the same token= to be sure."
                ),
                None,
            )
            return
        ticket.sure = happened
        if not happened:
            # This section holds the lock of the old transaction, so that one has ended without committing. Commit
            # again, unless the record that tells us so may have been expired.
            ticket.result, ticket.lost = None, error
            if expired:
                ticket.error = CatalogError(f"The outcome of a commit is not known: {error} Check the data.")


def _fits(group: Sequence[_Ticket], ticket: _Ticket) -> bool:
    """Return whether a ticket can be committed together with those of a group."""
    return len(group) < GROUP_LIMIT and ticket.in_catalog == group[0].in_catalog


def for_another_thread(error: BaseException) -> BaseException:
    """Return a copy of an error for another thread, without passing on an interrupt."""
    if isinstance(error, IndexLakeError):
        return type(error)(str(error), **error.details)
    return CatalogError(f"The thread that committed a group of writes failed; none was committed: {error!r}")
