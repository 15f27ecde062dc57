"""One connection to a SQLite file, configured for IndexLake.

SQLite keeps its file locks in a table per process, which a forked child inherits without the locks themselves. A child
that opened the same file again would believe that it holds them, and could lose commits. So sessions are closed before
a fork (see `sessions`); if one is still in use, because the forking thread is inside a transaction or another thread is
slow, the child is refused that file.

In a folder that cannot be written to, SQLite has no place for the index of its log. If the log is empty, such a file is
read as one that does not change (immutable), and checked for changes before and after each transaction: another user or
another machine may be able to write to it.

A second SQLite in this process, such as Python's ``sqlite3``, does not see our locks. When it closes the file, it takes
itself for the last user and removes the log, and what we wrote afterwards would be lost with this process. So every
commit checks that the log is still the one that the session opened.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import apsw

from indexlake.catalog.database import ENDED
from indexlake.catalog.fork import Gone, keep_forever
from indexlake.errors import OwnershipError
from indexlake.storage.temporary import is_writable

STATEMENTS = 512  # the most that apsw caches
_PRAGMAS = """pragma synchronous = {}; pragma foreign_keys = off; pragma temp_store = memory;
    pragma cache_size = -8000; pragma journal_size_limit = 16777216"""

_lost_files: set[tuple[int, int]] = set()
"""Device and inode of files that this process must not open, because it was forked while they were in use."""


class Stream:
    """A separate cursor in a session, which ends with the transaction at the latest."""

    __slots__ = ("cursor",)

    def __init__(self, cursor: Any) -> None:
        self.cursor: Any = cursor

    def end(self) -> None:
        if not isinstance(self.cursor, Gone):
            self.cursor.close(True)


class SqliteSession:
    """A connection; `cursor` runs statements, `wal_frames[0]` is the log's length after the last commit here."""

    def __init__(self, path: str, *, read_only: bool, durable: bool, timeout: float) -> None:
        self._path = path
        self._read_only = read_only
        self._durable = durable
        self._timeout = timeout
        self._as_it_was: _State | None = None
        self._log: int | None = None  # the inode
        self.connection: Any = None
        self.cursor: Any = None
        self.streams: list[Stream] = []
        self.thread = threading.get_ident()
        self.wal_frames = [0]
        self._known: tuple[tuple[Any, ...], list[tuple[Any, ...]]] | None = None

    def open(self) -> None:
        _refuse_lost_file(self._path)
        if not self._read_only:
            self._open(self._path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            return
        found = _state(self._path)
        try:
            self._open(self._path, apsw.SQLITE_OPEN_READONLY)
            self.cursor.execute("select count(*) from sqlite_schema").fetchall()
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            if found is None or found.log_size or is_writable(os.path.dirname(self._path)):
                raise
            self.shut()
            address = f"file:{quote(self._path)}?immutable=1"
            self._open(address, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            self._as_it_was = found

    def outdated(self) -> bool:
        """Return whether a file that is read as unchanging has changed."""
        return self._as_it_was is not None and self._as_it_was != _state(self._path)

    def _open(self, address: str, flags: int) -> None:
        connection = self.connection = apsw.Connection(address, flags=flags, statementcachesize=STATEMENTS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        connection.set_busy_timeout(int(self._timeout * 1000))
        self.cursor = connection.cursor()
        self.cursor.execute(_PRAGMAS.format("full" if self._durable else "off")).fetchall()
        with contextlib.suppress(OSError):
            self._log = os.stat(f"{self._path}-wal").st_ino
        frames = self.wal_frames

        def count_frames(_: object, __: str, number: int) -> int:
            frames[0] = number
            return 0

        connection.set_wal_hook(count_frames)  # this also switches off SQLite's own checkpoints

    def has_lost_log(self) -> bool:
        """Return whether the log that this session writes to was removed; call it after a commit, when one exists."""
        if not self._durable:
            return False
        try:
            found = os.stat(f"{self._path}-wal").st_ino
        except FileNotFoundError:
            return True
        if self._log is None:
            self._log = found
        return found != self._log

    def remember(self, sql: str, params: Any, rows: list[tuple[Any, ...]]) -> None:
        """Remember the result of a query in the committed state that this session reads."""
        self._known = (sql, params, *self._state()), rows

    def remembered(self, sql: str, params: Any) -> list[tuple[Any, ...]] | None:
        """Return a query's remembered result if the session still reads that state and has written nothing since, not
        even something that was rolled back."""
        known = self._known
        return known[1] if known is not None and known[0] == (sql, params, *self._state()) else None

    def as_before(self, sql: str, params: Any) -> list[tuple[Any, ...]] | None:
        """Return a query's remembered result if nobody has committed since."""
        self.cursor.execute("pragma data_version").fetchall()  # makes it look for new commits
        return self.remembered(sql, params)

    def _state(self) -> tuple[int, int]:
        return self.connection.data_version(), self.connection.total_changes()

    def stream(self) -> Stream:
        stream = Stream(self.connection.cursor())
        self.streams.append(stream)
        return stream

    def end_streams(self) -> None:
        while self.streams:
            stream = self.streams.pop()
            stream.end()
            stream.cursor = ENDED

    def rest(self) -> bool:
        try:
            if self.streams:
                self.end_streams()
            if self.connection.in_transaction:
                self.cursor.execute("ROLLBACK")
        except apsw.Error:
            return False
        return True

    def checkpoint(self, mode: int, patience: float) -> None:
        """Move the log into the file; waits for readers only if the mode does."""
        try:
            self.connection.set_busy_timeout(int(patience * 1000))
            self.connection.wal_checkpoint(mode=mode)
        finally:
            self.connection.set_busy_timeout(int(self._timeout * 1000))

    def shut(self, *, tidy: bool = False) -> None:
        if self.connection is None:
            return
        with contextlib.suppress(apsw.Error):
            if tidy:
                self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            self.connection.close(True)

    def abandon(self, why: Gone) -> None:
        with contextlib.suppress(OSError):
            _lost_files.add(_identity(self._path))
        for stream in self.streams:
            keep_forever(stream.cursor)
            stream.cursor = why
        self.streams = []
        keep_forever(self.connection)
        keep_forever(self.cursor)
        self.connection = self.cursor = why


def _refuse_lost_file(path: str) -> None:
    if not _lost_files:
        return
    with contextlib.suppress(FileNotFoundError):
        if _identity(path) in _lost_files:
            raise OwnershipError(
                f"This process was forked while the catalog {path} was in use, and cannot open it safely. Start "
                f"processes with multiprocessing's 'spawn' or 'forkserver', or fork outside of transactions and "
                f"streaming queries."
            )


@dataclass(frozen=True, slots=True)
class _State:
    """Properties of the file and its log that change when the catalog is written to."""

    inode: int
    size: int
    modified: int
    log_size: int


def _state(path: str) -> _State | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    log_size = 0
    with contextlib.suppress(OSError):
        log_size = os.stat(f"{path}-wal").st_size
    return _State(found.st_ino, found.st_size, found.st_mtime_ns, log_size)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
