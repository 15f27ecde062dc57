"""Transactions on a PostgreSQL catalog.

A statement that fails makes the transaction unusable until it is rolled back, completely or to a savepoint.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from indexlake.arrow.batch_size import encoded_bytes, rows_of
from indexlake.catalog.clock import POSTGRES_CLOCK, SERVER_CLOCK
from indexlake.catalog.database import ENDED, OVER, Ending, Writing
from indexlake.catalog.dialect import insert_sql, quote
from indexlake.catalog.driver import CommitUnknown, DatabaseError, Foresee, Params, Row, SqlValue
from indexlake.catalog.postgres_errors import translate
from indexlake.catalog.postgres_session import Statement, import_psycopg
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.postgres import PostgresCatalog

CHUNK = 1024
FIRST_ROWS = 64
"""How many rows of a stream are fetched at a time: at most, and before the size of its rows is known."""

_COPY_FROM = 64
_COPY_BYTES = 1 << 20
"""Fewer rows and bytes travel with the next statement; for more, COPY is cheaper."""

_TOGETHER = 256
_READ = "begin isolation level repeatable read read only"
_WRITE = "begin isolation level read committed read write"
_LOCK = "select pg_advisory_xact_lock($1), set_config('idle_in_transaction_session_timeout', '60s', true)"
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
    _sent: list[Statement]
    _streams = 0

    def rows(self, sql: str, params: Params = ()) -> list[Row]:
        self._step("sql.query", sql)
        result = self._run((numbered(sql), params))[-1]
        return self._session.rows(result)  # type: ignore[no-any-return]

    def rows_again(self, sql: str, params: Params = ()) -> list[Row]:
        return self.rows(sql, params)

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        self._step("sql.query", sql)
        asked = FIRST_ROWS
        self._streams += 1
        name = f"indexlake_{self._streams}"
        declare = (numbered(f"declare {name} no scroll cursor for {sql}"), params)
        result = self._run(declare, (f"fetch {asked} from {name}", None))[-1]
        session = self._session
        try:
            chunk = session.rows(result)
            while chunk:
                yield from chunk
                if self._session is not session:
                    raise ENDED.error()
                if len(chunk) < asked:
                    break
                asked = min(CHUNK, 4 * asked, rows_of(encoded_bytes(chunk) // len(chunk)))
                chunk = session.rows(self._run((f"fetch {asked} from {name}", None))[-1])
        finally:
            if self._session is session and self._is_open() and session.healthy():
                self._sent.append((f"close {name}", None))

    def _run(self, *statements: Statement) -> list[Any]:
        """Run statements after those that were left to travel with them."""
        session = self._session
        batch = [*self._sent, *statements]
        self._sent.clear()
        try:
            return session.run(batch)  # type: ignore[no-any-return]
        except self._errors as error:
            raise self._failed(error, session.failed) from None

    def _step(self, name: str, sql: str) -> None:
        try:
            faults.step(name)
        except OSError as error:
            raise self._failed(error, sql) from None

    def _failed(self, error: Exception, sql: str) -> DatabaseError:
        lost = self._session is not None and self._session.lost()
        return translate(error, self.catalog.location, sql, lost=lost)


class PostgresRead(_Statements):
    """One state of the database, fixed by the first statement."""

    def __init__(self, catalog: PostgresCatalog) -> None:
        self._session = OVER
        self._sent = []
        self.catalog = catalog
        self._errors = (import_psycopg().Error, OSError)
        if catalog.sessions.closed is not None:
            raise catalog.sessions.closed.error()
        self._session = None  # BEGIN travels with the first statement

    def _run(self, *statements: Statement) -> list[Any]:
        if self._session is not None:
            return super()._run(*statements)
        self._session, results = self.catalog.begin([(_READ, None), *statements])
        return results[1:]

    def _is_open(self) -> bool:
        return self._session is None or super()._is_open()

    def close(self) -> None:
        if self._session is None:
            self._session = OVER
        if not self._is_open():
            return
        session, self._session = self._session, OVER
        try:
            session.leave([("commit", None)])
        except BaseException as error:  # an interrupt too: the session must not stay taken
            self.catalog.sessions.discard(session)
            if not isinstance(error, self._errors):
                raise
        self.catalog.sessions.give_back(session)

    _end = close


class PostgresTransaction(_Statements, Writing):
    """The critical section: BEGIN, then the advisory lock, and one way out for each ending.

    Every round trip is time under the lock. Statements whose outcome is not needed travel with the next one or with
    COMMIT, and questions that can be foreseen travel with the lock: their answers are kept until something is written.
    """

    def __init__(self, catalog: PostgresCatalog, foresee: Foresee | None = None) -> None:
        self._session = OVER
        self._sent = []
        self._answers: dict[tuple[str, tuple[SqlValue, ...]], Any] = {}
        self.catalog = catalog
        self._errors = (import_psycopg().Error, OSError)
        catalog.refuse_writes()
        try:
            faults.step("sql.begin")
        except OSError as error:
            raise translate(error, catalog.location, "begin") from None
        begin: list[Statement] = [(_WRITE, None), (_LOCK, (catalog.lock_key,))]
        questions = [] if foresee is None else [(sql, tuple(params)) for sql, params in foresee()]
        self._session, results = catalog.begin(begin, [(numbered(sql), params) for sql, params in questions])
        self._answers = dict(zip(questions, results[len(begin) :], strict=False))

    def rows(self, sql: str, params: Params = ()) -> list[Row]:
        self._step("sql.execute", sql)
        if self._answers and (answer := self._answers.pop((sql, tuple(params)), None)) is not None:
            return self._session.rows(answer)  # type: ignore[no-any-return]
        return super().rows(sql, params)

    def send(self, sql: str, params: Params = (), *, rows: int | None = None) -> None:
        self._writes(sql)
        if rows is not None:  # COMMIT may follow in the same round trip: the server has to check
            sql = f"with done as ({sql} returning 1) select 1 / cast(count(*) = {rows} as int) from done"
        self._sent.append((numbered(sql), params))

    def _writes(self, sql: str) -> None:
        self._step("sql.execute", sql)
        self._session.lost()  # refuses a transaction that is over
        self._answers.clear()

    def execute(self, sql: str, params: Params = ()) -> int:
        self._writes(sql)
        return self._run((numbered(sql), params))[-1].command_tuples or 0

    def execute_many(self, sql: str, rows: Iterable[Params]) -> int:
        self._writes(sql)
        text, remaining, count = numbered(sql), iter(rows), 0
        while some := list(islice(remaining, _TOGETHER)):
            count += sum(
                result.command_tuples or 0 for result in self._run(*[(text, row) for row in some])[-len(some) :]
            )
        return count

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Params]) -> None:
        sql = f"copy {quote(table)} ({', '.join(map(quote, columns))}) from stdin (format binary)"
        self._writes(sql)
        remaining = iter(rows)
        some = list(islice(remaining, _COPY_FROM))
        if len(some) < _COPY_FROM and encoded_bytes(some) < _COPY_BYTES:
            while some:
                count = 1 << (len(some).bit_length() - 1)  # powers of two, so that few statements are prepared
                text = numbered(insert_sql(table, tuple(columns), count))
                self._sent.append((text, list(chain.from_iterable(some[:count]))))
                some = some[count:]
            return
        if self._sent:
            self._run()
        try:
            with self._session.cursor.copy(sql) as copy:
                write = copy.write_row
                for row in chain(some, remaining):
                    write(row)
        except self._errors as error:
            raise self._failed(error, sql) from None

    def _control(self, *sqls: str) -> None:
        self._step("sql.execute", sqls[0])
        self._answers.clear()
        self._run(*[(sql, None) for sql in sqls])

    def _takes_statements(self) -> bool:
        return self._is_open() and not self._session.lost()

    def commit(self) -> None:
        session, catalog = self._session, self.catalog
        try:
            faults.step("sql.commit.before")
            status = session.run([*self._sent, ("commit", None)])[-1].command_status
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
        if status != b"COMMIT":
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
