"""One connection to PostgreSQL, configured for IndexLake.

Statements travel in batches: a round trip costs more than most statements. Values travel in binary, and statements that
repeat are prepared. A session in a forked child drops the socket without a word to the server, because it is the
parent's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from indexlake.catalog.dialect import quote
from indexlake.catalog.driver import Params, Row
from indexlake.catalog.fork import Gone, keep_forever
from indexlake.errors import MissingExtraError

if TYPE_CHECKING:
    from psycopg import Connection

Statement = tuple[str, Params | None]
"""SQL text with $1, $2, …, and its parameters; None: a statement of control, which is never prepared."""

_IDLE, _INTRANS, _INERROR = 0, 2, 3  # libpq's PGTransactionStatusType
_FAILED, _SYNC, _NOT_DONE = 7, 10, (7, 11)  # libpq's ExecStatusType
_BINARY = 1
_PREPARED = 512
_PATIENCE = 100  # milliseconds without a look at signals that other threads have received
_numbers = itertools.count()  # of prepared statements
DEFAULTS = {
    "application_name": "indexlake",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class PostgresSession:
    """A connection. ``run`` sends statements; ``cursor`` is for what cannot be part of a batch: COPY and streams."""

    __slots__ = (
        "_adapt", "_auto", "_cursor", "_left", "_params", "_pg", "_poll", "_prepared", "_running", "_schema",
        "_timeout", "connection", "failed", "fresh", "thread",
    )  # fmt: skip

    def __init__(self, params: dict[str, Any], *, schema: str | None, timeout: float) -> None:
        self._params = params
        self._schema = schema
        self._timeout = timeout
        self.connection: Any = None
        self._cursor: Any = None
        self._pg: Any = None
        self._adapt: Any = None
        self._poll = select.poll()
        self._prepared: dict[str, tuple[bytes, tuple[int, ...]]] = {}  # name (empty: run once) and types of parameters
        self._running = False  # a batch was interrupted if it is still running when the session is given back
        self._left = False  # the answers to some statements have not been received
        self.failed = ""  # the statement that failed last
        self.fresh = True
        self.thread = threading.get_ident()

    def open(self) -> None:
        psycopg = import_psycopg()
        connection: Connection[Any] = psycopg.connect(**self._params, autocommit=True, context=_adapters())
        self.connection = connection
        self._cursor = psycopg.RawCursor(connection)
        self._pg = connection.pgconn
        self._adapt = psycopg.adapt.Transformer.from_context(connection)
        self._auto = psycopg.adapt.PyFormat.AUTO
        self._poll.register(self._pg.socket, select.POLLIN)
        self.run([(setting, None) for setting in self._settings()])

    def _settings(self) -> list[str]:
        settings = [
            f"set lock_timeout = {int(self._timeout * 1000)}",
            "set idle_in_transaction_session_timeout = '10min'",
            "set default_transaction_isolation = 'read committed'",
            "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'",
        ]
        if self._schema is not None:
            settings.append(f"set search_path = {quote(self._schema)}")
        return settings

    @property
    def cursor(self) -> Any:
        """Psycopg's cursor for this connection."""
        self._settle()
        return self._cursor

    # ------------------------------------------------------------ a batch

    def run(self, statements: Sequence[Statement]) -> list[Any]:
        """Run statements in one round trip and return libpq's results; after one that fails, no other is run."""
        self._settle()
        sent = self._queue(statements)
        answers = self._answers()
        if not self.lost():
            self._pg.exit_pipeline_mode()
            self._running = False
        results, failure = [], None
        for (sql, is_result), answer in zip(sent, answers, strict=False):
            if answer.status in _NOT_DONE:
                if answer.status == _FAILED:
                    self.failed, failure = sql, answer
                if not is_result:
                    self._prepared.pop(sql, None)
            elif is_result:
                results.append(answer)
        if failure is not None:
            raise import_psycopg().errors.error_from_result(failure)
        return results

    def leave(self, statements: Sequence[Statement]) -> None:
        """Send statements without waiting for their results, which nobody needs."""
        self._settle()
        self._queue(statements)
        self._running, self._left = False, True

    def _settle(self) -> None:
        """Receive what the server answered to the statements that nobody waited for."""
        if self._left:
            self._left, self._running = False, True
            self._answers()
            self._pg.exit_pipeline_mode()
            self._running = False

    def _queue(self, statements: Sequence[Statement]) -> list[tuple[str, bool]]:
        """Send statements; return for each answer that will come its statement, and whether it is the result of it."""
        encoded = [self._encoded(sql, params) for sql, params in statements]
        self.failed, self._running = "", True
        self._pg.enter_pipeline_mode()
        sent: list[tuple[str, bool]] = []
        for each in encoded:
            self._send(*each, sent)
        self._pg.pipeline_sync()
        return sent

    def _encoded(self, sql: str, params: Params | None) -> tuple[str, Any, Any, Any]:
        if params is None:
            return sql, None, None, None
        adapt = self._adapt
        values = adapt.dump_sequence(params, [self._auto] * len(params))
        return sql, values, adapt.types, adapt.formats

    def _send(self, sql: str, values: Any, types: Any, formats: Any, sent: list[tuple[str, bool]]) -> None:
        pg, name = self._pg, b""
        if values is not None:
            known = self._prepared.get(sql)
            if known is None:
                if len(self._prepared) >= _PREPARED:
                    self._prepared.clear()
                    pg.send_query_params(b"deallocate all", None)
                    sent.append(("deallocate all", False))
                self._prepared[sql] = b"", types
            else:
                name, before = known
                if before != types:
                    types = tuple([new or old for new, old in zip(types, before, strict=True)])  # a null has no type
                if not name or before != types:
                    name = b"indexlake_%d" % next(_numbers)
                    pg.send_prepare(name, sql.encode(), types)
                    sent.append((sql, False))
                    self._prepared[sql] = name, types
        if name:
            pg.send_query_prepared(name, values, formats, _BINARY)
        else:
            pg.send_query_params(sql.encode(), values, types, formats, _BINARY)
        sent.append((sql, True))

    def _answers(self) -> list[Any]:
        """Send what is queued and return the answers; if the connection is lost, those that came before."""
        pg, poll, psycopg = self._pg, self._poll, import_psycopg()
        answers: list[Any] = []
        try:
            if pg.flush():
                poll.modify(pg.socket, select.POLLIN | select.POLLOUT)
                while pg.flush():
                    poll.poll(_PATIENCE)
                    pg.consume_input()
                poll.modify(pg.socket, select.POLLIN)
            while True:
                while pg.is_busy():
                    poll.poll(_PATIENCE)
                    pg.consume_input()
                answer = pg.get_result()
                if answer is None:  # the end of one
                    if self.lost():
                        raise psycopg.OperationalError("the server closed the connection")
                elif answer.status == _SYNC:
                    return answers
                else:
                    answers.append(answer)
        except psycopg.Error:
            if not any(answer.status == _FAILED for answer in answers):
                raise
            return answers

    def rows(self, result: Any) -> list[Row]:
        self._adapt.set_pgresult(result)
        return self._adapt.load_rows(0, result.ntuples, tuple)  # type: ignore[no-any-return]

    # ------------------------------------------------------------ its state

    def lost(self) -> bool:
        """Return whether the connection is gone."""
        return bool(self.connection.closed)

    def healthy(self) -> bool:
        """Return whether it is inside a transaction in which no statement has failed."""
        return not self._running and int(self._pg.transaction_status) == _INTRANS

    def rest(self) -> bool:
        self.fresh = False
        if self._running or self._left:
            return not self._running
        status = int(self._pg.transaction_status)
        if status in (_INTRANS, _INERROR):
            try:
                self.run([("rollback", None)])
            except import_psycopg().Error:
                return False
            return True
        return status == _IDLE

    def shut(self, *, tidy: bool = False) -> None:
        if self.connection is not None:
            with contextlib.suppress(Exception):
                if self._running and not self.lost():
                    self.connection.cancel()  # interrupted: the server would go on
                self.connection.close()

    def abandon(self, why: Gone) -> None:
        connection = self.connection
        if connection is not None and not isinstance(connection, Gone):
            keep_forever(connection)
            keep_forever(self._cursor)
            with contextlib.suppress(Exception):
                os.close(connection.pgconn.socket)
        self.connection = self._cursor = self._pg = self._adapt = why


