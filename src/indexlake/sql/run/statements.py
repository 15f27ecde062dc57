"""Runs the statements of a text in order and returns the result of the last one.

Each statement is a commit of its own, unless ``begin … commit`` or a transaction around the call holds several
together.  The whole text is parsed before its first statement runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import definitions as catalog_definitions
from indexlake.catalog.named import list_named
from indexlake.commit.token import Token, TokenLike
from indexlake.commit.write_set import WriteResult
from indexlake.errors import (
    AlreadyExistsError,
    ExpressionError,
    IndexLakeError,
    NotFoundError,
    OwnershipError,
    SchemaError,
    StorageError,
)
from indexlake.snapshots.time_travel import snapshot_number
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.script import Script, parse
from indexlake.sql.parse.tokens import Source, folded, quoted, tokenize
from indexlake.sql.plan.query_tables import TEMPORARY
from indexlake.sql.plan.snapshot import Viewpoint, read_together
from indexlake.sql.plan.views import View, ViewsNamed
from indexlake.sql.run import temporary_tables
from indexlake.sql.run.copies import copy_to
from indexlake.sql.run.definitions import Definitions
from indexlake.sql.run.definitions_in_duckdb import explained
from indexlake.sql.run.engine import CASE, Engine
from indexlake.sql.run.index_definitions import shown_indexes
from indexlake.sql.run.named_definitions import takes_numbers, with_own_names
from indexlake.sql.run.planned_query import PlannedQuery
from indexlake.sql.run.planning import describe, plan_query
from indexlake.sql.run.result import SqlChange, SqlResult, SqlText, table_result
from indexlake.sql.run.row_writes import RowWrites
from indexlake.sql.run.search_path import located
from indexlake.sql.run.session_statements import around, filled, meant
from indexlake.sql.run.settings import NAMESPACE
from indexlake.sql.run.short_cuts import ShortCuts
from indexlake.sql.run.staged_files import with_files_as_tables
from indexlake.types.marks import cast_type

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.transaction import Transaction

ENGINES = ("duckdb", "spark")


def run(
    lake: Lake,
    text: str,
    params: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    namespace: str | None = None,
    engine: str = "duckdb",
    at: int | datetime | None = None,
    token: TokenLike | None = None,
    transaction: Transaction | None = None,
) -> SqlResult:
    """See ``lake.sql``."""
    if at is None and token is None and transaction is None and engine == "duckdb" and type(text) is str:
        own = lake._sql_engine
        if own is not None and not own.closed and (namespace is None or type(namespace) is str):
            short = own.short_cuts.answer(lake, own, text, params, namespace or own.namespace)
            if short is not None:
                answer: SqlResult = short
                return answer
    lake._check()
    named = Token.of(token)
    if engine not in ENGINES:
        raise ExpressionError(f"There is no SQL engine {engine!r}; there is: {', '.join(map(repr, ENGINES))}.")
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        raise SchemaError(f"namespace is the name of a namespace, not {namespace!r}.")
    if transaction is not None:
        transaction._check()
        if token is not None:
            raise OwnershipError("Inside a transaction the token belongs to it: lake.transaction(token=…).")
    known = lake._sql_engine
    script = parse(folded(text) if known is not None and CASE in known.changed and isinstance(text, str) else text)
    parameters = Parameters(params, script.parameters, text)
    snapshot = None
    if at is not None:
        snapshot = snapshot_number(lake, None, at) if isinstance(at, datetime) else snapshot_number(lake, at, None)
    on_spark = engine == "spark"
    if on_spark and transaction is not None:
        raise OwnershipError("Spark does not see what a transaction has written. Leave engine='spark' out.")
    own = engine_of(lake)
    space = own.namespace if namespace is None else namespace
    used = namespace is None
    return _Session(lake, own, script, parameters, space, snapshot, transaction, named, on_spark, used).run()


def engine_of(lake: Lake) -> Engine:
    """Return the lake's DuckDB, which is created with its first query."""
    with lake._closing:
        lake._check()
        if lake._sql_engine is None:
            made = Engine(lake._scan_threads, lake.storage.spill, lake._exchange, lambda: lake._readings.sequences)
            made.short_cuts = ShortCuts()
            lake._sql_engine = made  # assigned last, since others read it without the lock
        return lake._sql_engine


