"""One connection to PostgreSQL, configured for IndexLake.

Integers, bytes and text travel in binary; repeated statements are prepared. A session in a forked child drops the
socket without a word to the server, because it is the parent's.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from indexlake.catalog.dialect import quote
from indexlake.catalog.fork import Gone, keep_forever
from indexlake.errors import MissingExtraError

if TYPE_CHECKING:
    from psycopg import Connection

_IDLE, _INTRANS, _INERROR = 0, 2, 3  # libpq's PGTransactionStatusType
_PREPARE_AFTER = 1
_PREPARED = 512
DEFAULTS = {
    "application_name": "indexlake",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class PostgresSession:
    """A connection; `cursor` runs statements."""

    __slots__ = ("_params", "_plain", "_schema", "_timeout", "connection", "cursor", "fresh", "thread")

    def __init__(self, params: dict[str, Any], *, schema: str | None, timeout: float) -> None:
        self._params = params
        self._schema = schema
        self._timeout = timeout
        self.connection: Any = None
        self.cursor: Any = None
        self._plain: Any = None
        self.fresh = True
        self.thread = threading.get_ident()

    def open(self) -> None:
        psycopg = import_psycopg()
        connection: Connection[Any] = psycopg.connect(**self._params, autocommit=True, context=_adapters())
        self.connection = connection
        connection.prepare_threshold = _PREPARE_AFTER
        connection.prepared_max = _PREPARED
        self.cursor = psycopg.RawCursor(connection)
        self.cursor.format = psycopg.pq.Format.BINARY
        self._plain = psycopg.RawCursor(connection)
        self.control(self._settings())

    def _settings(self) -> str:
        settings = [
            f"set lock_timeout = {int(self._timeout * 1000)}",
            "set idle_in_transaction_session_timeout = '10min'",
            "set default_transaction_isolation = 'read committed'",
            "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'",
        ]
        if self._schema is not None:
            settings.append(f"set search_path = {quote(self._schema)}")
        return "; ".join(settings)

    def control(self, sql: str, before: Callable[[], None] | None = None) -> str:
        """Run statements without parameters or rows in one round trip; return the server's tag for the last one.

        If ``before`` is given, it queues other statements first, and ``sql`` must be a single one; all travel together.
        """
        if before is None:
            return self._plain.execute(sql, prepare=False).statusmessage or ""
        with self.connection.pipeline():
            before()
            self._plain.execute(sql, prepare=False)
        return self._plain.statusmessage or ""

    def lost(self) -> bool:
        """Return whether the connection is gone."""
        return bool(self.connection.closed)

    def healthy(self) -> bool:
        """Return whether it is inside a transaction in which no statement has failed."""
        return int(self.connection.pgconn.transaction_status) == _INTRANS

    def rest(self) -> bool:
        self.fresh = False
        status = int(self.connection.pgconn.transaction_status)
        if status in (_INTRANS, _INERROR):
            try:
                self.control("rollback")
            except import_psycopg().Error:
                return False
            return True
        return status == _IDLE

    def shut(self, *, tidy: bool = False) -> None:
        if self.connection is not None:
            with contextlib.suppress(Exception):
                self.connection.close()

    def abandon(self, why: Gone) -> None:
        connection = self.connection
        if connection is not None and not isinstance(connection, Gone):
            keep_forever(connection)
            keep_forever(self.cursor)
            keep_forever(self._plain)
            with contextlib.suppress(Exception):
                os.close(connection.pgconn.socket)
        self.connection = self.cursor = self._plain = why


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
