"""The sequencer: it gives each commit its number and time, and records what validating other commits needs.

Numbers have no gaps and follow commit order; times never go back as numbers grow. A commit records the rows that it
changed (*touched*) and those that it only read for update (*locked*). A commit that began earlier fails if it touches
or locks any of them. Here the catalog is the sequencer; one object serves one critical section.
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
"""Commits with the rows that each touched; None: all rows."""


class Sequencer:
    """The numbers, times, tokens and touched rows of a lake, inside one critical section."""

    __slots__ = ("_catalog", "_hot", "_server_clock", "_tx", "newest")

    def __init__(self, catalog: Catalog, tx: Transaction, hot: HotStore | None = None) -> None:
        """If ``hot`` is given, it must still be the lake's hot store when the first number is read."""
        self._catalog = catalog
        self._tx = tx
        self._hot = hot
        self.newest: tuple[int, int] | None = None  # the last number and its commit time, once known
        self._server_clock: int | None = None  # the server's clock when they were read

    # ------------------------------------------------------------ numbers and times

    @property
    def last(self) -> int:
        """The newest snapshot."""
        return (self.newest or self._newest())[0]

    @property
    def next(self) -> int:
        """The number for the commit in progress."""
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
        """Return the newest snapshot committed at or before a time."""
        return commits.snapshot_at_time(self._tx, time)

    def learn(self, head: Head) -> None:
        """Take the newest snapshot from a table's head that was read in this section."""
        if self.newest is None:
            self._server_clock = head.server_clock
            self._begin(head.last, head.committed_at)

    def record(self, operation: str, *, job: bool, summary: str | None = None, token: str | None = None) -> None:
        """Give the commit in progress its number and time.

        A job's commit has no summary: it changes no row for users, and change feeds recognize it by that.
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
        """Return whether a commit whose answer was lost has happened. If it has not, it never will."""
        if token is not None:
            return commits.snapshot_of_token(self._tx, token) is not None
        found = commits.snapshot_made(self._tx, number, committed_at)
        commits.write_over_lost_commit(self._tx)
        return found is not None

    # ------------------------------------------------------------ tokens of users

    def result_of(self, token: str) -> dict[str, Any] | None:
        """Return what was kept of the last commit with a user's token, or None if there was none."""
        return commits.token_result(self._tx, token)

    def keep_result(self, token: str, result: dict[str, Any]) -> None:
        """Keep the result of the commit in progress under a user's token; to be called after ``record``."""
        number, committed_at = self._newest()
        commits.add_token(self._tx, token, number, {**result, "snapshot_id": number}, committed_at)

    # ------------------------------------------------------------ touched and locked rows

    def touch(self, table_id: int, snapshot: int, row_ids: BitMap64 | None) -> None:
        """Record that the commit changes these rows; None: it may have changed any row (truncate)."""
        commits.add_touched(self._tx, table_id, snapshot, None if row_ids is None else row_ids.serialize())

    def lock(self, table_id: int, snapshot: int, row_ids: BitMap64) -> None:
        """Record that the commit relies on these rows."""
        commits.add_locked(self._tx, table_id, snapshot, row_ids.serialize())

    def reserve(self, table_id: int, row_ids: BitMap64) -> None:
        """Reserve rows for the writer whose turn it is on this table: nobody else may change them."""
        self.end_reservation(table_id)
        self.lock(table_id, RESERVED, row_ids)

    def end_reservation(self, table_id: int) -> None:
        commits.clear_reservation(self._tx, table_id)

    def touched_since(self, table_id: int, since: int) -> Touched:
        """Return the commits after ``since`` with the rows each changed."""
        rows = commits.touched_since(self._tx, table_id, since)
        return [(s, None if data is None else BitMap64.deserialize(data)) for s, data in rows]

    def first_conflict(self, table_id: int, since: int, row_ids: BitMap64) -> int | None:
        """Return the first commit after ``since`` that touched or locked one of the rows, or ``RESERVED``."""
        rows = self._tx.rows(*commits.touched_or_locked_query(table_id, since))
        return min(
            [int(s) for s, data in rows if data is None or not row_ids.isdisjoint(BitMap64.deserialize(data))],
            default=None,
        )

    def has_changed_since(self, table_id: int, since: int) -> bool:
        """Return whether a commit after ``since`` updated, deleted or locked rows, or added blocks."""
        return commits.changed_since(self._tx, table_id, since)

    def forget(self, table_id: int, horizon: int, lowest: int, tokens_before: int, limit: int) -> bool:
        """Expire old records: the table's up to its horizon, the lake's below the lowest horizon of all tables.

        Removes not much more than ``limit`` at once, and returns whether there may be more.
        """
        commits.drop_tokens_before(self._tx, tokens_before)
        touched = commits.drop_touched_up_to(self._tx, table_id, horizon, limit)
        return max(touched, commits.drop_snapshots_below(self._tx, lowest, limit)) >= limit


def new_token() -> str:
    """Return a token by which a commit whose answer was lost can be found again."""
    return uuid.uuid4().hex
