"""Insert, update, delete, truncate and merge: parsed statements to our own operations.

Expressions that ours can compute are handed to the table's own methods.  What only DuckDB can compute (subqueries,
``from`` and ``using``, functions we do not have) is asked of it first, as row ids and new values, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.errors import IndexLakeError, SchemaError
from indexlake.expr import compile
from indexlake.expr.expression import expr
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.sources.rules import default_array, default_assigned
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.qualifiers import own_names, requalified
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.inserted_rows import InsertedRows
from indexlake.sql.run.merge_sides import Sides, assigned_field
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.result import SqlChange
from indexlake.sql.run.type_names import sql_names
from indexlake.types.hugeint import mark_of
from indexlake.writes.delete import delete_by_row_id
from indexlake.writes.update import update_by_row_id

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.table import Table
    from indexlake.transaction import Transaction


class RowWrites:
    def __init__(self, engine: Engine, view: Viewpoint, parameters: Parameters, token: str | None) -> None:
        self._engine = engine
        self._view = view
        self._parameters = parameters
        self._token = token if view.transaction is None else None

    def run(self, statement: st.Write) -> SqlChange:
        self._view.lake._check(writing=True)
        if isinstance(statement, st.Insert):
            return SqlChange("insert", self._insert(statement))
        if isinstance(statement, st.Update):
            return SqlChange("update", self._update(statement))
        if isinstance(statement, st.Delete):
            return SqlChange("delete", self._delete(statement))
        if isinstance(statement, st.Merge):
            return SqlChange("merge", self._merge(statement))
        return SqlChange("truncate", self._table(statement.table).truncate(token=self._token))

    # ------------------------------------------------------------ what all of them need

    def _table(self, name: TableName, tx: Transaction | None = None) -> Table:
        transaction = tx if tx is not None else self._view.transaction
        return self._view.lake._table(name.full(self._view.namespace), transaction=transaction)

    def _in(self, tx: Transaction) -> Viewpoint:
        return Viewpoint(self._view.lake, self._view.namespace, None, tx)

    def _named(self, statement: st.Update | st.Delete | st.Merge | st.Insert, new: str = "") -> dict[str, str]:
        namespace = statement.table.namespace or self._view.namespace
        return own_names(statement.table.name, namespace, statement.alias, new)

    # ------------------------------------------------------------ insert

    def _insert(self, statement: st.Insert) -> WriteResult:
        table = self._table(statement.table)
        if statement.conflict is not None:
            return self._insert_or(statement, table, statement.conflict)
        plain = InsertedRows(self._engine, self._parameters, statement, table._schema_now())
        rows = plain.python_rows()
        if rows is not None:
            return table.insert(rows, token=self._token)

        def apply(tx: Transaction) -> int:
            own = self._table(statement.table, tx)
            made = InsertedRows(self._engine, self._parameters, statement, own._schema_now())
            return own.insert(made.stream(self._in(tx))).rows

        return table._write("insert", apply, self._token)

    def _insert_or(self, statement: st.Insert, table: Table, conflict: st.Conflict) -> WriteResult:
        key = table.primary_key
        if not key:
            raise SchemaError(f"Table {table.name!r} has no primary key, so no row of it can be in conflict.")
        if conflict.columns is not None and {c.lower() for c in conflict.columns} != {c.lower() for c in key}:
            raise SchemaError(
                f"ON CONFLICT ({', '.join(conflict.columns)}): rows are in conflict by the primary key "
                f"({', '.join(key)}) and by nothing else."
            )

        def apply(tx: Transaction) -> int:
            own = self._table(statement.table, tx)
            schema = own._schema_now()
            made = InsertedRows(self._engine, self._parameters, statement, schema)
            if conflict.action == "replace":
                return own.upsert(made.stream(self._in(tx))).rows
            rows = made.stream(self._in(tx), first_of_each_key=conflict.action == "nothing")
            inserted: dict[str, Any] | None = None  # all that is given
            if added := _excluded(conflict, schema, rows.schema.names):
                inserted = {name: expr(f"s.{quoted(name)}") for name in rows.schema.names}
                rows = _with_defaults(rows, added)
            merge = own.merge(rows, on=list(key))
            if conflict.action == "update":
                names = {"excluded": "s"} | self._named(statement, "t")
                sides = Sides(names, {f.name.lower(): "t" for f in schema.fields}, self._parameters)
                values = {assigned_field(schema, a).name: sides.value(a.value) for a in conflict.assignments}
                merge = merge.when_matched_update(values, *sides.condition(conflict.where))
            return merge.when_not_matched_insert(inserted).execute().rows

        return table._write("insert", apply, self._token)

    # ------------------------------------------------------------ update and delete

    def _update(self, statement: st.Update) -> WriteResult:
        table = self._table(statement.table)
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
            for n, (a, type) in enumerate(zip(statement.assignments, sql_names(self._engine, fields), strict=True)):
                value: str | Fragment = "null" if a.value.is_default else a.value
                selected += [", cast((", value, f") as {type}) as __il_{n}"]
            found = self._rows(tx, statement, selected)
            new: dict[str, pa.ChunkedArray] = {}
            for n, (a, f) in enumerate(zip(statement.assignments, fields, strict=True)):
                column = found.column(f"__il_{n}")
                if a.value.is_default:
                    column = pa.chunked_array([default_array(f, found.num_rows)])
                new[f.name] = column
            return update_by_row_id(tx, table._table_id, found.column("__il_id"), new)

        return table._write("update", apply, self._token)

    def _delete(self, statement: st.Delete) -> WriteResult:
        table = self._table(statement.table)
        own = self._own_condition(statement, table._schema_now())
        if own is not None:
            return table.delete(own[0], params=own[1], token=self._token)

        def apply(tx: Transaction) -> int:
            return delete_by_row_id(tx, table._table_id, self._rows(tx, statement).column("__il_id"))

        return table._write("delete", apply, self._token)

    def _own_update(
        self, statement: st.Update, schema: TableSchema, fields: Sequence[Field]
    ) -> tuple[dict[str, Any], str, dict[str, Any] | None] | None:
        """The update as our own expressions; None: DuckDB has to compute it."""
        where = self._own_condition(statement, schema)
        if where is None:
            return None
        values: dict[str, Any] = {}
        for assignment, f in zip(statement.assignments, fields, strict=True):
            if assignment.value.is_default:
                values[f.name] = default_assigned(f)
                continue
            found = self._own(statement, assignment.value, schema)
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
        """An expression as ours can compute it, cast to a type if one is given; None: only DuckDB can."""
        params = self._parameters.of(written.parameters) or None
        try:
            text = requalified(written, self._named(statement))
            if text is None:
                return None
            text = text if cast is None else f"cast(({text}) as {cast})"
            return text, params, compile(text, schema.arrow_with_row_id, params)
        except IndexLakeError:
            return None

    def _rows(
        self, tx: Transaction, statement: st.Update | st.Delete, selected: Sequence[str | Fragment] = ()
    ) -> pa.Table:
        """The row ids that a statement concerns, and more, as a query over its table and what it is joined with."""
        name = f"{quoted(statement.table.namespace or self._view.namespace)}.{quoted(statement.table.name)}"
        table = name if statement.alias is None else f"{name} as {quoted(statement.alias)}"
        own = name if statement.alias is None else quoted(statement.alias)  # whatever else has the table's name
        parts: list[str | Fragment] = [f"select {own}.{ROW_ID} as __il_id", *selected, f" from {table}"]
        if statement.source is not None:
            parts += [", ", statement.source]
        if statement.where is not None:
            parts += [" where ", statement.where]
        written = (statement.where, statement.source, statement.prefix, *parts)
        first = next(part for part in written if isinstance(part, Fragment))
        query = st.Query(composed(parts, first.source, statement.prefix))
        schema, batches = plan_query(self._engine, self._in(tx), query, self._parameters).run()
        return pa.Table.from_batches(list(batches), schema)

    # ------------------------------------------------------------ merge

    def _merge(self, statement: st.Merge) -> WriteResult:
        table = self._table(statement.table)
        parts: list[str | Fragment] = ["select * from ", statement.source]
        if statement.source_is_query:
            names = statement.source_columns
            columns = "" if names is None else f"({', '.join(map(quoted, names))})"
            parts = ["select * from (", statement.source, f") as {quoted(statement.source_alias)}{columns}"]
        query = st.Query(composed(parts, statement.source.source, statement.prefix))

        def apply(tx: Transaction) -> int:
            own = self._table(statement.table, tx)
            schema = own._schema_now()
            source_schema, batches = plan_query(self._engine, self._in(tx), query, self._parameters).run()
            source = pa.RecordBatchReader.from_batches(source_schema, batches)
            ours = {f.name.lower() for f in schema.fields}
            theirs = {name.lower() for name in source_schema.names}
            bare = dict.fromkeys(ours - theirs, "t") | dict.fromkeys(theirs - ours, "s")
            sides = Sides(self._merge_names(statement), bare, self._parameters)
            condition, params = sides.condition(statement.on)
            merge = own.merge(source, list(statement.using) if condition is None else condition, params)
            for clause in statement.clauses:
                merge = sides.add(merge, clause, schema, source_schema.names)
            return merge.execute().rows

        return table._write("merge", apply, self._token)

    def _merge_names(self, statement: st.Merge) -> dict[str, str]:
        """How the columns of both sides may be qualified: by what only one side is called."""
        ours = self._named(statement, "t")
        theirs = {statement.source_alias.lower(): "s"}
        if statement.source_table is not None:
            table = statement.source_table
            theirs = own_names(table.name, table.namespace or self._view.namespace, None, "s")
        return {name: side for name, side in (ours | theirs).items() if not (name in ours and name in theirs)}


def _excluded(conflict: st.Conflict, schema: TableSchema, given: Sequence[str]) -> list[Field]:
    """The columns that a conflict's ``excluded`` may name and the rows do not have."""
    fragments = [a.value for a in conflict.assignments] + ([] if conflict.where is None else [conflict.where])
    words = {token.value.lower() for fragment in fragments for token in fragment.tokens}
    return [f for f in schema.fields if f.name not in given and f.name.lower() in words]


def _with_defaults(rows: pa.RecordBatchReader, fields: Sequence[Field]) -> pa.RecordBatchReader:
    """The rows with further columns, which have their defaults."""
    schema = pa.schema([*rows.schema, *(pa.field(f.name, f.type, metadata=mark_of(f)) for f in fields)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            added = [default_array(f, batch.num_rows) for f in fields]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
