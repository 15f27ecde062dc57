"""What the rest of IndexLake knows about a database: three small protocols and the errors they raise.

`Catalog.transaction()` is the critical section: at any moment only one writer of the whole lake is inside it, and a
transaction that is not committed is rolled back on every way out. `Catalog.read()` sees one state of the database from
its first statement to its last. `Catalog.query()` streams one SELECT.

SQL text uses `?` for parameters on every database. Values are int, bytes, str, float or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from indexlake.errors import CatalogError

if TYPE_CHECKING:
    from indexlake.catalog.dialect import Dialect

SqlValue = int | bytes | str | float | None
Params = Sequence[SqlValue]
Row = tuple[Any, ...]
Query = tuple[str, Params]
Foresee = Callable[[], Iterable[Query]]
"""Tells which queries a transaction will begin with, so that over a network they can travel together."""


class DatabaseError(CatalogError):
    """The database refused or failed a statement, or cannot be reached.

    Programs decide by the attributes, never by the text: `retryable` (busy, serialization failure, deadlock, connection
    lost), `unique_violation`, `sqlstate` (PostgreSQL), `code` (SQLite's extended result code).
    """

    sqlstate: str | None = None
    code: int | None = None
    unique_violation: bool = False


class CommitUnknown(DatabaseError):
    """The connection or the disk failed during COMMIT: the transaction took effect completely or not at all.

    Look its token up inside a new transaction before repeating it.
    """


class Statements(Protocol):
    """What reading and writing transactions have in common."""

    @property
    def catalog(self) -> Catalog: ...
    def rows(self, sql: str, params: Params = ()) -> list[Row]: ...
    def rows_again(self, sql: str, params: Params = ()) -> list[Row]:
        """Return the rows of a query made in most transactions; it need not run again if nobody has written since."""
        ...

    def row(self, sql: str, params: Params = ()) -> Row | None: ...
    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Stream the rows; the iterator ends with the transaction."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ReadTransaction(Statements, Protocol):
    """One consistent state of the database. A context manager; belongs to one thread."""

    def close(self) -> None: ...


class Transaction(Statements, Protocol):
    """The critical section. A context manager that rolls back unless committed; belongs to one thread."""

    def execute(self, sql: str, params: Params = ()) -> int:
        """Run one statement; return the number of rows that an INSERT, UPDATE or DELETE affected."""
        ...

    def send(self, sql: str, params: Params = (), *, rows: int | None = None) -> None:
        """Run one statement whose outcome is not needed; over a network it may travel with the next one.

        If ``rows`` is given, the transaction fails unless the statement affects that many rows.
        """
        ...

    def execute_many(self, sql: str, rows: Iterable[Params]) -> int: ...
    def execute_batch(self, sqls: Sequence[str]) -> None: ...
    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Params]) -> None:
        """Insert rows; over a network a few may travel with the next statement, many go by binary COPY."""
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what was done inside the block if it is left by an exception."""
        ...

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class TurnLock(Protocol):
    """A lock granted to threads and processes in order of arrival, and released if its process dies."""

    def acquire(self, timeout: float) -> bool: ...
    def release(self) -> None: ...


def all_rows(r: Statements, since: int) -> Callable[[str, Params], Iterable[Row]]:
    """Return how to read what was written since a snapshot: streaming everything (-1), or all rows at once."""
    return r.query if since < 0 else r.rows


class Catalog(Protocol):
    """A database that holds a lake's catalog. Safe to share between threads; belongs to one process."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def location(self) -> str:
        """The address of the catalog, without secrets."""
        ...

    def database(self) -> Literal["sqlite", "postgres"]: ...
    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Stream one SELECT. Its connection returns to the pool when the iterator ends or is dropped."""
        ...

    def time(self, server: int | None, last: int) -> int:
        """Return the lake's time, given the server's clock if there is a server, and the newest commit's time."""
        ...

    def transaction(self, foresee: Foresee | None = None) -> Transaction: ...

    def read(self) -> ReadTransaction: ...
    def rows_as_before(self, sql: str, params: Params) -> list[Row] | None:
        """Return the last result of `rows_again` if nothing has been committed since; None if unknown."""
        ...

    def turn(self, slot: int) -> TurnLock:
        """Return one of the locks with which writers of the lake take turns."""
        ...

    def checkpoint(self) -> None:
        """Let the database tidy its log now. Never waits for readers, never fails a commit."""
        ...

    def close(self) -> None: ...
