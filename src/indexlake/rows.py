"""Rows on their way in: whatever the caller has becomes encoded row tuples or exact Arrow batches, or an error.

Small inputs become tuples of encoded values, in the order of the table's fields.  Large ones stay Arrow and stream.
Nothing is written here; an error names the column that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from indexlake import batch_size
from indexlake import kernels as pc
from indexlake.batch_size import batch_bytes, cut, encoded_bytes, row_chunks
from indexlake.errors import ConstraintError, SchemaError
from indexlake.evolution import field_steps
from indexlake.schema import Field, TableSchema
from indexlake.types import SqlValue, check_values, codec_for, holds_null
from indexlake.types.convert import checked_cast
from indexlake.types.inference import inferred_column
from indexlake.types.nested import without_list_views

if TYPE_CHECKING:
    from indexlake.progress import ProgressBar

Values = tuple[SqlValue, ...]
_DICTS_PER_BATCH = 10_000
_GATHERED_ROWS = 8_192
_GATHERED_BYTES = 16 << 20


class RowEncoder:
    """Turns dicts into encoded tuples, without Arrow's fixed cost per row."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._columns = [(f.name, f.codec.encode_one, f.nullable, f.default) for f in schema.fields]
        self._names = frozenset(f.name for f in schema.fields)

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
                if name not in row and not self._names.issuperset(row):
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
    rows: Any, schema: TableSchema, encoder: RowEncoder, limit: int, bar: ProgressBar | None = None
) -> list[Values] | Iterator[pa.RecordBatch]:
    """Fewer than ``limit`` rows, and not many bytes, as encoded tuples; otherwise a stream of exact batches."""
    found: list[Values] | None = None
    if isinstance(rows, Mapping):
        found = [encoder.encode(rows)]
    elif isinstance(rows, list | tuple) and len(rows) < limit and all(isinstance(row, Mapping) for row in rows):
        found = [encoder.encode(row) for row in rows]
    if found is not None:
        few = encoded_bytes(found) <= batch_size.BATCH_BYTES
        return found if few else (decode_batch(some, schema) for some in row_chunks(found, _DICTS_PER_BATCH))
    given = arrow_batches(rows, schema)
    if bar is not None:
        given = bar.watch(given, getattr(rows, "num_rows", None))
    batches = (conform(batch, schema) for batch in gathered(given))
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        size += batch_bytes(batch)
        if count >= limit or size > batch_size.BATCH_BYTES:
            return chain(held, batches)
    return [values for batch in held for values in encode_batch(batch, schema)]


def arrow_batches(rows: Any, schema: TableSchema | None) -> Iterator[pa.RecordBatch]:
    """Anything that holds rows, as record batches with the columns it came with."""
    from indexlake.sources.files import as_files
    from indexlake.sources.objects import checked, reader_of
    from indexlake.sources.stream import FileStream

    if (found := as_files(rows)) is not None:
        return FileStream(found.list(), schema)
    if (reader := reader_of(rows)) is not None:
        return checked(reader)
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return _from_items(iter(rows), schema)
    raise SchemaError(
        f"Rows cannot be read from {type(rows).__name__}. Give a dict, a list of dicts, files, or Arrow-compatible "
        "data: a pyarrow Table, a pandas or polars DataFrame, a DuckDB relation."
    )


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth their fixed cost (small neighbours are joined) and none too large."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in (part for given in batches for part in cut(given)):
        if held and (not batch.schema.equals(held[0].schema) or size + batch.nbytes > _GATHERED_BYTES):
            yield from _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield from _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    try:
        return [pa.concat_batches(batches)] if len(batches) > 1 else batches
    except pa.ArrowInvalid:
        return batches  # one dictionary could not number the values of all of them


def schema_and_rows(source: Any) -> tuple[pa.Schema, Any]:
    """What a table made from the source looks like, and the rows to insert into it: a stream has not begun."""
    from indexlake.sources.files import as_files
    from indexlake.sources.objects import reader_of
    from indexlake.sources.stream import common_schema

    if (found := as_files(source)) is not None:
        return common_schema(found), found
    if (reader := reader_of(source)) is not None:
        return reader.schema, reader
    batches = arrow_batches([source] if isinstance(source, Mapping) else source, None)
    first = next(batches, None)
    if first is None:
        raise SchemaError("A table cannot be made from no rows: give a schema, such as {'id': 'int64'}.")
    return first.schema, chain([first], batches)


def _from_items(items: Iterator[Any], schema: TableSchema | None) -> Iterator[pa.RecordBatch]:
    encoder = RowEncoder(schema) if schema is not None else None
    for first in items:
        if isinstance(first, pa.RecordBatch | pa.Table):
            yield from arrow_batches(first, schema)
            continue
        rows = map(_dict, chain([first], items))
        if encoder is not None and schema is not None:
            for chunk in row_chunks(map(encoder.encode, rows), _DICTS_PER_BATCH):
                yield decode_batch(chunk, schema)
        else:
            yield from _inferred(list(rows)).to_batches()  # types are inferred from all rows together


