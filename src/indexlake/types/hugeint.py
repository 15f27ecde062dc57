"""HUGEINT: the whole numbers of 128 bits, -2¹²⁷ to 2¹²⁷ - 1.

Arrow has no such integer.  A HUGEINT column is a ``decimal128(38, 0)``, which is a 128-bit integer in memory, and a
marker in the field's metadata says that SQL takes it for a HUGEINT: ``//``, ``median`` and ``typeof`` differ, and its
values may have 39 digits.  We keep and compute those exactly.  Others read such a decimal wrongly, so rows that hold
one do not leave as Arrow data or to Spark (see ``types.outside``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.marks import mark

HELD_AS = pa.decimal128(38, 0)
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")
"""The types in which DuckDB takes and returns them: 16-byte integers, with the same bytes as the decimal."""
WIDE = pa.decimal256(39, 0)
"""What Arrow has for both of them, but not for Spark and polars."""
LEAST, MOST = -(2**127), 2**127 - 1
MARK = mark("HUGEINT")


def is_hugeint(field: Any) -> bool:
    """Return whether a column is a HUGEINT, given its Arrow or table field."""
    if not field.metadata or field.type != HELD_AS:
        return False
    return all(field.metadata.get(key) == value for key, value in MARK.items())


def as_hugeints(array: Any) -> Any:
    """Return decimals as the 128-bit integers that DuckDB takes."""
    return pa.ExtensionArray.from_storage(HUGEINT, array.view(HUGEINT.storage_type))


def hugeints(schema: pa.Schema) -> tuple[str, ...]:
    """Return the HUGEINT columns of a schema: Arrow ignores this difference when it compares schemas."""
    return tuple(field.name for field in schema if is_hugeint(field))
