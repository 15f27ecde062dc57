"""``SET`` of an update: plain values are values, ``il.expr`` is SQL over the old row.

Batches of rows are computed with Arrow, a single row in Python; both give the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.errors import ConstraintError, ExpressionError, SchemaError
from indexlake.expression import Expression
from indexlake.rows import Values, fit, null_error
from indexlake.schema import Field, TableSchema
from indexlake.types import SqlValue
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.expr import Bound


class Assignments:
    def __init__(self, assignments: Mapping[str, Any], schema: TableSchema) -> None:
        from indexlake.expr import compile

        if not isinstance(assignments, Mapping) or not assignments:
            raise SchemaError("update needs a dict of column names and new values.")
        self._schema = schema
        self._values: dict[str, SqlValue] = {}  # encoded
        self._expressions: dict[str, Bound] = {}
        for name, value in assignments.items():
            f = schema.field(name)
            if f.name in self._values or f.name in self._expressions:
                raise SchemaError(f"Column {f.name!r} is assigned twice.", column=f.name)
            if isinstance(value, Expression):
                self._expressions[f.name] = compile(value.text, schema.arrow_with_row_id, value.params)
                continue
            try:
                encoded = f.codec.encode_one(value)
            except ConstraintError as error:
                raise ConstraintError(f"Column {f.name!r}: {error}", column=f.name) from None
            if encoded is None and not f.nullable:
                raise null_error(f.name, given=True)
            self._values[f.name] = encoded

    @property
    def columns(self) -> set[str]:
        """The columns that the new values are computed from."""
        return {name for expression in self._expressions.values() for name in expression.columns}

    def changes(self, fields: tuple[Field, ...]) -> bool:
        return any(f.name in self._values or f.name in self._expressions for f in fields)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The new versions of the rows of a batch."""
        arrays = []
        for f in self._schema.fields:
            if f.name in self._values:
                one = f.codec.decode([self._values[f.name]])
                array = take(one, pa.array(np.zeros(batch.num_rows, np.int64)))
            elif f.name in self._expressions:
                array = _computed(self._expressions[f.name], batch, f)
            else:
                array = batch.column(f.name)
            if array.null_count and not f.nullable:
                raise null_error(f.name, given=True)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow)

    def apply_row(self, values: Values, row: Mapping[str, Any]) -> Values:
        """The new version of one encoded row; ``row`` holds what the expressions ask for, as Python values."""
        new = list(values)
        place = self._schema.place_of
        for name, value in self._values.items():
            new[place[name.lower()]] = value
        for name, expression in self._expressions.items():
            f = self._schema.fields[place[name.lower()]]
            value = _computed_one(expression, row, f)
            if value is None and not f.nullable:
                raise null_error(name, given=True)
            new[place[name.lower()]] = value
        return tuple(new)


def _computed(expression: Bound, batch: pa.RecordBatch, f: Field) -> pa.Array:
    array = expression.evaluate(batch)
    return _assigned(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, expression.text, f)


def _computed_one(expression: Bound, row: Mapping[str, Any], f: Field) -> SqlValue:
    value = expression.evaluate_row(row)
    if expression.type == f.type:
        return f.codec.encode_one(value)
    return f.codec.encode(_assigned(pa.array([value], expression.type), expression.text, f))[0]


def _assigned(array: pa.Array, text: str, f: Field) -> pa.Array:
    """Computed values as the column holds them."""
    if array.type == f.type:
        return array
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if any(kind(array.type) for kind in numeric) and any(kind(f.type) for kind in numeric):
        # As SQL assigns: a number is rounded to the column's scale, and refused if it does not fit.
        try:
            if pa.types.is_floating(array.type) and pa.types.is_integer(f.type):
                import pyarrow.compute as pc

                array = pc.round(array, round_mode="half_to_even")
            return array.cast(f.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ExpressionError(
                f"{text!r} gives a value that column {f.name!r} of type {f.type} cannot hold: {error}",
                text=text,
            ) from error
    return fit(array, f)
