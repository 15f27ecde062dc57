"""A merge whose conditions and values DuckDB computes: any ``on`` condition, subqueries, ``error``.

Three queries (for matching rows, for rows only in the source, and for rows only in the table) determine for each row
the first clause that applies and the new values.  Everything is applied at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import ConstraintError, DuplicateKeyError
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.sources.rules import default_array
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.query import SOURCE
from indexlake.sql.run.merge_sides import assigned_field, paired
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.type_names import casts_to
from indexlake.sql.run.writing import Writing
from indexlake.writes.by_row_id import NewValues, change_by_row_id

if TYPE_CHECKING:
    from indexlake.transaction import Transaction

Parts = list[str | Fragment]


def merge_by_query(
    writing: Writing,
    statement: st.Merge,
    tx: Transaction,
    table_id: int,
    schema: TableSchema,
    source: pa.RecordBatchReader,
    forms: Mapping[str, str] | None = None,
) -> int:
    """Return the number of changed rows.  ``forms``: expressions for source columns that have other types in SQL."""
    names = source.schema.names
    rows = source.read_all() if statement.source_is_query else None
    work = _Work(writing, statement, tx, schema, names, rows, forms or {})
    for kind in ("matched", "not matched", "not matched by source"):
        clauses = [clause for clause in statement.clauses if clause.rows == kind]
        if clauses:
            work.find(kind, clauses)
    ids = np.concatenate([work.deleted, *(new.ids for new in work.updates)])
    if len(np.unique(ids)) < len(ids):
        raise DuplicateKeyError(
            f"Several rows of the source match one row of {tx._lake._readings.latest(table_id).table.full_name!r} and "
            "would change it more than once. Keep only one of them, or narrow the conditions.",
        )
    return change_by_row_id(tx, table_id, updates=work.updates, deleted=work.deleted, inserted=work.inserted)


@dataclass
class _Work:
    """The changes found so far."""

    writing: Writing
    statement: st.Merge
    tx: Transaction
    schema: TableSchema
    names: Sequence[str]  # of the source's columns
    rows: pa.Table | None  # of a source that is a query, so that it is computed only once
    forms: Mapping[str, str]
    updates: list[NewValues] = field(default_factory=list)
    deleted: np.ndarray[tuple[int], np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(0, np.int64))
    inserted: list[pa.Table] = field(default_factory=list)

    def find(self, kind: str, clauses: Sequence[st.MergeClause]) -> None:
        values = [self._values(clause) for clause in clauses]
        found = self._run(kind, clauses, values)
        for n, (clause, given) in enumerate(zip(clauses, values, strict=True)):
            rows = found.filter(pc.equal(found.column("__il_clause"), n))
            if not rows.num_rows or clause.action == "nothing":
                continue
            if clause.action == "error":
                raise ConstraintError(self._error(clause, rows, n))
            columns = {f.name: self._column(rows, n, m, f, value) for m, (f, value) in enumerate(given)}
            if clause.action == "insert":
                self.inserted.append(pa.table(columns) if columns else self._all_defaults(rows.num_rows))
                continue
            ids = rows.column("__il_id").to_numpy()
            if clause.action == "delete":
                self.deleted = np.concatenate([self.deleted, ids])
            else:
                self.updates.append(NewValues(ids, columns))

    def _all_defaults(self, count: int) -> pa.Table:
        return pa.table({f.name: default_array(f, count) for f in self.schema.fields})

    def _column(self, rows: pa.Table, n: int, m: int, f: Field, value: str | Fragment) -> pa.ChunkedArray:
        if isinstance(value, Fragment) and value.is_default:
            return pa.chunked_array([default_array(f, rows.num_rows)])
        return rows.column(f"__il_{n}_{m}")

    def _error(self, clause: st.MergeClause, rows: pa.Table, n: int) -> str:
        message = rows.column(f"__il_{n}_0")[0].as_py() if clause.values else None
        own = f"WHEN {clause.rows.upper()} … THEN ERROR applies to {rows.num_rows} rows"
        return own + (f": {message}" if message is not None else ". Nothing was changed.")

    def _values(self, clause: st.MergeClause) -> list[tuple[Field, str | Fragment]]:
        """Return the columns that a clause sets, each with the text of its value."""
        schema = self.schema
        if clause.action in ("delete", "nothing", "error"):
            return []
        if clause.assignments is not None:
            return [(assigned_field(schema, a), a.value) for a in clause.assignments]
        if clause.values is not None:
            return list(paired(schema.fields, clause.values))
        wanted = [schema.field(name) for name in self.names] if clause.by_name else schema.fields
        alias = quoted(self.statement.source_alias)
        return [(f, f"{alias}.{quoted(name)}") for f, name in paired(wanted, self.names)]

    def _run(
        self, kind: str, clauses: Sequence[st.MergeClause], values: Sequence[list[tuple[Field, str | Fragment]]]
    ) -> pa.Table:
        statement, writing = self.statement, self.writing
        name = f"{quoted(statement.table.namespace or writing.view.namespace)}.{quoted(statement.table.name)}"
        table = name if statement.alias is None else f"{name} as {quoted(statement.alias)}"
        own = name if statement.alias is None else quoted(statement.alias)
        chosen = _Chosen(writing, clauses, values)
        id, shown = ("", "") if kind == "not matched" else (f"{own}.{ROW_ID} as __il_id, ", "distinct __il_id, ")
        parts: Parts = [f"select {shown}{chosen.columns} from (select {id}", *chosen.row, " as __il_row"]
        typed = ", ".join(f"{form} as {quoted(name)}" for name, form in self.forms.items())
        rows = f"(select * replace ({typed}) from {SOURCE})" if typed else SOURCE
        source: Parts = [f"{rows} as {quoted(statement.source_alias)}"]
        if self.rows is None:
            source = [statement.source]
            source += [] if statement.source_table is not None else [f" as {quoted(statement.source_alias)}"]
        condition: Parts = [f" using ({', '.join(map(quoted, statement.using))})"]
        if statement.on is not None:
            condition = [" on (", statement.on, ")"]
        if kind == "matched":
            parts += [f" from {table} join ", *source, *condition]
        elif kind == "not matched":
            parts += [" from ", *source, f" anti join {table}", *condition]
        else:
            parts += [f" from {table} anti join ", *source, *condition]
        query = st.Query(composed([*parts, ")"], statement.source.source, statement.prefix))
        planned = plan_query(writing.engine, writing.inside(self.tx), query, writing.parameters)
        if self.rows is not None:
            planned.constants = {**planned.constants, SOURCE: self.rows}
        schema, batches = planned.run()
        return pa.Table.from_batches(list(batches), schema)


class _Chosen:
    """The first clause that applies to a row, with its values: a single expression, so that they belong together."""

    def __init__(
        self,
        writing: Writing,
        clauses: Sequence[st.MergeClause],
        values: Sequence[list[tuple[Field, str | Fragment]]],
    ) -> None:
        cells: list[dict[str, tuple[str | Fragment, tuple[str, str]]]] = []  # for each clause, name to value and cast
        for n, (clause, given) in enumerate(zip(clauses, values, strict=True)):
            casts = casts_to(writing.engine, [f for f, _ in given])
            own = {
                f"__il_{n}_{m}": (value, cast)
                for m, ((_, value), cast) in enumerate(zip(given, casts, strict=True))
                if not (isinstance(value, Fragment) and value.is_default)
            }
            if clause.action == "error" and clause.values:
                own[f"__il_{n}_0"] = clause.values[0], ("cast((", ") as varchar)")
            cells.append(own)
        every = {name: cast for own in cells for name, (_, cast) in own.items()}
        self.columns = ", ".join(f"(__il_row).{name} as {name}" for name in ("__il_clause", *every))
        self.row: Parts = ["case"]
        for n, (clause, own) in enumerate(zip(clauses, cells, strict=True)):
            condition = "true" if clause.condition is None else clause.condition
            self.row += [" when (", condition, f") then {{'__il_clause': {n}"]
            for name, (before, after) in every.items():
                value = own[name][0] if name in own else "null"
                self.row += [f", '{name}': {before}", value, after]
            self.row.append("}")
        self.row.append(" end")
