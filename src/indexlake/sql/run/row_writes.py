"""Insert, update, delete, truncate and merge: turns parsed statements into our own operations.

Expressions that we can evaluate are passed to the table's own methods.  For what only DuckDB can compute (subqueries,
``from`` and ``using``, functions that we do not have), DuckDB is asked for row ids and new values first, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.commit.token import TokenLike
from indexlake.commit.write_set import WriteResult
from indexlake.errors import IndexLakeError
from indexlake.expr import compile
from indexlake.expr.expression import expr
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.sources.rules import default_array, differs_by_row
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed, edited
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.qualifiers import requalified
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.conflict_writes import insert_or
from indexlake.sql.run.copies import copied_insert
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.inserted_rows import InsertedRows, takes_a_cast
from indexlake.sql.run.merge_sides import assigned_default, assigned_field
from indexlake.sql.run.merge_writes import merge
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.result import SqlChange
from indexlake.sql.run.returning import Changing, returned
from indexlake.sql.run.type_names import casts_to, sql_names
from indexlake.sql.run.writing import Writing
from indexlake.writes.by_row_id import NewValues, change_by_row_id
from indexlake.writes.changed_rows import ChangedRows

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.transaction import Transaction


class RowWrites:
    def __init__(self, engine: Engine, view: Viewpoint, parameters: Parameters, token: TokenLike | None) -> None:
        self._engine = engine
        self._view = view
        self._parameters = parameters
        self._token = token if view.transaction is None else None
        self._writing = Writing(engine, view, parameters, self._token)

    def run(self, statement: st.Write) -> SqlChange:
        self._view.within._check(writing=True)
        done = self._run(statement)
        if (tx := self._view.transaction) is not None and not isinstance(statement, st.Delete | st.Truncate):
            tx.check_keys(self._writing.table(statement.table)._table_id)
        return done

    def _run(self, statement: st.Write) -> SqlChange:
        if isinstance(statement, st.CopyFrom):
            schema = self._writing.table(statement.table)._schema_now()
            copied = copied_insert(self._engine, statement, schema, self._parameters)
            return SqlChange("copy", self._insert(copied))
        operation = type(statement).__name__.lower()
        if isinstance(statement, st.Truncate) or statement.returning is None:
            return SqlChange(operation, self._written(statement))
        return self._returning(operation, statement, statement.returning)

    def _written(self, statement: Changing | st.Truncate) -> WriteResult:
        if isinstance(statement, st.Insert):
            return self._insert(statement)
        if isinstance(statement, st.Update):
            return self._update(statement)
        if isinstance(statement, st.Delete):
            return self._delete(statement)
        if isinstance(statement, st.Merge):
            return merge(self._writing, statement)
        return self._truncate(statement)

    def _returning(self, operation: str, statement: Changing, written: Fragment) -> SqlChange:
        """Run the statement in a transaction whose changed rows are recorded."""
        if self._token is not None:
            written.source.fail(
                "A call repeated with its token returns no rows: leave RETURNING or the token out.", written.start
            )
        table = self._writing.table(statement.table)
        rows: list[pa.Table] = []

        def apply(tx: Transaction) -> int:
            inner = RowWrites(self._engine, self._writing.inside(tx), self._parameters, None)
            with ChangedRows(tx, table._table_id) as changed:
                count = inner._written(statement).rows
            found = returned(
                self._engine, self._writing.inside(tx), self._parameters, statement, written, changed.rows()
            )
            rows[:] = [found]
            return count

        result = table._write(operation, apply, None)
        return SqlChange(operation, result, rows[0])

    def _truncate(self, statement: st.Truncate) -> WriteResult:
        tables = [self._writing.table(name) for name in statement.tables]

        def apply(tx: Transaction) -> int:
            return sum(table._truncate(tx) for table in tables)

        return tables[0]._write("truncate", apply, self._token)

    # ------------------------------------------------------------ insert

    def _insert(self, statement: st.Insert) -> WriteResult:
        table = self._writing.table(statement.table)
        if statement.conflict is not None:
            return insert_or(self._writing, statement, statement.conflict)
        plain = InsertedRows(self._engine, self._parameters, statement, table._schema_now())
        rows = plain.python_rows()
        if rows is not None:
            return table.insert(rows, token=self._token)

        def apply(tx: Transaction) -> int:
            own = self._writing.table(statement.table, tx)
            made = InsertedRows(self._engine, self._parameters, statement, own._schema_now())
            return own.insert(made.stream(self._writing.inside(tx))).rows

        return table._write("insert", apply, self._token)

    # ------------------------------------------------------------ update and delete

    def _update(self, statement: st.Update) -> WriteResult:
        table = self._writing.table(statement.table)
        schema = table._schema_now()
        fields = [assigned_field(schema, a) for a in statement.assignments]
        if len({f.name for f in fields}) < len(fields):
            statement.assignments[-1].value.source.fail("A column is assigned twice.", statement.assignments[0].place)
        own = self._own_update(statement, schema, fields)
        if own is not None:
            values, where, params = own
            return table.update(values, where=where, params=params, token=self._token)

        def apply(tx: Transaction) -> int:
            selected: list[str | Fragment] = []
            casts = zip(statement.assignments, casts_to(self._engine, fields), strict=True)
            for n, (a, (before, after)) in enumerate(casts):
                value = edited(a.value, [(a.value.start, a.value.end, "null")]) if a.value.is_default else a.value
                selected += [f", {before}", value, f"{after} as __il_{n}"]
            found = self._rows(tx, statement, selected)
            new: dict[str, pa.ChunkedArray] = {}
            for n, (a, f) in enumerate(zip(statement.assignments, fields, strict=True)):
                column = found.column(f"__il_{n}")
                if a.value.is_default:
                    column = pa.chunked_array([default_array(f, found.num_rows)])
                new[f.name] = column
            changed = NewValues(found.column("__il_id").to_numpy(), new)
            return change_by_row_id(tx, table._table_id, updates=[changed])

        return table._write("update", apply, self._token)

    def _delete(self, statement: st.Delete) -> WriteResult:
        table = self._writing.table(statement.table)
        own = self._own_condition(statement, table._schema_now())
        if own is not None:
            return table.delete(own[0], params=own[1], token=self._token)

        def apply(tx: Transaction) -> int:
            found = self._rows(tx, statement).column("__il_id")
            return change_by_row_id(tx, table._table_id, deleted=found.to_numpy())

        return table._write("delete", apply, self._token)

    def _own_update(
        self, statement: st.Update, schema: TableSchema, fields: Sequence[Field]
    ) -> tuple[dict[str, Any], str, dict[str, Any] | None] | None:
        """Return the update in our own expressions, or None if DuckDB has to compute it."""
        where = self._own_condition(statement, schema)
        if where is None:
            return None
        values: dict[str, Any] = {}
        for assignment, f in zip(statement.assignments, fields, strict=True):
            if assignment.value.is_default:
                if differs_by_row(f):
                    return None
                values[f.name] = assigned_default(f)
                continue
            found = None if takes_a_cast(f) else self._own(statement, assignment.value, schema)
            if found is not None and found[2].type != f.type:
                found = self._own(statement, assignment.value, schema, sql_names(self._engine, [f])[0])
            if found is None or found[2].type != f.type:
                return None
            values[f.name] = expr(*found[:2])
        return values, *where

    def _own_condition(
        self, statement: st.Update | st.Delete, schema: TableSchema
    ) -> tuple[str, dict[str, Any] | None] | None:
        if statement.source is not None or statement.prefix is not None:
            return None
        if statement.where is None:
            return "true", None
        found = self._own(statement, statement.where, schema)
        usable = found is not None and (pa.types.is_boolean(found[2].type) or pa.types.is_null(found[2].type))
        return found[:2] if found is not None and usable else None

    def _own(
        self, statement: st.Update | st.Delete, written: Fragment, schema: TableSchema, cast: str | None = None
    ) -> tuple[str, dict[str, Any] | None, Bound] | None:
        """Return an expression in our own terms, cast if a type is given, or None if only DuckDB can compute it."""
        params = self._parameters.of(written.parameters) or None
        if not self._engine.computes_as_usual or schema.hides_functions:
            return None
        try:
            text = requalified(written, self._writing.named(statement))
            if text is None:
                return None
            text = text if cast is None else f"cast(({text}) as {cast})"
            return text, params, compile(text, schema.sql_arrow, params)
        except IndexLakeError:
            return None

    def _rows(
        self, tx: Transaction, statement: st.Update | st.Delete, selected: Sequence[str | Fragment] = ()
    ) -> pa.Table:
        """Return the affected row ids, and further values, by a query over the table and what it is joined with.

        If several joined rows give the same values, duplicates are removed.
        """
        name = f"{quoted(statement.table.namespace or self._view.namespace)}.{quoted(statement.table.name)}"
        table = name if statement.alias is None else f"{name} as {quoted(statement.alias)}"
        own = name if statement.alias is None else quoted(statement.alias)  # not anything else with the table's name
        parts: list[str | Fragment] = ["", *selected, f" from {table}"]
        if statement.source is not None:
            parts += [", ", statement.source]
        if statement.where is not None:
            parts += [" where (", statement.where, ")"]
        written = (statement.where, statement.source, statement.prefix, *parts)
        first = next(part for part in written if isinstance(part, Fragment))
        for select in ("select ", "select distinct "):
            parts[0] = f"{select}{own}.{ROW_ID} as __il_id"
            query = st.Query(composed(parts, first.source, statement.prefix))
            schema, batches = plan_query(self._engine, self._writing.inside(tx), query, self._parameters).run()
            found = pa.Table.from_batches(list(batches), schema)
            if statement.source is None or pc.count_distinct(found.column("__il_id")).as_py() == found.num_rows:
                break
        return found
