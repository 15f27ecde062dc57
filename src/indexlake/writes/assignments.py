"""New values for columns: plain values are taken literally, ``il.expr`` is SQL over existing rows.

For an update these are the old rows, for a merge pairs of old and source rows. Batches of rows are computed with Arrow,
a single row in Python; both give the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import encoded_bytes
from indexlake.errors import ConstraintError, SchemaError
from indexlake.expr.expression import Expression
from indexlake.schema import Field, TableSchema
from indexlake.schema.fitting import Values, fit, null_error, repeated
from indexlake.sources.rules import column_of, completed, computed, in_type, recomputed
from indexlake.types import SqlValue, holds_null
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.expr import Bound

_NONE: Mapping[str, str] = {}


class Assignments:
    """New values for the columns of a table.

    ``bind`` binds expressions, by default to the table's own columns; ``copies`` maps fields to columns of the batch
    that are taken unchanged.
    """

    def __init__(
        self,
        assignments: Mapping[str, Any],
        schema: TableSchema,
        *,
        bind: Callable[[Expression, Field], Bound] | None = None,
        copies: Mapping[str, str] | None = None,
        what: str = "update",
    ) -> None:
        if not isinstance(assignments, (dict, Mapping)) or not (assignments or copies):
            raise SchemaError(f"{what} needs a dict of column names and new values.")
        self._schema = schema
        self._values: dict[str, SqlValue] = {}  # encoded
        self._expressions: dict[str, Bound] = {}
        self._copies: Mapping[str, str] = copies or _NONE
        self._assigned = set(self._copies)
        for name, value in assignments.items():
            f = schema.field(name)
            name = f.name  # in the table's spelling
            if f.generated is not None:
                raise SchemaError(f"Column {name!r} is generated and cannot be assigned: leave it out.", column=name)
            if name in self._assigned:
                raise SchemaError(f"Column {name!r} is assigned twice.", column=name)
            self._assigned.add(name)
            if isinstance(value, Expression):
                self._expressions[name] = (bind or _over(schema))(value, f)
                continue
            try:
                encoded = schema.codecs[schema.place_of[name]].encode_one(value)
            except ConstraintError as error:
                hint = f". If it is SQL over the row, write il.expr({value!r})" if isinstance(value, str) else ""
                raise ConstraintError(f"Column {name!r}: {error}{hint}", column=name) from None
            if encoded is None and not f.nullable:
                raise null_error(name, given=True)
            self._values[name] = encoded

    @property
    def constant_bytes(self) -> int:
        """The bytes that the constant values add to each row."""
        return encoded_bytes([self._values.values()])

    @property
    def columns(self) -> frozenset[str]:
        """The columns from which the new values are computed."""
        found = frozenset(self._copies.values())
        for expression in self._expressions.values():
            found |= expression.columns
        return found

    def changes(self, names: Iterable[str]) -> bool:
        """Return whether any of these columns is assigned."""
        return not self._assigned.isdisjoint(names)

    def copied(self, f: Field) -> str | None:
        """Return the column whose value the field takes unchanged, if any."""
        expression = self._expressions.get(f.name)
        return self._copies.get(f.name) if expression is None else column_of(expression)

    def apply(self, batch: pa.RecordBatch, rest: Callable[[Field], pa.Array] | None = None) -> pa.RecordBatch:
        """Return the new versions of the rows of a batch; ``rest`` gives the columns that are not assigned."""
        arrays = []
        for f in self._schema.fields:
            if f.name in self._values:
                one = f.codec.decode([self._values[f.name]])
                array = take(one, pa.array(np.zeros(batch.num_rows, np.int64)))
            elif f.name in self._expressions:
                array = computed(self._expressions[f.name], batch, f)
            elif f.name in self._copies:
                array = fit(in_type(batch.column(self._copies[f.name]), f), f)
            elif f.generated is not None:
                array = repeated(f, None, batch.num_rows)
            else:
                array = batch.column(f.name) if rest is None else rest(f)
            if not f.nullable and f.generated is None and holds_null(array):
                raise null_error(f.name, given=self.changes((f.name,)))
            arrays.append(array)
        return completed(pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow), self._schema)

    def apply_row(self, values: Values, row: Mapping[str, Any]) -> Values:
        """Return the new version of one encoded row; ``row`` holds what the expressions need, as Python values."""
        new = list(values)
        place = self._schema.place_of
        for name, value in self._values.items():
            new[place[name]] = value
        for name, expression in self._expressions.items():
            f = self._schema.fields[place[name]]
            value = _computed_one(expression, row, f)
            if value is None and not f.nullable:
                raise null_error(name, given=True)
            new[place[name]] = value
        return recomputed(tuple(new), self._schema)


def _over(schema: TableSchema) -> Callable[[Expression, Field], Bound]:
    from indexlake.expr import compile, of_column

    return lambda e, f: compile(e.text, schema.arrow_with_row_id, e.params, target=of_column(f))


def _computed_one(expression: Bound, row: Mapping[str, Any], f: Field) -> SqlValue:
    value = expression.row_value(row)
    if expression.type == f.type:
        return f.codec.encode_one(value)
    array = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else pa.array([value], expression.type)
    return f.codec.encode(fit(in_type(array, f), f))[0]
