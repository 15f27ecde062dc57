"""``Lake``: an open catalog with its storage, and everything that one process shares about it.

A lake belongs to the process that opened it: after a fork, any use raises ``OwnershipError``.  Threads may share it.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from indexlake.blocks.open_files import OpenFiles
from indexlake.catalog import activity, commits, definitions
from indexlake.catalog.driver import Catalog
from indexlake.catalog.owner import adopt
from indexlake.commit.group import Committer
from indexlake.commit.log_section import pressure_of, readings_of
from indexlake.commit.token import Token, TokenLike
from indexlake.commit.turns import RETRY_TIMEOUT, Turn, Turns, checked_retries, checked_timeout
from indexlake.commit.write_set import WriteResult, WriteSet
from indexlake.display import Listing, html_table, html_text, shown
from indexlake.errors import (
    ConflictError,
    ConvertedError,
    IndexLakeError,
    OwnershipError,
    SnapshotExpiredError,
)
from indexlake.hot.registry import MEMORY, hot_name
from indexlake.hot.spec import HOT_BYTES, HotSpec
from indexlake.hot.store import HotStore
from indexlake.lake_definitions import LakeDefinitions
from indexlake.pipeline.job import JobInfo, job_info, waiting_writers
from indexlake.pipeline.maintenance import Maintenance
from indexlake.pipeline.meta import Published
from indexlake.pipeline.runner import LOCAL_LIMIT, choose_runner
from indexlake.scan.prefetch import stop_reading
from indexlake.scan.search_parts import Remembered
from indexlake.snapshots.pins import Pins
from indexlake.snapshots.seen import Seen
from indexlake.snapshots.sequences import Sequences
from indexlake.snapshots.state import TableState
from indexlake.snapshots.time_travel import LakeView, snapshot_number
from indexlake.sources.rows import RowEncoder
from indexlake.storage import Storage
from indexlake.storage.exchange import Exchange, Given
from indexlake.transaction import Transaction
from indexlake.writes.joined import JoinedInserts
from indexlake.writes.row_ids import RowIdAllocator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from indexlake.backup import BackupResult
    from indexlake.hot.memory.opening import LogPlace
    from indexlake.hot.memory.recovery import Recovery
    from indexlake.hot.memory.redo import Durability
    from indexlake.pipeline.pipeline import Pipeline
    from indexlake.pipeline.rewrite import RewriteResult
    from indexlake.snapshots.reading import Readings
    from indexlake.sql.run.engine import Engine
    from indexlake.sql.run.result import SqlResult

T = TypeVar("T")

EXIT_SECONDS = 4.0
_open_lakes: weakref.WeakSet[Lake] = weakref.WeakSet()


class Lake(LakeDefinitions):
    """Returned by ``il.connect``.  As a context manager it closes the lake at the end."""

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        hot: HotStore,
        *,
        read_only: bool,
        automatic: bool = True,
        new: bool = False,
        retry_timeout: float = RETRY_TIMEOUT,
        clock: Callable[[], int] | None = None,
        recovery: Recovery | None = None,
        log_place: Callable[[HotSpec], LogPlace] | None = None,
        hot_bytes: int = HOT_BYTES,
        files: Given = None,
    ) -> None:
        self._recovery = recovery
        self.storage = storage
        self._exchange = Exchange.of(files, storage)
        self.read_only = read_only
        self._new = new
        self._pid = os.getpid()
        self._closed = False
        self._clock: Callable[[], int] = clock or self._now  # measures ages; replaced in tests
        self._files = OpenFiles(storage)
        self._remembered = Remembered()
        self._row_ids = RowIdAllocator(catalog)
        self._sequences = Sequences(catalog)
        self._encoders: dict[int, tuple[int, RowEncoder]] = {}
        self._metas: dict[int, Published] = {}  # by table id
        self._joined: dict[int, JoinedInserts] = {}
        self._main_thread = threading.main_thread().ident
        self._turns = Turns(catalog, retry_timeout)
        self._log_place = log_place
        self._hot_bytes = hot_bytes
        self._converting = threading.RLock()
        self._use(catalog, hot)
        self._scan_threads = max(2, min(8, os.cpu_count() or 2))
        self._maintenance = Maintenance(self, automatic=automatic and not read_only)
        self._pins = Pins(self._maintenance.reader_began)
        self._closing = threading.Lock()
        self._sql_engine: Engine | None = None
        _open_lakes.add(self)

    def _use(self, catalog: Catalog, hot: HotStore) -> None:
        """Read and write through this hot store from now on."""
        self.catalog = self._row_ids.catalog = self._turns.catalog = self._sequences.catalog = catalog
        self._hot = hot
        readings, log = readings_of(catalog, hot)
        readings.sequences = self._sequences
        readings.successor = self._after_conversion
        self._turns.alone = log is not None
        self._pressure = pressure_of(
            hot, self._hot_bytes, self._turns.timeout, lambda: self._maintenance.ask_for_checkpoint()
        )
        self._readings = readings  # set first: readers must see what the new committer commits
        self._committer = Committer(catalog, hot, self._files, readings, self._turns, log)

    @property
    def _own_places(self) -> tuple[str, ...]:
        """The catalog and the redo log, if they are local."""
        places = [] if "://" in self.catalog.location else [self.catalog.location]
        if self._log_place is not None:
            with suppress(IndexLakeError):  # it has no redo log
                places.append(self._log_place(HotSpec()).folder or "")
        return tuple(filter(None, places))

    def _after_conversion(self, error: ConvertedError, readings: Readings) -> Readings:
        """Return the readings to continue with if this handle itself converted the lake; otherwise raise."""
        with self._converting:
            if self._readings is readings:
                raise error
            return self._readings

    def __repr__(self) -> str:
        state = "closed" if self._closed else "read-only" if self.read_only else "new" if self._new else "open"
        hot = ", newest rows in memory" if self.hot == MEMORY else ""
        return f"<Lake {self.catalog.location}, files in {self.storage.root}{hot}, {state}>"

    def _repr_html_(self) -> str:
        """The names of the tables, read from the catalog.  Rows are not counted; ``t.stats()`` does that."""
        caption = repr(self)[1:-1]
        if self._closed:
            return html_text(caption)
        return shown(lambda: html_table(["table"], [[name] for name in self.tables()], caption=caption))

    def __reduce__(self) -> Any:
        raise TypeError("A Lake belongs to the process that opened it and cannot be pickled. Connect again there.")

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Stop background work and close all connections.  ``wait=False`` stops a running dump at its next step."""
        with self._closing:
            if self._closed or self._pid != os.getpid():
                return
            self._maintenance.stop(wait=wait)
            with suppress(IndexLakeError):
                self._maintenance.forget()
            self._closed = True
            if self._sql_engine is not None:
                self._sql_engine.close()
            self._files.clear()
            self.catalog.close()
            self.storage.spill.remove()
            _open_lakes.discard(self)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise OwnershipError(
                "This lake was opened by another process (before a fork). Call il.connect again in this one."
            )

    def _check(self, *, writing: bool = False) -> None:
        self._check_process()
        if self._closed:
            raise OwnershipError("This lake is closed. Call il.connect again.")
        if writing and self.read_only:
            raise OwnershipError("This lake was opened with read_only=True. Connect without it to write.")

    # ------------------------------------------------------------ namespaces and tables

    @property
    def snapshot_id(self) -> int:
        """The newest snapshot."""
        self._check()
        return self._readings.newest()

    def _seen(self, snapshot: int | None = None) -> Seen:
        return Seen(self._readings, snapshot)

    def _define(self, change: definitions.DefinitionChange, operation: str) -> WriteResult:
        self._check(writing=True)
        ws = WriteSet(-1)
        ws.definitions.append(change)
        ws.operation = operation
        result = self._committed(ws)
        state = None if change.table_id is None else self._readings.states.get(change.table_id)
        if state is not None and state.table.is_clustered:
            self._maintenance.unpublished(state.table.table_id)
        return result

    def cluster_table(self, name: str, layout: str = "clustered", *, progress: bool | None = None) -> RewriteResult:
        """Change a table's layout to ``"clustered"`` or ``"heap"`` while others read and write it."""
        from indexlake.pipeline.convert import cluster_table

        return cluster_table(self, name, layout, progress=progress)

    # ------------------------------------------------------------ transactions

    def transaction(self, token: TokenLike | None = None, *, read_only: bool = False) -> Transaction:
        """Begin a transaction at the newest snapshot.  It may write to several tables, all or nothing.

        With ``read_only`` it refuses to write, and a lake opened with ``read_only=True`` has it too.
        """
        self._check(writing=not read_only)
        if read_only and token is not None:
            raise OwnershipError("A token names a commit, and a transaction that only reads makes none: leave it out.")
        tx = Transaction(self, token, base=self._readings.newest(), read_only=read_only)
        tx.pin()
        return tx

    def run(
        self,
        function: Callable[[Transaction], T],
        retries: int | None = None,
        token: TokenLike | None = None,
        *,
        retry_timeout: float | None = None,
    ) -> T:
        """Run ``function(tx)`` and commit; after a conflict, run it again at the new snapshot.

        After a few conflicts it waits its turn, so that it gets through in the end.  ``ConflictError`` is raised only
        after ``retry_timeout`` seconds (by default that of ``il.connect``) or after ``retries`` retries, if given.
        """
        timeout = None if retry_timeout is None else checked_timeout(retry_timeout)
        with Turn(self._turns, timeout, checked_retries(retries)) as turn:
            while True:
                tx = self.transaction(token)
                tx.write_set.turn = turn
                try:
                    result = function(tx)
                    if tx.state == "open":
                        tx.commit()
                    return result
                except (ConflictError, SnapshotExpiredError) as error:
                    tx.rollback()
                    turn.lost(error, tx.write_set)
                except BaseException:
                    tx.rollback()
                    raise

    def _joined_inserts(self, table_id: int) -> JoinedInserts | None:
        """Return where this thread's insert may join those of others; None in the main thread."""
        if threading.get_ident() == self._main_thread:
            return None
        self._check(writing=True)
        return self._joined.get(table_id) or self._joined.setdefault(table_id, JoinedInserts(self, table_id))

    def _autocommit(self, operation: str, apply: Callable[[Transaction], int], token: TokenLike | None) -> WriteResult:
        """Commit one statement by itself, running it again at the new snapshot if it loses."""
        if (named := Token.of(token)) is not None:
            done = named.done(self._readings.token_result(named.name))
            if done is not None:
                return done
        turn = None
        try:
            while True:
                tx = Transaction(self, named)
                tx.write_set.operation = operation
                try:
                    if turn is not None:
                        tx.write_set.turn, tx.reads_anew = turn, True
                    rows = apply(tx)
                    if not rows and token is None and tx.write_set.empty:
                        return WriteResult(rows, tx.snapshot_id)
                    return self._committed(tx.write_set)
                except (ConflictError, SnapshotExpiredError) as error:
                    turn = turn or Turn(self._turns)
                    turn.lost(error, tx.write_set)
                finally:
                    tx.unpin()
        finally:
            if turn is not None:
                turn.release()

    def _commit(self, ws: WriteSet) -> WriteResult:
        if ws.empty and ws.token is None:
            return WriteResult(0, ws.base if ws.base >= 0 else None)
        return self._committed(ws)

    def _committed(self, ws: WriteSet) -> WriteResult:
        if self._pressure is not None and [w for w in ws.tables.values() if w.rows]:
            self._pressure.admit()
        while True:
            committer = self._committer
            try:
                result = committer.commit(ws)
                break
            except ConvertedError:
                with self._converting:
                    if self._committer is committer:
                        raise
        for table_id, writes in ws.tables.items():
            self._maintenance.committed(table_id, writes)
        return result

    # ------------------------------------------------------------ SQL

    def sql(
        self,
        text: str,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        namespace: str | None = None,
        engine: str = "duckdb",
        at: int | datetime | None = None,
        token: TokenLike | None = None,
    ) -> SqlResult:
        """Run SQL in DuckDB's dialect: queries at one snapshot, changes and definitions as commits.

        Unqualified names are looked up in ``namespace``; without it, in the one of the last USE and then in ``main``.
        ``at`` reads the past.  Separate several statements with semicolons; the result is that of the last one.

        Examples
        --------
        >>> lake.sql("select * from orders where id = $id", {"id": 7}, namespace="sales")
        """
        from indexlake.sql.run.statements import run

        return run(self, text, params, namespace=namespace, engine=engine, at=at, token=token)

    # ------------------------------------------------------------ time travel

    def at(self, snapshot: int | None = None, *, time: datetime | None = None) -> LakeView:
        """A read-only view of the whole lake as it was."""
        return LakeView(self, snapshot_number(self, snapshot, time))

    # ------------------------------------------------------------ jobs

    def pipeline(
        self,
        runner: str | None = None,
        spark: SparkSession | None = None,
        *,
        local_limit: int = LOCAL_LIMIT,
        progress: bool | None = None,
    ) -> Pipeline:
        """The jobs, as methods: dump, compact, freeze, expire, vacuum, verify, or whatever is due.

        Parameters
        ----------
        runner
            ``"threads"``: in this process.  ``"spark"``: on ``spark``, on the active session, or on a new one.  The
            default is Spark if a session is given or active or a job's tasks read more than ``local_limit`` bytes.
        progress
            Whether to show a progress bar.  By default, slow operations show one in a terminal or notebook.
        """
        from indexlake.pipeline.pipeline import Pipeline

        self._check(writing=True)
        return Pipeline(self, choose_runner(self.storage, runner, spark, local_limit), progress=progress)

    def backup(self, path: str | os.PathLike[str], *, progress: bool | None = None) -> BackupResult:
        """Copy the lake to a folder while others read and write it; the copy is a lake of its own.

        It holds everything that was committed before the call.  If the folder holds an earlier backup of this lake, it
        is brought up to date: only new files are copied.  ``progress`` is whether to show a bar; by default, slow
        operations show one in a terminal or notebook.

        Examples
        --------
        >>> print(lake.backup("./backups/monday"))
        >>> with il.connect("./backups/monday", read_only=True) as copy:
        ...     len(copy.table("sales.orders"))
        9
        """
        from indexlake.backup import backup

        self._check(writing=True)
        return backup(self, path, progress)

    def adopt(self) -> int:
        """Make this copy of the catalog, for example one restored from a backup, the owner of the files.

        The previous owner can no longer delete any of them.  Returns the new incarnation.
        """
        self._check(writing=True)
        return adopt(self)

    @property
    def hot(self) -> str:
        """Where new rows land: ``"inline"`` or ``"memory"``."""
        return hot_name(self._hot)

    def recovery(self) -> Recovery | None:
        """What the redo log contained when the lake was opened: replayed commits and rows, bytes cut off.

        None if there is no log: the lake's newest rows are inline, or it was opened read-only.
        """
        self._check()
        return self._recovery

    def convert(
        self, hot: str, *, log_dir: str | os.PathLike[str] | None = None, durability: Durability = "fdatasync"
    ) -> None:
        """Change the lake's hot store to ``"inline"`` or ``"memory"``, in one commit; nothing is lost.

        This handle keeps working, with its tables and transactions.  Other processes that have the lake open must
        connect again; their next read or write says so.  ``log_dir`` and ``durability`` are as for ``il.connect``.

        Examples
        --------
        >>> lake.convert(hot="memory")
        """
        from indexlake.pipeline.convert_hot import convert

        self._check(writing=True)
        convert(self, HotSpec.of(hot, log_dir, durability))

    def jobs(self) -> list[JobInfo]:
        """Background jobs, newest first, with their progress or error."""
        self._check()
        with self.catalog.read() as r:
            names = {t.table_id: t.full_name for t in definitions.list_tables(r)}
            found = [job_info(record, names) for record in activity.list_jobs(r)]
        pressure = self._pressure
        if pressure is not None and pressure.since is not None:
            found.insert(0, waiting_writers(pressure.since, pressure.reason()))
        return Listing(found)

    # ------------------------------------------------------------ for the other modules

    def _now(self) -> int:
        """Return the lake's time."""
        return commits.lake_time(self.catalog)

    def _encoder(self, state: TableState) -> RowEncoder:
        table = state.table
        known = self._encoders.get(table.table_id)
        if known is None or known[0] != table.schema_version:
            known = self._encoders[table.table_id] = (table.schema_version, RowEncoder(state.current))
        return known[1]

    def _writer_id(self) -> str:
        return self._maintenance.writer_id or self._maintenance.register_writer()


@atexit.register
def _close_all() -> None:
    stop_reading(EXIT_SECONDS)
    for lake in list(_open_lakes):
        with suppress(IndexLakeError):
            lake.close(wait=False)
