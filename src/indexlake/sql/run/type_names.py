"""Maps our columns' types to DuckDB's type names, and type names to columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from indexlake.errors import ExpressionError, SchemaError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.run.duckdb_types import check_held, held_form, held_type, is_hugeint_type, is_marked
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.held_forms import held
from indexlake.sql.run.types import taken_as, usual
from indexlake.types.enums import enum_of
from indexlake.types.hugeint import MARK, is_hugeint
from indexlake.types.marks import cast_type, collated, collation_of, mark

_names: dict[pa.DataType, str] = {}


def sql_names(engine: Engine, fields: Sequence[Any]) -> list[str]:
    """Return the SQL name of each column's type: the one in its mark, if it has one."""
    unknown = [t for t in dict.fromkeys(f.type for f in fields) if t not in _names]
    if unknown:
        empty = pa.table({f"c{n}": pa.nulls(0, taken_as(pa.field("c", t))) for n, t in enumerate(unknown)})
        with engine.cursor() as cursor:
            cursor.register("__il_types", empty)
            rows = cursor.execute('describe "__il_types"').fetchall()
            cursor.unregister("__il_types")
        _names.update({t: str(row[1]) for t, row in zip(unknown, rows, strict=True)})
    return ["HUGEINT" if is_hugeint(f) else _cast_name(f) or _names[f.type] for f in fields]


def _cast_name(field: Any) -> str | None:
    return None if collation_of(field) is not None else cast_type(field)


def casts_to(engine: Engine, fields: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the text before and after a value that casts it to what a column holds.

    Columns with a mark need two casts: to their SQL type and from there to the type that the table holds.
    """
    found = []
    for f, name in zip(fields, sql_names(engine, fields), strict=True):
        if enum_of(f) is not None or _cast_name(f) is None:
            found.append(("cast((", f") as {name})"))
        else:
            inner = [member.name for member in f.type][1:] if pa.types.is_struct(f.type) else ()
            found.append(held(name, _names[f.type], inner))
    return found


def column_field(engine: Engine, column: st.ColumnDefinition) -> pa.Field:
    """Return the Arrow field of a declared column, with its collation."""
    assert column.type is not None
    field = declared_field(engine, column.type, column.name, inside="." in column.name)
    collation = column.collation
    if collation is None:
        return field
    if not pa.types.is_string(field.type) or field.metadata:
        collation.source.fail("Only a VARCHAR column can have a collation.", collation.start)
    with translating(collation.source, collation.spliced(prefix="select '' collate ")):
        engine.types(f"select '' collate {collation.text}")
    return field.with_metadata(collated(collation.text))


def declared_field(engine: Engine, written: Fragment, column: str, *, inside: bool = False) -> pa.Field:
    """Return the Arrow field of a column declared with a SQL type.  ``inside``: it is a field of a struct."""
    spliced = written.spliced(prefix="select cast(null as ", suffix=") as c")
    try:
        with translating(written.source, spliced):
            (type,) = engine.types(spliced.text)
            check_held(type, column, declared=True, inside=inside)
            found = engine.table(f"select {held_form(type, 'null')} as c").schema.field(0).type
    except ExpressionError as error:
        raise SchemaError(f"Column {column!r}: {error}", column=column) from None
    return stored_field(column, found, type)


def stored_field(column: str, found: pa.DataType, type: Any) -> pa.Field:
    """Return the field to store a column of DuckDB's ``type``, which Arrow has as ``found``."""
    if is_hugeint_type(type):
        return pa.field(column, usual(found), metadata=MARK)
    if is_marked(type) and not pa.types.is_duration(found):
        return pa.field(column, usual(held_type(found)), metadata=mark(str(type)))
    return pa.field(column, usual(found))
