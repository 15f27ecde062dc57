"""The rows given to a merge or an upsert, kept so that they can be read again, in order or by number.

Whatever the caller has is read once. Tables in memory stay where they are; anything else is kept in a spool, which goes
to a temporary file if it is large. Dictionaries and views become plain columns, since any row may be requested by
itself. Dicts take the types of the table's columns of the same names, as far as their values fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import batch_size
from indexlake.arrow.batch_size import batch_bytes, cut, python_bytes, row_chunks
from indexlake.errors import ConstraintError, SchemaError
from indexlake.scan.spool import Spool
from indexlake.schema import Field, TableSchema
from indexlake.sources.rows import arrow_batches, as_row
from indexlake.storage.spill import Spill
from indexlake.types import check_supported, check_values, codec_of
from indexlake.types.convert import convert, mapped_leaves, without_view
from indexlake.types.inference import inferred_column
from indexlake.types.marks import mark_of

Conform = Callable[[pa.RecordBatch], pa.RecordBatch]

BATCH_ROWS = 65_536
_DICTS = 10_000
_SMALL = 1_024


class Source:
    """Rows by number, from 0 on. Safe to read from several threads."""

    def __init__(
        self, schema: pa.Schema, count: int, starts: Sequence[int], batch: Callable[[int], Any], row_bytes: int
    ) -> None:
        self.row_bytes = row_bytes  # of a row, on average
        self.schema = schema
        self.count = count
        self._starts = np.array(starts, np.int64)
        self._batch = batch

    def __len__(self) -> int:
        return self.count

    def batches(self, names: Sequence[str] | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows, as the number of a batch's first row and the batch."""
        for number, start in enumerate(self._starts.tolist()):
            batch = self._batch(number)
            yield start, batch if names is None else batch.select(list(names))

    def take(self, rows: npt.NDArray[np.int64], names: Sequence[str]) -> pa.RecordBatch:
        """Return some rows in the given order."""
        columns = list(names)
        at = np.searchsorted(self._starts, rows, "right") - 1
        numbers = np.unique(at)
        if len(numbers) == 1:
            here = rows - self._starts[numbers[0]]
            return self._batch(int(numbers[0])).select(columns).take(pa.array(here))
        parts, places = [], []
        for number in numbers.tolist():
            wanted = np.flatnonzero(at == number)
            here = pa.array(rows[wanted] - self._starts[number])
            parts.append(self._batch(number).select(columns).take(here))
            places.append(wanted)
        schema = pa.schema([self.schema.field(name) for name in columns])
        joined = pa.Table.from_batches(parts, schema).combine_chunks()
        back = np.empty(len(rows), np.int64)
        if places:
            back[np.concatenate(places)] = np.arange(len(rows))
        return one_batch(joined.take(pa.array(back)))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


