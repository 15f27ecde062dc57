"""A catalog in a SQLite file: WAL, durable commits, fair writers.

Runs on apsw, which brings a current SQLite. A commit is on disk when `commit()` returns (synchronous=FULL). Writers
queue in `writer_lock` and then take BEGIN IMMEDIATE, so no statement inside a transaction ever waits for another
writer. Readers never wait for writers.

IndexLake itself moves the log (WAL) into the file, inside the writers' lock: after a commit when it has grown by 4 MiB,
without waiting for readers; once overlapping readers have let it grow to 64 MiB, waiting up to 0.1 s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import islice

import apsw

from indexlake.catalog import fork
from indexlake.catalog.clock import FileClock
from indexlake.catalog.database import Database
from indexlake.catalog.dialect import SQLITE, Dialect
from indexlake.catalog.driver import DatabaseError, Params, Row
from indexlake.catalog.sessions import Sessions, closed
from indexlake.catalog.sqlite_errors import translate
from indexlake.catalog.sqlite_session import SqliteSession
from indexlake.catalog.sqlite_transaction import CHUNK, SqliteRead, SqliteTransaction
from indexlake.catalog.tables import advice
from indexlake.catalog.writer_lock import SqliteTurn, WriterLock
from indexlake.errors import CatalogError, NotFoundError
from indexlake.storage import faults
from indexlake.storage.temporary import TemporaryFolder, is_writable

_log = logging.getLogger("indexlake.catalog")
_WAL_FRAMES = 1024  # 4 MiB of 4 KiB pages
_WAL_FRAMES_LONG = 16 * _WAL_FRAMES
_RESTART_PATIENCE = 0.1  # seconds
_KEEP_SESSIONS = 8
_MOST_SESSIONS = 256


class SqliteCatalog(Database):
    """A catalog in the file at `path`; ":memory:" makes a temporary one that goes with this object.

    Parameters
    ----------
    create
        Create the file (and its directory) if it is missing.
    read_only
        Refuse `transaction()`.
    lock_timeout
        Seconds to wait for other writers before a retryable error.
    """

    dialect: Dialect = SQLITE

    def __init__(self, path: str, *, create: bool = True, read_only: bool = False, lock_timeout: float = 60.0) -> None:
        self.location = path if path == ":memory:" else os.path.abspath(path)
        self.read_only = read_only
        self._moved_frames = 0
        self._folder = TemporaryFolder() if path == ":memory:" else None
        if self._folder is not None:
            path = self._folder.path("catalog.db")
        else:
            path = os.path.abspath(path)
            if not os.path.exists(path):
                if not create or read_only:
                    raise NotFoundError(
                        f"There is no catalog at {path}. {advice(read_only)}",
                        name=path,
                    )
                _make_directory(os.path.dirname(path))
        durable = self._folder is None
        self.lock = WriterLock(path + ".lock" if durable else None, lock_timeout)
        self.clock = FileClock(None if read_only else self.lock.path)
        self._turns: dict[int, SqliteTurn] = {}
        self.sessions: Sessions[SqliteSession] = Sessions(
            lambda: SqliteSession(path, read_only=read_only, durable=durable, timeout=lock_timeout),
            self.location,
            keep=_KEEP_SESSIONS,
            limit=_MOST_SESSIONS,
            timeout=lock_timeout,
            close_before_fork=True,
        )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        fork.watch(self)

    def _prepare(self) -> None:
        session = self.take()
        try:
            mode = session.cursor.execute("pragma journal_mode").fetchall()[0][0]
            session.cursor.execute("select count(*) from sqlite_schema").fetchall()
            if mode != "wal" and not self.read_only:
                if self._folder is None and not is_writable(os.path.dirname(self.location)):
                    raise self._not_writable()
                self.lock.acquire()
                try:
                    mode = session.cursor.execute("pragma journal_mode = wal").fetchall()[0][0]
                finally:
                    self.lock.release()
                if mode != "wal":
                    raise CatalogError(
                        f"The file system of {self.location} cannot hold a shared SQLite catalog (no WAL mode). "
                        f"Put the lake on a local disk, or use a PostgreSQL catalog."
                    )
        except apsw.Error as error:
            raise self._refused(error) from None
        finally:
            self.sessions.give_back(session)

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        session = self.take()
        try:
            stream = session.stream()
            stream.cursor.execute(sql, params)
            while chunk := list(islice(stream.cursor, CHUNK)):
                yield from chunk
            self.check_unchanged(session)
        except apsw.Error as error:
            raise translate(error, self.location, sql) from None
        finally:
            self.sessions.give_back(session)

    def read(self) -> SqliteRead:
        return SqliteRead(self)

    def rows_as_before(self, sql: str, params: Params) -> list[Row] | None:
        """Return a remembered result: each session counts the commits of other sessions."""
        if self.read_only:
            return None
        faults.step("sql.query")
        try:
            return self.sessions.ask_next(SqliteSession.as_before, sql, params)
        except (apsw.Error, OSError) as error:
            raise translate(error, self.location, sql) from None

    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self)

    def time(self, server: int | None, last: int) -> int:
        return self.clock.time(last)

    def turn(self, slot: int) -> SqliteTurn:
        if slot not in self._turns:
            self._turns.setdefault(slot, SqliteTurn(self.lock.path, slot))
        return self._turns[slot]

    def checkpoint(self) -> None:
        self.refuse_writes()
        self.lock.acquire()
        try:
            session = self.take()
            try:
                self._move_log(session, apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                self.sessions.give_back(session)
        finally:
            self.lock.release()

    def after_commit(self, session: SqliteSession) -> None:
        """Move the log into the file when it has grown enough since the last time; the writers' lock is held."""
        frames = session.wal_frames[0]
        if frames < _WAL_FRAMES:  # the log started again
            self._moved_frames = 0
            return
        if frames < self._moved_frames + _WAL_FRAMES:
            return
        long = frames >= _WAL_FRAMES_LONG
        self._move_log(session, apsw.SQLITE_CHECKPOINT_RESTART if long else apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._moved_frames = frames

    def _move_log(self, session: SqliteSession, mode: int) -> None:
        try:
            session.checkpoint(mode, patience=_RESTART_PATIENCE)
        except apsw.Error as error:  # the log stays longer; the commit before it stands
            _log.debug("the log of %s was not moved: %s", self.location, error)

    def close(self) -> None:
        if self.sessions.closed is not None:
            return
        tidy = not self.read_only and self.lock.try_acquire(timeout=1.0)
        self.sessions.close(closed(self.location), tidy=tidy)
        if tidy:
            self.lock.retire()
        if self._folder is not None:
            self._folder.remove()

    def take(self) -> SqliteSession:
        try:
            session = self.sessions.take()
            while self.read_only and session.outdated():
                self.sessions.discard(session)
                session = self.sessions.take()
            return session
        except apsw.Error as error:
            raise self._refused(error) from None

    def check_unchanged(self, session: SqliteSession) -> None:
        """Raise if a file read as unchanging was changed, so that what was read may mix two states of it."""
        if session.outdated():
            raise DatabaseError(
                f"The catalog {self.location} was changed while this process was reading it from a folder that it "
                f"cannot write to. Read again.",
                retryable=True,
            )

    def _refused(self, error: apsw.Error) -> CatalogError:
        folder = os.path.dirname(self.location)
        refused = isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError)
        if not refused or not os.path.isfile(self.location) or is_writable(folder):
            return translate(error, self.location)
        if not self.read_only:
            return self._not_writable()
        return CatalogError(
            f"The catalog {self.location} is in a folder that cannot be written to, and its log {self.location}-wal "
            f"holds commits that are not in the file yet. SQLite reads them only where it may write beside the file: "
            f"open the lake once where the folder is writable, for writing, and close it; or copy the lake, with its "
            f"log, to a folder that is writable. (SQLite: {error})"
        )

    def _not_writable(self) -> CatalogError:
        return CatalogError(
            f"The catalog {self.location} is in a folder that cannot be written to. To read the lake, connect with "
            f"read_only=True; to write, make the folder writable."
        )

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self.lock.after_fork_in_child()
        for turn in self._turns.values():
            turn.after_fork_in_child()
        if self._folder is not None:
            self._folder.after_fork_in_child()


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise CatalogError(
            f"The catalog's directory {path} cannot be made: {error.strerror}. Choose a directory that this user "
            f"may write to."
        ) from None
