"""Defines the lake's tables in an empty DuckDB database, which answers questions about them in DuckDB's own form.

Tables have their columns, types, defaults, keys and indexes there, but no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import definitions
from indexlake.catalog.named import Named, list_named
from indexlake.catalog.sequence_calls import calls_of
from indexlake.display import shown_value
from indexlake.errors import ConvertedError
from indexlake.expr.expression import Expression
from indexlake.expr.templates import written as rule_text
from indexlake.schema import DEFAULT, default_to_text, encode_default
from indexlake.snapshots.sequences import numbers_of
from indexlake.snapshots.state import Stale
from indexlake.sql.parse.schema_mentions import Mention
from indexlake.sql.parse.tokens import Source, quoted, tokenize
from indexlake.sql.plan.own_names import for_duckdb
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import Engine, confine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.space_functions import register
from indexlake.sql.run.type_checks import is_type_check
from indexlake.sql.run.type_names import sql_names
from indexlake.sql.run.types import restored
from indexlake.types import codec_of
from indexlake.types.convert import shown_type
from indexlake.types.marks import collation_of

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord
    from indexlake.indexes.index import Index
    from indexlake.schema import Field, TableSchema
    from indexlake.snapshots.state import TableState
    from indexlake.sql.parse.fragment import Fragment
    from indexlake.sql.parse.parameters import Parameters


_ASKED = 1_000_000
_numbers = count(1)


def answers(engine: Engine, view: Viewpoint, fragment: Fragment, mentions: Sequence[Mention]) -> Mapping[str, pa.Table]:
    """Return the rows for each mention, by the mention's name in the query, except where a query is described."""
    if all(mention.described is not None for mention in mentions):
        return {}
    found: dict[str, pa.Table] = {}
    with _defined(engine, view) as (database, last):
        for number, mention in enumerate(mentions):
            if mention.described is not None:
                continue
            with translating(fragment.source, fragment.spliced()):
                rows = _with_last(database.execute(f"select * from {mention.text}").to_arrow_table(), last)
            arrays = [restored(c, shown_type(c.type)) for c in rows.columns]
            found[mention.name(number)] = pa.table(arrays, rows.column_names)
    return found


def explained(engine: Engine, view: Viewpoint, text: Fragment, parameters: Parameters) -> str:
    """Return DuckDB's plan for a statement, as if the tables were its own; they are empty here."""
    spliced = text.spliced(prefix="explain ")
    with _defined(engine, view) as (database, _), translating(text.source, spliced):
        return "\n".join(row[-1] for row in database.execute(spliced.text, parameters.of(text.parameters)).fetchall())


def described(engine: Engine, view: Viewpoint, query: Fragment, parameters: Mapping[str, Any]) -> pa.Table | None:
    """Return DuckDB's description of a query, with keys and defaults; None if it does not understand the query."""
    import duckdb

    with beside(engine) as database:
        _define(database, engine, view, query)
        database.execute(f"use {quoted(view.namespace)}")
        try:
            return database.execute(f"describe {query.text}", dict(parameters) or None).to_arrow_table()
        except duckdb.Error:
            return None


@contextmanager
def beside(engine: Engine) -> Iterator[Any]:
    """Attach an empty database to the engine, which takes less time than to open one of its own."""
    name = quoted(f"__il_beside_{next(_numbers)}")
    cursor = engine.take()
    try:
        cursor.execute(f"attach ':memory:' as {name}; use {name}")
        yield cursor
    finally:
        cursor.execute(f"use memory; detach database if exists {name}")
        cursor.close()


@contextmanager
def _defined(engine: Engine, view: Viewpoint) -> Iterator[tuple[Any, dict[tuple[str, str], int]]]:
    """Yield a database with the lake's definitions, and the last numbers of sequences."""
    import duckdb

    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as database:
        confine(database, engine.exchange)
        register(database)
        last = _define(database, engine, view)
        database.execute(f"use {quoted(view.namespace)}")
        yield database, last


