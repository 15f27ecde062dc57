"""``spark.read.format("indexlake")``: tables for people who expect a format name.

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
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)

from indexlake.catalog import activity
from indexlake.errors import SchemaError
from indexlake.pipeline.job import this_process
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

    @classmethod
    def name(cls) -> str:
        return "indexlake"

    def schema(self) -> StructType:
        request = Request.of(self.options)
        with request.open_to_read() as lake:
            table = _pinned(lake, request.table_of(lake))
            self._snapshot = table._snapshot
            request.check_where(table)  # so that a wrong condition is refused at once
            return spark_schema(list(table.schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        request = Request.of(self.options)
        if self._snapshot is not None:
            request = replace(request, snapshot=self._snapshot, timestamp=None, pinned=True)
        self.options = {}  # this object is sent to executors too
        if request.pushdown and _filters_are_pushed():
            return PushingReader(request, schema)
        reader = TableReader()
        reader.plan(request, schema, ())
        return reader

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
            if not request.pinned:
                table = _pinned(lake, table)
            request.check_where(table)
            pushed = Pushed(table._schema_now(), request.where)
            rest = pushed.take(filters)
            scan = table.scan(pushed.where, params=pushed.params or None, columns=_columns(table, schema))
            plan, fields, *_ = scan._plan()
            reading = Reading.of(lake.storage, plan, fields, row_id=False)
            asked = [f.with_name(a.name).with_nullable(a.nullable) for f, a in zip(reading.schema, schema, strict=True)]
            self._reading = replace(reading, schema=pa.schema(asked))
            stage = Stage(lake.storage, table._table_id, cache(lambda: lasting_writer(lake)))
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
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return name in sys.modules or (main is not None and main.name == name)


def _columns(table: Table, schema: StructType) -> list[str]:
    """Return the requested columns, after checking that their types are right."""
    known = {f.name.lower(): f for f in spark_schema(list(table.schema)).fields}
    required = {f.name.lower() for f in table.schema if not f.nullable}
    for asked in schema.fields:
        found = known.get(asked.name.lower())
        if found is None:
            raise SchemaError(
                f"Table {table.name!r} has no column {asked.name!r}; it has {', '.join(table.schema.names)}.",
                column=asked.name,
            )
        if found.dataType != asked.dataType:
            raise SchemaError(
                f"Column {asked.name!r} of {table.name!r} is {found.dataType.simpleString()} in Spark, not "
                f"{asked.dataType.simpleString()}. Read it as it is, then cast it.",
                column=asked.name,
            )
        if not asked.nullable and asked.name.lower() not in required:
            raise SchemaError(
                f"Column {asked.name!r} of {table.name!r} may be null. Ask for it without NOT NULL.", column=asked.name
            )
    return [f.name for f in schema.fields]


def _pinned(lake: Lake, table: Table) -> Table:
    """Return the table at its snapshot, which stays readable for a day after this process has ended."""
    with table._reading() as reading:
        snapshot = reading.snapshot
    expires = lake._now() + int(PINNED.total_seconds() * 1e6)
    with lake.catalog.transaction() as tx:
        activity.set_pin(tx, f"spark:{uuid.uuid4().hex}", snapshot, this_process(), expires)
        tx.commit()
    return table.at(snapshot)  # this checks that it still exists


def lasting_writer(lake: Lake) -> str:
    """Register a writer whose uncommitted files are kept as long as the pin."""
    writer = new_writer_id()
    time = lake._now()
    with lake.catalog.transaction() as tx:
        activity.add_writer(tx, writer, this_process(), time, time + int(PINNED.total_seconds() * 1e6))
        tx.commit()
    return writer
