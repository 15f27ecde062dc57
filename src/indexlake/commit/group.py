"""Group commit: whoever finds nobody committing commits at once, in its own thread; those who arrive meanwhile
wait, and the next leader takes all of them into one database transaction.

Each write-set of a group has its own snapshot and fails alone.  What a thread gets back is its own
result or its own error; a failure of the database itself goes to every member, none of which was committed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from indexlake import faults
from indexlake.catalog import commits, layout
from indexlake.catalog.driver import Catalog, CommitUnknown, DatabaseError
from indexlake.commit.absent import AbsentLook, look_for_absent
from indexlake.commit.key_check import FEW, LookNeeded, look, wanted_keys
from indexlake.commit.section import Looks, Section
from indexlake.commit.turns import Turn, TurnNeeded, Turns
from indexlake.commit.write_set import WriteResult, WriteSet
from indexlake.errors import CatalogError, IndexLakeError
from indexlake.keys.encoding import KeyColumn
from indexlake.state import TableState, refresh

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles

ROUNDS_OUTSIDE = 3
"""After so many looks outside the critical section the next one is made inside it."""

COMMIT_AGAIN = 2
"""So often a write-set is committed again whose COMMIT failed."""

GROUP_LIMIT = 256


class _Ticket:
    __slots__ = (
        "committed_at",
        "error",
        "inside",
        "lead",
        "led",
        "look",
        "looks",
        "lost",
        "ready",
        "result",
        "token",
        "ws",
    )

    def __init__(self, ws: WriteSet, looks: dict[int, Looks], token: str | None, inside: bool) -> None:
        self.ws = ws
        self.looks = looks
        self.token = token
        self.inside = inside  # look inside the section if another look is needed
        self.result: WriteResult | None = None
        self.committed_at = 0
        self.lost: CommitUnknown | None = None  # the failure of a COMMIT that turned out not to have happened
        self.error: BaseException | None = None
        self.look = False  # new blocks must be looked at first
        self.lead = False  # woken up to lead the next group
        self.led = False
        self.ready = threading.Lock()
        self.ready.acquire()


class Committer:
    """Commits write-sets to one catalog.  Shared by all threads of the process."""

    def __init__(
        self,
        catalog: Catalog,
        files: OpenFiles,
        read_state: Callable[[int, Callable[..., Looks]], Looks],
        turns: Turns,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._read_state = read_state
        self._turns = turns
        self._mutex = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._busy = False
        self._tokens = catalog.database() != "sqlite"  # there a commit is known by its number and its time
        self.commits = 0  # write-sets committed
        self.groups = 0  # database transactions used for them

    def commit(self, ws: WriteSet) -> WriteResult:
        """Those who run again when they lose get ``TurnNeeded`` and wait for their turn first; others wait here."""
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
        wanted = self._wanted(ws)
        looks = {i: self._first_look(ws, i, keys) for i, keys in wanted.items()}
        token = uuid.uuid4().hex if self._tokens else None
        rounds = failures = 0
        while True:
            ticket = _Ticket(ws, looks, token, inside=rounds >= ROUNDS_OUTSIDE)
            self._submit(ticket)
            if ticket.error is not None:
                raise ticket.error
            if ticket.result is not None:
                if ws.turn is not None:
                    ws.turn.committed(ws)
                return ticket.result
            if ticket.lost is not None:
                failures += 1
                if failures > COMMIT_AGAIN:
                    raise DatabaseError(f"{ticket.lost} Nothing was changed.", **ticket.lost.details)
            rounds += 1
            looks = {i: self._look_again(ws, i, keys) for i, keys in wanted.items()}

    # ------------------------------------------------------------ looking

    def _wanted(self, ws: WriteSet) -> dict[int, KeyColumn | None]:
        """The tables where something must be absent, with the primary keys that must be."""
        found = {}
        for table_id, writes in ws.tables.items():
            keys = wanted_keys(writes)
            if (keys is not None or writes.absent or writes.loaded) and not writes.truncate:
                found[table_id] = keys
        return found

    def _first_look(self, ws: WriteSet, table_id: int, keys: KeyColumn | None) -> Looks:
        """With the state at hand where it will do: what it misses is checked at the commit."""
        writes = ws.tables[table_id]
        if (keys is not None and len(keys) > FEW) or (writes.absent and writes.state.at > ws.base):
            return self._look_again(ws, table_id, keys)
        found = look(writes.state, writes, keys, self._files, None) if keys is not None else None
        return Looks(found, AbsentLook(ws.base) if writes.absent else None, writes.loaded)

    def _look_again(self, ws: WriteSet, table_id: int, keys: KeyColumn | None) -> Looks:
        return self._read_state(table_id, lambda r, state: self._look(ws, state, keys, r))

    def _look(self, ws: WriteSet, state: TableState, keys: KeyColumn | None, r: Any) -> Looks:
        writes = ws.tables[state.table.table_id]
        if writes.loaded is not None:
            writes.loaded.look_again(r, state, self._files, writes)
        return Looks(
            look(state, writes, keys, self._files, r) if keys is not None else None,
            look_for_absent(state, writes, ws.base, self._files, r) if writes.absent else None,
            writes.loaded,
        )

    # ------------------------------------------------------------ the group

    def _submit(self, ticket: _Ticket) -> None:
        leads = False
        try:
            with self._mutex:
                self._waiting.append(ticket)
                if not self._busy:
                    leads = self._busy = True
            if not leads:
                self._wait(ticket)
                if not ticket.lead:
                    return
            self._lead(ticket)
        except BaseException:
            if leads and not ticket.led:  # interrupted before it could begin
                self._pass_on(ticket)
            raise

    def _wait(self, ticket: _Ticket) -> None:
        """Until the ticket is done or has to lead.  A thread that is interrupted takes its ticket back if it can."""
        try:
            ticket.ready.acquire()
        except BaseException:
            with self._mutex:
                withdrawn = ticket in self._waiting
                if withdrawn:
                    self._waiting.remove(ticket)
            if ticket.lead:  # the others wait for this thread
                self._lead(ticket)
            elif not withdrawn:
                ticket.ready.acquire()  # it is being committed: let that end
            raise

    def _lead(self, mine: _Ticket) -> None:
        group: list[_Ticket] = []
        try:
            mine.led = True
            with self._mutex:
                group = self._waiting[:GROUP_LIMIT]
                del self._waiting[: len(group)]
            self._commit_group(group, mine)
        finally:
            self._pass_on(None)
            for ticket in group:
                ticket.ready.release()

    def _pass_on(self, withdrawn: _Ticket | None) -> None:
        """The next one leads, if somebody waits."""
        with self._mutex:
            if withdrawn in self._waiting:
                self._waiting.remove(withdrawn)
            successor = self._waiting[0] if self._waiting else None
            if successor is None:
                self._busy = False
            else:
                successor.lead = True
        if successor is not None:
            successor.ready.release()

    def _commit_group(self, group: list[_Ticket], mine: _Ticket) -> None:
        if not group:
            return
        committing = False
        try:
            faults.step("commit.begin")
            with self._catalog.transaction() as tx:
                section = Section(self._catalog, tx)
                for ticket in group:
                    if len(group) == 1:
                        ticket.result = self._one(section, ticket)
                    else:
                        self._one_of_many(section, ticket)
                done = [t for t in group if t.result is not None]
                if done:
                    committing = True
                    tx.commit()
                    self.commits += len(done)
                    self.groups += 1
        except LookNeeded:
            group[0].look = True
        except CommitUnknown as error:
            for ticket in group:
                if ticket.result is not None:
                    self._settle(ticket, error)
        except Exception as error:
            for ticket in group:
                if ticket.error is None:
                    ticket.error = error if ticket is mine else _for_another_thread(error)
                ticket.result = None
        except BaseException as error:  # Ctrl-C in this thread: the others go round again
            for ticket in group:
                if ticket is not mine and committing and ticket.result is not None:
                    self._settle(ticket, CommitUnknown("The thread that committed a group of writes was interrupted."))
                else:
                    ticket.result = None
            mine.error = error

    def _one(self, section: Section, ticket: _Ticket) -> WriteResult:
        try:
            result = section.commit(ticket.ws, ticket.looks, ticket.token)
        except LookNeeded:
            if not ticket.inside:
                raise
            looks = {
                i: self._look_inside(section, ticket.ws, i, found.keys.keys if found.keys else None)
                for i, found in ticket.looks.items()
            }
            result = section.commit(ticket.ws, looks, ticket.token)
        ticket.committed_at = section.committed_at
        return result

    def _look_inside(self, section: Section, ws: WriteSet, table_id: int, keys: KeyColumn | None) -> Looks:
        """The only storage I/O allowed in the section, after jobs have forced several rounds."""
        state, _ = refresh(section.tx, table_id, None)
        return self._look(ws, state, keys, section.tx)

    def _one_of_many(self, section: Section, ticket: _Ticket) -> None:
        """A member that fails leaves nothing behind: rows are validated by reading alone, before the first of them
        is written; definitions are checked as they are written and need a savepoint."""
        before = section.newest
        alone = section.tx.savepoint() if ticket.ws.definitions else nullcontext()
        try:
            with alone:
                ticket.result = self._one(section, ticket)
        except LookNeeded:
            ticket.look = True
            section.newest = before
        except CatalogError:
            raise
        except IndexLakeError as error:
            if section.writing and not ticket.ws.definitions:
                raise
            ticket.error = error
            section.newest = before

    def _settle(self, ticket: _Ticket, error: CommitUnknown) -> None:
        """Nobody knows whether the commit happened: look it up, inside the critical section."""
        assert ticket.result is not None
        try:
            with self._catalog.transaction() as tx:
                if ticket.token is not None:
                    found = commits.snapshot_of_token(tx, ticket.token)
                else:
                    found = commits.snapshot_made(tx, ticket.result.snapshot_id, ticket.committed_at)
                    commits.write_over_lost_commit(tx)
                heads = [layout.read_head(tx, table_id) for table_id in ticket.ws.tables]
                expired = any(head is None or ticket.ws.base < head.horizon for head in heads)
                tx.commit()
        except IndexLakeError as later:
            ticket.error, ticket.result = (
                CatalogError(
                    "The connection was lost during a commit and its outcome is not known: "
                    f"{later} Check the data, or repeat the write with the same token= to be sure."
                ),
                None,
            )
            return
        if found is None:
            # The old transaction has ended, for this one holds its lock: it did not happen.  Commit it again, unless
            # its record may have been expired.
            ticket.result, ticket.lost = None, error
            if expired:
                ticket.error = CatalogError(f"The outcome of a commit is not known: {error} Check the data.")


def _for_another_thread(error: BaseException) -> BaseException:
    """Several threads must not raise one exception object, nor one the other's interrupt."""
    if isinstance(error, IndexLakeError):
        return type(error)(str(error), **error.details)
    return CatalogError(f"The thread that committed a group of writes failed; none was committed: {error!r}")