def import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError(
            "A PostgreSQL catalog needs psycopg. Install it with: pip install 'indexlake[postgres]'",
            extra="postgres",
        ) from None
    return psycopg


_adapters_map: Any = None


def _adapters() -> Any:
    """Return how values are sent: ints as int8, text and bytes in binary; whole numerics come back as ints."""
    global _adapters_map
    if _adapters_map is None:
        import psycopg
        from psycopg.types.numeric import Int8BinaryDumper, NumericBinaryLoader
        from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

        class WholeNumericLoader(NumericBinaryLoader):  # type: ignore[misc]
            """Returns whole numerics as ints: a sum of integers is a numeric in PostgreSQL and an integer in SQLite."""

            def load(self, data: Any) -> Any:
                value = super().load(data)
                return int(value) if value == value.to_integral_value() else value

        adapters = psycopg.adapt.AdaptersMap(psycopg.adapters)
        adapters.register_dumper(int, Int8BinaryDumper)
        adapters.register_dumper(str, StrBinaryDumper)
        adapters.register_dumper(bytes, BytesBinaryDumper)
        adapters.register_loader("numeric", WholeNumericLoader)
        _adapters_map = adapters
    return _AdaptContext(_adapters_map)


class _AdaptContext:
    def __init__(self, adapters: Any) -> None:
        self.adapters = adapters
        self.connection = None
