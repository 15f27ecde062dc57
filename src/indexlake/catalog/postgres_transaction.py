"""Transactions on a PostgreSQL catalog.

A statement that fails makes the transaction unusable until it is rolled back, completely or to a savepoint.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from indexlake.arrow.batch_size import encoded_bytes, rows_of
from indexlake.catalog.clock import POSTGRES_CLOCK, SERVER_CLOCK
from indexlake.catalog.database import ENDED, OVER, Ending, Writing
from indexlake.catalog.dialect import insert_sql, quote
from indexlake.catalog.driver import CommitUnknown, DatabaseError, Params, Row
from indexlake.catalog.postgres_errors import translate
from indexlake.catalog.postgres_session import import_psycopg
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.postgres import PostgresCatalog

CHUNK = 1024
FIRST_ROWS = 64
"""How many rows of a stream are fetched at a time: at most, and before the size of its rows is known."""

_COPY_FROM = 4  # rows; fewer are cheaper as INSERTs
_READ = "begin isolation level repeatable read read only"
_WRITE = (
    "begin isolation level read committed read write; select pg_advisory_xact_lock({});"
    " set local idle_in_transaction_session_timeout = '60s'"
)
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?""")


@functools.lru_cache(maxsize=4096)
def numbered(sql: str) -> str:
    """Return the SQL with $1, $2, … for question marks, and the server's clock filled in."""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    return _TOKENS.sub(number, sql.replace(SERVER_CLOCK, POSTGRES_CLOCK))


