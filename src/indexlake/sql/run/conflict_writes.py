"""``insert or replace``, ``insert or ignore`` and ``insert … on conflict``: inserts that say what happens to rows whose
key already exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.errors import IndexLakeError, SchemaError
from indexlake.expr.expression import expr
from indexlake.schema import Field, TableSchema
from indexlake.sources.rules import default_array, differs_by_row
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.tokens import Source as Text
from indexlake.sql.parse.tokens import quoted, tokenize
from indexlake.sql.plan.qualifiers import requalified
from indexlake.sql.run.held_forms import in_sql
from indexlake.sql.run.inserted_rows import InsertedRows
from indexlake.sql.run.merge_by_query import merge_by_query
from indexlake.sql.run.merge_sides import Sides, assigned_default, assigned_field
from indexlake.sql.run.writing import Writing
from indexlake.types.marks import cast_type, mark_of
from indexlake.writes.merge.clauses import bind_clause
from indexlake.writes.merge.conflicts import Fields, firsts, insert_absent, unique_keys
from indexlake.writes.merge.source import Source, take_source

if TYPE_CHECKING:
    from indexlake.table import Table
    from indexlake.transaction import Transaction
    from indexlake.writes.merge.merge import Merge


def insert_or(writing: Writing, statement: st.Insert, conflict: st.Conflict) -> WriteResult:
    table = writing.table(statement.table)
    if (statement.alias or statement.table.name).lower() == "excluded" and "excluded" in _excluded(conflict):
        conflict.assignments[0].value.source.fail(
            "EXCLUDED means the row that is not inserted: give the table an alias, as in insert into … as t.",
            statement.table.place,
        )

    def apply(tx: Transaction) -> int:
        own = writing.table(statement.table, tx)
        with tx.reading(own._table_id) as reading:
            keys = _keys(own, statement, conflict, unique_keys(reading.state))
            schema = reading.schema
        if statement.query is None:
            rows = _all_defaults(schema)
        else:
            rows = InsertedRows(writing.engine, writing.parameters, statement, schema).stream(writing.inside(tx))
        inserted = {name: expr(f"s.{quoted(name)}") for name in rows.schema.names}
        wanted = {f.name for key in keys for f in key} | _excluded(conflict)
        missing = [f for f in schema.fields if f.name not in inserted and {f.name, f.name.lower()} & wanted]
        inserted |= {f.name: expr(f"s.{quoted(f.name)}") for f in missing}  # the value looked up is the one inserted
        missing += [_own_default(f) for f in _set_to_default(schema, conflict)]
        source = take_source(_with_defaults(rows, missing), schema, writing.view.lake.storage.spill)
        if conflict.action == "nothing":
            return insert_absent(tx, own._table_id, source, keys)
        kept = firsts(source, keys[0])
        given = source if kept is None else pa.Table.from_batches([source.take(kept, source.schema.names)])
        key = [f.name for f in keys[0]]
        if conflict.action == "replace":
            merge = own.merge(given, on=key)
            return merge.when_matched_update(inserted).when_not_matched_insert(inserted).execute().rows
        made = _own_merge(writing, statement, conflict, own, schema, given, key, inserted)
        if made is not None:
            return made.execute().rows
        if not isinstance(given, pa.Table):
            given = pa.Table.from_batches([batch for _, batch in given.batches()], given.schema)
        return _merged_by_query(writing, statement, conflict, tx, own, schema, given, key, list(inserted))

    return table._write("insert", apply, writing.token)


def _own_merge(
    writing: Writing,
    statement: st.Insert,
    conflict: st.Conflict,
    own: Table,
    schema: TableSchema,
    given: Source | pa.Table,
    key: list[str],
    inserted: dict[str, Any],
) -> Merge | None:
    """Return ``do update`` as a merge in our own expressions, or None if DuckDB has to compute it."""
    written = [a.value for a in conflict.assignments] + ([] if conflict.where is None else [conflict.where])
    for fragment in written:
        if fragment.has_word("default") and not fragment.is_default:
            fragment.source.fail("DEFAULT must be the whole value.", fragment.start)
    if not writing.engine.computes_as_usual or schema.hides_functions:
        return None
    if any(cast_type(f) is not None for f in schema.fields):
        return None  # DuckDB compares these columns in its own way
    merge = own.merge(given, on=key)
    names = {"excluded": "s"} | writing.named(statement, "t")
    sides = Sides(names, {f.name.lower(): "t" for f in schema.fields}, writing.parameters)
    values: dict[str, Any] = {}
    for a in conflict.assignments:
        f = assigned_field(schema, a)
        if a.value.is_default and differs_by_row(f):
            values[f.name] = expr(f"s.{quoted(_own_default(f).name)}")
        else:
            values[f.name] = assigned_default(f) if a.value.is_default else sides.value(a.value)
    merge = merge.when_matched_update(values, *sides.condition(conflict.where)).when_not_matched_insert(inserted)
    try:
        for clause in merge._clauses:
            bind_clause(clause, schema, given.schema)
    except IndexLakeError:
        return None
    return merge


def _merged_by_query(
    writing: Writing,
    statement: st.Insert,
    conflict: st.Conflict,
    tx: Transaction,
    own: Table,
    schema: TableSchema,
    given: pa.Table,
    key: list[str],
    inserted: list[str],
) -> int:
    """Run ``do update`` as a merge that DuckDB computes, in which unqualified columns are the table's."""
    name = f"{quoted(statement.table.namespace or writing.view.namespace)}.{quoted(statement.table.name)}"
    table = name if statement.alias is None else quoted(statement.alias)
    bare = {f.name.lower(): table for f in schema.fields}

    def part(text: str, place: Fragment) -> Fragment:
        source = Text(text, (place.source, lambda _: place.start))
        return Fragment(source, tokenize(source), {})

    def meant(fragment: Fragment) -> Fragment:
        text = requalified(fragment, writing.named(statement, table), bare)
        assert text is not None  # queries have already been refused
        return part(text, fragment)

    first = conflict.assignments[0].value
    update = [replace(a, value=a.value if a.value.is_default else meant(a.value)) for a in conflict.assignments]
    insert = [st.Assignment(column, part(f"excluded.{quoted(column)}", first), first.start) for column in inserted]
    on = " and ".join(f"{table}.{quoted(column)} = excluded.{quoted(column)}" for column in key)
    where = None if conflict.where is None else meant(conflict.where)
    clauses = (
        st.MergeClause("matched", where, "update", tuple(update), first.start),
        st.MergeClause("not matched", None, "insert", tuple(insert), first.start),
    )
    merge = st.Merge(
        statement.table, statement.alias, first, True, "excluded", None, None, part(on, first), (), clauses, None
    )
    forms = {f.name: form for f in schema.fields if f.name in given.column_names and (form := in_sql(f)) is not None}
    return merge_by_query(writing, merge, tx, own._table_id, schema, given.to_reader(), forms)


