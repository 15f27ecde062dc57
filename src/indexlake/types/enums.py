"""ENUM: text whose possible values, and their order, are known to SQL.

Arrow has no such type.  An ENUM column is text for files, Spark, Python and predicates, and a marker in the field's
metadata holds its SQL type.  An ordinary check of the table keeps out other texts.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.hugeint import KEY

HELD_AS = pa.string()


def enum_mark(name: str) -> dict[bytes, bytes]:
    """Return the metadata of an ENUM column; ``name`` is ``ENUM('a', 'b')``, as DuckDB prints it."""
    return {KEY: name.encode()}


def enum_of(field: Any) -> str | None:
    """Return the SQL type of an ENUM column, given its Arrow or table field; None for other columns."""
    if field.type != HELD_AS or not field.metadata:
        return None
    found: bytes = field.metadata.get(KEY, b"")
    return found.decode() if found.startswith(b"ENUM(") else None


def check_name(column: str) -> str:
    """Return the name of the check on the column's values."""
    return f"{column}_enum"