def _with_last(rows: pa.Table, last: Mapping[tuple[str, str], int]) -> pa.Table:
    """Fill in the last numbers of sequences for which DuckDB could not be made to return them."""
    names = rows.column_names
    if not last or "last_value" not in names:
        return rows
    spaces = rows.column("schema_name" if "schema_name" in names else "schemaname").to_pylist()
    sequences = rows.column("sequence_name" if "sequence_name" in names else "sequencename").to_pylist()
    given = rows.column("last_value")
    found = [last.get(key, n) for key, n in zip(zip(spaces, sequences, strict=True), given.to_pylist(), strict=True)]
    return rows.set_column(names.index("last_value"), "last_value", pa.array(found, given.type))


def _define(database: Any, engine: Engine, view: Viewpoint, text: Fragment | None = None) -> dict[tuple[str, str], int]:
    """Define everything, or the tables and views that a text may name.

    Returns the last numbers of sequences that DuckDB does not return itself.
    """
    import duckdb

    namespaces, tables, named, asked = _read(view, text)
    for namespace in dict.fromkeys([*namespaces, view.namespace]):
        database.execute(f"create schema if not exists {quoted(namespace)}")
    last: dict[tuple[str, str], int] = {}
    taken: set[tuple[str, str]] = set()
    for sequence in (n for n in named if n.kind == "sequence"):
        _define_sequence(database, sequence, asked.get(sequence.named_id, 0), last)
    for other in (n for n in named if n.kind == "type"):
        database.execute(f"create type {_full(other)} as {other.body['text']}")
        _comment(database, "type", _full(other), other.body.get("comment"))
    for table, state in tables:
        schema = state.current
        name = f"{quoted(table.namespace)}.{quoted(table.name)}"
        types = sql_names(engine, schema.fields)
        constraints = [(schema.key_fields, "primary key")] if schema.key_fields else []
        for index in state.live_indexes:
            if (word := constraint_of(index, schema)) is not None:
                constraints.append((index.fields(schema), word))
        ruled = {f.field_id for fields, _ in constraints for f in fields}
        ruled = ruled.union(*(check.condition.columns for check in schema.checks))
        columns = [
            # DuckDB has no rules for generated columns: with one, a column is a plain one here
            _column(
                replace(f, generated=None) if f.field_id in ruled else f,
                type,
                schema,
                [word for fields, word in constraints if fields == (f,)],
            )
            for f, type in zip(schema.fields, types, strict=True)
        ]
        columns += [f"{word} ({_listed(fields)})" for fields, word in constraints if len(fields) > 1]
        checks = [
            f"check ({rule_text(check.condition, schema)})"
            for check in schema.checks
            if not is_type_check(check, schema)
        ]
        database.execute(f"create table {name} ({', '.join([*columns, *checks])})")
        for index in state.live_indexes:
            if not index.is_primary and index.fits(schema) and constraint_of(index, schema) is None:
                _define_index(database, table, index, index.fields(schema), taken)
        _comment(database, "table", name, table.config.comment)
        for f in schema.fields:
            _comment(database, "column", f"{name}.{quoted(f.name)}", f.comment)
    _define_views(database, [n for n in named if n.kind == "view"])
    _define_temporary(database, engine, last)
    for macro in (n for n in named if n.kind in ("macro", "table macro")):
        with suppress(duckdb.Error):  # it may name something that does not exist
            database.execute(f"create macro {_full(macro)} {_overloads(macro)}")
            _comment(database, "macro table" if macro.kind == "table macro" else "macro", _full(macro),
                     macro.body.get("comment"))  # fmt: skip
    return last


def _read(
    view: Viewpoint, text: Fragment | None
) -> tuple[list[str], list[tuple[TableRecord, TableState]], list[Named], dict[int, int]]:
    """Return the namespaces, tables and other definitions, and the number of calls of each sequence."""
    while True:
        readings = view.lake._readings
        with view.seen() as seen:
            r, at = seen.r, seen.at
            tables, named, asked = definitions.list_tables(r, at), list_named(r, at), {}
            if text is None:
                asked = {n.named_id: calls_of(r, n.named_id) for n in named if n.kind == "sequence"}
            else:
                words = _words(text, [n for n in named if n.kind == "view"])
                tables = [t for t in tables if t.name.lower() in words]
                named = [n for n in named if n.kind == "sequence" or (n.kind == "view" and n.name.lower() in words)]
            try:
                states = [(t, _as_of(seen.state(t.table_id), at)) for t in tables]
            except Stale:
                continue  # another thread has read a later state: start again
            except ConvertedError as error:
                readings.successor(error, readings)
                continue
            return definitions.list_namespaces(r, at), states, named, asked


