"""Rows as Python values, exactly, or an error that names the column.

Python's dates end with the years 1 and 9999: it has no infinite ones, which SQL knows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.errors import ConstraintError, SchemaError


def python_rows(data: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts."""
    names = data.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"Two columns are named {twice!r}, so a dict cannot hold both. Rename one with AS, or take the rows as "
            "tuples (fetchall) or as Arrow (to_arrow).",
            column=twice,
        )
    try:
        rows: list[dict[str, Any]] = data.to_pylist()
    except (OverflowError, ValueError) as error:
        python_columns(data)
        raise error
    return rows


def python_columns(data: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """The values of each column."""
    return [_values(column, name) for name, column in zip(data.schema.names, data.columns, strict=True)]


def pandas_frame(table: pa.Table) -> Any:
    try:
        return table.to_pandas()
    except (OverflowError, ValueError) as error:
        python_columns(table)
        raise error


def _values(column: Any, name: str) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise ConstraintError(
            f"Column {name!r} of type {column.type} holds a time that Python cannot represent, such as infinity or the "
            "year 10000. Cast it to VARCHAR in SQL, or take the rows as Arrow: to_arrow().",
            column=name,
        ) from None
    return values
