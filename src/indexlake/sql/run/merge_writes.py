"""``merge into``: run as our own merge or, if its expressions are not ours, as changes that DuckDB computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.errors import IndexLakeError
from indexlake.schema import TableSchema
from indexlake.sources.rules import differs_by_row
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.qualifiers import own_names
from indexlake.sql.run.merge_by_query import merge_by_query
from indexlake.sql.run.merge_sides import Sides
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.writing import Writing
from indexlake.types.marks import cast_type
from indexlake.writes.merge.clauses import bind_clause
from indexlake.writes.merge.on import bind_on

if TYPE_CHECKING:
    from indexlake.table import Table
    from indexlake.transaction import Transaction
    from indexlake.writes.merge.merge import Merge


def merge(writing: Writing, statement: st.Merge) -> WriteResult:
    def apply(tx: Transaction) -> int:
        own = writing.table(statement.table, tx)
        schema = own._schema_now()
        query = st.Query(_source(statement))
        planned = plan_query(writing.engine, writing.inside(tx), query, writing.parameters)
        source_schema, batches = planned.run()
        source = pa.RecordBatchReader.from_batches(source_schema, batches)
        made = _own_merge(writing, statement, own, schema, source)
        if made is None:
            return merge_by_query(writing, statement, tx, own._table_id, schema, source, planned.forms(source_schema))
        return made.execute().rows

    return writing.table(statement.table)._write("merge", apply, writing.token)


def _source(statement: st.Merge) -> Fragment:
    parts: list[str | Fragment] = ["select * from ", statement.source]
    if statement.source_is_query:
        names = statement.source_columns
        columns = "" if names is None else f"({', '.join(map(quoted, names))})"
        parts = ["select * from (", statement.source, f") as {quoted(statement.source_alias)}{columns}"]
    return composed(parts, statement.source.source, statement.prefix)


def _own_merge(
    writing: Writing, statement: st.Merge, own: Table, schema: TableSchema, source: pa.RecordBatchReader
) -> Merge | None:
    """Return the merge in our own expressions, or None if DuckDB has to compute it."""
    if any(clause.action == "error" or _takes_defaults_by_row(clause, schema) for clause in statement.clauses):
        return None
    if not writing.engine.computes_as_usual or schema.hides_functions:
        return None
    if any(cast_type(f) is not None for f in schema.fields):
        return None  # DuckDB compares these columns in its own way
    ours = {f.name.lower() for f in schema.fields}
    theirs = {name.lower() for name in source.schema.names}
    bare = dict.fromkeys(ours - theirs, "t") | dict.fromkeys(theirs - ours, "s")
    try:
        sides = Sides(_names(writing, statement), bare, writing.parameters)
        condition, params = sides.condition(statement.on)
        made = own.merge(source, list(statement.using) if condition is None else condition, params)
        for clause in statement.clauses:
            made = sides.add(made, clause, schema, source.schema.names)
        bind_on(made._on, schema, source.schema, made._params)
        for bound in made._clauses:
            bind_clause(bound, schema, source.schema)
    except IndexLakeError:
        return None
    return made


def _takes_defaults_by_row(clause: st.MergeClause, schema: TableSchema) -> bool:
    """Return whether ``default`` stands for a different value in each row."""
    if not any(map(differs_by_row, schema.fields)):
        return False
    values = clause.values or [a.value for a in clause.assignments or ()]
    return clause.assignments == () or any(value.is_default for value in values)


def _names(writing: Writing, statement: st.Merge) -> dict[str, str]:
    """Return the names that may qualify columns of only one side."""
    ours = writing.named(statement, "t")
    theirs = {statement.source_alias.lower(): "s"}
    if statement.source_table is not None:
        table = statement.source_table
        theirs = own_names(table.name, table.namespace or writing.view.namespace, None, "s")
    return {name: side for name, side in (ours | theirs).items() if not (name in ours and name in theirs)}
