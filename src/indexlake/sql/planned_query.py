"""A query whose scans are planned: it reads one snapshot, however often and however late it is run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog.driver import ReadTransaction
from indexlake.errors import ExpressionError, IndexLakeError
from indexlake.scan.execute import pieces
from indexlake.scan.order import ordered
from indexlake.scan.plan import arrow_schema
from indexlake.scan.scan import _window
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.sql.duckdb_types import check_held, check_shown, check_storable, is_hugeint_type
from indexlake.sql.engine import Engine, Place, Running, translated, translating
from indexlake.sql.fragment import Spliced
from indexlake.sql.parameters import Parameters
from indexlake.sql.plain_select import PlainSelect, plain_select
from indexlake.sql.point_select import Row
from indexlake.sql.query import ParsedQuery, Reference, parse_query, sampled, view_name
from indexlake.sql.result_columns import result_types
from indexlake.sql.snapshot import FoundTable, Viewpoint, newest_snapshot, read_together
from indexlake.sql.statement import Query
from indexlake.sql.table_plan import Choice, TablePlan, plan_point, plan_tables
from indexlake.sql.table_references import analyse
from indexlake.sql.table_stream import TableStream, row_counts
from indexlake.sql.text_groups import TextNumbers
from indexlake.sql.type_names import stored_field
from indexlake.sql.types import restored
from indexlake.time_travel import snapshot_number
from indexlake.types.convert import shown_type
from indexlake.types.hugeint import MARK, mark_of

if TYPE_CHECKING:
    from indexlake.lake import Lake

Batches = tuple[pa.Schema, Iterator[pa.RecordBatch]]


_CONSUMED = "has already been consumed"
"""What DuckDB says of a stream that it opens for the second time."""


_numbers = itertools.count()


class _ReadAgain(Exception):
    """DuckDB reads a table more than once, which its text does not show."""


class PlannedQuery:
    def __init__(self, engine: Engine, view: Viewpoint, query: ParsedQuery, parameters: Parameters) -> None:
        self._engine = engine
        self.lake: Lake = view.lake
        self.namespace = view.namespace
        self._number = 0  # of the text that runs
        self.query = query
        self._values = parameters.values
        self._used = query.parameters
        self.tables: tuple[TablePlan, ...] = ()
        self.direct: PlainSelect | None = None
        self.point: Callable[[], Row | None] | None = None
        self.point_schema: TableSchema | None = None
        self.constants: Mapping[str, pa.Table] = {}  # further tables that the text names
        self._types: list[Any] | None = None  # what DuckDB calls the types of its result
        self.storing = False  # whether a table is made of its rows
        self.snapshot_id = 0
        self.started = time.monotonic()

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of the parameters that are left in the text."""
        return {name: self._values[name] for name in self._used}

    def run(self) -> Batches:
        """Begin; errors of the text are raised here, errors of values with the batches."""
        self.started = time.monotonic()
        self.lake._check()
        self.lake._readers.add(self)
        self.lake._maintenance.reader_began()
        if self.point is not None and self.direct is not None:
            return self._run_point(self.point, self.direct)
        if self.direct is not None:
            return self._run_directly(self.direct)
        return self._run_in_duckdb(self._text(), typed=True)

    # ------------------------------------------------------------ by the scan alone

    def _run_directly(self, plain: PlainSelect) -> Batches:
        (table,) = self.tables
        if plain.count is not None:
            return self._count_directly(table, plain.count)
        assert plain.columns is not None
        schema = table.found.schema
        shown = pa.schema([_result_field(new, schema.field(old)) for old, new in plain.columns])
        order = list(plain.order or ())
        limit = None if plain.limit is None else plain.limit.value(self._values)
        offset = 0 if plain.offset is None else plain.offset.value(self._values) or 0

        def stream() -> Iterator[pa.RecordBatch]:
            lake = self.lake
            read = pieces(table.scan, lake._files, lake._scan_threads, table.fields, row_id=table.row_id)
            rows: Iterator[pa.RecordBatch] = (piece.batch for piece in read)
            try:
                if order:
                    most = None if limit is None else limit + offset
                    inner = arrow_schema(table.fields, row_id=table.row_id)
                    rows = ordered(rows, inner, order, most, lake.storage.spill)
                for batch in _window(rows, offset, limit):
                    arrays = [batch.column(old) for old, _ in plain.columns or ()]
                    yield pa.RecordBatch.from_arrays(arrays, schema=shown)
                    lake._check_process()
            finally:
                lake._readers.discard(self)

        return shown, stream()

    def _run_point(self, point: Callable[[], Row | None], plain: PlainSelect) -> Batches:
        assert plain.columns is not None
        assert self.point_schema is not None
        fields = [(old, _result_field(new, self.point_schema.field(old))) for old, new in plain.columns]
        shown = pa.schema([f for _, f in fields])

        def stream() -> Iterator[pa.RecordBatch]:
            row = point()
            self.lake._readers.discard(self)
            if row is not None:
                yield pa.RecordBatch.from_arrays([pa.array([row[old]], f.type) for old, f in fields], schema=shown)

        return shown, stream()

    def _count_directly(self, table: TablePlan, name: str) -> Batches:
        schema = pa.schema({name: pa.int64()})

        def stream() -> Iterator[pa.RecordBatch]:
            try:
                yield pa.RecordBatch.from_arrays([pa.array([sum(row_counts(self.lake, table.scan))])], schema=schema)
            finally:
                self.lake._readers.discard(self)

        return schema, stream()

    # ------------------------------------------------------------ by DuckDB

    def _text(self, prefix: str = "", *, careful: bool = False) -> Spliced:
        self._number = next(_numbers)
        columns = [{*t.found.schema.by_name, ROW_ID} for t in self.tables]
        places = {n: place.name for n, place in self._places().items()}
        return self.query.text(prefix, columns=columns, namespace=self.namespace, careful=careful, places=places)

    def _places(self) -> dict[int, Place]:
        """The references that DuckDB has to know by their namespaces.

        Each is alone in a database of its own: a query may read one table several times, and differently.
        """
        return {
            r.number: Place(f"__il_{self._number}_{r.number}", r.table.namespace or self.namespace, r.table.name)
            for r in self.query.references
            if r.in_schema
        }

    def _run_in_duckdb(self, text: Spliced, *, typed: bool = False) -> Batches:
        """Over streams that are read once; over others where DuckDB turns out to read one of them again."""
        try:
            schema, batches = self._begun(text, typed=typed, careful=False)
        except _ReadAgain:
            return self._begun(self._text(careful=True), typed=typed, careful=True)

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

    def _begun(self, text: Spliced, *, typed: bool, careful: bool) -> Batches:
        openings = self._engine.openings
        once = [t.reference.once and not careful for t in self.tables]
        groups = self.query.groups if typed and all(once) else {}
        streams = [
            TableStream(self.lake, openings, t.scan, t.fields, row_id=t.row_id, limit=t.limit, groups=groups)
            for t in self.tables
        ]
        numbers = {n: found for s in streams for name, found in s.numbers.items() for n in groups[name.lower()]}
        views: dict[str, Any] = {
            view_name(n): stream.__arrow_c_stream__() if once[n] else stream for n, stream in enumerate(streams)
        }
        try:
            check = check_storable if self.storing else check_shown
            row_bytes = sum(t.scan.row_bytes for t in self.tables)
            places = {place: sampled(n) for n, place in self._places().items()}
            running = self._engine.begin(
                views | dict(self.constants), text.text, self.parameters, row_bytes, check, places=places
            )
        except BaseException as error:
            self._raise_translated(error, text, streams)
            raise
        schema = pa.schema([f.with_type(shown_type(f.type)) for f in running.schema])
        for n in numbers:
            schema = schema.set(n, schema.field(n).with_type(pa.string()))
        if typed:
            fields = zip(schema, result_types(self.query.tree, self.tables, schema), strict=True)
            schema = pa.schema([f.with_name(self.query.shown(f.name)).with_type(type) for f, type in fields])
        self._types = running.types
        for n, type in enumerate(running.types):
            if is_hugeint_type(type):
                schema = schema.set(n, schema.field(n).with_metadata(MARK))
        return schema, self._batches(running, schema, text, streams, numbers)

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
                    arrays = [restored(a, f.type, f.name) for a, f in zip(given, schema, strict=True)]
                    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                if batch.num_rows:
                    yield batch
        finally:
            self.lake._readers.discard(self)
            running.close()

    def _raise_translated(self, error: BaseException, text: Spliced, streams: Sequence[TableStream]) -> None:
        """Raise what an error of DuckDB means; return when it is no such error."""
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            raise KeyboardInterrupt from None  # which DuckDB has taken
        for stream in streams:
            if isinstance(stream.error, IndexLakeError | KeyboardInterrupt):
                raise stream.error from None
        if _CONSUMED in str(error):
            raise _ReadAgain(str(error)) from None
        made = translated(error, self.query.fragment.source, text, self._suggestion)
        if made is not None:
            raise made from None

    def _suggestion(self, column: str) -> str:
        """What an unknown column may have meant; DuckDB knows only the columns that were pushed."""
        names = list(dict.fromkeys(name for t in self.tables for name in t.found.schema.names))
        close = get_close_matches(column, names, 1)
        if close:
            return f"Did you mean {close[0]!r}?"
        return f"The columns are {', '.join(names)}." if names else ""

    def explain(self, analyze: bool) -> str:
        """DuckDB's own plan."""
        _, batches = self._run_in_duckdb(self._text("explain analyze " if analyze else "explain "))
        return "\n".join(str(row["explain_value"]) for batch in batches for row in batch.to_pylist())

    def stored_fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns of a table that holds the rows of this query, which was run and gave this schema."""
        if self._types is None:
            return [pa.field(f.name, f.type, metadata=f.metadata) for f in schema]
        for type, f in zip(self._types, schema, strict=True):
            if pa.types.is_interval(f.type):
                check_held(type, f.name)
        return [stored_field(f.name, f.type, type) for type, f in zip(self._types, schema, strict=True)]

    def describe(self) -> pa.Table:
        schema, batches = self._run_in_duckdb(self._text("describe "))
        return pa.Table.from_batches(list(batches), schema)


def _result_field(name: str, f: Field) -> pa.Field:
    return pa.field(name, f.type, metadata=mark_of(f))


def plan_query(
    engine: Engine,
    view: Viewpoint,
    query: Query,
    parameters: Parameters,
    *,
    points: bool = True,
    scans_only: bool = False,
) -> PlannedQuery:
    """Find the tables, decide what their scans give, and plan all of them in one read transaction.

    ``points``: a select by primary key is no scan then.  ``scans_only``: the whole text will be evaluated over what
    the scans give.
    """
    parsed = _parsed(engine, query)
    planned = PlannedQuery(engine, view, parsed, parameters)
    if not parsed.references:
        planned.snapshot_id = newest_snapshot(view)
        return planned
    wanted = [(r.table, _at(engine, view, r, parameters)) for r in parsed.references]

    def plan(r: ReadTransaction, found: list[FoundTable]) -> None:
        key = tuple(f.schema for f in found)
        known = parsed.analyses.get(key)
        if known is None:
            pushed = analyse(parsed, key)
            plain = plain_select(parsed, key[0], pushed[0]) if len(key) == 1 else None
            if len(parsed.analyses) > 16:
                parsed.analyses.clear()
            known = parsed.analyses[key] = [Choice(p) for p in pushed], plain
        choices, plain = known
        if scans_only:
            plain = None
        if points and plain is not None:
            planned.point = plan_point(r, view.lake, found[0], choices[0], plain, parameters)
            if planned.point is not None:
                planned.direct, planned.point_schema = plain, found[0].schema
                planned.snapshot_id = found[0].snapshot
                return
        planned.tables, planned.direct = plan_tables(
            r, view.lake, parsed.references, found, choices, plain, parameters, counting=not scans_only
        )

    read_together(view, wanted, plan)
    if planned.tables:
        planned.snapshot_id = min(t.found.snapshot for t in planned.tables)
    return planned


def _parsed(engine: Engine, query: Query) -> ParsedQuery:
    found = query.__dict__.get("parsed")
    if found is None:
        with translating(query.text.source, query.text.spliced()):
            found = parse_query(query.text, engine.syntax_tree)
        query.__dict__["parsed"] = found
    return found


def _at(engine: Engine, view: Viewpoint, reference: Reference, parameters: Parameters) -> int | None:
    """The snapshot that ``at (…)`` asks for."""
    if reference.at is None:
        return None
    value, kind = reference.at.value, reference.at.kind
    spliced = value.spliced(prefix="select (", suffix=")::BIGINT" if kind == "version" else ")::TIMESTAMPTZ")
    with translating(value.source, spliced):
        found = engine.table(spliced.text, parameters.of(value.parameters)).column(0)[0]
    try:
        answer = found.as_py()
    except (OverflowError, ValueError):
        value.source.fail("at (…) needs a timestamp between the years 1 and 9999.", value.start)
    if answer is None:
        value.source.fail("at (…) needs a value.", value.start)
    lake = view.lake
    number = snapshot_number(lake, answer, None) if kind == "version" else snapshot_number(lake, None, answer)
    newest = view.snapshot if view.transaction is None else view.transaction.snapshot_id
    if newest is not None and number > newest:
        value.source.fail(f"Snapshot {number} is later than the one that is read here, {newest}.", value.start)
    return number
