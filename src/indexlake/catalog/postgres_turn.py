"""Turns on a PostgreSQL catalog: an advisory lock, whose waiters the server serves in order of arrival.

The lock belongs to a transaction in a session of its own. The server ends that session once it has been silent for the
longest allowed turn, so a dead machine does not hold the lock. Threads of a process queue for it locally, so one
session is enough for all of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from indexlake.catalog.driver import DatabaseError
from indexlake.catalog.writer_lock import FairLock

if TYPE_CHECKING:
    from indexlake.catalog.postgres import PostgresCatalog
    from indexlake.catalog.postgres_session import PostgresSession

_LOCK_NOT_AVAILABLE = "55P03"


class PostgresTurn:
    def __init__(self, catalog: PostgresCatalog, key: int) -> None:
        self._catalog = catalog
        self._key = key
        self._threads = FairLock()
        self._session: PostgresSession | None = None

    def acquire(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        if not self._threads.acquire(timeout):
            return False
        left = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            statements = (
                "begin",
                f"set local lock_timeout = {left}",
                f"set local idle_in_transaction_session_timeout = {left + 1000}",
                f"select pg_advisory_xact_lock({self._key})",
            )
            self._session, _ = self._catalog.begin([(sql, None) for sql in statements])
        except DatabaseError as error:
            self._threads.release()
            if error.sqlstate == _LOCK_NOT_AVAILABLE:
                return False
            raise
        except BaseException:
            self._threads.release()
            raise
        return True

    def release(self) -> None:
        session, self._session = self._session, None
        try:
            if session is not None:
                self._catalog.sessions.give_back(session)
        finally:
            self._threads.release()
