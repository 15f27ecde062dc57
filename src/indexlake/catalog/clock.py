"""The lake's time: one clock for everything that has a date or an age.

If there is a server, it keeps the time: PostgreSQL returns it in the statement that reads the newest snapshot. With
SQLite it is the machine's clock. If that does not fit the newest snapshot, the file system's clock is consulted, which
for a network drive is the server's; if the two differ, the file system is right and the difference is logged.

Commit times never go back as snapshot numbers grow. A snapshot in the future was made by a clock that was ahead: the
next commit moves it, and everything else that clock has dated, to the present. A clock that is behind would spoil
correct times; it is recognised by the gaps between them and corrects nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from indexlake.catalog.driver import Transaction

log = logging.getLogger("indexlake")

SERVER_CLOCK = "null /* server clock */"
"""In SQL text: the server's time in microseconds; null if there is no server."""

POSTGRES_CLOCK = "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)"

SECOND = 1_000_000
DOUBTFUL = 60 * SECOND
DAY = 24 * 3600 * SECOND

_MOMENTS = (
    ("indexlake_token", "created_at"),
    ("indexlake_garbage", "unreachable_at"),
    ("indexlake_job", "heartbeat_at"),
    ("indexlake_job", "finished_at"),
    ("indexlake_writer", "reaped"),
)
_TIMES = "select committed_at from indexlake_snapshot where snapshot_id >= ? order by snapshot_id limit 2"
_EXPIRIES = (("indexlake_writer", "expires_at"), ("indexlake_pin", "expires_at"))


def now() -> int:
    """Return this machine's clock in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class FileClock:
    """The machine's clock, checked against the file system's when in doubt; ``path`` None: never checked."""

    def __init__(self, path: str | None) -> None:
        self.machine: Callable[[], int] = now
        self._path = path
        self._wrong_by = 0

    def time(self, last: int) -> int:
        """Return the time; ``last`` is the time of the newest snapshot."""
        found = self.machine() - self._wrong_by
        if last <= found <= last + DOUBTFUL or self._path is None:
            return found
        try:
            wrong_by = found - self.file_time()
        except OSError:  # not writable
            return found
        if abs(wrong_by) <= DOUBTFUL:
            return found
        self._wrong_by += wrong_by
        if abs(self._wrong_by) > DOUBTFUL:
            log.warning(
                "the clock of this process and that of the file system that holds the catalog differ by %.0f s; the "
                "lake uses that of the file system. Correct the clock.",
                abs(self._wrong_by) / SECOND,
            )
        return found - wrong_by

    def file_time(self) -> int:
        """Return the current time according to the file system."""
        assert self._path is not None
        os.utime(self._path)
        return os.stat(self._path).st_mtime_ns // 1000


def correct_future(tx: Transaction, time: int, before: int | None, last: tuple[int, int]) -> bool:
    """Move snapshots dated after ``time`` back to it, if their clock was ahead; return whether it was.

    ``before`` is the newest snapshot that is not in the future; ``last`` is the newest of all, with its time. A clock
    that was ahead leaves a gap: the commits in the future took no longer than the time from ``before`` to now.
    """
    ahead = (last[1] - time) / SECOND
    if before is not None:
        (known,), (first,) = tx.rows(_TIMES, (before,))
        if last[1] - first <= time - known:
            tx.execute("update indexlake_snapshot set committed_at = ? where snapshot_id > ?", (time, before))
            correct_moments(tx, time)
            log.warning(
                "commits after snapshot %d were dated up to %.0f s ahead of now, by a clock that was wrong; they are "
                "dated to now.",
                before,
                ahead,
            )
            return True
    log.warning(
        "the newest snapshot is dated %.0f s ahead of this clock, which seems to be behind; new commits take the date "
        "of the newest snapshot. Correct the clock.",
        ahead,
    )
    return False


def correct_moments(tx: Transaction, time: int) -> None:
    """Move other dates of a clock that was ahead back to now, and expiries back to within a day from now."""
    for table, column in _MOMENTS:
        tx.execute(f"update {table} set {column} = ? where {column} > ?", (time, time + DOUBTFUL))
    for table, column in _EXPIRIES:
        tx.execute(f"update {table} set {column} = ? where {column} > ?", (time + DAY, time + DAY + DOUBTFUL))