def _as_of(state: TableState, at: int | None) -> TableState:
    return state if at is None else state.as_of(at)


def _words(text: Fragment, views: Sequence[Named]) -> set[str]:
    """Return the names in a text and in the views that it may name, in lower case."""
    words = {t.value.lower() for t in text.tokens if t.kind in ("word", "name")}
    more: set[str] | None = None
    while more is None or not more <= words:
        words |= more or set()
        texts = [Source(view.body["text"]) for view in views if view.name.lower() in words]
        more = {t.value.lower() for source in texts for t in tokenize(source) if t.kind in ("word", "name")}
    return words


def _overloads(macro: Named) -> str:
    def parameter(name: str, type: str | None, default: str | None) -> str:
        return quoted(name) + (f" {type}" if type else "") + (f" := {default}" if default is not None else "")

    word = "table " if macro.kind == "table macro" else ""
    return ", ".join(
        f"({', '.join(parameter(*p) for p in o['parameters'])}) as {word}{o['text']}" for o in macro.body["overloads"]
    )


def _full(named: Named) -> str:
    return f"{quoted(named.namespace)}.{quoted(named.name)}"


def _comment(database: Any, kind: str, name: str, comment: str | None) -> None:
    if comment is not None:
        database.execute(f"comment on {kind} {name} is {_text(comment)}")


def _define_sequence(database: Any, sequence: Named, asked: int, last: dict[tuple[str, str], int]) -> None:
    """Define a sequence and call it as often as in the lake; after very many calls, start it at its last number.

    DuckDB does not return a number whose successor overflows a bigint; such numbers go to ``last``.
    """
    body = dict(sequence.body)
    newest = int(numbers_of(body, asked - 1, 1)[0]) if asked else None
    after = 0 if newest is None else newest + body["increment"]
    if newest is not None and not -(2**63) <= after < 2**63:
        last[sequence.namespace, sequence.name], asked = newest, 0
    elif newest is not None and asked > _ASKED:
        body["start"], asked = newest, 1
    database.execute(sequence_text(_full(sequence), body))
    if asked:
        database.execute(f"select nextval({_text(_full(sequence))}) from range({asked})")
    _comment(database, "sequence", _full(sequence), body.get("comment"))


def sequence_text(name: str, body: Mapping[str, Any]) -> str:
    """Return the statement that creates a sequence; ``name`` is quoted."""
    cycle = "cycle" if body["cycle"] else "no cycle"
    return (
        f"create sequence {name} increment by {body['increment']} minvalue {body['min']} maxvalue {body['max']} "
        f"start with {body['start']} {cycle}"
    )


def _define_index(
    database: Any, table: TableRecord, index: Index, fields: Sequence[Field], taken: set[tuple[str, str]]
) -> None:
    """Define an index, as ``table.index`` if another table of the namespace has one of its name.

    DuckDB has no indexes over some types: there it is over the texts of the values.
    """
    import duckdb

    name = index.name if (table.namespace, index.name.lower()) not in taken else f"{table.name}.{index.name}"
    taken.add((table.namespace, index.name.lower()))
    start = f"create {'unique index' if index.unique else 'index'} {quoted(name)} on "
    start += f"{quoted(table.namespace)}.{quoted(table.name)}"
    try:
        database.execute(f"{start} ({_listed(fields)})")
    except duckdb.InvalidTypeException:
        database.execute(f"{start} ({', '.join(f'cast({quoted(f.name)} as varchar)' for f in fields)})")
    _comment(database, "index", f"{quoted(table.namespace)}.{quoted(name)}", index.comment)


def _define_views(database: Any, views: list[Named]) -> None:
    """Define each view after those it names, leaving out views that DuckDB cannot understand (with a search)."""
    import duckdb

    while views:
        waiting = []
        for view in views:
            name, body = _full(view), view.body
            names = body.get("named", body.get("columns"))
            columns = f" ({', '.join(map(quoted, names))})" if names else ""
            database.execute(f"use {quoted(view.namespace)}")
            try:
                database.execute(f"create view {name}{columns} as {for_duckdb(body.get('written', body['text']))}")
                _comment(database, "view", name, body.get("comment"))
                for key, comment in body.items():
                    if key.startswith("comment on "):
                        _comment(database, "column", f"{name}.{quoted(key.removeprefix('comment on '))}", comment)
            except duckdb.Error:
                waiting.append(view)
        if len(waiting) == len(views):
            return
        views = waiting


