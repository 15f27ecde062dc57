"""Turns values that are the same for all rows into arrays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def full(value: Any, type: pa.DataType, rows: int) -> pa.Array:
    """Return a scalar as an array with this many rows; return arrays unchanged."""
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, rows) if value.is_valid and rows else pa.nulls(rows, type)


def rows_of(*values: Any) -> int:
    """Return the number of rows of the arrays among the values, or 1 if all are scalars."""
    return next((len(value) for value in values if not isinstance(value, pa.Scalar)), 1)
