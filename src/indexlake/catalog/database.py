"""What the two databases have in common: a pool of sessions behind a catalog, and how a transaction ends.

A transaction that was neither committed nor closed is ended when its ``with`` block is left or, with a warning, when it
is garbage-collected. A transaction that has ended refuses every further use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, Self

from indexlake.catalog.dialect import Dialect
from indexlake.catalog.driver import Params, Row
from indexlake.catalog.fork import Gone
from indexlake.catalog.sessions import Sessions
from indexlake.errors import CatalogError, OwnershipError

OVER = Gone(CatalogError, "This catalog transaction is over: it was committed, rolled back or closed.")
ENDED = Gone(CatalogError, "This catalog query is over: its transaction ended before it.")


def wrong_count(sql: str) -> AssertionError:
    return AssertionError(f"a statement did not affect the rows that it should: {sql}")


class Database:
    """An open catalog. It belongs to the process that opened it."""

    dialect: Dialect
    location: str
    read_only: bool
    sessions: Sessions[Any]

    def database(self) -> Literal["sqlite", "postgres"]:
        return self.dialect.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def __reduce__(self) -> Any:
        raise OwnershipError("A catalog holds connections and is not pickled. Connect again where it is needed.")

    def rows_as_before(self, sql: str, params: Params) -> list[Row] | None:
        """Return None: this database cannot tell cheaply."""
        return None

    def refuse_writes(self) -> None:
        if self.sessions.closed is not None:
            raise self.sessions.closed.error()
        if self.read_only:
            raise CatalogError(
                f"The catalog {self.location} was opened read-only. Connect with read_only=False to write."
            )

    def before_fork(self) -> None:
        self.sessions.before_fork()

    def after_fork_in_parent(self) -> None:
        self.sessions.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        self.sessions.after_fork_in_child()


class Ending:
    """What reading and writing transactions have in common besides their statements."""

    _session: Any
    _kind = "read"
    _end: Callable[[], None]
    rows: Callable[..., list[Row]]

    def row(self, sql: str, params: Params = ()) -> Row | None:
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    def _is_open(self) -> bool:
        return self._session is not OVER and not isinstance(self._session.connection, Gone)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not OVER and self._is_open():
            self._end()

    def __del__(self) -> None:
        if self._session is not OVER and self._is_open():
            self._end()
            dropped = f"a catalog {self._kind} transaction was dropped without being closed; it was rolled back"
            warnings.warn(dropped, ResourceWarning, source=self)


class Writing(Ending):
    """What writing transactions have in common."""

    _kind = "write"
    execute: Callable[..., int]

    def execute_batch(self, sqls: Sequence[str]) -> None:
        for sql in sqls:
            self.execute(sql)

    def _control(self, *sqls: str) -> None:
        """Run statements that change no rows."""
        for sql in sqls:
            self.execute(sql)

    def _takes_statements(self) -> bool:
        return self._is_open()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._control("savepoint indexlake")
        try:
            yield
            self._control("release savepoint indexlake")  # inside: statements sent before may fail only now
        except BaseException:
            if self._takes_statements():
                self._control("rollback to savepoint indexlake", "release savepoint indexlake")
            raise