class _Statements(Ending):
    """What reading and writing transactions have in common: SELECT."""

    catalog: PostgresCatalog
    _errors: tuple[type[Exception], ...]
    _streams = 0

    def rows(self, sql: str, params: Params = ()) -> list[Row]:
        try:
            faults.step("sql.query")
            return self._session.cursor.execute(numbered(sql), params).fetchall()  # type: ignore[no-any-return]
        except self._errors as error:
            raise self._failed(error, sql) from None

    def rows_again(self, sql: str, params: Params = ()) -> list[Row]:
        return self.rows(sql, params)

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        session = self._session
        self._streams += 1
        name = f"indexlake_{self._streams}"
        try:
            faults.step("sql.query")
            session.cursor.execute(numbered(f"declare {name} no scroll cursor for {sql}"), params, prepare=False)
            rows = FIRST_ROWS
            while chunk := session.cursor.execute(f"fetch {rows} from {name}", prepare=False).fetchall():
                rows = min(CHUNK, 4 * rows, rows_of(encoded_bytes(chunk) // len(chunk)))
                yield from chunk
                if self._session is not session:
                    raise ENDED.error()
        except self._errors as error:
            raise self._failed(error, sql) from None
        finally:
            if self._session is session and self._is_open() and session.healthy():
                with contextlib.suppress(*self._errors):
                    session.control(f"close {name}")

    def _failed(self, error: Exception, sql: str) -> DatabaseError:
        return translate(error, self.catalog.location, sql, lost=self._session.lost())


class PostgresRead(_Statements):
    """One state of the database, fixed by the first statement."""

    def __init__(self, catalog: PostgresCatalog) -> None:
        self._session = OVER
        self.catalog = catalog
        self._errors = (import_psycopg().Error, OSError)
        self._session = catalog.begin(_READ)

    def close(self) -> None:
        if not self._is_open():
            return
        session, self._session = self._session, OVER
        try:
            session.control("commit")
        except BaseException as error:  # an interrupt too: the session must not stay taken
            self.catalog.sessions.discard(session)
            if not isinstance(error, self._errors):
                raise
        self.catalog.sessions.give_back(session)

    _end = close


class PostgresTransaction(_Statements, Writing):
    """The critical section: BEGIN, then the advisory lock, and one way out for each ending.

    Statements passed to ``send`` travel with the next statement or with COMMIT, because every round trip is time under
    the lock.
    """

    def __init__(self, catalog: PostgresCatalog) -> None:
        self._session = OVER
        self._sent: list[tuple[str, Params]] = []
        self.catalog = catalog
        self._errors = (import_psycopg().Error, OSError)
        catalog.refuse_writes()
        try:
            faults.step("sql.begin")
        except OSError as error:
            raise translate(error, catalog.location, "begin") from None
        self._session = catalog.begin(_WRITE.format(catalog.lock_key))

    def rows(self, sql: str, params: Params = ()) -> list[Row]:
        self._step(sql)
        self._deliver()
        return super().rows(sql, params)

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        self._deliver()
        return super().query(sql, params)

    def send(self, sql: str, params: Params = ()) -> None:
        self._step(sql)
        self._session.lost()  # refuses a transaction that is over
        self._sent.append((sql, params))

    def _step(self, sql: str) -> None:
        try:
            faults.step("sql.execute")
        except OSError as error:
            raise self._failed(error, sql) from None

    def _deliver(self) -> None:
        """Run the statements passed to ``send``."""
        if not self._sent:
            return
        text = self._sent[0][0]
        try:
            with self._session.connection.pipeline():
                self._queue()
        except self._errors as error:
            raise self._failed(error, text) from None

    def _queue(self) -> None:
        sent, self._sent = self._sent, []
        for sql, params in sent:
            self._session.cursor.execute(numbered(sql), params)

    def execute(self, sql: str, params: Params = ()) -> int:
        self._deliver()
        try:
            faults.step("sql.execute")
            cursor = self._session.cursor.execute(numbered(sql), params)
            return max(0, int(cursor.rowcount))
        except self._errors as error:
            raise self._failed(error, sql) from None

    def execute_many(self, sql: str, rows: Iterable[Params]) -> int:
        self._deliver()
        cursor = self._session.cursor
        try:
            faults.step("sql.execute")
            cursor.executemany(numbered(sql), rows)
            return max(0, int(cursor.rowcount))
        except self._errors as error:
            raise self._failed(error, sql) from None

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Params]) -> int:
        rows = iter(rows)
        few = list(islice(rows, _COPY_FROM))
        if len(few) < _COPY_FROM:
            return self.execute_many(insert_sql(table, tuple(columns)), few) if few else 0
        sql = f"copy {quote(table)} ({', '.join(map(quote, columns))}) from stdin (format binary)"
        self._deliver()
        cursor = self._session.cursor
        try:
            faults.step("sql.execute")
            with cursor.copy(sql) as copy:
                write = copy.write_row
                for row in chain(few, rows):
                    write(row)
            return max(0, int(cursor.rowcount))
        except self._errors as error:
            raise self._failed(error, sql) from None

    def _control(self, sql: str) -> None:
        self._deliver()
        try:
            faults.step("sql.execute")
            self._session.control(sql)
        except self._errors as error:
            raise self._failed(error, sql) from None

    def _takes_statements(self) -> bool:
        return self._is_open() and not self._session.lost()

    def commit(self) -> None:
        session, catalog = self._session, self.catalog
        try:
            faults.step("sql.commit.before")
            if self._sent:
                status = session.control("commit", self._queue)
            else:
                status = session.control("commit")
        except self._errors as error:
            failure = translate(error, catalog.location, "commit", lost=session.lost(), commit=True)
            self.rollback()
            raise failure from None
        try:
            faults.step("sql.commit.after")
        except OSError as error:
            raise CommitUnknown(f"The answer to COMMIT on {catalog.location} was lost: {error}.") from None
        finally:
            self._finish()
        if status != "COMMIT":
            raise DatabaseError(
                f"The transaction on the catalog {catalog.location} was rolled back: one of its statements had "
                f"failed. Nothing was changed."
            )

    def rollback(self) -> None:
        if self._session is not OVER:
            self._session.lost()  # refuses a forked child
            self._finish()

    _end = rollback

    def _finish(self) -> None:
        session, self._session = self._session, OVER
        self.catalog.sessions.give_back(session)
