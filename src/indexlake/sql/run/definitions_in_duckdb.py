"""The lake's definitions in an empty database of DuckDB's, which answers what is asked about them in its own words.

Tables have their columns, types, defaults, keys and indexes there, and no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import definitions
from indexlake.catalog.named import list_named
from indexlake.expr.templates import written
from indexlake.sql.parse.schema_mentions import Mention
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.type_names import sql_names
from indexlake.sql.run.types import restored
from indexlake.types.convert import shown_type

if TYPE_CHECKING:
    from indexlake.schema import Field, TableSchema
    from indexlake.snapshots.state import TableState
    from indexlake.sql.parse.fragment import Fragment


def answers(engine: Engine, view: Viewpoint, fragment: Fragment, mentions: Sequence[Mention]) -> Mapping[str, pa.Table]:
    """What stands at each mention, by the name that it has in the query."""
    import duckdb

    found: dict[str, pa.Table] = {}
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as database:
        _define(database, engine, view)
        database.execute(f"use {quoted(view.namespace)}")
        for number, mention in enumerate(mentions):
            with translating(fragment.source, fragment.spliced()):
                rows = database.execute(f"select * from {mention.text}").to_arrow_table()
            arrays = [restored(c, shown_type(c.type), n) for n, c in zip(rows.column_names, rows.columns, strict=True)]
            found[mention.name(number)] = pa.table(arrays, rows.column_names)
    return found


def _define(database: Any, engine: Engine, view: Viewpoint) -> None:
    at = view.snapshot if view.transaction is None else view.transaction.snapshot_id
    with view.lake.catalog.read() as r:
        at = view.lake._readings.seen(r, at)
        namespaces = definitions.list_namespaces(r, at)
        tables = [(t, view.lake._readings.state_in(r, t.table_id)) for t in definitions.list_tables(r, at)]
        views = [named for named in list_named(r, at) if named.kind == "view"]
    for namespace in dict.fromkeys([*namespaces, view.namespace]):
        database.execute(f"create schema if not exists {quoted(namespace)}")
    for table, state in tables:
        schema = state.current if at is None else state.schema.at(at)
        name = f"{quoted(table.namespace)}.{quoted(table.name)}"
        types = sql_names(engine, schema.fields)
        columns = [_column(f, type, schema) for f, type in zip(schema.fields, types, strict=True)]
        if schema.key_fields:
            columns.append(f"primary key ({', '.join(quoted(f.name) for f in schema.key_fields)})")
        checks = [f"check ({written(check.condition, schema)})" for check in schema.checks]
        database.execute(f"create table {name} ({', '.join([*columns, *checks])})")
        for statement in _indexes(state, name, schema):
            database.execute(statement)
    _define_views(database, {f"{quoted(v.namespace)}.{quoted(v.name)}": v.body for v in views})


def _define_views(database: Any, views: dict[str, Any]) -> None:
    """Each after those it names.  One that DuckDB alone cannot understand, because of a search in it, is left out."""
    import duckdb

    while views:
        waiting = {}
        for name, body in views.items():
            columns = f" ({', '.join(map(quoted, body['columns']))})" if body.get("columns") else ""
            try:
                database.execute(f"create view {name}{columns} as {body['text']}")
            except duckdb.Error:
                waiting[name] = body
        if len(waiting) == len(views):
            return
        views = waiting


def _column(f: Field, type: str, schema: TableSchema) -> str:
    text = f"{quoted(f.name)} {type}"
    if f.generated is not None:
        return f"{text} generated always as ({written(f.generated, schema)})"
    if f.default_sql is not None:
        text += f" default ({f.default_sql})"
    elif f.default is not None:
        value = f.default_value
        text += f" default {value if isinstance(value, int | float | Decimal) else _text(value)}"
    return text if f.nullable else f"{text} not null"


def _text(value: Any) -> str:
    shown = str(value)
    if isinstance(value, bytes):
        shown = "".join(f"\\x{byte:02X}" for byte in value)
    return "'" + shown.replace("'", "''") + "'"


def _indexes(state: TableState, table: str, schema: TableSchema) -> Iterator[str]:
    for index in state.live_indexes:
        if not index.is_primary and index.fits(schema):
            columns = ", ".join(quoted(f.name) for f in index.fields(schema))
            yield f"create {'unique ' if index.unique else ''}index {quoted(index.name)} on {table} ({columns})"
