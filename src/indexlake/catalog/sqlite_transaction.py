"""Transactions on a SQLite catalog.

Reading: BEGIN; the state is fixed by the first statement. Writing: the writers' lock, then BEGIN IMMEDIATE, and one way
out for each ending, which releases the lock and the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING

import apsw

from indexlake.catalog.database import OVER, Ending, Writing, wrong_count
from indexlake.catalog.dialect import insert_sql
from indexlake.catalog.driver import CommitUnknown, DatabaseError, Params, Row
from indexlake.catalog.sqlite_errors import translate
from indexlake.errors import CatalogError
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.sqlite import SqliteCatalog

CHUNK = 256


class _Statements(Ending):
    """What reading and writing transactions have in common: SELECT."""

    catalog: SqliteCatalog
    _step = "sql.query"

    def rows(self, sql: str, params: Params = ()) -> list[Row]:
        try:
            faults.step(self._step)
            return self._session.cursor.execute(sql, params).fetchall()  # type: ignore[no-any-return]
        except (apsw.Error, OSError) as error:
            raise self._failed(error, sql) from None

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        stream = self._session.stream()
        try:
            faults.step("sql.query")
            stream.cursor.execute(sql, params)
            while chunk := list(islice(stream.cursor, CHUNK)):
                yield from chunk
        except (apsw.Error, OSError) as error:
            raise self._failed(error, sql) from None
        finally:
            stream.end()

    def _failed(self, error: apsw.Error | OSError, sql: str) -> DatabaseError:
        return translate(error, self.catalog.location, sql)


class SqliteRead(_Statements):
    """One state of the database, fixed by the first statement."""

    def __init__(self, catalog: SqliteCatalog) -> None:
        self._session = OVER
        self.catalog = catalog
        session = catalog.take()
        try:
            session.cursor.execute("BEGIN")
        except BaseException as error:
            catalog.sessions.give_back(session)
            if isinstance(error, apsw.Error):
                raise translate(error, catalog.location, "BEGIN") from None
            raise
        self._session = session

    def rows_again(self, sql: str, params: Params = ()) -> list[Row]:
        """Read rows, and remember them for later transactions in the same session, since what is read is committed."""
        session = self._session
        try:
            session.cursor.execute("pragma data_version").fetchall()  # fixes the state that is read
        except apsw.Error as error:
            raise self._failed(error, sql) from None
        found: list[Row] | None = session.remembered(sql, params)
        if found is None:
            found = self.rows(sql, params)
            session.remember(sql, params, found)
        return found

    def close(self) -> None:
        if self._is_open():
            session, self._session = self._session, OVER
            self.catalog.sessions.give_back(session)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._session
        self.close()
        if kind is None and self.catalog.read_only and session is not OVER:
            self.catalog.check_unchanged(session)

    _end = close


class SqliteTransaction(_Statements, Writing):
    """The critical section: the writers' lock, BEGIN IMMEDIATE, and one way out for each ending."""

    _step = "sql.execute"

    def __init__(self, catalog: SqliteCatalog) -> None:
        self._session = OVER
        self.catalog = catalog
        catalog.refuse_writes()
        catalog.lock.acquire()
        try:
            session = catalog.take()
            try:
                faults.step("sql.begin")
                session.cursor.execute("BEGIN IMMEDIATE")
            except BaseException:
                catalog.sessions.give_back(session)
                raise
        except (apsw.Error, OSError) as error:
            catalog.lock.release()
            raise translate(error, catalog.location, "BEGIN IMMEDIATE") from None
        except BaseException:
            catalog.lock.release()
            raise
        self._session = session

    def rows_again(self, sql: str, params: Params = ()) -> list[Row]:
        """Return rows that a reader in this session has read from the same state, which BEGIN IMMEDIATE has fixed."""
        found = self._session.remembered(sql, params)
        return self.rows(sql, params) if found is None else found

    def execute(self, sql: str, params: Params = ()) -> int:
        self.send(sql, params)
        return self._session.connection.changes()  # type: ignore[no-any-return]

    def send(self, sql: str, params: Params = (), *, rows: int | None = None) -> None:
        try:
            faults.step("sql.execute")
            self._session.cursor.execute(sql, params)
        except (apsw.Error, OSError) as error:
            raise self._failed(error, sql) from None
        if rows is not None and self._session.connection.changes() != rows:
            raise wrong_count(sql)

    def execute_many(self, sql: str, rows: Iterable[Params]) -> int:
        session = self._session
        try:
            faults.step("sql.execute")
            before = session.connection.total_changes()
            session.cursor.executemany(sql, rows)
            return session.connection.total_changes() - before  # type: ignore[no-any-return]
        except (apsw.Error, OSError) as error:
            raise self._failed(error, sql) from None

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Params]) -> None:
        self.execute_many(insert_sql(table, tuple(columns)), rows)

    def commit(self) -> None:
        session, catalog = self._session, self.catalog
        if session.streams:
            session.end_streams()
        try:
            faults.step("sql.commit.before")
            session.cursor.execute("COMMIT")
        except (apsw.Error, OSError) as error:
            failure = translate(error, catalog.location, "COMMIT")
            self.rollback()
            raise failure from None
        try:
            faults.step("sql.commit.after")
            if session.has_lost_log():
                raise CatalogError(
                    f"The log of the catalog {catalog.location} was removed while it was in use, so what was just "
                    "written will be lost. Something in this process has opened and closed the file with another "
                    "SQLite library, such as Python's sqlite3. Close the lake, connect again and repeat the write."
                )
            catalog.after_commit(session)
        except OSError as error:
            raise CommitUnknown(f"The answer to COMMIT on {catalog.location} was lost: {error}.") from None
        finally:
            self._finish()

    def rollback(self) -> None:
        if self._session is OVER:
            return
        session = self._session
        try:
            session.end_streams()
            if session.connection.in_transaction:
                session.cursor.execute("ROLLBACK")
        except apsw.Error:
            self.catalog.sessions.discard(session)
        self._finish()

    _end = rollback

    def _finish(self) -> None:
        catalog, session = self.catalog, self._session
        self._session = OVER
        if catalog.sessions.closed is None:
            catalog.lock.release()
        else:
            catalog.lock.retire()
        catalog.sessions.give_back(session)

    def _failed(self, error: apsw.Error | OSError, sql: str) -> DatabaseError:
        """Translate an error; if SQLite itself rolled back, end the transaction so that no statement follows."""
        failure = translate(error, self.catalog.location, sql)
        if self._is_open() and not self._session.connection.in_transaction:
            self.rollback()
        return failure
