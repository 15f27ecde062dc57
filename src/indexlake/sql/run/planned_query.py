"""A query whose scans are planned: it reads one snapshot, however often and however late it runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import ExpressionError, IndexLakeError
from indexlake.schema import ROW_ID
from indexlake.snapshots.pins import Pin
from indexlake.sql.parse.fragment import Spliced
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.query import ParsedQuery, sampled, search_name, view_name
from indexlake.sql.plan.row_ids import NAME, names_row_id, with_row_id
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.plan.table_plan import TablePlan
from indexlake.sql.plan.text_groups import TextNumbers
from indexlake.sql.run.duckdb_types import (
    check_held,
    check_shown,
    held_form,
    is_cast,
    is_held_otherwise,
    is_hugeint_type,
    is_unshown,
)
from indexlake.sql.run.engine import Engine, Place, Running
from indexlake.sql.run.engine_errors import translated
from indexlake.sql.run.held_forms import all_in_sql, in_sql
from indexlake.sql.run.result import Batches
from indexlake.sql.run.result_columns import result_types
from indexlake.sql.run.searches import FoundRows
from indexlake.sql.run.table_stream import TableStream
from indexlake.sql.run.type_names import stored_field
from indexlake.sql.run.types import for_duckdb, restored
from indexlake.types.convert import shown_type
from indexlake.types.hugeint import MARK
from indexlake.types.marks import mark

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.schema import Field

_CONSUMED = "has already been consumed"
"""DuckDB's message when it opens a stream for the second time."""


_numbers = itertools.count()


class _ReadAgain(Exception):
    """DuckDB reads a table more than once, which could not be told from the text."""


class _AskFor(Exception):
    """Result columns have types that cannot be returned; ``select`` begins the query that converts them."""

    def __init__(self, select: str, types: list[Any]) -> None:
        super().__init__(select)
        self.select = select
        self.types = types


