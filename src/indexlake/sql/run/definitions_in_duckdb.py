"""The lake's definitions in an empty database of DuckDB's, which answers what is asked about them in its own words.

Tables have their columns, types, defaults, keys and indexes there, and no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import definitions
from indexlake.sql.parse.schema_mentions import Mention
from indexlake.sql.parse.tokens import Source, quoted
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.type_names import sql_names
from indexlake.sql.run.types import restored
from indexlake.types.convert import shown_type

if TYPE_CHECKING:
    from indexlake.schema import Field
    from indexlake.snapshots.state import TableState
    from indexlake.sql.parse.fragment import Fragment


def answers(engine: Engine, view: Viewpoint, fragment: Fragment, mentions: Sequence[Mention]) -> Mapping[str, pa.Table]:
    """What stands at each mention, by the name that it has in the query."""
    import duckdb

    found: dict[str, pa.Table] = {}
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as database:
        database.execute(";".join(_statements(engine, view)) + f";use {quoted(view.namespace)}")
        for number, mention in enumerate(mentions):
            source: Source = fragment.source
            with translating(source, fragment.spliced()):
                rows = database.execute(f"select * from {mention.text}").to_arrow_table()
            arrays = [restored(c, shown_type(c.type), n) for n, c in zip(rows.column_names, rows.columns, strict=True)]
            found[mention.name(number)] = pa.table(arrays, rows.column_names)
    return found


def _statements(engine: Engine, view: Viewpoint) -> Iterator[str]:
    at = view.snapshot if view.transaction is None else view.transaction.snapshot_id
    with view.lake.catalog.read() as r:
        namespaces = definitions.list_namespaces(r, at)
        tables = [(t, view.lake._readings.state_in(r, t.table_id)) for t in definitions.list_tables(r, at)]
    for namespace in {*namespaces, view.namespace}:
        yield f"create schema if not exists {quoted(namespace)}"
    for table, state in tables:
        schema = state.current if at is None else state.schema.at(at)
        name = f"{quoted(table.namespace)}.{quoted(table.name)}"
        columns = [_column(f, type) for f, type in zip(schema.fields, sql_names(engine, schema.fields), strict=True)]
        if schema.key_fields:
            columns.append(f"primary key ({', '.join(quoted(f.name) for f in schema.key_fields)})")
        yield f"create table {name} ({', '.join(columns)})"
        yield from _indexes(state, name, schema)


def _column(f: Field, type: str) -> str:
    text = f"{quoted(f.name)} {type}"
    if f.default is not None:
        value = f.default_value
        text += f" default {value if isinstance(value, int | float | Decimal) else _text(value)}"
    return text if f.nullable else f"{text} not null"


def _text(value: Any) -> str:
    shown = str(value)
    if isinstance(value, bytes):
        shown = "".join(f"\\x{byte:02X}" for byte in value)
    return "'" + shown.replace("'", "''") + "'"


def _indexes(state: TableState, table: str, schema: Any) -> Iterator[str]:
    for index in state.live_indexes:
        if not index.is_primary and index.fits(schema):
            columns = ", ".join(quoted(f.name) for f in index.fields(schema))
            yield f"create {'unique ' if index.unique else ''}index {quoted(index.name)} on {table} ({columns})"
