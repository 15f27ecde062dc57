"""DuckDB inside a lake: one in-memory database, one cursor per running query.

No extension is installed or loaded, no Python variable is taken for a table, and the only files it can reach are those
in the lake's exchange folders.  Times are in UTC unless a text sets another zone.  Data that does not fit into memory
goes to the lake's spill folder.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from indexlake.arrow.batch_size import rows_of
from indexlake.errors import MissingExtraError, OwnershipError
from indexlake.snapshots.sequences import Sequences
from indexlake.sql.parse.statement import Prepare
from indexlake.sql.parse.tokens import quoted, text_literal
from indexlake.sql.plan.snapshot import MAIN
from indexlake.sql.plan.views import View
from indexlake.sql.run.duckdb_types import check_shown
from indexlake.sql.run.engine_errors import Unparsed
from indexlake.sql.run.sequence_functions import register_sequences
from indexlake.sql.run.space_functions import register
from indexlake.sql.run.table_stream import Openings
from indexlake.sql.run.types import restored
from indexlake.storage.exchange import Exchange
from indexlake.storage.spill import Spill
from indexlake.types.convert import shown_type

MEMORY_SHARE = 0.6
BATCH_ROWS = 100_000
CLOSE_SECONDS = 2.0
_IDLE = 8
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "arrow_lossless_conversion": "true",
}
ORDERINGS = frozenset({"default_null_order", "default_order"})
CASE = "preserve_identifier_case"
"""The setting that says how texts are read, before DuckDB sees them."""
MEANINGS = frozenset({
    "timezone", "calendar", "integer_division", "ieee_floating_point_ops", "default_collation",
    "old_implicit_casting", "scalar_subquery_error_on_multiple_rows", "order_by_non_integer_literal",
    "disable_timestamptz_casts", "binary_as_string", CASE,
})  # fmt: skip
"""Settings that change what expressions mean; those above change the order of rows."""
_READS_TWICE = "window_self_join"
"""The optimizer that would read a table twice for one mention of it: our streams can only be read once."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query finds a table that its name alone does not identify."""

    database: str
    schema: str
    table: str

    @property
    def name(self) -> str:
        return ".".join(map(quoted, (self.database, self.schema, self.table)))


