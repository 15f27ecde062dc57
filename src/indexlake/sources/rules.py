"""Rows on their way into a table: defaults, generated columns and checks, the same for every kind of write.

All code that writes users' rows goes through here, in batches or one by one: inserts, updates, merges, loads, Spark
tasks.  A row that breaks a rule is an error that names the rule and shows the row; nothing of its statement has been
written by then.
"""

from __future__ import annotations

import random
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.display import shown_value
from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema import Field, TableSchema
from indexlake.schema.fitting import Values, decode_batch, encode_batch, fit, null_error, repeated
from indexlake.schema.rules import Check
from indexlake.types import SqlValue, check_values, holds_null
from indexlake.types.convert import convert, in_files, mapped_leaves, without_view

if TYPE_CHECKING:
    from indexlake.expr import Bound


def conform(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return the batch with exactly the table's columns and types, with defaults filled in and every rule enforced."""
    given: dict[str, int] = {}
    for place, name in enumerate(batch.schema.names):
        f = schema.field(name)
        if f.name in given:
            raise SchemaError(f"Column {f.name!r} is given twice.", column=f.name)
        given[f.name] = place
    arrays = []
    for f in schema.fields:
        if f.name in given:
            array = fit(batch.column(given[f.name]), f)
            check_values(array, f)
        else:
            array = default_array(f, batch.num_rows)
        if not f.nullable and f.generated is None and holds_null(array):
            raise null_error(f.name, given=f.name in given)
        arrays.append(array)
    return completed(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), schema)


# ---------------------------------------------------------------- defaults


def default_array(f: Field, count: int) -> pa.Array:
    """Return the default of ``count`` rows that do not name the column."""
    if f.default_sql is None:
        return repeated(f, f.default, count)
    from indexlake.expr.compiler import compile
    from indexlake.expr.sqltype import of_column
    from indexlake.expr.templates import default_parts

    target = of_column(f)
    text, columns, calls = default_parts(f.default_sql, target)
    arrays = [pa.nulls(count), *(_called(f, name, count) for name in calls)]
    batch = pa.RecordBatch.from_arrays(arrays, ["", *columns.names])
    return computed(compile(text, columns, target=target), batch, f)


def default_encoded(f: Field) -> SqlValue:
    """Return the encoded default of a row that does not name the column."""
    return f.default if f.default_sql is None else f.codec.encode(default_array(f, 1))[0]


def default_assigned(f: Field) -> Any:
    """Return the default to assign: a Python value, or an Arrow scalar if Python cannot represent it."""
    if f.default_sql is None:
        return f.default_value
    value = default_array(f, 1)[0]
    try:
        return f.codec.decode_one(f.codec.encode(pa.array([value.as_py()], f.type))[0])
    except (ConstraintError, pa.ArrowException, OverflowError, ValueError):
        return value


def differs_by_row(f: Field) -> bool:
    """Return whether each row that takes the default gets a value of its own."""
    from indexlake.expr.templates import calls

    return f.default_sql is not None and bool(calls(f.default_sql))


def _called(f: Field, name: str, count: int) -> pa.Array:
    function, _, sequence = name.partition(" ")
    if sequence:
        assert f.sequences is not None, "a table that is read has who gives its numbers"
        return pa.array(f.sequences.take(sequence, count))
    if function == "random":
        return pa.array([random.random() for _ in range(count)], pa.float64())
    make = _uuid7 if name == "uuidv7" else uuid4
    return pa.array([make().bytes for _ in range(count)], pa.binary(16)).cast(pa.uuid())


