"""``spark.read.format("indexlake")``: tables, and changes of tables, for people who expect a format name.

Spark runs the parts of a Python data source in separate processes next to the driver, and sends the objects to
executors.  So a DataFrame's snapshot is pinned in the catalog for a fixed time rather than by a living process, and
what is sent to executors is a ``Reading`` and its portions: the catalog's address is not.

Spark's filters are accepted only if the option ``pushdown`` says that the DataFrame is for one query.  Spark 4 keeps
what a Python source planned with the first query's filters and reuses it for later queries with other filters, or none,
which then lose rows.  The option ``where`` has no such problem.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)

from indexlake.catalog import activity
from indexlake.errors import IndexLakeError
from indexlake.pipeline.job import this_process
from indexlake.spark.asked import asked_schema, columns_of
from indexlake.spark.feed import AskedChanges
from indexlake.spark.filters import Pushed
from indexlake.spark.portion import Reading, Stage, portions
from indexlake.spark.request import Request
from indexlake.spark.types import spark_schema
from indexlake.storage.names import new_writer_id

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from indexlake.lake import Lake
    from indexlake.table import Table

PINNED = timedelta(hours=24)
"""How long a DataFrame of this source can be read, whatever jobs do meanwhile."""

TASKS = 16
"""The number of tasks to plan for, as the number of cores is not known where planning happens."""


class IndexLakeSource(DataSource):
    """A table of a lake, at the snapshot that was newest when it was loaded."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options: Any = dict(options)
        self._snapshot: int | None = None
        self._range: tuple[int, int] | None = None
        self._pin: str | None = None

    @classmethod
    def name(cls) -> str:
        return "indexlake"

    def schema(self) -> StructType:
        """Return the columns, and pin what a batch read would read; whether it is one is not known yet."""
        request = Request.of(self.options)
        with request.open_to_read() as lake:
            table = request.table_of(lake)
            if request.feed.changes:
                return self._feed_schema(lake, table, request)
            table, self._pin = _pinned(lake, table)
            self._snapshot = table._snapshot
            request.check_where(table)  # so that a wrong condition is refused at once
            return spark_schema(list(table.schema))

    def _feed_schema(self, lake: Lake, table: Table, request: Request) -> StructType:
        last = lake.snapshot_id
        columns = table.changes(last, last, where=request.where).schema
        since = request.feed.since
        if since is not None and not isinstance(since, str):
            with suppress(IndexLakeError):  # a stream may have come further; a batch read raises it again
                found = table.changes(since, request.feed.until)
                self._pin = pin(lake, found.since)
                self._range = found.since, found.until
        return spark_schema(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = Request.of(self.options)
        request.check_feed(stream=False)
        if self._snapshot is not None:
            request = replace(request, snapshot=self._snapshot, timestamp=None, pinned=True)
        if self._range is not None:
            since, until = self._range
            request = replace(request, feed=replace(request.feed, since=since, until=until), pinned=True)
        self.options = {}  # this object is sent to executors too
        if request.pushdown and _filters_are_pushed():
            return PushingReader(request, schema)
        reader = TableReader()
        reader.plan(request, schema, ())
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (the name is Spark's)
        from indexlake.spark.stream_source import StreamReader

        request = Request.of(self.options)
        self.options = {}
        return StreamReader(request, schema, self._pin)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from indexlake.spark.sink import TableWriter

        request = Request.of(self.options)
        self.options = {}
        return TableWriter(request, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        from indexlake.spark.stream_sink import StreamWriter

        request = Request.of(self.options)
        self.options = {}
        return StreamWriter(request, schema, overwrite)


class TableReader(DataSourceReader):
    """One read of one table at one snapshot."""

    def __init__(self) -> None:
        self._reading: Reading | None = None
        self._portions: list[bytes] = []

    def plan(self, request: Request, schema: StructType, filters: Sequence[Filter]) -> list[Filter]:
        """Plan at the pinned snapshot, and return the filters that are left to Spark."""
        with request.open_to_read() as lake:
            table = request.table_of(lake)
            stage = Stage(lake.storage, table._table_id, cache(lambda: lasting_writer(lake)))
            if request.feed.changes:
                since = request.feed.since
                assert isinstance(since, int | datetime), "checked before"
                asked = AskedChanges.of(table, since, request.feed.until, request.where, schema)
                if not request.pinned:
                    pin(lake, asked.changes.since)
                self._reading, self._portions = asked.planned(TASKS, stage)
                return list(filters)
            if not request.pinned:
                table, _ = _pinned(lake, table)
            request.check_where(table)
            pushed = Pushed(table._schema_now(), request.where)
            rest = pushed.take(filters)
            columns = columns_of(table.name, table.schema, schema)
            scan = table.scan(pushed.where, params=pushed.params or None, columns=columns)
            plan, fields, *_ = scan._plan()
            reading = Reading.of(lake.storage, plan, fields, row_id=False)
            self._reading = replace(reading, schema=asked_schema(reading.schema, schema))
            self._portions = portions(plan, plan.tasks, table._state(), self._reading, TASKS, stage)
        return rest

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(portion) for portion in self._portions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert self._reading is not None, "planned before it is sent"
        if partition.value is not None:  # None for a table without rows
            yield from self._reading.rows(partition.value)

    def __getstate__(self) -> dict[str, Any]:
        return {"_reading": self._reading, "_portions": []}  # a task gets its own portion only


class PushingReader(TableReader):
    """A reader that accepts filters, for when Spark hands them over; otherwise Spark refuses it."""

    def __init__(self, request: Request, schema: StructType) -> None:
        super().__init__()
        self._asked: tuple[Request, StructType] | None = request, schema

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 (the name is Spark's)
        assert self._asked is not None, "filters come once"
        request, schema = self._asked
        self._asked = None
        return self.plan(request, schema, filters)


def _filters_are_pushed() -> bool:
    """Return whether Spark hands filters over in this process, which only exists if that is switched on."""
    name = "pyspark.sql.worker.data_source_pushdown_filters"
    return name in sys.modules or runs_as(name)


def runs_as(program: str) -> bool:
    """Return whether this process runs a program of Spark."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name == program


def _pinned(lake: Lake, table: Table) -> tuple[Table, str]:
    """Return the table at its snapshot, which stays readable for a day after this process has ended, and its pin."""
    with table._reading() as reading:
        snapshot = reading.snapshot
    name = pin(lake, snapshot)
    return table.at(snapshot), name  # this checks that it still exists


def pin(lake: Lake, snapshot: int, name: str | None = None) -> str:
    """Pin a snapshot for a day, or move a pin to it; return the pin's name."""
    name = name or f"spark:{uuid.uuid4().hex}"
    expires = lake._now() + int(PINNED.total_seconds() * 1e6)
    with lake.catalog.transaction() as tx:
        activity.set_pin(tx, name, snapshot, this_process(), expires)
        tx.commit()
    return name


def unpin(lake: Lake, name: str) -> None:
    with lake.catalog.transaction() as tx:
        activity.remove_pins(tx, [name])
        tx.commit()


def lasting_writer(lake: Lake) -> str:
    """Register a writer whose uncommitted files are kept as long as the pin."""
    writer = new_writer_id()
    time = lake._now()
    with lake.catalog.transaction() as tx:
        activity.add_writer(tx, writer, this_process(), time, time + int(PINNED.total_seconds() * 1e6))
        tx.commit()
    return writer
