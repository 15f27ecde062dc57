"""Rows as Python values and as data frames, exactly, or with an error that names the column.

Python's dates range from year 1 to 9999: there are no infinite ones, as in SQL, and no time 24:00:00.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from indexlake.arrow.buffers import holds
from indexlake.errors import ConstraintError, SchemaError
from indexlake.types.convert import mapped_leaves
from indexlake.types.outside import Limits, any_outside, in_arrow, in_pandas, in_polars, in_python
from indexlake.types.uuids import is_uuid


def python_rows(data: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dicts."""
    names = data.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"Two columns are named {twice!r}, so a dict cannot hold both. Rename one with AS, or take the rows as "
            "tuples (fetchall) or as Arrow (to_arrow).",
            column=twice,
        )
    return python_dicts(data)


def python_dicts(data: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dicts; columns with the same name must have the same values."""
    if any(any_outside(column, in_python) for column in data.columns):
        python_columns(data)  # raises an error that names the first such column
    try:
        rows: list[dict[str, Any]] = data.to_pylist()
    except (OverflowError, ValueError):
        names = data.schema.names
        rows = [dict(zip(names, row, strict=True)) for row in zip(*python_columns(data), strict=True)]
    return rows


@lru_cache(maxsize=256)
def is_exact(type: Any) -> bool:
    """Return whether Python values of this type always convert back to the same array, except for NaN."""
    t = pa.types
    return bool(
        t.is_integer(type) or t.is_float64(type) or t.is_float32(type) or t.is_boolean(type) or t.is_string(type)
        or t.is_large_string(type) or t.is_binary(type) or t.is_large_binary(type)
    )  # fmt: skip


def python_columns(data: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """Return the values of each column."""
    return [_values(column, name) for name, column in zip(data.schema.names, data.columns, strict=True)]


def pandas_frame(table: pa.Table) -> Any:
    """Return a data frame; nested values containing UUIDs, which pyarrow cannot convert, become Python objects."""
    check_limits(table, in_pandas, "pandas")
    objects: dict[int, list[Any]] = {}
    for place, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
        if pa.types.is_nested(column.type) and holds(column.type, is_uuid):
            objects[place] = _values(column, name)
            table = table.set_column(place, name, pa.nulls(len(table)))
    try:
        frame = table.to_pandas()
    except (OverflowError, ValueError) as error:
        for name, column in zip(table.schema.names, table.columns, strict=True):
            try:
                column.to_pandas()
            except (OverflowError, ValueError):
                raise _no_such_value(name, column.type, "pandas") from None
        raise error
    for place, values in objects.items():
        frame.isetitem(place, type(frame.iloc[:, place])(values, frame.index, object))
    return frame


def polars_frame(table: pa.Table) -> Any:
    import polars

    check_limits(checked_arrow(table), in_polars, "polars")
    for place, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
        if holds(column.type, pa.types.is_decimal256):  # on which polars panics
            table = table.set_column(place, name, _in_38_digits(column, name))
    return polars.from_arrow(table)


def _in_38_digits(column: Any, name: str) -> Any:
    try:
        return column.cast(mapped_leaves(column.type, _with_38_digits))
    except (pa.ArrowInvalid, ValueError):  # or its scale is larger
        raise ConstraintError(
            f"Column {name!r} of type {column.type} holds a number of more than 38 digits, which polars cannot "
            "represent. Cast it to VARCHAR or DOUBLE in SQL, or take the rows as Arrow: to_arrow().",
            column=name,
        ) from None


def checked_arrow(data: Any) -> Any:
    """Return rows that may leave as Arrow data, having refused those that its readers would take for others."""
    for name, column in zip(data.schema.names, data.columns, strict=True):
        if any_outside(column, in_arrow):
            raise ConstraintError(
                f"Column {name!r} holds a HUGEINT of 39 digits; as Arrow data it is a decimal128(38, 0), which has 38. "
                "Cast it to VARCHAR or DOUBLE in SQL, or take the rows as Python values: fetchall(), to_pylist().",
                column=name,
            )
    return data


def _with_38_digits(type: Any) -> Any:
    return pa.decimal128(38, type.scale) if pa.types.is_decimal256(type) else type


def check_limits(data: pa.RecordBatch | pa.Table, limits: Callable[[Any], Limits | None], who: str) -> None:
    """Raise ``ConstraintError`` for a column with a value that would silently become another."""
    for name, column in zip(data.schema.names, data.columns, strict=True):
        if any_outside(column, limits):
            raise _no_such_value(name, column.type, who)


def _values(column: Any, name: str) -> list[Any]:
    if any_outside(column, in_python):
        raise _no_such_value(name, column.type, "Python")
    try:
        if holds(column.type, _is_tuple):
            return [_nested(value) for value in column]
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise _no_such_value(name, column.type, "Python") from None
    return values


def _is_tuple(type: Any) -> bool:
    """Return whether it is a struct whose fields are distinguished by position only: ``row(1, 'a')``."""
    return bool(pa.types.is_struct(type)) and len({field.name for field in type}) < len(type)


def _nested(value: Any) -> Any:
    """Return the value of an Arrow scalar, with tuples for such structs."""
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        fields = [_nested(value[n]) for n in range(len(value.type))]
        named = zip((field.name for field in value.type), fields, strict=True)
        return tuple(fields) if _is_tuple(value.type) else dict(named)
    if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar) and value.values is not None:
        return [_nested(item) for item in value.values]
    return value.as_py()


def _no_such_value(name: str, type: Any, who: str) -> ConstraintError:
    return ConstraintError(
        f"Column {name!r} of type {type} holds a time that {who} cannot represent, such as infinity, the year 10000, "
        "24:00:00 or a time with nanoseconds. Cast it to VARCHAR in SQL, or take the rows as Arrow: to_arrow().",
        column=name,
    )
