"""Evaluates with DuckDB, over a batch, what no Arrow kernel does exactly as DuckDB does; results are then equal.

DuckDB is an optional dependency and is imported on first use.  Each thread has its own connection.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ConstraintError, ExpressionError, MissingExtraError
from indexlake.expr import intervals
from indexlake.expr.broadcast import full, rows_of
from indexlake.expr.sqltype import DURATIONS, INTEGERS, SqlType, quoted, to_arrow
from indexlake.types.convert import convert, shown_type
from indexlake.types.hugeint import as_hugeints
from indexlake.types.uuids import as_uuids

_SQL_NAMES = {
    "varchar": "VARCHAR",
    "string_literal": "VARCHAR",
    "blob": "BLOB",
    "timestamptz": "TIMESTAMPTZ",
    "timestamptz_ns": "TIMESTAMPTZ",
    "duration_ns": "INTERVAL",
    "null": "INTEGER",
}

_local = threading.local()


def _forget() -> None:
    """Discard connections, which do not survive a fork."""
    global _local
    _local = threading.local()


os.register_at_fork(after_in_child=_forget)


def sql_name(type: SqlType) -> str:
    """Return DuckDB's name of the type."""
    return type.spelled(lambda plain: _SQL_NAMES.get(plain.kind) or str(plain), quoted)


def _connection(purpose: str) -> Any:
    found = getattr(_local, "connection", None)
    if found is None:
        try:
            import duckdb
        except ImportError:
            raise MissingExtraError(
                f"{purpose} is evaluated by DuckDB, which is not installed; run: pip install 'indexlake[sql]'",
                extra="sql",
            ) from None
        found = duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": "false"})
        found.execute("SET TimeZone='UTC'; SET enable_progress_bar=false; SET arrow_lossless_conversion=true")
        _local.connection = found
    return found


def apply(sql: str, values: Sequence[Any], types: Sequence[SqlType], result: SqlType, purpose: str) -> Any:
    """Evaluate `sql` with the values, arrays or scalars that are the same for all rows, in place of `{0}`, `{1}`, ….

    Returns a scalar if every value is one.  DuckDB sees constants as such, so a pattern is compiled once, and options
    that have to be constant are accepted.
    """
    arrays: list[pa.Array] = []
    operands = []
    rows = rows_of(*values)
    for value, type in zip(values, types, strict=True):
        literal = _literal(value, type) if isinstance(value, pa.Scalar) else None
        if literal is None:
            operands.append(f"CAST(a{len(arrays)} AS {sql_name(type)})")
            arrays.append(handed_over(full(value, to_arrow(type), rows), type))
        else:
            operands.append(literal)
    text = sql.format(*operands)
    if any(not isinstance(value, pa.Scalar) for value in values):
        return evaluate(text, arrays, result, purpose)
    return evaluate(text, arrays or [pa.nulls(1, pa.int32())], result, purpose)[0]


def handed_over(array: pa.Array, type: SqlType) -> pa.Array:
    """Return an array, in the type in which `type` is evaluated, as DuckDB takes it."""
    if type.kind == "hugeint":
        return as_hugeints(array)
    return as_uuids(array) if type.kind == "uuid" else array


def _literal(value: pa.Scalar, type: SqlType) -> str | None:
    """Return SQL text for constants that DuckDB may require to be constant: text, whole numbers, booleans, null."""
    if not value.is_valid:
        return f"CAST(NULL AS {sql_name(type)})"
    if type.kind == "varchar":
        parts = [("'" + part.replace("'", "''") + "'") for part in value.as_py().split("\0")]
        return parts[0] if len(parts) == 1 else "(" + " || chr(0) || ".join(parts) + ")"
    if type.kind in INTEGERS or type.kind == "bool":
        return f"CAST('{value.as_py()}' AS {sql_name(type)})"
    return None


def evaluate(sql: str, arguments: Sequence[pa.Array], result: SqlType, purpose: str) -> pa.Array:
    """Evaluate `sql` over columns a0, a1, …, row by row.  The result has the Arrow type of `result`."""
    connection = _connection(purpose)
    import duckdb

    names = [f"a{index}" for index in range(len(arguments))]
    rows = pa.table(list(arguments), names=names)
    try:
        table = connection.from_arrow(rows).project(f"{sql} AS r").to_arrow_table()
    except duckdb.Error as error:
        raise ExpressionError(f"{purpose}: {_reason(error)}") from None
    column = table.column(0).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    wanted = to_arrow(result)
    if result.kind == "null":
        return pa.nulls(len(column))
    if result.kind in DURATIONS:
        column = intervals.to_duration(column)
    if column.type != wanted:
        try:
            column = pc.cast(convert(column, shown_type(column.type)), wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ConstraintError) as error:
            raise ExpressionError(f"{purpose}: {error}") from None
    return column


def _reason(error: Exception) -> str:
    """Return the first line of DuckDB's message, without its class."""
    first = str(error).splitlines()[0]
    _, found, rest = first.partition("Error: ")
    return re.sub(r" when casting from source column a\d+$", "", rest if found else first)
