"""DuckDB over a batch: for what no Arrow kernel does exactly as DuckDB does.  Parity by construction.

DuckDB is an optional dependency and is imported on first use.  Each thread has its own connection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError, MissingExtraError
from indexlake.expr.sqltype import SqlType, to_arrow

_SQL_NAMES = {
    "varchar": "VARCHAR",
    "string_literal": "VARCHAR",
    "blob": "BLOB",
    "timestamptz": "TIMESTAMPTZ",
    "timestamptz_ns": "TIMESTAMPTZ",
    "interval_ns": "INTERVAL",
}

_local = threading.local()


def _forget() -> None:
    """A connection does not survive a fork."""
    global _local
    _local = threading.local()


os.register_at_fork(after_in_child=_forget)


def sql_name(type: SqlType) -> str:
    return _SQL_NAMES.get(type.kind) or str(type)


def _connection(purpose: str) -> Any:
    found = getattr(_local, "connection", None)
    if found is None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError(
                f"{purpose} is evaluated by DuckDB, which is not installed; run: pip install 'indexlake[sql]'",
                extra="sql",
            ) from error
        found = duckdb.connect(":memory:", config={"threads": 1})
        found.execute("SET TimeZone='UTC'; SET enable_progress_bar=false")
        _local.connection = found
    return found


def evaluate(sql: str, arguments: Sequence[pa.Array], result: SqlType, purpose: str) -> pa.Array:
    """`sql` over columns a0, a1, … row by row.  The result has the Arrow type of `result`."""
    connection = _connection(purpose)
    import duckdb

    names = [f"a{index}" for index in range(len(arguments))]
    rows = pa.table(list(arguments), names=names)
    try:
        table = connection.from_arrow(rows).project(f"{sql} AS r").to_arrow_table()
    except duckdb.Error as error:
        raise ExpressionError(f"{purpose}: {str(error).splitlines()[0]}") from error
    column = table.column(0).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    wanted = to_arrow(result)
    if column.type != wanted:
        try:
            column = pc.cast(column, wanted)
        except pa.ArrowInvalid as error:
            raise ExpressionError(f"{purpose}: {error}") from error
    return column
