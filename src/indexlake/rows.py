"""Rows on their way in: whatever the caller has becomes encoded row tuples or exact Arrow batches, or an error.

Small inputs become tuples of encoded values, in the order of the table's fields.  Large ones stay Arrow and stream.
Nothing is written here; an error names the column that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema import Field, TableSchema
from indexlake.types import SqlValue, check_values, codec_for

Values = tuple[SqlValue, ...]
_DICTS_PER_BATCH = 10_000


class RowEncoder:
    """Turns dicts into encoded tuples, without Arrow's fixed cost per row."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._columns = [(f.name, f.codec.encode_one, f.nullable, f.default) for f in schema.fields]

    def encode(self, row: Mapping[str, Any]) -> Values:
        values: list[SqlValue] = []
        named = 0
        for name, encode, nullable, default in self._columns:
            if name in row:
                named += 1
                try:
                    value = encode(row[name])
                except ConstraintError as error:
                    raise _in_column(name, error) from None
            else:
                value = default
            if value is None and not nullable:
                if name not in row and named < len(row):
                    break  # perhaps it is spelt in another case
                raise null_error(name, given=name in row)
            values.append(value)
        if named != len(row):
            return self.encode(self._respelt(row))
        return tuple(values)

    def _respelt(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The same row with column names in the table's own case; unknown or doubled names are errors."""
        result: dict[str, Any] = {}
        for key, value in row.items():
            name = self._schema.field(key).name
            if name in result:
                raise SchemaError(f"Column {name!r} is given twice in one row.", column=name)
            result[name] = value
        return result


def take_rows(
    rows: Any, schema: TableSchema, encoder: RowEncoder, limit: int
) -> list[Values] | Iterator[pa.RecordBatch]:
    """Fewer than ``limit`` rows as encoded tuples; otherwise all of them as a stream of exact batches."""
    if isinstance(rows, Mapping):
        return [encoder.encode(rows)]
    if isinstance(rows, list | tuple) and len(rows) < limit and all(isinstance(row, Mapping) for row in rows):
        return [encoder.encode(row) for row in rows]
    batches = (conform(batch, schema) for batch in arrow_batches(rows, schema))
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= limit:
            return chain(held, batches)
    return [values for batch in held for values in encode_batch(batch, schema)]


def arrow_batches(rows: Any, schema: TableSchema | None) -> Iterator[pa.RecordBatch]:
    """Anything that holds rows, as record batches with the columns it came with."""
    if isinstance(rows, pa.RecordBatch):
        return iter([rows])
    if isinstance(rows, pa.Table):
        return iter(rows.to_batches())
    if hasattr(rows, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(rows))
    if hasattr(rows, "__arrow_c_array__"):
        return iter([pa.record_batch(rows)])
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return _from_items(iter(rows), schema)
    raise SchemaError(
        f"Rows cannot be taken from {type(rows).__name__}. Give a dict, dicts, or anything that speaks Arrow: "
        "a pyarrow Table, a pandas or polars DataFrame, a DuckDB relation."
    )


def _from_items(items: Iterator[Any], schema: TableSchema | None) -> Iterator[pa.RecordBatch]:
    encoder = RowEncoder(schema) if schema is not None else None
    size = _DICTS_PER_BATCH if encoder is not None else None  # types are inferred from all rows together
    while chunk := list(islice(items, size)):
        if isinstance(chunk[0], pa.RecordBatch | pa.Table):
            for item in chunk:
                yield from arrow_batches(item, schema)
            continue
        for row in chunk:
            if not isinstance(row, Mapping):
                raise SchemaError(f"A row is a dict of column names and values, not {type(row).__name__}.")
        if encoder is not None and schema is not None:
            yield decode_batch([encoder.encode(row) for row in chunk], schema)
        else:
            yield from _inferred(chunk).to_batches()


def _inferred(rows: list[Mapping[str, Any]]) -> pa.Table:
    """Dicts as a table with every column that any of them names."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in rows]))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"The values of column {name!r} have no type in common: {error}. Give a pyarrow schema.", column=name
            ) from error
    return pa.table(columns, names)


def conform(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The batch with exactly the table's columns and types, defaults filled in, nullability checked."""
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
            check_values(array, f.name)
        else:
            array = repeated(f, f.default, batch.num_rows)
        if not f.nullable and array.null_count:
            raise null_error(f.name, given=f.name in given)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def fit(array: pa.Array, f: Field) -> pa.Array:
    """The array in the field's type, if nothing is lost by it."""
    if array.type == f.type:
        return array
    if not _castable(array.type, f.type):
        raise ConstraintError(
            f"Column {f.name!r} is of type {f.type}; the values given are {array.type}. Cast them first.",
            column=f.name,
        )
    try:
        if pt.is_dictionary(f.type):
            plain = array.dictionary_decode() if pt.is_dictionary(array.type) else array
            return codec_for(f.type).decode(codec_for(f.type.value_type).encode(plain.cast(f.type.value_type)))
        if pt.is_dictionary(array.type):
            array = array.dictionary_decode()
        return array.cast(f.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConstraintError(
            f"Column {f.name!r}: a value given as {array.type} does not fit into {f.type}: {error}", column=f.name
        ) from error


_FAMILIES = (
    pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean, pt.is_temporal,
    lambda t: pt.is_string(t) or pt.is_large_string(t) or t == pa.string_view(),
    lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t) or t == pa.binary_view(),
    pt.is_nested,
)  # fmt: skip


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a checked cast keeps the meaning: within a family, or from integers to wider numbers."""
    if pt.is_null(source):
        return True
    if pt.is_dictionary(source):
        source = source.value_type
    if pt.is_dictionary(target):
        target = target.value_type
    if pt.is_integer(source) and (pt.is_floating(target) or pt.is_decimal(target)):
        return True
    if pt.is_temporal(source) and pt.is_temporal(target):
        if pt.is_timestamp(source) and pt.is_timestamp(target):
            return (source.tz is None) == (target.tz is None)
        same = [pt.is_date, pt.is_time, pt.is_duration, pt.is_timestamp]
        return any(kind(source) and kind(target) for kind in same)
    return any(family(source) and family(target) for family in _FAMILIES)


def repeated(f: Field, value: SqlValue, count: int) -> pa.Array:
    """One encoded value, ``count`` times."""
    one = f.codec.decode([value])
    if pa.types.is_dictionary(f.type) or pa.types.is_nested(f.type):
        return f.codec.decode([value] * count)
    return pa.repeat(one[0], count)


def encode_batch(batch: pa.RecordBatch, schema: TableSchema) -> list[Values]:
    """Rows of an exact batch as encoded tuples."""
    columns = [f.codec.encode(batch.column(f.name)) for f in schema.fields]
    return list(zip(*columns, strict=True))


def decode_batch(rows: Sequence[Values], schema: TableSchema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [f.codec.decode(values) for f, values in zip(schema.fields, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def null_error(column: str, *, given: bool) -> ConstraintError:
    what = "holds a null" if given else "is missing and has no default"
    return ConstraintError(f"Column {column!r} {what}, but it is declared NOT NULL. Give it a value.", column=column)


def _in_column(column: str, error: ConstraintError) -> ConstraintError:
    return ConstraintError(f"Column {column!r}: {error}", column=column)
