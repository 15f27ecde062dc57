"""DuckDB's answer to a predicate: the judge of the parity tests."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

_connection = duckdb.connect(":memory:", config={"threads": 1})
_connection.execute("SET TimeZone='UTC'; SET enable_progress_bar=false")
# Its optimiser moves constants and casts about, so that errors vanish and `cast(tz as varchar) = 'x'` is null.
_connection.execute("PRAGMA disable_optimizer")


class Refused(Exception):
    """DuckDB raised."""


def values(text: str, batch: pa.RecordBatch, params: dict[str, Any]) -> list[Any]:
    """The value of an expression for each row."""
    rows = pa.Table.from_batches([batch])
    used = {name: value for name, value in params.items() if f"${name}" in text}
    try:
        _connection.register("rows", rows)
        cursor = _connection.execute(f"SELECT ({text}) AS r FROM rows", used or None)
        return [row[0] for row in cursor.fetchall()]
    except duckdb.Error as error:
        raise Refused(str(error)) from error


def truths(text: str, batch: pa.RecordBatch, params: dict[str, Any]) -> list[bool | None]:
    return values(f"({text})::boolean", batch, params)
