"""``spark.readStream.format("indexlake")``: a table as a stream, first all its rows and then what each commit changed.

An offset is a snapshot: a micro-batch is everything in the commits between two of them, so it can be read again and is
the same. Offsets move only when rows of this table were changed. Spark keeps one reader in one process next to the
driver; it looks for new commits, plans micro-batches, and holds a pin at the snapshot that the stream has reached. The
readers that Spark sends to executors know the options of the storage and nothing of the catalog.
"""

from __future__ import annotations

import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from indexlake.catalog import commits
from indexlake.errors import IndexLakeError, JobError, NotFoundError, OwnershipError, SchemaError, SnapshotExpiredError
from indexlake.feed.changes import Changes, snapshot_number
from indexlake.hot.registry import MEMORY
from indexlake.schema.change_columns import CHANGE_TYPE, INSERT, SNAPSHOT_ID
from indexlake.spark.asked import asked_schema, columns_of
from indexlake.spark.feed import AskedChanges
from indexlake.spark.portion import AsChanges, Reading, Stage, portions
from indexlake.spark.request import Request
from indexlake.spark.source import TASKS, lasting_writer, pin, runs_as, unpin
from indexlake.spark.types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from indexlake.catalog.driver import ReadTransaction, Transaction
    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState
    from indexlake.table import Table

