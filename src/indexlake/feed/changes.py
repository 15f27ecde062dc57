"""``Changes``: what commits did to a table, as a lazy result.

A feed is exact for the commits in (since, until], both fixed when it is created; to continue, ask for the changes since
its ``until``. It shows every row with the columns that the table has at ``until``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import commits
from indexlake.errors import NotFoundError, SchemaError, SnapshotExpiredError
from indexlake.feed.plan import count_changes, plan_feed
from indexlake.feed.windows import Feed, feed_schema
from indexlake.scan.result import Result
from indexlake.scan.scan import bind_condition, check_where
from indexlake.schema import ROW_ID, Field
from indexlake.schema.change_columns import CHANGE_TYPE, SNAPSHOT_ID
from indexlake.snapshots.time_travel import check_snapshot
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indexlake.catalog.definitions import TableRecord
    from indexlake.expr import Bound
    from indexlake.lake import Lake
    from indexlake.snapshots.reading import Reading
    from indexlake.storage import Storage
    from indexlake.table import Table

Moment = int | datetime


class Changes(Result):
    """Returned by ``table.changes``: the table's columns, then ``_change_type`` and ``_snapshot_id``."""

    def __init__(
        self,
        table: Table,
        since: Moment,
        until: Moment | None,
        columns: Sequence[str] | None,
        where: str | None,
        params: Mapping[str, Any] | Sequence[Any] | None,
        with_row_id: bool,
        columns_at: int | None = None,
    ) -> None:
        """``columns_at``: show the columns of this snapshot, instead of those at ``until``."""
        lake = table._lake
        lake._check()
        start = snapshot_number(lake, "since", since)
        limit = None if until is None else snapshot_number(lake, "until", until)
        # A past view or a transaction reads one snapshot, whatever was requested; otherwise read up to the limit.
        fixed = table._tx is not None or table._snapshot is not None
        with table._reading(None if fixed else limit) as reading:
            state, last = reading.state, reading.snapshot
            if limit is not None and limit > last:
                raise NotFoundError(f"until={limit} is later than what {table.name!r} shows here: snapshot {last}.")
            self._until = last if limit is None else limit
            if start > state.newest:
                raise NotFoundError(f"There is no snapshot {start} yet; the newest is {state.newest}.", name=str(start))
            if start > self._until:
                raise SchemaError(f"changes(since={start}, until={self._until}): since is later than until.")
            self._since = _checked(start, state.table)
            check_snapshot(self._until, state.newest, state.table)
            schema = state.schema.at(self._until if columns_at is None else columns_at)
        check_where(where, params)
        self._table = table
        self._where = where
        self._columns = None if columns is None else [columns] if isinstance(columns, str) else list(columns)
        self._fields, with_id = _chosen(schema.fields, schema.project, self._columns)
        self._with_row_id = with_row_id or with_id
        rows = pa.schema([f.arrow() for f in self._fields])
        shown = feed_schema(rows)
        self._schema = shown if self._with_row_id else shown.remove(len(shown) - 1)
        self._predicate: Bound | None = None
        self._read = self._fields
        if where is not None:
            named = [f.arrow() for f in schema.fields if f.name.lower() not in (CHANGE_TYPE, SNAPSHOT_ID)]
            self._predicate = bind_condition(where, feed_schema(pa.schema(named)), params)
            more = [f for f in schema.fields if f.name in self._predicate.columns and f not in self._fields]
            self._read = (*self._fields, *more)

    def __repr__(self) -> str:
        parts = [f"Changes of {self._table.name} after snapshot {self._since} up to {self._until}"]
        parts += [f"where {self._where}"] if self._where else []
        parts += [f"columns {', '.join(self._columns)}"] if self._columns is not None else []
        return f"<{', '.join(parts)}>"

    def _repr_html_(self) -> str:
        from indexlake import display

        def first() -> str:
            batches, left = [], display.FIRST_ROWS
            for batch in self._run()[1]:
                batches.append(batch.slice(0, left))
                left -= batches[-1].num_rows
                if not left:
                    break
            rows = pa.Table.from_batches(batches, self._schema)
            note = f"The first {display.FIRST_ROWS} changes." if not left else None
            return display.html_rows(rows, caption=repr(self)[1:-1], note=note)

        return display.shown(first)

    def __reduce__(self) -> Any:
        raise TypeError("Changes belong to the process that asked for them and cannot be pickled. Pickle the result.")

    @property
    def since(self) -> int:
        """The snapshot after which the feed begins; the table's first one if the table is younger than requested."""
        return self._since

    @property
    def until(self) -> int:
        """The snapshot up to which the feed is exact: ``since=feed.until`` continues from here."""
        return self._until

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schema

    # ------------------------------------------------------------ running

    @contextmanager
    def _reading(self) -> Iterator[Reading]:
        self._table._lake._check()
        with self._table._reading(self._until) as reading:
            _checked(self._since, reading.state.table)
            yield reading

    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        lake = self._table._lake
        with self._reading() as reading:
            plan = plan_feed(reading, self._since, self._until, lake._files, self._read)
        pin = lake._pins.pin(self._since)

        def stream() -> Iterator[pa.RecordBatch]:
            try:
                for found in Feed(plan, pa.schema([f.arrow() for f in self._read])).batches():
                    batch = found
                    if self._predicate is not None:
                        batch = keep(batch, self._predicate.mask(batch))
                    if batch.num_rows:
                        yield batch.select(self._schema.names)
                        lake._check_process()
            finally:
                pin.release()

        return self._schema, stream()

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """A Spark DataFrame of the changes, which stays readable while the lake is open; its rows are in no order.

        Without a session, the active one is used or a local one started.
        """
        from indexlake.spark.feed import feed_to_spark

        return feed_to_spark(self, spark)

    def _own_storage(self) -> Storage:
        return self._table._lake.storage

    def count(self) -> int:
        """Return the number of changes. An update counts twice: the old row and the new one."""
        if self._predicate is not None:
            return sum(batch.num_rows for batch in self._run()[1])
        with self._reading() as reading:
            return count_changes(reading, self._since, self._until, self._table._lake._files)


