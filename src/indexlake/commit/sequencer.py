"""The sequencer: which number and time a commit gets, and what commits leave behind for validating others.

Numbers follow each other without gaps, in commit order, and times never go back as numbers grow.  A commit records the
rows that it changed (*touched*) and those that it only read for update (*locked*); a commit that began earlier must
have none of them.  Here the catalog is the sequencer: one object serves one critical section.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from indexlake.catalog import commits
from indexlake.catalog.clock import DOUBTFUL, correct_future
from indexlake.catalog.commits import RESERVED

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog, Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.hot.store import HotStore

Touched = list[tuple[int, BitMap64 | None]]
"""Commits and the rows that each touched; None: all rows."""


class Sequencer:
    """The numbers, times, tokens and touched rows of a lake, inside one critical section."""

    __slots__ = ("_catalog", "_hot", "_server_clock", "_tx", "newest")

    def __init__(self, catalog: Catalog, tx: Transaction, hot: HotStore | None = None) -> None:
        """``hot`` is the hot store that the lake must have for those who number commits."""
        self._catalog = catalog
        self._tx = tx
        self._hot = hot
        self.newest: tuple[int, int] | None = None  # the last number and its commit time, once they are known
        self._server_clock: int | None = None  # what it said then

    # ------------------------------------------------------------ numbers and times

    @property
    def last(self) -> int:
        """The newest snapshot."""
        return (self.newest or self._newest())[0]

    @property
    def next(self) -> int:
        """The number that the commit in progress gets."""
        return (self.newest or self._newest())[0] + 1

    @property
    def committed_at(self) -> int:
        """When the newest snapshot was committed."""
        return (self.newest or self._newest())[1]

    def _newest(self) -> tuple[int, int]:
        if self.newest is None:
            number, committed_at, self._server_clock = commits.newest(self._tx)
            self._begin(number, committed_at)
        assert self.newest is not None
        return self.newest

    def _begin(self, number: int, committed_at: int) -> None:
        if self._hot is not None:
            self._hot.still_there(self._tx, number)
        self.newest = number, committed_at

    def newest_at(self, time: int) -> int | None:
        """The newest snapshot committed at or before a time."""
        return commits.snapshot_at_time(self._tx, time)

    def learn(self, head: Head) -> None:
        """The head of a table was read in this section, and tells the newest snapshot too."""
        if self.newest is None:
            self._server_clock = head.server_clock
            self._begin(head.last, head.committed_at)

    def record(self, operation: str, *, job: bool, summary: str | None = None, token: str | None = None) -> None:
        """Give the commit in progress its number and time.

        A job's commit has no summary: it changes no row for users, and that is how change feeds know it.
        """
        assert (summary is None) == job, f"is {operation!r} a job?"
        last, committed_at = self._newest()
        time = self._catalog.time(self._server_clock, committed_at)
        if committed_at > time + DOUBTFUL:
            before = self.newest_at(time)
            if correct_future(self._tx, time, before, (last, committed_at)):
                committed_at = time
        self.newest = snapshot, at = last + 1, max(time, committed_at)
        commits.add_snapshot(self._tx, snapshot, at, operation, summary, token)

    def has_happened(self, token: str | None, number: int | None, committed_at: int) -> bool:
        """Whether a commit whose answer was lost has happened.  If it has not, it never will."""
        if token is not None:
            return commits.snapshot_of_token(self._tx, token) is not None
        found = commits.snapshot_made(self._tx, number, committed_at)
        commits.write_over_lost_commit(self._tx)
        return found is not None

    # ------------------------------------------------------------ tokens of users

    def result_of(self, token: str) -> dict[str, Any] | None:
        """What the commit with that token did, if there was one."""
        return commits.token_result(self._tx, token)

    def keep_result(self, token: str, result: dict[str, Any]) -> None:
        """After ``record``."""
        number, committed_at = self._newest()
        commits.add_token(self._tx, token, number, {**result, "snapshot_id": number}, committed_at)

    # ------------------------------------------------------------ touched and locked rows

    def touch(self, table_id: int, snapshot: int, row_ids: BitMap64 | None) -> None:
        """The commit changes these rows; None: it may have changed any row (truncate)."""
        commits.add_touched(self._tx, table_id, snapshot, None if row_ids is None else row_ids.serialize())

    def lock(self, table_id: int, snapshot: int, row_ids: BitMap64) -> None:
        """The commit relies on these rows."""
        commits.add_locked(self._tx, table_id, snapshot, row_ids.serialize())

    def reserve(self, table_id: int, row_ids: BitMap64) -> None:
        """Nobody changes the rows but the writer whose turn it is on this table."""
        self.end_reservation(table_id)
        self.lock(table_id, RESERVED, row_ids)

    def end_reservation(self, table_id: int) -> None:
        commits.clear_reservation(self._tx, table_id)

    def touched_since(self, table_id: int, since: int) -> Touched:
        """What the commits after ``since`` changed."""
        rows = commits.touched_since(self._tx, table_id, since)
        return [(s, None if data is None else BitMap64.deserialize(data)) for s, data in rows]

    def first_conflict(self, table_id: int, since: int, row_ids: BitMap64) -> int | None:
        """The first commit after ``since`` that touched or locked one of the rows; ``RESERVED``: another will."""
        rows = commits.touched_or_locked_since(self._tx, table_id, since)
        return min(
            [int(s) for s, data in rows if data is None or not row_ids.isdisjoint(BitMap64.deserialize(data))],
            default=None,
        )

    def has_changed_since(self, table_id: int, since: int) -> bool:
        """Whether a commit after ``since`` updated, deleted or locked rows, or added blocks."""
        return commits.changed_since(self._tx, table_id, since)

    def forget(self, table_id: int, horizon: int, lowest: int, tokens_before: int, limit: int) -> bool:
        """Expire: of the table up to its horizon, of the lake below the lowest horizon of a table.

        Not much more than ``limit`` at once; whether there may be more.
        """
        commits.drop_tokens_before(self._tx, tokens_before)
        touched = commits.drop_touched_up_to(self._tx, table_id, horizon, limit)
        return max(touched, commits.drop_snapshots_below(self._tx, lowest, limit)) >= limit


def new_token() -> str:
    """By which a commit is found again whose answer was lost."""
    return uuid.uuid4().hex