Offset = dict[str, Any]
"""``{"snapshot": 17, "table": 3}``; snapshot None stands for the time before the first micro-batch."""

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The program that Spark runs for a stream."""

RENEWED = timedelta(hours=1).total_seconds()
"""The pin, which holds for a day, is renewed when it is older than this."""
LOOKED = 60.0
"""How often, in seconds, a stream without news looks whether its snapshot is old."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream of one table."""

    def __init__(self, request: Request, schema: StructType, loaded_pin: str | None) -> None:
        request.check_feed(stream=True)
        self._request, self._asked = request, schema
        with request.open_to_read() as lake:
            if lake.hot == MEMORY:
                raise OwnershipError(
                    f"A stream of {request.table!r} would have to own the lake, whose newest rows are in the memory of "
                    "one process. Convert it with lake.convert('inline'), or read batches: spark.read."
                )
            request.table_of(lake)
            if loaded_pin is not None:
                unpin(lake, loaded_pin)  # it was for a batch read
            self._secrets = lake.storage.secrets
        self._table: Table | None = None
        self._pin = f"spark:{uuid.uuid4().hex}"
        self._held: int | None = None
        self._renewed = self._looked = 0.0
        self._target: int | None = None  # where a query ends that only reads what is there
        self._quiet = (0, 0)  # no row was changed after the first of these snapshots up to the second
        self._planned: tuple[Offset, Offset, list[InputPartition]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_secrets": self._secrets}

    def __repr__(self) -> str:
        return "StreamReader()"

    # ------------------------------------------------------------ on the driver: offsets

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name, as below)
        table, since = self._open(), self._request.feed.since
        if since is None:
            return self._offset(None)
        with table._reading() as reading:
            newest = reading.snapshot
        start = newest if since == "latest" else snapshot_number(table._lake, "since", since)
        try:
            self._hold(min(start, newest))
            return self._offset(Changes(table, start, None, None, None, None, False).since)
        except SnapshotExpiredError as error:
            raise self._expired(error) from None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._request.feed.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._open()._reading() as reading:
            self._target = reading.snapshot

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        table, at = self._open(), self._snapshot(start)
        if at is not None:
            self._hold(at)
        with table._reading() as reading:
            newest = reading.snapshot if self._target is None else min(reading.snapshot, self._target)
            if at is not None:
                self._check_kept(at, reading.state)
                most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
                return self._offset(self._end(reading.transaction, reading.state, at, newest, most))
        self._hold(newest)
        return self._offset(newest)

    def _end(self, r: ReadTransaction | Transaction, state: TableState, at: int, newest: int, most: int | None) -> int:
        """Return where a micro-batch ends that begins after ``at``: there, if rows have not been changed since."""
        begin = max(at, self._quiet[1]) if at >= self._quiet[0] else at
        end, rows = at, 0
        for commit in commits.row_changes(r, state.table.table_id, begin, newest):
            changed = commit.inserted if self._request.feed.skip_changes else sum(commit[1:])
            if changed:
                end, rows = commit.snapshot, rows + changed
            if most is not None and rows >= most:
                return end
        self._quiet = end, newest
        if end == at < newest and time.monotonic() - self._looked > LOOKED:
            # So that a stream of a table that nobody writes finds its history when it is started again.
            self._looked = time.monotonic()
            old = self._lake._clock() - state.table.config.retention // timedelta(microseconds=2)
            if (commits.snapshot_at_time(r, old) or 0) > at:
                return newest
        return end

    def commit(self, end: Offset) -> None:
        self._hold(self._snapshot(end), move=True)

    def stop(self) -> None:
        if self._table is None:
            return
        with suppress(IndexLakeError):  # it expires
            unpin(self._lake, self._pin)
        self._lake.close()
        self._table = None

    # ------------------------------------------------------------ on the driver: micro-batches

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            return []
        if self._planned is None or self._planned[:2] != (start, end):  # Spark may ask more than once
            table, at, until = self._open(), self._snapshot(start), self._snapshot(end)
            assert until is not None, "a micro-batch ends with a snapshot"
            self._hold(until if at is None else at)
            try:
                reading, found = self._whole(table, until) if at is None else self._changed(table, at, until)
            except SnapshotExpiredError as error:
                raise self._expired(error) from None
            reading = replace(reading, secrets={})
            self._planned = start, end, [InputPartition((reading, portion)) for portion in found]
        return self._planned[2]

    def _whole(self, table: Table, snapshot: int) -> tuple[Reading, list[bytes]]:
        """Plan to read all rows; with changes, as inserted by the snapshot."""
        view, where, lake = table.at(snapshot), self._request.where, self._lake
        if not self._request.feed.changes:
            names = self._columns(view, view.schema)
            plan, fields, *_ = view.scan(where, columns=names)._plan()
            reading = Reading.of(lake.storage, plan, fields, row_id=False)
            reading = replace(reading, schema=asked_schema(reading.schema, self._asked))
        else:
            changes = Changes(view, snapshot, snapshot, None, where, None, False)
            names, predicate = self._columns(view, changes.schema), changes._predicate
            late = predicate if predicate is not None and predicate.columns & {CHANGE_TYPE, SNAPSHOT_ID} else None
            needed = [*names, *(late.columns if late is not None else ())]
            own = [name for name in dict.fromkeys(needed) if name in view.schema.names]
            plan, fields, *_ = view.scan(None if late else where, columns=own, with_row_id=True)._plan()
            reading = Reading.of(lake.storage, plan, fields, row_id=True)
            shown = arrow_schema([changes.schema.field(name) for name in names])
            reading = replace(
                reading, schema=asked_schema(shown, self._asked), changes=AsChanges(tuple(names), late, snapshot)
            )
        return reading, portions(plan, plan.tasks, view._state(), reading, TASKS, self._stage())

    def _changed(self, table: Table, since: int, until: int) -> tuple[Reading, list[bytes]]:
        """Plan to read the changes of some commits, with the columns that the table has now."""
        feed, where = self._request.feed, self._request.where
        if not feed.changes:
            self._check_inserts(table, since, until)
            where = f"{CHANGE_TYPE} = '{INSERT}'" + (f" and ({where}\n)" if where else "")
        try:
            asked = AskedChanges.of(table, since, until, where, self._asked, self._lake.snapshot_id)
        except SchemaError as error:
            raise self._other_columns(error) from None
        return asked.planned(TASKS, self._stage())

    def _columns(self, view: Table, columns: pa.Schema) -> list[str]:
        try:
            return columns_of(view.name, columns, self._asked)
        except SchemaError as error:
            raise self._other_columns(error) from None

    def _other_columns(self, error: SchemaError) -> SchemaError:
        return SchemaError(
            f"The columns of {self._request.table!r} are not those that the stream began with: {error} Restart the "
            "stream, so that it gets the columns of the table as they are now.",
            **error.details,
        )

    def _check_inserts(self, table: Table, since: int, until: int) -> None:
        if self._request.feed.skip_changes:
            return
        with table._reading() as reading:
            for commit in commits.row_changes(reading.transaction, table._table_id, since, until):
                if commit.updated or commit.deleted:
                    raise JobError(
                        f"Snapshot {commit.snapshot} updated {commit.updated:,} and deleted {commit.deleted:,} rows of "
                        f"{table.name!r}, but this stream only has rows that are inserted. Set option('changes', "
                        "'true') to get updates and deletes too, or option('skip_changes', 'true') to ignore them."
                    )

    def _stage(self) -> Stage:
        lake = self._lake
        assert self._table is not None
        return Stage(lake.storage, self._table._table_id, cache(lambda: lasting_writer(lake)))

    # ------------------------------------------------------------ on the driver: the lake

    @property
    def _lake(self) -> Lake:
        return self._open()._lake

    def _open(self) -> Table:
        """Return the table, of a lake that stays open until the stream stops."""
        if self._table is None:
            lake = self._request.open_to_read()
            self._table = self._request.table_of(lake)
            if runs_as(RUNNER):
                signal.signal(signal.SIGTERM, _exit)  # that is how Spark ends this process; ``stop`` comes then
        return self._table

    def _offset(self, snapshot: int | None) -> Offset:
        return {"snapshot": snapshot, "table": self._open()._table_id}

    def _snapshot(self, offset: Offset) -> int | None:
        if offset["table"] != self._open()._table_id:
            raise NotFoundError(
                f"The table {self._request.table!r} that this stream began with was dropped, and another has its name. "
                "Start a new query, with another checkpoint."
            )
        found: int | None = offset["snapshot"]
        return found

    def _hold(self, snapshot: int | None, *, move: bool = False) -> None:
        """Keep the history after a snapshot, or after the one that is held already."""
        old = time.monotonic() - self._renewed > RENEWED
        if self._lake.read_only or snapshot is None or (self._held is not None and not move and not old):
            return
        self._held = snapshot if self._held is None or move else self._held
        pin(self._lake, self._held, self._pin)
        self._renewed = time.monotonic()

    def _check_kept(self, at: int, state: TableState) -> None:
        if at > state.newest:
            raise NotFoundError(
                f"The stream of {self._request.table!r} has come to snapshot {at}, but the newest is {state.newest}: "
                "the catalog was restored to an earlier state. Start a new query, with another checkpoint."
            )
        if max(at, state.table.begin_snapshot - 1) < state.table.horizon:
            raise self._expired(SnapshotExpiredError("", snapshot_id=at, horizon=state.table.horizon))

    def _expired(self, error: SnapshotExpiredError) -> SnapshotExpiredError:
        return SnapshotExpiredError(
            f"The stream of {self._request.table!r} has come to snapshot {error.snapshot_id}, but history is only kept "
            f"from snapshot {error.horizon} on: it was away for longer than the table's retention. Start a new query "
            "with another checkpoint, which begins with the whole table. A longer retention lets a stream be away for "
            "longer: t.set_config(retention=…).",
            **error.details,
        )

    # ------------------------------------------------------------ on executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        reading, portion = partition.value
        yield from replace(reading, secrets=self._secrets).rows(portion)


def _exit(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it twice
    sys.exit(0)
