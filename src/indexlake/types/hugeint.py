"""HUGEINT: whole numbers of up to 38 digits, which SQL computes as 128-bit integers.

Arrow has no such integer.  A HUGEINT column is a ``decimal128(38, 0)`` for files, Spark, pandas and polars, and a
marker in the field's metadata says that SQL takes it for a HUGEINT: ``//``, ``median`` and ``typeof`` differ.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.marks import mark

HELD_AS = pa.decimal128(38, 0)
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")
"""The types in which DuckDB takes and returns them: 16-byte integers, with the same bytes as the decimal."""
MARK = mark("HUGEINT")


def is_hugeint(field: Any) -> bool:
    """Return whether a column is a HUGEINT, given its Arrow or table field."""
    if field.type != HELD_AS or not field.metadata:
        return False
    return all(field.metadata.get(key) == value for key, value in MARK.items())


def hugeints(schema: pa.Schema) -> tuple[str, ...]:
    """Return the HUGEINT columns of a schema: Arrow ignores this difference when it compares schemas."""
    return tuple(field.name for field in schema if is_hugeint(field))
