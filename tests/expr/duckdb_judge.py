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


def column(text: str, batch: pa.RecordBatch, params: dict[str, Any]) -> pa.Array:
    """The values of an expression as Arrow has them."""
    used = {name: value for name, value in params.items() if f"${name}" in text}
    try:
        _connection.register("rows", pa.Table.from_batches([batch]))
        found = _connection.execute(f"SELECT ({text}) AS r FROM rows", used or None).to_arrow_table().column(0)
    except duckdb.Error as error:
        raise Refused(str(error)) from error
    return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)


def columns(texts: list[str], batch: pa.RecordBatch) -> tuple[list[pa.Array], list[str]]:
    """The values of several expressions, and the names of their types."""
    _connection.register("rows", pa.Table.from_batches([batch]))
    found = _connection.execute(f"SELECT {', '.join(f'({text})' for text in texts)} FROM rows").to_arrow_table()
    types = _connection.execute(f"SELECT {', '.join(f'typeof({text})' for text in texts)} FROM rows LIMIT 1").fetchall()
    return [pa.concat_arrays(each.chunks) for each in found.columns], list(types[0])


class Typed:
    """DuckDB's types of expressions over the columns of a batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.cursor = _connection.cursor()
        self.cursor.execute("PRAGMA disable_optimizer")
        self.cursor.register("given", pa.Table.from_batches([batch]))
        self.cursor.execute("CREATE OR REPLACE TEMP TABLE typed AS SELECT * FROM given")

    def type(self, text: str) -> str | None:
        """The name of the type; None if DuckDB refuses the expression."""
        try:
            return str(self.cursor.execute(f"SELECT typeof({text}) FROM typed").fetchall()[0][0])
        except duckdb.Error:
            return None


def truths(text: str, batch: pa.RecordBatch, params: dict[str, Any]) -> list[bool | None]:
    return values(f"({text})::boolean", batch, params)
