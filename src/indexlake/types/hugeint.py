"""HUGEINT: whole numbers of up to 38 digits, which SQL computes as integers of 128 bits.

Arrow has no such integer.  A HUGEINT column is a ``decimal128(38, 0)`` for files, Spark, pandas and polars, and a mark
in the field's metadata says that SQL takes it for a HUGEINT: ``//``, ``median`` and ``typeof`` tell one from a decimal.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.marks import mark

HELD_AS = pa.decimal128(38, 0)
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")
"""How DuckDB takes and gives them: integers in 16 bytes, which are those of the decimal."""
MARK = mark("HUGEINT")


def is_hugeint(field: Any) -> bool:
    """Whether a column is a HUGEINT: a field of Arrow's, or one of a table's."""
    if field.type != HELD_AS or not field.metadata:
        return False
    return all(field.metadata.get(key) == value for key, value in MARK.items())


def hugeints(schema: pa.Schema) -> tuple[str, ...]:
    """The HUGEINT columns of a schema: schemas are equal to Arrow that differ in nothing else."""
    return tuple(field.name for field in schema if is_hugeint(field))
