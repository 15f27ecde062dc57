"""PostgreSQL's errors in IndexLake's words. Decisions are made by SQLSTATE, never by message text."""

from __future__ import annotations

from typing import Any

from indexlake.catalog.driver import CommitUnknown, DatabaseError

_LOST = "08"  # class: connection exception
_RETRY = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "55P03",  # lock not available: timed out waiting for other writers
    "57P01",  # the server is shutting down
    "57P02",
    "57P03",  # the server is not up yet
    "57P05",  # idle too long
    "25P03",  # idle too long inside a transaction
    "53300",  # too many connections
}
_ADVICE = {
    "54000": "cannot hold a value or row of more than 1 GB. Nothing was changed. Store such values in pieces, or "
    "outside the table",
    "55P03": "is being written to by another process for longer than the lock time-out. Try again; look for a "
    "session that holds an advisory lock in pg_locks",
    "53100": "cannot grow: the server's disk is full. Nothing was changed. Free space there and try again",
    "53200": "ran out of memory on the server. Nothing was changed. Try again",
    "53300": "accepts no more connections. Raise max_connections, or use fewer processes and threads",
    "25006": "cannot be written to: the server is a replica, or in read-only mode. Connect to the primary, or with "
    "read_only=True",
    "42501": "may not be used like this by this user. Ask for the privilege (usage and create on the schema)",
    "57014": "took longer than the server's statement_timeout. Raise it for this user, or try again",
    "XX001": "is damaged (a data page). Restore it from a backup",
    "XX002": "is damaged (an index). Rebuild it with REINDEX, or restore it from a backup",
}


def translate(
    error: Any, location: str, sql: str | None = None, *, lost: bool = False, commit: bool = False
) -> DatabaseError:
    """Return the error to raise for one from psycopg or the operating system."""
    state: str | None = getattr(error, "sqlstate", None)
    lost = lost or (state or "").startswith(_LOST) or isinstance(error, OSError)
    text = " ".join(str(error).split()).rstrip(".")
    if commit and lost:
        return CommitUnknown(
            f"The connection to the catalog {location} was lost during COMMIT: whether it took place is not known "
            f"yet. Look for it before doing it again. (PostgreSQL: {text})",
            sqlstate=state,
        )
    if lost:
        message = f"The connection to the catalog {location} was lost. Try again. (PostgreSQL: {text})"
    elif state == "54000" and "index row" in text:
        message = (
            f"The catalog {location} cannot hold a primary key of several columns with more than about 2,700 bytes. "
            f"Nothing was changed. Shorten the key, or use a key of one column. (PostgreSQL: {text})"
        )
    elif state in _ADVICE:
        message = f"The catalog {location} {_ADVICE[state]}. (PostgreSQL: {text})"
    else:
        message = f"The catalog {location} refused a statement: {text}. Statement: {sql}"
    return DatabaseError(message, sqlstate=state, retryable=lost or state in _RETRY, unique_violation=state == "23505")


def unreachable(error: Any, location: str) -> DatabaseError:
    """Return the error for a failed attempt to connect; libpq's text contains no password."""
    text = " ".join(str(error).split()).rstrip(".")
    return DatabaseError(
        f"The catalog {location} cannot be reached. Check that the server runs, its host, port and database name, "
        f"the user and the password. (PostgreSQL: {text})",
        sqlstate=getattr(error, "sqlstate", None),
        retryable=True,
    )