class Engine:
    """Created with the first query of a lake."""

    def __init__(self, threads: int, spill: Spill, exchange: Exchange, sequences: Callable[[], Sequences]) -> None:
        try:
            import duckdb
        except ImportError:
            raise MissingExtraError("SQL needs DuckDB: pip install 'indexlake[sql]'", extra="sql") from None
        config = {**_SETTINGS, "threads": str(threads), "temp_directory": spill.folder()}
        self._database = duckdb.connect(":memory:", config=config)
        self.prepared: dict[str, Prepare] = {}  # by name, in lower case
        self._local: dict[str, str] = {}  # settings and variables of each cursor
        self._initial: dict[str, str] = {"threads": str(threads), "timezone": "'UTC'"}
        self.namespace = MAIN  # of calls that name none; set by USE
        self.changed: frozenset[str] = frozenset()  # settings of these two kinds that have been set
        self.zone: str | None = None  # in which results show their times, if a text has set one
        self._database.execute(f"set disabled_optimizers = '{_READS_TWICE}'; set global TimeZone = 'UTC'")
        register(self._database)
        self.drafted: weakref.WeakValueDictionary[int, Sequences] = weakref.WeakValueDictionary()
        register_sequences(self._database, sequences, self.drafted.__getitem__)
        limit = _memory_bytes()
        if limit is not None:
            self._initial["memory_limit"] = f"'{int(limit * MEMORY_SHARE) >> 20}MiB'"
            self._database.execute(f"set memory_limit = {self._initial['memory_limit']}")
        confine(self._database, exchange)
        self.exchange = exchange
        self.spill = spill
        self._idle: list[Any] = []
        self.openings = Openings()
        self.kept: list[object] = []  # kept alive until the lake is closed
        self.temporary_tables: dict[str, str] = {}  # spelling by name in lower case
        self.temporary_views: dict[str, View] = {}  # by name in lower case
        self.temporary_names: dict[tuple[str, str], Mapping[str, Any]] = {}  # macros and types, by kind and name
        self._running: weakref.WeakSet[Running] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.short_cuts: Any = None  # set by ``short_cuts``, which this module cannot import
        self.closed = False

    @contextmanager
    def undoing(self, when_undone: Callable[[Callable[[], None]], None]) -> Iterator[None]:
        """Hand over what undoes the changes that the block makes to temporary views, macros, types and the schema."""
        held: list[dict[Any, Any]] = [self.temporary_views, self.temporary_names]
        before, namespace = [{**each} for each in held], self.namespace
        yield
        changed = [
            (each, name, old.get(name))
            for each, old in zip(held, before, strict=True)
            for name in {**old, **each}
            if old.get(name) is not each.get(name)
        ]
        moved = self.namespace != namespace

        def undo() -> None:
            for each, name, value in changed:
                if value is None:
                    each.pop(name, None)
                else:
                    each[name] = value
            if moved:
                self.namespace = namespace

        if changed or moved:
            when_undone(undo)

    def close(self) -> None:
        """Stop everything that runs: no thread of DuckDB may be inside Python when the interpreter exits."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        self.openings.stop()
        for running in list(self._running):
            running.close()
        for cursor in idle:
            cursor.close()
        self._database.close()
        self.openings.wait(CLOSE_SECONDS)

    def take(self) -> Any:
        """Return a cursor for exclusive use."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            cursor = self._database.cursor()
            local = "".join(f"set {name} = {value};" for name, value in self._local.items())
        cursor.execute(f"{local}set errors_as_json = true; set enable_progress_bar = false")
        return cursor

    @property
    def computes_as_usual(self) -> bool:
        """Whether expressions have their usual meaning, so that we may evaluate them ourselves."""
        return not self.changed - ORDERINGS

    def set(self, name: str, value: str | None, *, applied: bool = True) -> None:
        """Change a setting for every query that begins from now on; None resets it.

        If not ``applied``, only check that DuckDB accepts it.
        """
        import duckdb

        with duckdb.connect(":memory:") as other:  # a value that is fatal to DuckDB ends this one, not ours
            other.execute(f"reset {name}" if value is None else f"set {name} = {value}")
            if name == CASE:
                keeps = other.execute(f"select current_setting('{CASE}')").fetchall()[0][0]
                self.changed = self.changed - {CASE} if keeps else self.changed | {CASE}
        if not applied or name == CASE:
            return
        changed = self.changed - {name} if value is None else self.changed | ({name} & (ORDERINGS | MEANINGS))
        value = self._initial.get(name) if value is None else value
        if name == "disabled_optimizers":
            given = "" if value is None else value.strip("'")
            value = text_literal(",".join(filter(None, [given, _READS_TWICE])))
        change = f"reset global {name}" if value is None else f"set global {name} = {value}"
        with self._lock:
            try:
                self._database.execute(change)
            except duckdb.Error as error:
                if "cannot be" not in str(error) or "global" not in str(error).lower():
                    raise
                self._local.pop(name, None)
                if value is not None:
                    self._database.cursor().execute(f"set {name} = {value}").close()
                    self._local[name] = value
            idle, self._idle = self._idle, []
            self.changed = changed
            if name == "timezone":
                zone = self._database.execute("select current_setting('timezone')").fetchall()[0][0]
                self.zone = zone if name in changed else None
        for cursor in idle:
            cursor.close()

    def set_variable(self, name: str, value: str | None) -> None:
        """Set a variable, given as an expression, for every query that begins from now on; None removes it."""
        with self._lock:
            self._local.pop(f"variable {quoted(name)}", None)
            if value is not None:
                self._local[f"variable {quoted(name)}"] = value
            idle, self._idle = self._idle, []
        for cursor in idle:
            cursor.close()

    def give_back(self, cursor: Any) -> None:
        with self._lock:
            if not self.closed and len(self._idle) < _IDLE:
                self._idle.append(cursor)
                return
        with suppress(Exception):
            cursor.close()

    def begin(
        self,
        views: Mapping[str, Any],
        sql: str,
        parameters: Mapping[str, Any],
        row_bytes: int,
        check: Callable[[Sequence[tuple[str, Any]]], None] = check_shown,
        *,
        places: Mapping[Place, str] | None = None,
    ) -> Running:
        """Start a query over these Arrow streams and tables; its rows are read as they are computed.

        ``places``: for some places, the query over the streams and tables whose rows are found there.  ``row_bytes``:
        the approximate size of a row; fewer large rows are read at a time.  ``check`` refuses columns by their names
        and types before any row is read.
        """
        rows = min(BATCH_ROWS, rows_of(row_bytes))
        cursor = self.take()
        try:
            for name, view in views.items():
                cursor.register(name, view)
            for place, query in (places or {}).items():
                cursor.execute(
                    f"attach ':memory:' as {quoted(place.database)};"
                    f"create schema if not exists {quoted(place.database)}.{quoted(place.schema)};"
                    f"create view {place.name} as {query}"
                )
            types = _executed(cursor, sql, parameters, check)
            reader = cursor.to_arrow_reader(rows)
        except BaseException:
            cursor.interrupt()  # closing waits for a query that Ctrl-C only made DuckDB's caller leave
            cursor.close()
            self.remove(places or ())
            raise
        running = Running(self, cursor, tuple(views), tuple(places or ()), reader, reader.schema, types)
        self._running.add(running)
        return running

    def remove(self, places: Iterable[Place]) -> None:
        """Remove what was defined at some places, once nothing reads it any more."""
        for place in places:
            with suppress(Exception), self.cursor() as cursor:  # the lake may be closed already
                cursor.execute(f"detach database if exists {quoted(place.database)}")

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """Lend a cursor for a question that is answered at once."""
        cursor = self.take()
        try:
            yield cursor
        except BaseException:
            cursor.close()
            raise
        self.give_back(cursor)

    def table(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the answer to a question that concerns none of our tables."""
        with self.cursor() as cursor:
            _executed(cursor, sql, parameters or {}, check_shown)
            found = cursor.to_arrow_table()
        columns = [restored(column, shown_type(column.type)) for column in found.columns]
        return pa.table(columns, found.column_names)

    def as_sql_has_it(self, rows: pa.Table, casts: str) -> pa.Table:
        """Return the rows in DuckDB's own Arrow types, with some columns cast: ``cast(a as bit) as a, …``"""
        with self.cursor() as cursor:
            cursor.register("__il_rows", rows)
            found: pa.Table = cursor.execute(f"select * replace ({casts}) from __il_rows").to_arrow_table()
            cursor.unregister("__il_rows")
        return found

    def types(self, sql: str) -> list[Any]:
        """Return DuckDB's types of the columns of a query that concerns none of our tables."""
        with self.cursor() as cursor:
            return [column[1] for column in cursor.execute(sql).description]

    def bind(self, definition: str) -> None:
        """Have DuckDB check a definition, and roll it back."""
        with self.cursor() as cursor:
            cursor.execute("begin")
            try:
                cursor.execute(definition)
            finally:
                cursor.execute("rollback")

    @cached_property
    def aggregates(self) -> frozenset[str]:
        """The function names that are only used by aggregates."""
        found = self.table(
            "select function_name from duckdb_functions() group by all having bool_and(function_type = 'aggregate')"
        )
        return frozenset(found.column(0).to_pylist())

    def printed(self, expression: str) -> str | None:
        """Return the name DuckDB gives to a column with this expression, or None if it cannot parse it."""
        asked = "select json_deserialize_sql(json_serialize_sql($text))"
        import duckdb

        try:
            found = str(self.table(asked, {"text": f"select {expression}"}).column(0)[0].as_py())
        except duckdb.Error:
            return None
        return found.removeprefix("SELECT ")

    def syntax_tree(self, text: str) -> Any:
        """Return the tree that DuckDB's parser makes of a query."""
        found = json.loads(self.table("select json_serialize_sql($text)", {"text": text}).column(0)[0].as_py())
        if found.get("error"):
            raise Unparsed(found)
        return found["statements"]


@dataclass(eq=False)
class Running:
    """A query that has started."""

    _engine: Engine
    _cursor: Any
    _views: tuple[str, ...]
    _places: tuple[Place, ...]
    _reader: Any
    schema: pa.Schema
    types: list[Any]  # as DuckDB calls them
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end, when the cursor is returned."""
        with self._reading:
            reader, cursor = self._reader, self._cursor
            if reader is None:
                raise OwnershipError("The lake was closed while this result was being read.")
            try:
                return reader.read_next_batch()
            except StopIteration:
                self._reader = self._cursor = None
                for name in self._views:
                    cursor.unregister(name)
                self._engine.give_back(cursor)
                self._engine.remove(self._places)
                return None

    def table(self) -> pa.Table:
        """Return all rows."""
        batches = []
        try:
            while (batch := self.next()) is not None:
                batches.append(batch)
        finally:
            self.close()
        return pa.Table.from_batches(batches, self.schema)

    def close(self) -> None:
        """Stop the query unless it has ended; first waits for a thread that is reading to leave DuckDB."""
        cursor, self._cursor = self._cursor, None
        if cursor is None:
            return
        with suppress(Exception):
            cursor.interrupt()
        came_out = self._reading.acquire(timeout=CLOSE_SECONDS)
        self._reader = None
        with suppress(Exception):
            cursor.close()
        self._engine.remove(self._places)
        if came_out:
            self._reading.release()


def confine(database: Any, exchange: Exchange) -> None:
    """Restrict a database permanently to the files of an exchange."""
    folders = ", ".join(text_literal(folder) for folder in exchange.local)
    database.execute(f"set allowed_directories = [{folders}]; set enable_external_access = false")


def _executed(
    cursor: Any, sql: str, parameters: Mapping[str, Any], check: Callable[[Sequence[tuple[str, Any]]], None]
) -> list[Any]:
    """Run a query and return DuckDB's types of its columns, after checking them."""
    columns = [(name, type) for name, type, *_ in cursor.execute(sql, dict(parameters) or None).description]
    check(columns)
    return [type for _, type in columns]


def _memory_bytes() -> int | None:
    import os

    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