def _dict(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        hint = " Give paths of files as a list." if isinstance(row, str | PathLike) else ""
        raise SchemaError(f"A row is a dict of column names and values, not {type(row).__name__}.{hint}")
    return row


def _inferred(rows: list[Mapping[str, Any]]) -> pa.Table:
    """Dicts as a table with every column that any of them names."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table([inferred_column(name, [row.get(name) for row in rows]) for name in names], names)


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
        if not f.nullable and holds_null(array):
            raise null_error(f.name, given=f.name in given)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def fit(array: pa.Array, f: Field) -> pa.Array:
    """The array in the field's type, if nothing is lost by it."""
    if array.type == f.type:
        return array
    if pt.is_nested(array.type):
        array = without_list_views(array)
    if not _castable(array.type, f.type):
        raise ConstraintError(
            f"Column {f.name!r} is of type {f.type}; the values given are {array.type}. {_advice(array.type, f.type)}",
            column=f.name,
        )
    if (lost := _lost_field(array.type, f.type)) is not None:
        raise SchemaError(
            f"Column {f.name!r} is of type {f.type}; the values given have a field {lost!r}, which it does not have.",
            column=f.name,
        )
    try:
        plain = _decoded(array) if pt.is_dictionary(array.type) else array
        if pt.is_dictionary(f.type):
            return codec_for(f.type).decode(codec_for(f.type.value_type).encode(_cast(plain, f.type.value_type)))
        return _cast(plain, f.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConstraintError(
            f"Column {f.name!r}: a value given as {array.type} does not fit into {f.type}: {error}", column=f.name
        ) from None


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Arrow's checked cast, which does not look at floats that a narrower type has no room for."""
    cast = checked_cast(array, type)
    if overflows(array, cast):
        raise pa.ArrowInvalid("a number is outside the range of the type")
    return cast


def overflows(wide: pa.Array, narrow: pa.Array) -> bool:
    """Whether a finite float became an infinite one, at any depth."""
    source, target = wide.type, narrow.type
    if pt.is_floating(source) and pt.is_floating(target) and target.bit_width < source.bit_width:
        infinite = pc.is_inf(narrow.cast(pa.float64()))
        return bool(pc.any(pc.and_(infinite, pc.is_finite(wide.cast(pa.float64())))).as_py())
    if pt.is_struct(source) and pt.is_struct(target):
        by_name = dict(zip([f.name for f in source], wide.flatten(), strict=True))
        parts = zip([f.name for f in target], narrow.flatten(), strict=True)
        return any(overflows(by_name[name], part) for name, part in parts if name in by_name)
    if pt.is_map(source) and pt.is_map(target):
        return overflows(wide.keys, narrow.keys) or overflows(wide.items, narrow.items)
    if pt.is_nested(source) and pt.is_nested(target) and not pt.is_map(source) and not pt.is_map(target):
        return overflows(wide.flatten(), narrow.flatten())
    return False


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """The values of a dictionary array; Arrow takes from views only when they are not in a dictionary."""
    values = array.dictionary
    if values.type in (pa.string_view(), pa.binary_view()):
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    return values.take(array.indices)


def _lost_field(source: pa.DataType, target: pa.DataType) -> str | None:
    """A field inside the source that the target lacks: a cast would drop it without a word."""
    if not pt.is_nested(source) or not pt.is_nested(target):
        return None
    if not pt.is_struct(source):
        pairs = [(source.field(n), target.field(n)) for n in range(min(source.num_fields, target.num_fields))]
    elif not pt.is_struct(target):
        return None
    else:
        names = {f.name: f for f in target}
        missing: str | None = next((f.name for f in source if f.name not in names), None)
        if missing is not None:
            return missing
        pairs = [(f, names[f.name]) for f in source]
    return next((lost for a, b in pairs if (lost := _lost_field(a.type, b.type)) is not None), None)


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
    if pt.is_nested(source) and pt.is_nested(target):
        return all(_castable(a, b) for a, b in _parts(source, target))
    if pt.is_temporal(source) and pt.is_temporal(target):
        if pt.is_timestamp(source) and pt.is_timestamp(target):
            return (source.tz is None) == (target.tz is None)
        same = [pt.is_date, pt.is_time, pt.is_duration, pt.is_timestamp]
        return any(kind(source) and kind(target) for kind in same)
    return any(family(source) and family(target) for family in _FAMILIES)


def _parts(source: pa.DataType, target: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types inside two nested types that are to become each other; Arrow finds fields of structs by name."""
    if pt.is_struct(source) and pt.is_struct(target):
        own = {f.name: f.type for f in source}
        return [(own[f.name], f.type) for f in target if f.name in own]
    if pt.is_map(source) and pt.is_map(target):
        return [(source.key_type, target.key_type), (source.item_type, target.item_type)]
    return [(source.field(0).type, target.field(0).type)]


def _advice(source: pa.DataType, target: pa.DataType) -> str:
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        if target.tz is not None:
            return "Say which time zone they are in, for example with pyarrow.compute.assume_timezone(array, 'UTC')."
        return "Take the clock of a time zone first, for example with pyarrow.compute.local_timestamp(array)."
    return "Cast them first."


def repeated(f: Field, value: SqlValue, count: int) -> pa.Array:
    """One encoded value, ``count`` times."""
    return field_steps.repeated(f.type, value, count)


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
