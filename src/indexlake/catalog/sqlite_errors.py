"""SQLite's result codes in IndexLake's words. Decisions are made by code, never by message text."""

from __future__ import annotations

import apsw

from indexlake.catalog.driver import CommitUnknown, DatabaseError

_UNIQUE = (apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_ROWID)
_BUSY = (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED)
_ADVICE = {
    apsw.SQLITE_BUSY: "is locked by another program. Try again; close programs other than IndexLake that write to it",
    apsw.SQLITE_LOCKED: "is locked by another program. Try again; close programs other than IndexLake that write to it",
    apsw.SQLITE_READONLY: "cannot be written to. Check the permissions of the file and of its directory, or "
    "connect with read_only=True",
    apsw.SQLITE_PERM: "may not be used by this user. Check the permissions of the file and of its directory",
    apsw.SQLITE_AUTH: "may not be used by this user. Check the permissions of the file and of its directory",
    apsw.SQLITE_FULL: "cannot grow: the disk is full. Nothing was changed. Free space there and try again",
    apsw.SQLITE_TOOBIG: "cannot hold a value or row of more than 1,000,000,000 bytes. Nothing was changed. Store such "
    "values in pieces, or outside the table",
    apsw.SQLITE_CORRUPT: "is damaged. Stop writing to it and restore it from a backup",
    apsw.SQLITE_NOTADB: "is not a SQLite database, or it is damaged. Check the path, or restore it from a backup",
    apsw.SQLITE_IOERR: "cannot be read or written: the disk or file system failed. Check the disk and the system's log",
    apsw.SQLITE_CANTOPEN: "cannot be opened. Check that the path is a file in a directory that exists and that this "
    "user may write to (SQLite keeps its log beside the file, also for reading)",
}


def translate(error: apsw.Error | OSError, location: str, sql: str | None = None) -> DatabaseError:
    """Return the error to raise for one of SQLite, by its result code."""
    code = apsw.SQLITE_IOERR if isinstance(error, OSError) else getattr(error, "extendedresult", 0)
    primary = code & 0xFF
    advice = _ADVICE.get(primary)
    if advice is not None:
        message = f"The catalog {location} {advice}. (SQLite: {error})"
    else:
        message = f"The catalog {location} refused a statement: {error}. Statement: {sql}"
    kind = CommitUnknown if sql == "COMMIT" and primary == apsw.SQLITE_IOERR else DatabaseError
    return kind(message, code=code, retryable=primary in _BUSY, unique_violation=code in _UNIQUE)