class SourceBuilder:
    """Collects batches one after the other, and makes a source of them."""

    def __init__(self, schema: pa.Schema, spill: Spill, in_memory: pa.Schema | None = None) -> None:
        """``in_memory``: the schema of the table whose parts are given, which stay in memory if they can."""
        self._shape = _shape(schema)
        stays = in_memory is not None and in_memory.types == self._shape.types
        self._spool = Spool(sys.maxsize if stays else None, spill)
        self._starts: list[int] = []
        self._count = 0
        self._small: list[pa.RecordBatch] = []  # many small batches become fewer larger ones
        self._small_rows = self._small_bytes = 0

    def add(self, given: pa.RecordBatch) -> None:
        batch = _plain(given, self._shape)
        if batch.num_rows >= _SMALL:
            self._flush()
            self._keep(batch)
            return
        size = batch_bytes(batch)
        if self._small_bytes + size > batch_size.BATCH_BYTES:
            self._flush()
        self._small.append(batch)
        self._small_rows += batch.num_rows
        self._small_bytes += size
        if self._small_rows >= BATCH_ROWS // 4:
            self._flush()

    def _flush(self) -> None:
        if self._small_rows:
            self._keep(one_batch(pa.Table.from_batches(self._small, self._shape)))
        self._small, self._small_rows, self._small_bytes = [], 0, 0

    def _keep(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            self._spool.add(part)
            self._starts.append(self._count)
            self._count += part.num_rows

    def finish(self) -> Source:
        self._flush()
        row_bytes = self._spool.size // max(1, self._count)
        return Source(self._shape, self._count, self._starts, self._spool.mapped, row_bytes)


def take_source(rows: Any, schema: TableSchema, spill: Spill, conform: Conform = lambda batch: batch) -> Source:
    """Read all rows once. ``conform`` is applied to every batch, after an empty one that tells the schema."""
    found, stream = _stream(rows, schema)
    builder = SourceBuilder(conform(empty(found)).schema, spill, found if isinstance(rows, pa.Table) else None)
    for batch in stream:
        for part in cut(batch):
            builder.add(conform(part))
    return builder.finish()


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def _stream(rows: Any, schema: TableSchema) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    from indexlake.sources.files import as_files
    from indexlake.sources.objects import checked, reader_of
    from indexlake.sources.stream import FileStream, common_schema

    if (found := as_files(rows)) is not None:
        shape = _in_types_of(schema, common_schema(found))
        return shape.arrow, FileStream(found.list(), shape)
    if (reader := reader_of(rows)) is not None:
        return reader.schema, checked(reader)
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        return schema.arrow, arrow_batches(rows, schema)  # raises an error
    items = iter(rows)
    first = next(items, None)
    if first is None:
        return schema.arrow, iter(())
    items = chain([first], items)
    if isinstance(first, Mapping):
        stream = dict_batches(items, schema, len(rows) if isinstance(rows, list | tuple) else _DICTS)
    else:
        stream = (batch for item in items for batch in arrow_batches(item, schema))
    head = next(stream, None)
    return (schema.arrow, iter(())) if head is None else (head.schema, chain([head], stream))


def _in_types_of(schema: TableSchema, found: pa.Schema) -> TableSchema:
    """Return the columns found, with the table's types for those that the table has."""
    known = schema.by_name
    types = [known[f.name.lower()].type if f.name.lower() in known else f.type for f in found]
    return TableSchema([Field(n, f.name, type, True) for n, (f, type) in enumerate(zip(found, types, strict=True))])


def dict_batches(rows: Iterator[Any], schema: TableSchema, size: int = _DICTS) -> Iterator[pa.RecordBatch]:
    """Yield dicts as batches of up to ``size`` rows; the columns are those named in the first batch."""
    shape: pa.Schema | None = None
    for chunk in row_chunks(map(as_row, rows), size, python_bytes):
        if shape is None:
            shape = _inferred(chunk, schema)
        known = set(shape.names)
        new = next((name for row in chunk for name in row if name not in known), None)
        if new is not None:
            raise SchemaError(
                f"A row names column {new!r}, which the rows before it did not. Name all columns in the first row, "
                "or give Arrow data.",
                column=str(new),
            )
        yield dict_batch(chunk, shape)


def _inferred(rows: list[Mapping[str, Any]], schema: TableSchema) -> pa.Schema:
    fields = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        known = schema.by_name.get(name.lower()) if isinstance(name, str) else None
        if known is not None:
            try:
                known.codec.array(values)
            except ConstraintError:
                pass  # of another type than the column; expressions may convert it
            else:
                fields.append(pa.field(name, known.type, metadata=mark_of(known)))
                continue
        fields.append(pa.field(name, inferred_column(name, values).type))
    return pa.schema(fields)


def dict_batch(rows: Sequence[Mapping[str, Any]], shape: pa.Schema) -> pa.RecordBatch:
    """Return dicts as a batch of a given shape; what a row does not name is NULL."""
    return pa.RecordBatch.from_arrays([_column([row.get(f.name) for row in rows], f) for f in shape], schema=shape)


def _column(values: list[Any], f: pa.Field) -> pa.Array:
    if pa.types.is_null(f.type):
        return pa.nulls(len(values))
    try:
        return codec_of(f).array(values)
    except ConstraintError as error:
        raise ConstraintError(f"Column {f.name!r}: {error}", column=f.name) from None


def _shape(schema: pa.Schema) -> pa.Schema:
    """Return the columns as they are kept; refuse names that differ only in case."""
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in seen:
            raise SchemaError(
                f"The source has the columns {seen[name.lower()]!r} and {name!r}, which differ at most in case. "
                "Rename one.",
                column=name,
            )
        seen[name.lower()] = name
    return pa.schema([pa.field(f.name, _plain_type(f.type, f.name), metadata=mark_of(f)) for f in schema])


def _plain_type(type: pa.DataType, column: str) -> pa.DataType:
    if pa.types.is_null(type):
        return type
    check_supported(type, column)
    return mapped_leaves(type, without_view)


def _plain(batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    if batch.schema.names != shape.names:
        raise SchemaError(
            f"The source's batches do not agree in their columns: {', '.join(shape.names)} and "
            f"{', '.join(batch.schema.names)}."
        )
    arrays = []
    for array, f in zip(batch.columns, shape, strict=True):
        if pa.types.is_null(f.type) and not pa.types.is_null(array.type):
            raise SchemaError(f"The source's batches do not agree in the type of column {f.name!r}.", column=f.name)
        if not pa.types.is_null(array.type):
            check_values(array, f)
            try:
                array = convert(array, f.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SchemaError(
                    f"The source's batches do not agree in the type of column {f.name!r}: {error}", column=f.name
                ) from None
        elif not pa.types.is_null(f.type):
            array = pa.nulls(len(array), f.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=shape)
