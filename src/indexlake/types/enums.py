"""ENUM: text whose possible values, and their order, are known to SQL.

An ENUM column is text for files, Spark, Python and predicates, and its mark holds its SQL type.  An ordinary check of
the table keeps out other texts.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.marks import cast_type

HELD_AS = pa.string()


def enum_of(field: Any) -> str | None:
    """Return the SQL type of an ENUM column, given its Arrow or table field; None for other columns."""
    found = cast_type(field) if field.type == HELD_AS else None
    return found if found is not None and found.startswith("ENUM(") else None