def _uuid7() -> UUID:
    """Return a version 7 UUID: milliseconds since 1970, then random bits."""
    chance = uuid4().int & ((1 << 80) - 1)
    return UUID(int=(time.time_ns() // 1_000_000) << 80 | chance & ~(0xF << 76) | 7 << 76)


# ---------------------------------------------------------------- generated columns and checks


def completed(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return the rows with generated values filled in; refuse rows for which a check is false.

    If a generated column is given, it must be null or have the computed values.
    """
    if not schema.has_rules:
        return batch
    for place, f in enumerate(schema.fields):
        if f.generated is None:
            continue
        values = computed(_bound(schema, f), batch, f)
        given = batch.column(place)
        if given.null_count < len(given) and (row := _differing(given, values)) is not None:
            raise _wrongly_given(schema, f, given[row], values[row])
        if not f.nullable and holds_null(values):
            raise null_error(f.name, given=False)
        batch = batch.set_column(place, schema.arrow.field(place), values)
    for check in schema.checks:
        held = _condition(schema, check).evaluate(batch)
        broken = pc.equal(held, pa.scalar(False)) if not pa.types.is_null(held.type) else None
        if broken is not None and pc.any(broken).as_py():
            row = int(np.flatnonzero(np.asarray(pc.fill_null(broken, False)))[0])
            raise violated(schema, check, batch.slice(row, 1))
    return batch


def completed_row(values: Values, schema: TableSchema) -> Values:
    """Do the same for one encoded row."""
    if not schema.has_rules:
        return values
    if schema.checks and not any(f.generated is not None for f in schema.fields):
        bounds = [_condition(schema, check) for check in schema.checks]
        named = frozenset().union(*(bound.columns for bound in bounds))
        if named <= schema.plain_names:
            places = [(name, schema.place_of[name]) for name in named]
            row = {name: schema.fields[place].codec.decode_one(values[place]) for name, place in places}
            for check, bound in zip(schema.checks, bounds, strict=True):
                if bound.row_value(row) is False:
                    raise violated(schema, check, decode_batch([values], schema))
            return values
    return encode_batch(completed(decode_batch([values], schema), schema), schema)[0]


def completed_rows(rows: list[Values], schema: TableSchema) -> list[Values]:
    """Do the same for several encoded rows."""
    if not schema.has_rules or not rows:
        return rows
    if len(rows) == 1:
        return [completed_row(rows[0], schema)]
    return encode_batch(completed(decode_batch(rows, schema), schema), schema)


def recomputed(values: Values, schema: TableSchema) -> Values:
    """Recompute the generated values of a new version of an encoded row, which are still those of the old version."""
    if not schema.has_rules:
        return values
    fields = zip(schema.fields, values, strict=True)
    return completed_row(tuple(None if f.generated is not None else value for f, value in fields), schema)


def violated(schema: TableSchema, check: Check, row: pa.RecordBatch) -> ConstraintError:
    from indexlake.expr.templates import shown

    values = {name: column[0] for name, column in zip(row.schema.names, row.columns, strict=True)}
    text = ", ".join(f"{name}: {shown_value(value)!r}" for name, value in values.items())
    where = f" of table {schema.table_name!r}" if schema.table_name else ""
    return ConstraintError(
        f"Check {check.name!r}{where} is violated: {shown(check.condition, schema)} is false for the row {{{text}}}.",
        constraint=check.name,
        table=schema.table_name or None,
    )


def _wrongly_given(schema: TableSchema, f: Field, given: pa.Scalar, value: pa.Scalar) -> ConstraintError:
    from indexlake.expr.templates import shown

    assert f.generated is not None
    return ConstraintError(
        f"Column {f.name!r} is generated always as ({shown(f.generated, schema)}): that is {shown_value(value)!r}, and "
        f"{shown_value(given)!r} is given. Leave it out.",
        column=f.name,
        table=schema.table_name or None,
    )


def _differing(given: pa.Array, values: pa.Array) -> int | None:
    """Return the first row with a value other than the computed one; null does not count.  None if there is none."""
    if given.equals(values):
        return None
    for row in np.flatnonzero(np.asarray(given.is_valid())).tolist():
        if not given[row].equals(values[row]):
            return int(row)
    return None


@lru_cache(256)
def _texts(schema: TableSchema) -> tuple[dict[int, str], dict[int, str]]:
    """Return the conditions of checks by their ids, and the expressions of generated columns by theirs."""
    from indexlake.expr.templates import written

    checks = {check.check_id: written(check.condition, schema) for check in schema.checks}
    columns = {f.field_id: written(f.generated, schema) for f in schema.fields if f.generated is not None}
    return checks, columns


def _condition(schema: TableSchema, check: Check) -> Bound:
    from indexlake.expr import compile

    return compile(_texts(schema)[0][check.check_id], schema.arrow)


def _bound(schema: TableSchema, f: Field) -> Bound:
    from indexlake.expr import compile, of_column

    return compile(_texts(schema)[1][f.field_id], schema.arrow, target=of_column(f))


# ---------------------------------------------------------------- values of expressions, as columns hold them


def column_of(expression: Bound) -> str | None:
    """Return the column's name if the expression is just a column, else None."""
    from indexlake.expr.tree import Column

    root = expression.root
    return root.name if isinstance(root, Column) else None


def computed(expression: Bound, batch: pa.RecordBatch, f: Field) -> pa.Array:
    column = column_of(expression)
    # A column by itself keeps its type, which may be more than SQL can represent.
    array = expression.evaluate(batch) if column is None else batch.column(column)
    array = in_type(array, f)
    return fit(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, f)


def in_type(array: pa.Array, f: Field) -> pa.Array:
    """Return an array in the field's type if it has that type without views, or with UUIDs as bytes."""
    if array.type != f.type and array.type in (mapped_leaves(f.type, without_view), mapped_leaves(f.type, in_files)):
        return convert(array, f.type)
    return array
