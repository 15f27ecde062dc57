"""``alter table … add | drop | alter column``, as far as it takes more than one of our own operations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import IndexLakeError, SchemaError
from indexlake.expr.expression import Expression
from indexlake.expr.sqltype import quoted
from indexlake.expr.templates import calls
from indexlake.pipeline.retype import change_type
from indexlake.sql.run.type_checks import is_type_check, type_checks
from indexlake.types.enums import enum_of
from indexlake.types.marks import cast_type, mark_of

if TYPE_CHECKING:
    from indexlake.schema import Field, TableSchema
    from indexlake.schema.rules import Template
    from indexlake.table import Table


def add_column(table: Table, field: pa.Field, default: Any, fill: Callable[[], object], *, nullable: bool) -> None:
    """Add a column.  Existing rows take the default; if it differs from row to row, ``fill`` gives each row its own."""
    if not isinstance(default, Expression) or not calls(default.text):
        with table.alter() as a:
            a.add_column(field.name, field.type, default, nullable, metadata=field.metadata)
    else:
        with table.alter() as a:
            a.add_column(field.name, field.type, metadata=field.metadata)
        try:
            table.set_default(field.name, default)
            if table._tx is not None:
                table._tx.depend_on(table._table_id)
            fill()
            if not nullable:
                table.set_not_null(field.name)
        except BaseException:
            with suppress(IndexLakeError):  # someone else has dropped it
                table.drop_column(field.name)
            raise
    for name, condition in type_checks([field]):
        table.add_check(condition, name)


def drop_column(table: Table, name: str, *, cascade: bool) -> None:
    """Drop a column together with the checks that concern nothing else; ``cascade``: and what is generated from it."""
    schema = table._schema_now()
    f = schema.by_name.get(name.lower())
    made = [g for g in schema.fields if g.generated is not None and f in _needed(g.generated, schema)]
    dropped = {f, *(made if cascade else ())}
    with table.alter() as a:
        for check in schema.checks if f is not None else ():
            if set() < _needed(check.condition, schema) <= dropped:
                a.drop_check(check.name)
        for g in made if cascade else ():
            a.drop_column(g.name)
        a.drop_column(name)


def _needed(rule: Template, schema: TableSchema) -> set[Field | None]:
    return {schema.by_root[number] for number in rule.columns}


def alter_type(table: Table, column: str, field: pa.Field, text: str | None, type: str, default: Any) -> None:
    """Change a type; ``text`` computes the values, if not the column itself, and ``type`` is the SQL name."""
    schema = table._schema_now()
    f = schema.by_name.get(column.lower())
    if text is None and f is not None and f.type == field.type and mark_of(f) == mark_of(field):
        return
    for changed in (field, f):
        if changed is not None and cast_type(changed) is not None and enum_of(changed) is None:
            raise SchemaError(
                f"The type of column {column!r} cannot change to or from {cast_type(changed)}. Add a column of the new "
                "type, fill it with UPDATE, and drop the old one.",
                column=column,
            )
    if text is None:
        try:
            _widen(table, column, field)
            return
        except SchemaError:
            if f is None or enum_of(field) is not None or enum_of(f) is not None:
                raise
    elif f is None:
        raise SchemaError(f"The values of {column!r}, a field inside a column, cannot be computed anew.", column=column)
    value = quoted(f.name) if text is None else f"({text})"
    change_type(table, field.with_name(f.name), f"cast({value} as {type})", default)


def _widen(table: Table, column: str, field: pa.Field) -> None:
    """Widen; an ENUM checks that all values belong to it, and one that becomes text loses its check."""
    schema = table._schema_now()
    f = schema.by_name.get(column.lower())
    old = None if f is None else enum_of(f)
    if f is not None and enum_of(field) is not None and enum_of(field) != old and f.type == field.type:
        if old is not None:
            _widen(table, column, pa.field(column, field.type))
        for name, condition in type_checks([field.with_name(f.name)]):
            table.add_check(condition, name)
    with table.alter() as a:
        for check in schema.checks if old is not None and enum_of(field) is None else ():
            if is_type_check(check, schema) and schema.by_root[min(check.condition.columns)] is f:
                a.drop_check(check.name)
        a.widen_column(column, field.type, metadata=field.metadata)
