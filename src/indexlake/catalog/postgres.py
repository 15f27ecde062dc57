"""A catalog in PostgreSQL, for many machines.

A write transaction is READ COMMITTED. Its first statement takes an advisory lock that ends with it, so each later
statement sees every commit made before. PostgreSQL serves waiters in order of arrival, and ends a session that stays
silent for a minute inside the critical section, so a dead machine does not hold it. A read transaction is REPEATABLE
READ READ ONLY.

Connections are made as needed and kept; one that turns out to be dead when a transaction begins is replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from indexlake.catalog import fork
from indexlake.catalog.database import Database
from indexlake.catalog.dialect import POSTGRES, Dialect, quote
from indexlake.catalog.driver import Foresee, Params, Row
from indexlake.catalog.postgres_errors import translate, unreachable
from indexlake.catalog.postgres_session import DEFAULTS, PostgresSession, Statement, import_psycopg
from indexlake.catalog.postgres_transaction import CHUNK, PostgresRead, PostgresTransaction, numbered
from indexlake.catalog.postgres_turn import PostgresTurn
from indexlake.catalog.sessions import Sessions, closed
from indexlake.catalog.tables import advice
from indexlake.errors import CatalogError, NotFoundError

T = TypeVar("T")
_KEEP_SESSIONS = 8
_MOST_SESSIONS = 32


class PostgresCatalog(Database):
    """A catalog in the database that `dsn` names (a postgresql:// URL or a libpq connection string).

    A pooler in between must pool whole sessions: settings and prepared statements belong to the session.

    Parameters
    ----------
    catalog_schema
        The schema that holds the catalog's tables; by default the first of the user's search path.
    create
        Make that schema when it is missing.
    read_only
        Refuse `transaction()`.
    lock_timeout
        Seconds to wait for other writers before a retryable error.
    """

    dialect: Dialect = POSTGRES

    def __init__(
        self,
        dsn: str,
        *,
        catalog_schema: str | None = None,
        create: bool = True,
        read_only: bool = False,
        lock_timeout: float = 60.0,
    ) -> None:
        params = _connection_params(dsn)
        self.location = _location(params, catalog_schema)
        self.read_only = read_only
        self.sessions: Sessions[PostgresSession] = Sessions(
            lambda: PostgresSession(params, schema=catalog_schema, timeout=lock_timeout),
            self.location,
            keep=_KEEP_SESSIONS,
            limit=_MOST_SESSIONS,
            timeout=lock_timeout,
        )
        self._turns: dict[int, PostgresTurn] = {}
        try:
            self._schema = self._prepare(catalog_schema, create and not read_only)
            self.lock_key = _lock_key(self._schema)
        except BaseException:
            self.close()
            raise
        fork.watch(self)

    def _prepare(self, schema: str | None, create: bool) -> str:
        """Check the database and create the schema if asked to; return the schema's name."""
        psycopg = import_psycopg()
        session = self.take()
        try:
            if schema is not None and create:
                lock = f"select pg_advisory_xact_lock({_lock_key(schema)})"
                create_schema = f"create schema if not exists {quote(schema)}"
                session.run([(sql, None) for sql in ("begin", lock, create_schema, "commit")])
            asked = "select current_setting('server_encoding'), current_schema()"
            ((encoding, found),) = session.rows(session.run([(asked, None)])[0])
        except psycopg.Error as error:
            raise translate(error, self.location, lost=session.lost()) from None
        finally:
            self.sessions.give_back(session)
        if found is None:
            raise NotFoundError(
                f"There is no schema for the catalog {self.location}. {advice(self.read_only)}",
                name=schema or self.location,
            )
        if encoding not in ("UTF8", "SQL_ASCII"):
            raise CatalogError(
                f"The database of the catalog {self.location} has the encoding {encoding}, which cannot hold all "
                f"text. Use a database made with ENCODING 'UTF8'."
            )
        return str(found)

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        session, stream, chunk = self._start(sql, params)
        try:
            while chunk:
                yield from chunk
                session.lost()  # refuses a forked child before it touches the stream
                chunk = list(islice(stream, CHUNK))
        except import_psycopg().Error as error:
            raise translate(error, self.location, sql, lost=session.lost()) from None
        finally:
            if isinstance(session.connection, fork.Gone):
                fork.keep_forever(stream)
            else:
                stream.close()
                self.sessions.give_back(session)

    def _start(self, sql: str, params: Params) -> tuple[PostgresSession, Any, list[Row]]:
        def first_rows(session: PostgresSession) -> tuple[PostgresSession, Any, list[Row]]:
            stream = session.cursor.stream(numbered(sql), params, binary=True, size=CHUNK)
            return session, stream, list(islice(stream, CHUNK))

        return self._first(first_rows, sql)

    def read(self) -> PostgresRead:
        return PostgresRead(self)

    def transaction(self, foresee: Foresee | None = None) -> PostgresTransaction:
        return PostgresTransaction(self, foresee)

    def time(self, server: int | None, last: int) -> int:
        assert server is not None
        return server

    def turn(self, slot: int) -> PostgresTurn:
        if slot not in self._turns:
            self._turns.setdefault(slot, PostgresTurn(self, _lock_key(f"{self._schema}:turn {slot}")))
        return self._turns[slot]

    def checkpoint(self) -> None:
        """Do nothing: the server tidies its log by itself."""
        self.refuse_writes()

    def close(self) -> None:
        if self.sessions.closed is None:
            self.sessions.close(closed(self.location))

    def take(self) -> PostgresSession:
        psycopg = import_psycopg()
        try:
            return self.sessions.take()
        except psycopg.Error as error:
            raise unreachable(error, self.location) from None

    def begin(self, start: list[Statement], questions: Sequence[Statement] = ()) -> tuple[PostgresSession, list[Any]]:
        """Return a session in which statements have started a transaction, and their results.

        If one of the questions cannot be answered, none is.
        """

        def run(session: PostgresSession) -> tuple[PostgresSession, list[Any]]:
            try:
                return session, session.run([*start, *questions])
            except psycopg.Error:
                if session.lost() or session.failed not in asked:
                    raise
                return session, session.run([("rollback", None), *start])[1:]

        psycopg, asked = import_psycopg(), [sql for sql, _ in questions]
        return self._first(run, start[0][0])

    def _first(self, use: Callable[[PostgresSession], T], sql: str) -> T:
        """Run `use` with a session, taking another one if the connection died while it was idle."""
        psycopg = import_psycopg()
        while True:
            session = self.take()
            try:
                return use(session)
            except psycopg.Error as error:
                lost, stale = session.lost(), not session.fresh
                self.sessions.give_back(session)
                if not (lost and stale):
                    raise translate(error, self.location, session.failed or sql, lost=lost) from None
                self.sessions.discard_idle()
            except BaseException:
                self.sessions.discard(session)
                raise


def _connection_params(dsn: str) -> dict[str, Any]:
    psycopg = import_psycopg()
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        raise CatalogError(
            "The PostgreSQL connection string cannot be read (it is not shown: it may hold a password). Use "
            "postgresql://user:password@host:port/database, with special characters percent-encoded."
        ) from None
    return {**DEFAULTS, **given, "client_encoding": "utf8"}


def _location(params: dict[str, Any], schema: str | None) -> str:
    host = params.get("host") or params.get("hostaddr") or "local"
    port = f":{params['port']}" if params.get("port") else ""
    place = f"postgresql://{host}{port}/{params.get('dbname') or ''}"
    return f"{place} (schema {schema})" if schema else place


def _lock_key(schema: str) -> int:
    digest = hashlib.blake2b(f"indexlake:{schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
