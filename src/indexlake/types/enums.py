"""ENUM: text whose possible values, and their order, are known to SQL.

An ENUM column is text for files, Spark, Python and predicates, and its mark says what it is in SQL. An ordinary check
of the table keeps other texts out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.marks import cast_type

HELD_AS = pa.string()


def enum_of(field: Any) -> str | None:
    """The type of an ENUM column as SQL names it: of a field of Arrow's, or of one of a table's."""
    found = cast_type(field) if field.type == HELD_AS else None
    return found if found is not None and found.startswith("ENUM(") else None
