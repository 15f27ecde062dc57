"""Reads necessary conditions the way the engine does: on encoded, canonical values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.expr import All, Any_, ColumnTest, Test
from indexlake.types import codec_for


def holds(test: Test, batch: pa.RecordBatch) -> list[bool]:
    """Which rows satisfy the test."""
    rows = batch.num_rows
    if isinstance(test, ColumnTest):
        return _column(test, batch.column(test.column))
    parts = [holds(child, batch) for child in test.children]
    if isinstance(test, All):
        return [all(part[row] for part in parts) for row in range(rows)]
    assert isinstance(test, Any_)
    return [any(part[row] for part in parts) for row in range(rows)]


def _column(test: ColumnTest, column: pa.Array) -> list[bool]:
    if test.op in ("is null", "is not null"):
        return [value.is_valid is (test.op == "is not null") for value in column]
    if test.op == "contains":
        return [value is not None and test.values[0] in value for value in column.to_pylist()]
    codec = codec_for(column.type)
    stored: list[Any] = [codec.canonical(value) for value in codec.encode(column)]
    wanted: list[Any] = [codec.canonical(codec.encode_constant(value)) for value in test.values]
    compare = {
        "=": lambda value: value == wanted[0],
        "<": lambda value: value < wanted[0],
        "<=": lambda value: value <= wanted[0],
        ">": lambda value: value > wanted[0],
        ">=": lambda value: value >= wanted[0],
        "in": lambda value: value in wanted,
    }[test.op]
    return [value is not None and compare(value) for value in stored]