def _column(f: Field, type: str, schema: TableSchema, constraints: Sequence[str]) -> str:
    """Return the definition of a column; ``constraints`` are those of it alone."""
    collation = collation_of(f)
    text = f"{quoted(f.name)} {type}" + (f" collate {collation}" if collation is not None else "")
    if f.generated is not None:
        return f"{text} generated always as ({rule_text(f.generated, schema)})"
    if (default := default_text(f)) is not None:
        text += f" default ({default})"
    is_key = any("primary key" in word for word in constraints)
    return " ".join([text, *constraints, *(() if f.nullable or is_key else ("not null",))])


def default_text(f: Field) -> str | None:
    """Return the default of a column as SQL."""
    if f.default_sql is not None:
        return f.default_sql
    value_as_written, _, text = (f.metadata or {}).get(DEFAULT, b"").decode().partition("\n")
    if text and value_as_written == str(default_to_text(f.default)):
        return text
    return None if f.default is None else _literal(f.default_value)


def _literal(value: Any) -> str:
    is_number = isinstance(value, int | float | Decimal) and isfinite(value)
    return str(value) if is_number else _text(value)


def with_default_text(field: pa.Field, written: Fragment, default: Any) -> pa.Field:
    """Return the column with the SQL of its constant default, which is shown for as long as it has this value."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != DEFAULT}
    if not isinstance(default, Expression) and not written.parameters and written.text != _literal(default):
        value = encode_default(field.name, codec_of(field), default)
        metadata[DEFAULT] = f"{default_to_text(value)}\n{written.text}".encode()
    return field.with_metadata(metadata or None)


def _text(value: Any) -> str:
    shown = str(shown_value(value) if isinstance(value, pa.Scalar) else value)
    if isinstance(value, bytes):
        shown = "".join(f"\\x{byte:02X}" for byte in value)
    return "'" + shown.replace("'", "''") + "'"


def constraint_of(index: Index, schema: TableSchema) -> str | None:
    """Return the kind of constraint a unique index represents, if it is named as such a constraint is by default.

    Its table and its columns may have been renamed since.
    """
    if not index.unique or index.is_primary or not index.fits(schema):
        return None
    if index.name.endswith(key_name("")) and not schema.key_fields:
        return "primary key"
    return "unique" if index.name.endswith(unique_name("", [])) else None


def key_name(table: str) -> str:
    """Return the name of the index of a primary key that is added to a table later."""
    return f"{table}_pkey".replace(".", "_")


def unique_name(table: str, columns: Sequence[str]) -> str:
    """Return the name of the index of an unnamed unique constraint."""
    return "_".join([table, *columns, "key"]).replace(".", "_")  # names of indexes have no dots


def _listed(fields: Sequence[Field]) -> str:
    return ", ".join(quoted(f.name) for f in fields)


def _define_temporary(database: Any, engine: Engine, last: dict[tuple[str, str], int]) -> None:
    """Define temporary sequences and views, and those tables that name nothing of the lake's, which is not here."""
    import duckdb

    texts = []
    for body in (body for (kind, _), body in engine.temporary_names.items() if kind == "sequence"):
        name = body["name"]
        texts.append(sequence_text(quoted(name), body).replace("create", "create temp", 1))
        asked = "select last_value from duckdb_sequences() where sequence_name = $name and last_value is not null"
        for number in engine.table(asked, {"name": name}).column(0).to_pylist():
            last.setdefault(("main", name), number)
    if engine.temporary_tables:
        asked = "select sql from duckdb_tables() where not internal and table_name in (select unnest($names))"
        named = engine.table(asked, {"names": list(engine.temporary_tables.values())}).column(0).to_pylist()
        texts += [text.replace("CREATE TABLE", "CREATE TEMP TABLE", 1) for text in named]
    for view in engine.temporary_views.values():
        columns = f" ({', '.join(map(quoted, view.columns))})" if view.columns else ""
        texts.append(f"create temp view {quoted(view.name)}{columns} as {view.text}")
    for text in texts:
        with suppress(duckdb.Error):
            database.execute(text)
