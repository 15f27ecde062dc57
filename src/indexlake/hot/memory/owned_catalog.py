"""The catalog of a lake whose newest commits are in its owner's log.

Before anyone reads or writes the catalog, it is told of all commits in the log. A writer also holds the sequencer and
must still own the lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from indexlake.catalog import commits, log_records
from indexlake.catalog.driver import CommitUnknown, DatabaseError
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.dialect import Dialect
    from indexlake.catalog.driver import Catalog, Foresee, Params, ReadTransaction, Row, Transaction, TurnLock
    from indexlake.hot.memory.store import MemoryStore


class OwnedCatalog:
    """Wraps a ``Catalog`` so that it is brought up to date before each use."""

    def __init__(self, catalog: Catalog, store: MemoryStore) -> None:
        self.inner = catalog
        self.store = store

    @property
    def dialect(self) -> Dialect:
        return self.inner.dialect

    @property
    def location(self) -> str:
        return self.inner.location

    def database(self) -> Literal["sqlite", "postgres"]:
        return self.inner.database()

    def query(self, sql: str, params: Params = ()) -> Iterator[Row]:
        self.tell()
        return self.inner.query(sql, params)

    def time(self, server: int | None, last: int) -> int:
        return self.inner.time(server, last)

    def turn(self, slot: int) -> TurnLock:
        return self.inner.turn(slot)

    def checkpoint(self) -> None:
        self.inner.checkpoint()

    def close(self) -> None:
        self.store.close()
        self.inner.close()

    def transaction(self, foresee: Foresee | None = None) -> Transaction:
        return _Transaction(self.inner, self.store)

    def read(self) -> ReadTransaction:
        store = self.store
        with store.turn:
            self.tell()
            return _Read(self.inner.read(), store)

    def tell(self) -> None:
        """Tell the catalog of every commit it does not know yet."""
        store = self.store
        if store.untold and store.lost is None:
            with store.turn, _Transaction(self.inner, store, only_tell=True) as tx:
                tx.commit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Read:
    """A read transaction. While it is open, versions that move to blocks after it began stay in memory."""

    def __init__(self, inner: ReadTransaction, store: MemoryStore) -> None:
        self._inner = inner
        self._readers = store.readers
        self.at = -1
        self._readers.add(self)
        self.rows, self.row, self.query = inner.rows, inner.row, inner.query
        try:
            log_records.read_epoch(inner)  # some databases begin the transaction only with the first statement
        except BaseException:
            self.close()
            raise
        self.at = store.layout

    def close(self) -> None:
        self._readers.discard(self)
        self._inner.close()

    def __enter__(self) -> _Read:
        return self

    def __exit__(self, *how: Any) -> None:
        self._readers.discard(self)
        self._inner.__exit__(*how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Transaction:
    """A catalog transaction that also holds the sequencer's turn."""

    def __init__(self, catalog: Catalog, store: MemoryStore, *, only_tell: bool = False) -> None:
        self._catalog = catalog
        self._store = store
        store.turn.acquire()
        try:
            if not only_tell:  # a poisoned log does not prevent telling: what was acknowledged is in it
                store.check()
            self._inner = catalog.transaction()
            try:
                store.check_lease(self._inner)
                self._known = store.tell(self._inner)
            except BaseException:
                self._inner.rollback()
                self._inner.__exit__(None, None, None)
                raise
        except BaseException:
            store.turn.release()
            raise
        inner = self._inner
        self.catalog = inner.catalog
        self.rows, self.rows_again, self.row, self.query = inner.rows, inner.rows_again, inner.row, inner.query
        self.execute, self.send, self.execute_many = inner.execute, inner.send, inner.execute_many
        self.execute_batch, self.insert_rows = inner.execute_batch, inner.insert_rows
        self.savepoint = inner.savepoint
        self._open = True

    def commit(self) -> None:
        newest = commits.last_snapshot(self._inner)
        self._store.move_bound(self._inner, newest[0])
        faults.step("log.catalog")
        try:
            self._inner.commit()
            self._store.told(newest)
        except CommitUnknown as error:
            if newest[0] == self._known or not self._has_happened(newest, error):
                raise  # the caller has no commit number to look up, so it has to handle this itself
            self._store.told(newest)
        except BaseException as error:
            is_interrupt = not isinstance(error, Exception)  # the interrupt may have come after the commit
            if is_interrupt and self._has_happened(newest, error):
                self._store.told(newest)
            raise

    def _has_happened(self, newest: tuple[int, int], error: BaseException) -> bool:
        """Find out whether a commit with an unknown outcome has happened, before another number is given out."""
        try:
            self._inner.__exit__(None, None, None)
            with self._catalog.transaction() as tx:
                found = commits.last_snapshot(tx)
                commits.write_over_lost_commit(tx)
                tx.commit()
        except DatabaseError:
            self._store.lost = (
                f"It is not known whether the last commit happened ({error}), and the catalog does not answer. Close "
                "the lake and connect again."
            )
            raise error from None
        return found == newest

    def __enter__(self) -> _Transaction:
        return self

    def __exit__(self, *how: Any) -> None:
        try:
            self._inner.__exit__(*how)
        finally:
            self._end()

    def rollback(self) -> None:
        try:
            self._inner.rollback()
        finally:
            self._end()

    def _end(self) -> None:
        if self._open:
            self._open = False
            self._store.turn.release()
