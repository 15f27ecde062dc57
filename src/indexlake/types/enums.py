"""ENUM: text whose possible values, and their order, are known to SQL.

Arrow has no such type.  An ENUM column is text for files, Spark, Python and predicates, and a mark in the field's
metadata says what it is in SQL. An ordinary check of the table keeps other texts out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.hugeint import KEY

HELD_AS = pa.string()


def enum_mark(name: str) -> dict[bytes, bytes]:
    """``name``: ``ENUM('a', 'b')``, as DuckDB prints it."""
    return {KEY: name.encode()}


def enum_of(field: Any) -> str | None:
    """The type of an ENUM column as SQL names it: of a field of Arrow's, or of one of a table's."""
    if field.type != HELD_AS or not field.metadata:
        return None
    found: bytes = field.metadata.get(KEY, b"")
    return found.decode() if found.startswith(b"ENUM(") else None


def check_name(column: str) -> str:
    """Of the check that holds its values together."""
    return f"{column}_enum"