class PlannedQuery:
    def __init__(self, engine: Engine, view: Viewpoint, query: ParsedQuery, parameters: Parameters) -> None:
        self._engine = engine
        self.lake: Lake = view.lake
        self._number = 0  # identifies the text that runs
        self.query = query
        self._values = parameters.values
        self._used = query.parameters
        self.tables: tuple[TablePlan, ...] = ()
        self.without_duckdb: Callable[[], Batches] | None = None  # how to answer without it, if possible
        self.searches: tuple[FoundRows, ...] = ()
        self.constants: Mapping[str, pa.Table] = {}  # further tables that the text names
        self._types: list[Any] | None = None  # DuckDB's names for the types of the result
        self.files: Sequence[object] = ()  # keeps the files that the text names
        self.file_tables: Mapping[str, str] = {}  # for Spark: names in the text to Parquet files
        self.storing = False  # whether a table is created from its rows
        self.snapshot_id = 0

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of the parameters left in the text."""
        return {name: self._values[name] for name in self._used}

    def run(self) -> Batches:
        """Start the query; errors in the text are raised here, errors in values while reading the batches."""
        self.lake._check()
        pin = self.lake._pins.pin(self.snapshot_id)
        answer = self._run_in_duckdb(self._text(), typed=True) if self.without_duckdb is None else self.without_duckdb()
        return answer[0], _pinned(pin, answer[1])

    def _text(self, prefix: str = "", suffix: str = "", *, careful: bool = False) -> Spliced:
        self._number = next(_numbers)
        columns = [{*t.found.schema.by_name, ROW_ID} for t in self.tables]
        places = {n: place.name for n, place in self._places().items()}
        return self.query.text(
            prefix,
            suffix,
            columns=columns,
            namespaces=self.namespaces,
            careful=careful,
            places=places,
            typed=self._typed,
        )

    @property
    def namespaces(self) -> list[str]:
        """The namespace in which each table was found."""
        return [t.found.state.table.namespace for t in self.tables]

    def constant(self, rows: pa.Table) -> pa.Table:
        casts = all_in_sql(rows.schema)
        return self._engine.as_sql_has_it(for_duckdb(rows), casts) if casts else for_duckdb(rows)

    @property
    def _typed(self) -> dict[int, str]:
        """The scans with columns that Arrow has as text, cast to their SQL types."""
        return {n: typed for n, t in enumerate(self.tables) if (typed := _typed(view_name(n), t.fields)) is not None}

    def _places(self) -> dict[int, Place]:
        """Return places for the references that DuckDB has to know with their namespaces.

        Each is alone in a database of its own, since a query may read one table several times in different ways.
        """
        return {
            r.number: Place(f"__il_{self._number}_{r.number}", self.namespaces[r.number], r.table.name)
            for r in self.query.references
            if r.in_schema
        }

    def _run_in_duckdb(self, text: Spliced, *, typed: bool = False) -> Batches:
        """Run over streams that are read once; if DuckDB reads one again, over streams that can be reopened."""
        self._pin = self.lake._pins.pin(self.snapshot_id)
        try:
            schema, batches = self._begun(text, typed=typed, careful=False)
        except _AskFor as instead:
            return self._begun_as(instead)
        except _ReadAgain:
            try:
                return self._begun(self._text(careful=True), typed=typed, careful=True)
            except _AskFor as instead:
                return self._begun_as(instead)

        def rows() -> Iterator[pa.RecordBatch]:
            given = False
            try:
                for batch in batches:
                    given = True
                    yield batch
            except _ReadAgain as error:
                if given:
                    raise ExpressionError(f"DuckDB reads a table twice in this query: {error}") from None
                yield from self._begun(self._text(careful=True), typed=typed, careful=True)[1]

        return schema, rows()

    def _begun_as(self, instead: _AskFor) -> Batches:
        found = self._begun(self._text(instead.select, ")", careful=True), typed=True, careful=True)
        self._types = instead.types
        return found

    def _check(self, columns: Sequence[tuple[str, Any]]) -> None:
        """Refuse what no table can hold, if one is made of the columns; convert what cannot be returned."""
        if self.storing:
            for name, type in columns:
                check_held(type, name)
        cast = [is_unshown(type) or (self.storing and is_held_otherwise(type)) for _, type in columns]
        if self.storing and any(cast):  # except for an interval that is a duration in its table
            spans = pa.schema([(name, pa.month_day_nano_interval()) for name, _ in columns])
            types = result_types(self.query, self.tables, self.searches, self.constants, spans)
            cast = [other and not pa.types.is_duration(type) for other, type in zip(cast, types, strict=True)]
        if any(cast):
            asked = (
                (held_form(type, f"#{n}", stored=self.storing) if other else f"#{n}") + f" as {quoted(name)}"
                for n, ((name, type), other) in enumerate(zip(columns, cast, strict=True), 1)
            )
            raise _AskFor(f"select {', '.join(asked)} from (", [type for _, type in columns])

    def _begun(self, text: Spliced, *, typed: bool, careful: bool) -> Batches:
        openings = self._engine.openings
        once = [t.reference.once and not careful for t in self.tables]
        numbered = typed and all(once) and not self._typed and self._engine.computes_as_usual
        groups = self.query.groups if numbered else {}
        streams = [
            TableStream(self.lake, openings, t.scan, t.fields, row_id=t.row_id, limit=t.limit, groups=groups)
            for t in self.tables
        ]
        numbers = {n: found for s in streams for name, found in s.numbers.items() for n in groups[name.lower()]}
        views: dict[str, Any] = {
            view_name(n): stream.__arrow_c_stream__() if once[n] else stream for n, stream in enumerate(streams)
        }
        views |= {search_name(n): found.for_duckdb() for n, found in enumerate(self.searches)}
        views |= {name: self.constant(rows) for name, rows in self.constants.items()}
        try:
            check = self._check if typed else check_shown
            row_bytes = sum(t.scan.row_bytes for t in self.tables)
            places = {place: self._placed(n) for n, place in self._places().items()}
            running = self._engine.begin(views, text.text, self.parameters, row_bytes, check, places=places)
        except BaseException as error:
            self._raise_translated(error, text, streams)
            raise
        schema = pa.schema([f.with_type(shown_type(f.type)) for f in running.schema])
        for n in numbers:
            schema = schema.set(n, schema.field(n).with_type(pa.string()))
        if typed:
            types = result_types(self.query, self.tables, self.searches, self.constants, schema, self._engine.zone)
            fields = zip(schema, types, strict=True)
            schema = pa.schema([f.with_name(self.query.shown(f.name)).with_type(type) for f, type in fields])
        self._types = running.types
        for n, type in enumerate(running.types):
            if is_hugeint_type(type):
                schema = schema.set(n, schema.field(n).with_metadata(MARK))
        return schema, self._batches(running, schema, text, streams, numbers)

    def _placed(self, number: int) -> str:
        """Return the query over the scan whose rows are found at a reference's place."""
        query, names = sampled(view_name(number)), self.tables[number].found.schema.by_name
        if names_row_id(self.query.fragment) and NAME not in names:
            query = with_row_id(query, view_name(number), self.query.fragment)
        scan = quoted(view_name(number))
        return query.replace(scan, self._typed.get(number, scan), 1)

    def _batches(
        self,
        running: Running,
        schema: pa.Schema,
        text: Spliced,
        streams: Sequence[TableStream],
        numbers: Mapping[int, TextNumbers],
    ) -> Iterator[pa.RecordBatch]:
        same = schema == running.schema
        try:
            while True:
                try:
                    batch = running.next()
                except BaseException as error:
                    self._raise_translated(error, text, streams)
                    raise
                if batch is None:
                    return
                if not same:
                    given = [numbers[n].decode(a) if n in numbers else a for n, a in enumerate(batch.columns)]
                    arrays = [restored(a, f.type) for a, f in zip(given, schema, strict=True)]
                    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                if batch.num_rows:
                    yield batch
        finally:
            running.close()

    def _raise_translated(self, error: BaseException, text: Spliced, streams: Sequence[TableStream]) -> None:
        """Raise our own error for an error of DuckDB's; return if it is not one."""
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            raise KeyboardInterrupt from None  # DuckDB has caught the original one
        for stream in streams:
            if isinstance(stream.error, IndexLakeError | KeyboardInterrupt):
                raise stream.error from None
        if _CONSUMED in str(error):
            raise _ReadAgain(str(error)) from None
        made = translated(error, self.query.fragment.source, text, self._suggestion)
        if made is not None:
            raise made from None

    def _suggestion(self, column: str) -> str:
        """Return what an unknown column may have meant; DuckDB itself knows only the columns that it was given."""
        names = [name for t in self.tables for name in t.found.schema.names]
        names = list(dict.fromkeys(names + [name for found in self.searches for name in found.names]))
        close = get_close_matches(column, names, 1)
        if close:
            return f"Did you mean {close[0]!r}?"
        return f"The columns are {', '.join(names)}." if names else ""

    def execute(self, prefix: str, suffix: str = "") -> pa.Table:
        """Run the text inside another one, which may change DuckDB's own tables or write files."""
        schema, batches = self._run_in_duckdb(self._text(prefix, suffix, careful=True))
        return pa.Table.from_batches(list(batches), schema)

    def bind(self) -> None:
        """Have DuckDB look up everything that the query names, without running it."""
        self._used = ()
        self.execute("prepare __il_bound as ")

    def explain(self, analyze: bool, format: str | None = None) -> str:
        """Return DuckDB's own plan."""
        options = ["analyze"] * analyze + ([] if format is None else [f"format {quoted(format)}"])
        _, batches = self._run_in_duckdb(self._text(f"explain ({', '.join(options)}) " if options else "explain "))
        return "\n".join(str(row["explain_value"]) for batch in batches for row in batch.to_pylist())

    def stored_fields(self, schema: pa.Schema) -> list[pa.Field]:
        """Return the columns of a table to hold the rows of this query, which has been run and returned this schema."""
        if self._types is None:
            return [pa.field(f.name, f.type, metadata=f.metadata) for f in schema]
        return [stored_field(f.name, f.type, type) for type, f in zip(self._types, schema, strict=True)]

    def forms(self, schema: pa.Schema) -> dict[str, str]:
        """Return expressions that convert columns of this query's result, of this schema, to their SQL types."""
        named = zip(schema, self._types or (), strict=False)
        marked = {f.name: in_sql(f.with_metadata(mark(str(type)))) for f, type in named if is_cast(type)}
        return {name: form for name, form in marked.items() if form is not None}

    def describe(self) -> pa.Table:
        schema, batches = self._run_in_duckdb(self._text("describe "))
        return pa.Table.from_batches(list(batches), schema)


def _typed(view: str, fields: Sequence[Field]) -> str | None:
    casts = all_in_sql(fields)
    return f"(select * replace ({casts}) from {quoted(view)})" if casts else None


def _pinned(pin: Pin, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with pin:
        yield from batches
