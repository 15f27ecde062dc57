"""Values that are the same for all rows, as arrays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def full(value: Any, type: pa.DataType, rows: int) -> pa.Array:
    """A value as an array of that many rows; an array as it is."""
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, rows) if value.is_valid and rows else pa.nulls(rows, type)


def rows_of(*values: Any) -> int:
    """How many rows the arrays among the values have; 1 if all are scalars."""
    return next((len(value) for value in values if not isinstance(value, pa.Scalar)), 1)
