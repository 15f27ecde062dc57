"""Insert, update, delete, truncate and merge: parsed statements to our own operations.

Expressions that ours can compute are handed to the table's own methods.  What only DuckDB can compute (subqueries,
``from`` and ``using``, functions we do not have) is asked of it first, as row ids and new values, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.display import counted
from indexlake.errors import IndexLakeError, SchemaError
from indexlake.expression import expr
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.sql import statement as st
from indexlake.sql.engine import Engine
from indexlake.sql.fragment import Fragment, composed
from indexlake.sql.inserted_rows import InsertedRows
from indexlake.sql.parameters import Parameters
from indexlake.sql.planned_query import plan_query
from indexlake.sql.qualifiers import own_names, requalified
from indexlake.sql.result import SqlChange
from indexlake.sql.row_changes import delete_rows, update_rows
from indexlake.sql.snapshot import Viewpoint
from indexlake.sql.token_reader import TableName
from indexlake.sql.tokens import quoted
from indexlake.sql.type_names import sql_names
from indexlake.types.hugeint import mark_of

if TYPE_CHECKING:
    from indexlake.table import Table
    from indexlake.transaction import Transaction

T = TypeVar("T")


class Changes:
    def __init__(self, engine: Engine, view: Viewpoint, parameters: Parameters, token: str | None) -> None:
        self._engine = engine
        self._view = view
        self._parameters = parameters
        self._token = token if view.transaction is None else None

    def run(self, statement: st.Change) -> SqlChange:
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

    def _rows_of(self, tx: Transaction, query: st.Query) -> pa.Table:
        schema, batches = plan_query(self._engine, self._in(tx), query, self._parameters).run()
        return pa.Table.from_batches(list(batches), schema)

    def _named(self, statement: st.Update | st.Delete | st.Merge | st.Insert, new: str = "") -> dict[str, str]:
        namespace = statement.table.namespace or self._view.namespace
        return own_names(statement.table.name, namespace, statement.alias, new)

    def _field(self, schema: TableSchema, assignment: st.Assignment, source: Fragment) -> Field:
        try:
            return schema.field(assignment.column)
        except SchemaError as error:
            raise source.source.error(str(error), assignment.place) from None

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
                bare = {f.name.lower(): "t" for f in schema.fields}
                values = {
                    self._field(schema, a, a.value).name: self._merge_value(a.value, names, bare)
                    for a in conflict.assignments
                }
                where = conflict.where
                merge = merge.when_matched_update(set=values, **self._condition(where, names, bare))
            return merge.when_not_matched_insert(inserted).execute().rows

        return table._write("insert", apply, self._token)

    # ------------------------------------------------------------ update and delete

    def _update(self, statement: st.Update) -> WriteResult:
        table = self._table(statement.table)
        schema = table._schema_now()
        fields = [self._field(schema, a, a.value) for a in statement.assignments]
        if len({f.name for f in fields}) < len(fields):
            statement.assignments[-1].value.source.fail("A column is assigned twice.", statement.assignments[0].place)
        own = self._own_update(statement, schema, fields)
        if own is not None:
            values, where, params = own
            return table.update(values, where=where, params=params, token=self._token)

        def apply(tx: Transaction) -> int:
            names = sql_names(self._engine, fields)
            parts: list[str | Fragment] = [f"select {self._row_id(statement)} as __il_id"]
            for n, (a, type) in enumerate(zip(statement.assignments, names, strict=True)):
                if _is_default(a.value):
                    parts.append(f", null as __il_{n}")
                    continue
                parts += [", cast((", a.value, f") as {type}) as __il_{n}"]
            found = self._rows_of(tx, self._row_query(statement, parts))
            new: dict[str, pa.ChunkedArray] = {}
            for n, (a, f) in enumerate(zip(statement.assignments, fields, strict=True)):
                column = found.column(f"__il_{n}")
                if _is_default(a.value):
                    column = pa.chunked_array([f.codec.decode([f.default] * found.num_rows)])
                new[f.name] = column
            return update_rows(tx, table._table_id, found.column("__il_id"), new)

        return table._write("update", apply, self._token)

    def _own_update(
        self, statement: st.Update, schema: TableSchema, fields: Sequence[Field]
    ) -> tuple[dict[str, Any], str, dict[str, Any] | None] | None:
        """The update as our own expressions; None: DuckDB has to compute it."""
        if statement.source is not None or statement.prefix is not None:
            return None
        where = self._own_condition(statement, schema)
        if where is None:
            return None
        values: dict[str, Any] = {}
        for assignment, f in zip(statement.assignments, fields, strict=True):
            if _is_default(assignment.value):
                values[f.name] = f.default_value
                continue
            value = self._own_value(statement, assignment.value, schema, f)
            if value is None:
                return None
            values[f.name] = value
        return values, *where

    def _own_value(self, statement: st.Update, value: Fragment, schema: TableSchema, f: Field) -> Any:
        from indexlake.expr import compile

        params = self._parameters.of(value.parameters) or None
        try:
            text = requalified(value, self._named(statement))
            if text is None:
                return None
            bound = compile(text, schema.arrow_with_row_id, params)
            if bound.type != f.type:
                (name,) = sql_names(self._engine, [f])
                text = f"cast(({text}) as {name})"
                bound = compile(text, schema.arrow_with_row_id, params)
        except IndexLakeError:
            return None
        return expr(text, params) if bound.type == f.type else None

    def _own_condition(
        self, statement: st.Update | st.Delete, schema: TableSchema
    ) -> tuple[str, dict[str, Any] | None] | None:
        from indexlake.expr import compile

        if statement.where is None:
            return "true", None
        params = self._parameters.of(statement.where.parameters) or None
        try:
            text = requalified(statement.where, self._named(statement))
            if text is None:
                return None
            bound = compile(text, schema.arrow_with_row_id, params)
        except IndexLakeError:
            return None
        usable = pa.types.is_boolean(bound.type) or pa.types.is_null(bound.type)
        return (text, params) if usable else None

    def _row_id(self, statement: st.Update | st.Delete) -> str:
        """The row id of the table, whatever else has its name."""
        if statement.alias is not None:
            return f"{quoted(statement.alias)}.{ROW_ID}"
        namespace = statement.table.namespace or self._view.namespace
        return f"{quoted(namespace)}.{quoted(statement.table.name)}.{ROW_ID}"

    def _row_query(self, statement: st.Update | st.Delete, selected: Sequence[str | Fragment]) -> st.Query:
        """The rows that a statement concerns, as a query over its table and what it is joined with."""
        namespace = statement.table.namespace or self._view.namespace
        table = f"{quoted(namespace)}.{quoted(statement.table.name)}"
        if statement.alias is not None:
            table += f" as {quoted(statement.alias)}"
        parts: list[str | Fragment] = [] if statement.prefix is None else [statement.prefix, " "]
        parts += [*selected, f" from {table}"]
        if statement.source is not None:
            parts += [", ", statement.source]
        if statement.where is not None:
            parts += [" where ", statement.where]
        first = next(
            p for p in (statement.where, statement.source, statement.prefix, *parts) if isinstance(p, Fragment)
        )
        return st.Query(composed(parts, first.source))

    def _delete(self, statement: st.Delete) -> WriteResult:
        table = self._table(statement.table)
        if statement.source is None and statement.prefix is None:
            own = self._own_condition(statement, table._schema_now())
            if own is not None:
                return table.delete(own[0], params=own[1], token=self._token)

        def apply(tx: Transaction) -> int:
            selected = f"select {self._row_id(statement)} as __il_id"
            found = self._rows_of(tx, self._row_query(statement, [selected]))
            return delete_rows(tx, table._table_id, found.column("__il_id"))

        return table._write("delete", apply, self._token)

    # ------------------------------------------------------------ merge

    def _merge(self, statement: st.Merge) -> WriteResult:
        table = self._table(statement.table)
        alias = statement.source_alias
        parts: list[str | Fragment] = [] if statement.prefix is None else [statement.prefix, " "]
        if statement.source_is_query:
            columns = (
                "" if statement.source_columns is None else f"({', '.join(map(quoted, statement.source_columns))})"
            )
            parts += ["select * from (", statement.source, f") as {quoted(alias)}{columns}"]
        else:
            parts += ["select * from ", statement.source]
        query = st.Query(composed(parts, statement.source.source))

        def apply(tx: Transaction) -> int:
            own = self._table(statement.table, tx)
            schema = own._schema_now()
            planned = plan_query(self._engine, self._in(tx), query, self._parameters)
            source_schema, batches = planned.run()
            source = pa.RecordBatchReader.from_batches(source_schema, batches)
            names = self._merge_names(statement)
            ours = {f.name.lower() for f in schema.fields}
            theirs = {name.lower() for name in source_schema.names}
            bare = dict.fromkeys(ours - theirs, "t") | dict.fromkeys(theirs - ours, "s")
            on: Any = list(statement.using)
            params = None
            if statement.on is not None:
                on = self._merge_text(statement.on, names, bare)
                params = self._parameters.of(statement.on.parameters) or None
            merge = own.merge(source, on=on, **({} if params is None else {"params": params}))
            for clause in statement.clauses:
                merge = self._clause(merge, clause, schema, source_schema.names, names, bare)
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

    def _clause(
        self,
        merge: Any,
        clause: st.MergeClause,
        schema: TableSchema,
        source: Sequence[str],
        names: dict[str, str],
        bare: dict[str, str],
    ) -> Any:
        condition = self._condition(clause.condition, names, bare)
        if clause.action == "nothing":
            return merge.when_do_nothing(clause.rows, **condition)
        values: dict[str, Any] | None = None
        if clause.assignments is not None or clause.values is not None:
            fields = [self._field(schema, a, a.value) for a in clause.assignments or ()] or schema.fields
            given = clause.values or [a.value for a in clause.assignments or ()]
            values = {
                f.name: f.default_value if _is_default(value) else self._merge_value(value, names, bare)
                for f, value in _paired(fields, given)
            }
        elif clause.rows != "not matched by source" and clause.action != "delete":
            wanted = [schema.field(name) for name in source] if clause.by_name else schema.fields
            values = {f.name: expr(f"s.{quoted(name)}") for f, name in _paired(wanted, source)}
        if clause.rows == "matched":
            if clause.action == "delete":
                return merge.when_matched_delete(**condition)
            return merge.when_matched_update(**({} if values is None else {"set": values}), **condition)
        if clause.rows == "not matched":
            return merge.when_not_matched_insert(**({} if values is None else {"values": values}), **condition)
        if clause.action == "delete":
            return merge.when_not_matched_by_source_delete(**condition)
        return merge.when_not_matched_by_source_update(**({} if values is None else {"set": values}), **condition)

    def _condition(self, fragment: Fragment | None, names: dict[str, str], bare: dict[str, str]) -> dict[str, Any]:
        if fragment is None:
            return {}
        found = {"condition": self._merge_text(fragment, names, bare)}
        params = self._parameters.of(fragment.parameters)
        return found | ({"params": params} if params else {})

    def _merge_value(self, fragment: Fragment, names: dict[str, str], bare: dict[str, str]) -> Any:
        return expr(self._merge_text(fragment, names, bare), self._parameters.of(fragment.parameters) or None)

    def _merge_text(self, fragment: Fragment, names: dict[str, str], bare: dict[str, str]) -> str:
        text = requalified(fragment, names, bare)
        if text is None:
            fragment.source.fail("A subquery cannot stand here; put it into the source of the merge.", fragment.start)
        return text


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
            added = [f.codec.decode([f.default] * batch.num_rows) for f in fields]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _paired(fields: Sequence[Field], values: Sequence[T]) -> Iterator[tuple[Field, T]]:
    """Columns and the values that they get by their places."""
    if len(fields) != len(values):
        raise SchemaError(
            f"{counted(len(values), 'value')} given for {counted(len(fields), 'column')} by position. Name the "
            "columns, or say BY NAME."
        )
    return zip(fields, values, strict=True)


def _is_default(fragment: Fragment) -> bool:
    return len(fragment.tokens) == 1 and fragment.tokens[0].is_word("default")