@dataclass
class _Session:
    lake: Lake
    engine: Engine
    script: Script
    parameters: Parameters
    namespace: str
    snapshot: int | None
    outer: Transaction | None
    token: Token | None
    on_spark: bool
    used: bool = False  # the namespace is that of USE
    inner: Transaction | None = None  # within begin … commit

    @property
    def transaction(self) -> Transaction | None:
        return self.inner if self.inner is not None else self.outer

    @property
    def view(self) -> Viewpoint:
        return Viewpoint(self.lake, self.namespace, self.snapshot, self.transaction, self.used)

    # ------------------------------------------------------------ the text as a whole

    def run(self) -> SqlResult:
        statements = self._meant()
        self._check_shape(statements)
        results: list[SqlResult] = []
        done = self._done_before()
        try:
            for number, statement in enumerate(self.script.statements):
                try:
                    if done is not None and not isinstance(statements[number], st.Reading | st.Around):
                        results.append(SqlChange("repeated", done))
                    elif done is None or self.script.starts[number] > self._block_end():
                        results.append(self._kept(self._statement(statement, self.script.texts[number]), number))
                except IndexLakeError as error:
                    placed = self._placed(error, self.script.texts[number])
                    if len(self.script.statements) > 1:
                        raise self._numbered(placed, number) from None
                    if placed is error:
                        raise
                    raise placed from None
        finally:
            if self.inner is not None:
                self.inner.rollback()
        for result in results:
            result._storage = self.lake.storage
        *before, last = results
        last._before = tuple(before)
        return last

    def _kept(self, result: SqlResult, number: int) -> SqlResult:
        """Make a result that is not the last hold no query open: read it now, or run it again when it is used."""
        if number + 1 < len(self.script.statements) and type(result) is SqlResult:
            if self.inner is not None:
                return table_result(result._table_of_all(), result.snapshot_id)
            result.let_go()
        return result

    def _meant(self) -> list[st.Statement]:
        """Return the statements, with EXECUTE replaced by the prepared statement."""
        own = {s.name.lower(): s for s in self.script.statements if isinstance(s, st.Prepare)}
        found: list[st.Statement] = []
        for statement in self.script.statements:
            if isinstance(statement, st.Execute):
                prepared = own.get(statement.name.lower()) or meant(self.engine, statement, self.script.source)
                found.append(prepared.statement)
            else:
                found.append(statement)
        return found

    def _done_before(self) -> WriteResult | None:
        """Return what the token's commit did if it was already made, in which case nothing is run again."""
        if self.token is None:
            return None
        return self.token.done(self.lake._readings.token_result(self.token.name))

    def _block_end(self) -> int:
        """Return where ``begin … commit`` ends; reads before that belong to the commit."""
        pairs = zip(self.script.statements, self.script.starts, strict=True)
        return max((start for s, start in pairs if isinstance(s, st.Control) and s.word != "begin"), default=-1)

    def _check_shape(self, statements: Sequence[st.Statement]) -> None:
        """Refuse a text that is wrong as a whole, before any of it runs."""
        source, is_open = self.script.source, False
        writes = 0
        for statement, place in zip(statements, self.script.starts, strict=True):
            if self.on_spark and not isinstance(statement, st.Reading | st.Around | st.CreateIndex | st.DropIndex):
                source.fail("Spark evaluates queries; changes run here: leave engine='spark' out.", place)
            if isinstance(statement, st.Control) and statement.word == "begin":
                if is_open or self.outer is not None:
                    source.fail("A transaction is already open.", place)
                is_open = True
                writes += not statement.read_only
            elif isinstance(statement, st.Control):
                if not is_open:
                    what = "add `begin` first" if self.outer is None else "leave the `with` block instead"
                    source.fail(f"There is no open transaction here: {what}.", place)
                is_open = False
            elif isinstance(statement, st.Write | st.Definition) and not is_open:
                writes += 1
            if isinstance(statement, st.Setting) and statement.name == CASE and len(statements) > 1:
                source.fail(f"{CASE} concerns how a text is read: set it in a call of its own.", place)
            if self.snapshot is not None and not isinstance(statement, st.Reading | st.Around):
                raise OwnershipError(
                    f"The lake at snapshot {self.snapshot} is read-only: use lake.sql without at=… to change rows."
                )
        if is_open:
            source.fail(
                "The text ends inside a transaction: end it with `commit` or `rollback`, or use `lake.transaction()` "
                "and `tx.sql(…)`.",
                len(source.text),
            )
        if self.token is not None and writes != 1:
            source.fail(f"A token names one commit; this text makes {writes}.")

    def _placed(self, error: IndexLakeError, text: Fragment) -> IndexLakeError:
        """Add to an error about something that the statement names the place where it is named."""
        if isinstance(error, StorageError) and "\nline " not in str(error):
            path = str(error.details.get("path"))
            found = next((t for t in text.tokens if t.kind == "string" and t.value == path), None)
            if found is not None:
                return type(error)(f"{error}\n{self.script.source.excerpt(found.start)}", **error.details)
        name = error.details.get("name") or error.details.get("column")
        if not isinstance(error, NotFoundError | AlreadyExistsError | SchemaError) or not isinstance(name, str):
            return error
        wanted = name.rpartition(".")[2].lower()
        named = [t for t in text.tokens if t.kind in ("word", "name") and t.value.lower() == wanted]
        if not named or "\nline " in str(error):
            return error
        return type(error)(f"{error}\n{self.script.source.excerpt(named[0].start)}", **error.details)

    def _numbered(self, error: IndexLakeError, number: int) -> IndexLakeError:
        """Say which of several statements failed."""
        text = f"Statement {number + 1} of {len(self.script.statements)}: {error}"
        if any(isinstance(s, st.Write | st.Definition) for s in self.script.statements[:number]):
            text += "\nNothing of its transaction was applied." if self.inner else "\nThose before it were applied."
        return type(error)(text, **error.details)

    # ------------------------------------------------------------ one statement

    def _statement(self, statement: st.Statement, text: Fragment) -> SqlResult:
        if isinstance(statement, st.Execute):
            return self._execute(statement)
        if isinstance(statement, st.Around):
            done = around(self.engine, self.view, statement, self.parameters, self.script.source)
            if isinstance(statement, st.Setting) and statement.name in NAMESPACE:
                self.namespace, self.used = self.engine.namespace, True
            return done
        statement, text = with_own_names(self.engine, self.view, statement, text)
        return self._run_one(located(self.engine, self.view, statement), text)

    def _run_one(self, statement: st.Meant, text: Fragment) -> SqlResult:
        target = temporary_tables.target_of(statement) if self.engine.temporary_tables else None
        if target is not None and temporary_tables.is_temporary(self.engine, target):
            return temporary_tables.change(self.engine, self.view, statement, text, self.parameters)
        temporary_tables.check_hidden(self.engine, self.view, statement)
        if isinstance(statement, st.Write):
            return RowWrites(self.engine, self.view, self.parameters, self.token).run(statement)
        if isinstance(statement, st.Definition):
            return Definitions(self.engine, self.view, self.parameters).run(statement)
        return self._control(statement) if isinstance(statement, st.Control) else self._reading(statement)

    def _execute(self, statement: st.Execute) -> SqlResult:
        source = self.script.source
        prepared = meant(self.engine, statement, source)
        given = self.parameters
        inner, text, self.parameters = filled(self.engine, self.view, prepared, statement, given, source)
        try:
            return self._statement(inner, text)
        finally:
            self.parameters = given

    def _control(self, statement: st.Control) -> SqlResult:
        result = WriteResult(0)
        if statement.word == "begin":
            only = statement.read_only
            self.inner = self.lake.transaction(None if only else self.token, read_only=only)
            return SqlChange(statement.word, result)
        assert self.inner is not None
        if statement.word == "commit":
            result = self.inner.commit()
        else:
            self.inner.rollback()
        self.inner = None
        return SqlChange(statement.word, result)

    def _on_spark(self, statement: st.Query | st.Explain | st.DescribeQuery) -> SqlResult:
        from indexlake.spark import query as spark

        inner = statement if isinstance(statement, st.Query) else statement.query
        if self.engine.changed:
            names = ", ".join(sorted(self.engine.changed))
            inner.text.source.fail(
                f"Spark does not apply {names}: RESET it, or leave engine='spark' out.", inner.text.start
            )
        for token in inner.text.tokens:
            if token.kind in ("word", "name") and token.value.lower() in self.engine.temporary_tables:
                inner.text.source.fail("Spark does not know temporary tables: leave engine='spark' out.", token.start)
        inner, files = with_files_as_tables(self.engine, inner, self.parameters)
        planned = plan_query(self.engine, self.view, inner, self.parameters, points=False, scans_only=True)
        planned.file_tables = files
        for table in planned.tables:
            for f in table.fields:
                if (type := cast_type(f)) not in (None, "JSON"):
                    inner.text.source.fail(
                        f"Spark has no {str(type).partition('(')[0]}, which column {f.name!r} is: leave engine='spark' "
                        "out.",
                        inner.text.start,
                    )
        if isinstance(statement, st.Query):
            return spark.run_query(planned)
        if isinstance(statement, st.DescribeQuery):
            schema = spark.run_query(planned).schema
            described = _texts(column_name=schema.names, column_type=[str(f.type) for f in schema])
            return table_result(described, planned.snapshot_id)
        return _plan(planned, "spark", spark.explained(planned))

    def _reading(self, statement: st.Reading) -> SqlResult:
        if self.on_spark and isinstance(statement, st.Query | st.Explain | st.DescribeQuery):
            return self._on_spark(statement)
        if isinstance(statement, st.Query):
            planned = plan_query(self.engine, self.view, statement, self.parameters)
            result = SqlResult(planned.run, planned.snapshot_id)
            # Sequences advance once, when the statement runs, not whenever its rows are read.
            if takes_numbers(planned.query.fragment):
                return table_result(result._table_of_all(), planned.snapshot_id)
            return result
        if isinstance(statement, st.Explain):
            planned = plan_query(
                self.engine, self.view, statement.query, self.parameters, points=False, scans_only=statement.analyze
            )
            if statement.format is not None:
                return SqlText([("duckdb", planned.explain(statement.analyze, statement.format))], planned.snapshot_id)
            if planned.without_duckdb is not None and not statement.analyze:
                return _plan(planned, "indexlake", "answered by the scan alone")
            return _plan(planned, "duckdb", planned.explain(statement.analyze))
        if isinstance(statement, st.ExplainOther):
            return SqlText(
                [("duckdb", explained(self.engine, self.view, statement.text, self.parameters))], self._read_at
            )
        if isinstance(statement, st.DescribeQuery):
            return table_result(*describe(self.engine, self.view, statement.query, self.parameters))
        if isinstance(statement, st.CopyTo):
            elsewhere = self._on_spark if self.on_spark else None
            return copy_to(self.engine, self.view, statement, self.parameters, elsewhere)
        if isinstance(statement, st.DescribeTable):
            return self._describe(statement)
        if isinstance(statement, st.ShowIndexes):
            return table_result(shown_indexes(self.view, statement), self._read_at)
        return self._show(statement)

    def _describe(self, statement: st.DescribeTable) -> SqlResult:
        name = statement.table
        if name.namespace in (None, TEMPORARY) and (view := self.engine.temporary_views.get(name.name.lower())):
            return self._described_view(view)
        if temporary_tables.is_temporary(self.engine, name):
            return table_result(self.engine.table(f"describe {quoted(name.name)}"), None)
        try:
            found = read_together(self.view, [(name, None)], lambda tables: tables[0])
        except ViewsNamed as named:
            return self._described_view(named.views[0])
        table = found.state.table
        return self._described(f"from {quoted(table.namespace)}.{quoted(table.name)}")

    def _described_view(self, view: View) -> SqlResult:
        names = f" as _({', '.join(map(quoted, view.columns))})" if view.columns else ""
        return self._described(f"from ({view.text}){names}")

    def _described(self, text: str) -> SqlResult:
        source = Source(text)
        query = st.Query(Fragment(source, tokenize(source), {}))
        return table_result(*describe(self.engine, self.view, query, self.parameters))

    @property
    def _read_at(self) -> int | None:
        return self.snapshot if self.transaction is None else self.transaction.snapshot_id

    def _show(self, statement: st.ShowTables) -> SqlResult:
        with self.view.seen() as seen:
            r, at = seen.r, seen.at
            tables = [(t.namespace, t.name) for t in catalog_definitions.list_tables(r, at)]
            tables += [(v.namespace, v.name) for v in list_named(r, at) if v.kind == "view"]
        tables += [(self.namespace, name) for name in self.engine.temporary_tables.values()]
        tables += [(self.namespace, view.name) for view in self.engine.temporary_views.values()]
        wanted = self.view.path if statement.namespace is None else (statement.namespace,)
        folded = [namespace.lower() for namespace in wanted]
        shown = sorted(name for space, name in tables if space.lower() in folded)
        return table_result(_texts(name=shown), at)


def _plan(planned: PlannedQuery, part: str, text: str) -> SqlText:
    parts = [*(t.describe() for t in planned.tables), *(s.describe() for s in planned.searches)]
    return SqlText([*(("indexlake", text) for text in parts), (part, text)], planned.snapshot_id)


def _texts(**columns: Sequence[str | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