def snapshot_number(lake: Lake, name: str, value: Moment) -> int:
    """Return a snapshot number, given as such or as a time."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise SchemaError(f"{name} takes a datetime with a time zone, for example datetime.now(UTC).")
        with lake.catalog.read() as r:
            found = commits.snapshot_at_time(r, commits.microseconds(value))
        return (
            min(found, lake.snapshot_id) if found is not None else 0
        )  # before everything kept: whether that is too early is checked later
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SchemaError(f"{name} is a snapshot number or a datetime with a time zone, not {value!r}.")
    return value


def _checked(since: int, table: TableRecord) -> int:
    """Return where the feed begins; raise if the history from there on is no longer kept."""
    begin = max(since, table.begin_snapshot - 1)  # the commit that creates a table may add rows to it
    if begin < table.horizon:
        raise SnapshotExpiredError(
            f"Changes of {table.full_name!r} since snapshot {since} are no longer known: history is kept from snapshot "
            f"{table.horizon} on (retention {table.config.retention}). Read the whole table and continue from there.",
            snapshot_id=since,
            horizon=table.horizon,
        )
    return begin


def _chosen(fields: tuple[Field, ...], project: Any, columns: Sequence[str] | None) -> tuple[tuple[Field, ...], bool]:
    """Return the columns of the table to show, and whether the row id was named among them."""
    with_id = False
    if columns is not None:
        names = [name for name in columns if name not in (ROW_ID, CHANGE_TYPE, SNAPSHOT_ID)]
        with_id = ROW_ID in columns
        fields = project(names)
        if len({f.name for f in fields}) < len(fields):
            raise SchemaError("columns names a column twice.")
    for f in fields:
        if f.name.lower() in (CHANGE_TYPE, SNAPSHOT_ID):
            raise SchemaError(
                f"The table has a column {f.name!r}, a name that the feed itself uses. Rename it, or leave it out with "
                "columns=[…].",
                column=f.name,
            )
    return fields, with_id
