"""Maps our columns' types to DuckDB's type names, and type names to columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from indexlake.errors import ExpressionError, SchemaError
from indexlake.schema import TableSchema
from indexlake.schema.rules import Check
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.run.duckdb_types import check_held, is_enum_type, is_hugeint_type
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.types import taken_as, usual
from indexlake.types.enums import HELD_AS, check_name, enum_mark, enum_of
from indexlake.types.hugeint import MARK, is_hugeint

_names: dict[pa.DataType, str] = {}


def sql_names(engine: Engine, fields: Sequence[Any]) -> list[str]:
    """Return the SQL name of each column's type."""
    unknown = [t for t in dict.fromkeys(f.type for f in fields) if t not in _names]
    if unknown:
        empty = pa.table({f"c{n}": pa.nulls(0, taken_as(pa.field("c", t))) for n, t in enumerate(unknown)})
        with engine.cursor() as cursor:
            cursor.register("__il_types", empty)
            rows = cursor.execute('describe "__il_types"').fetchall()
            cursor.unregister("__il_types")
        _names.update({t: str(row[1]) for t, row in zip(unknown, rows, strict=True)})
    return ["HUGEINT" if is_hugeint(f) else enum_of(f) or _names[f.type] for f in fields]


def declared_field(engine: Engine, written: Fragment, column: str, *, inside: bool = False) -> pa.Field:
    """Return the Arrow field of a column declared with a SQL type.  ``inside``: it is a field of a struct."""
    spliced = written.spliced(prefix="select cast(null as ", suffix=") as c")
    try:
        with translating(written.source, spliced):
            (type,) = engine.types(spliced.text)
            check_held(type, column, declared=True, inside=inside)
            found = engine.table(spliced.text).schema.field(0).type
    except ExpressionError as error:
        raise SchemaError(f"Column {column!r}: {error}", column=column) from None
    return stored_field(column, found, type)


def stored_field(column: str, found: pa.DataType, type: Any) -> pa.Field:
    """Return the field to store a column of DuckDB's ``type``, which Arrow has as ``found``."""
    if is_enum_type(type):
        return pa.field(column, HELD_AS, metadata=enum_mark(str(type)))
    return pa.field(column, usual(found), metadata=MARK if is_hugeint_type(type) else None)


def enum_checks(fields: Sequence[pa.Field]) -> list[tuple[str, str]]:
    """Return the checks, with names, that restrict ENUM columns to their values."""
    named = ((f.name, enum_of(f)) for f in fields)
    return [
        (check_name(name), f"{quoted(name)} in {type.removeprefix('ENUM')}") for name, type in named if type is not None
    ]


def is_enum_check(check: Check, schema: TableSchema) -> bool:
    columns = [schema.by_root[number] for number in check.condition.columns]
    return len(columns) == 1 and enum_of(columns[0]) is not None and check.name.endswith(check_name(""))