def _set_to_default(schema: TableSchema, conflict: st.Conflict) -> list[Field]:
    """Return the columns that are set to a default which differs from row to row."""
    fields = [assigned_field(schema, a) for a in conflict.assignments if a.value.is_default]
    return [f for f in fields if differs_by_row(f)]


def _own_default(f: Field) -> Field:
    """Return a column for the default, separate from the value that the inserted row may have."""
    return replace(f, name=f"__il_default {f.name}")


def _keys(table: Table, statement: st.Insert, conflict: st.Conflict, keys: Sequence[Fields]) -> list[Fields]:
    """Return the unique keys by which rows can be in conflict here."""
    shown = "; ".join(f"({', '.join(f.name for f in key)})" for key in keys)
    if not keys:
        raise SchemaError(
            f"Table {table.name!r} has no primary key and no unique index, so no row of it can be in conflict. "
            "Leave ON CONFLICT or OR … out, or create a unique index."
        )
    if conflict.columns is None:
        if len(keys) > 1 and conflict.action != "nothing":
            raise SchemaError(
                f"Table {table.name!r} has several unique keys, {shown}: say which one is meant with "
                "ON CONFLICT (…) DO UPDATE."
            )
        return list(keys)
    wanted = {name.lower() for name in conflict.columns}
    found = [key for key in keys if {f.name.lower() for f in key} == wanted]
    if not found:
        raise SchemaError(
            f"ON CONFLICT ({', '.join(conflict.columns)}): {table.name!r} has no such primary key or unique index. "
            f"Its unique keys are {shown}.",
            column=conflict.columns[0],
        )
    return found[:1]


def _excluded(conflict: st.Conflict) -> set[str]:
    """Return the names that a conflict's ``excluded`` may use, in lower case."""
    fragments = [a.value for a in conflict.assignments] + ([] if conflict.where is None else [conflict.where])
    return {token.value.lower() for fragment in fragments for token in fragment.tokens}


def _all_defaults(schema: TableSchema) -> pa.RecordBatchReader:
    """Return the row of ``default values``."""
    columns = [default_array(f, 1) for f in schema.fields]
    return pa.table(columns, schema=pa.schema([f.arrow().with_nullable(True) for f in schema.fields])).to_reader()


def _with_defaults(rows: pa.RecordBatchReader, fields: Sequence[Field]) -> pa.RecordBatchReader:
    """Return the rows with further columns added, filled with their defaults."""
    if not fields:
        return rows
    schema = pa.schema([*rows.schema, *(pa.field(f.name, f.type, metadata=mark_of(f)) for f in fields)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            added = [default_array(f, batch.num_rows) for f in fields]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
