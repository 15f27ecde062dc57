"""What the formats share: converting batches to and from stored types, cutting them, selecting rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import batch_size
from indexlake.arrow import kernels as pc
from indexlake.arrow.batch_size import batch_bytes, cut
from indexlake.errors import ConstraintError, SchemaError, StorageError
from indexlake.types.convert import convert
from indexlake.types.selection import others

if TYPE_CHECKING:
    from indexlake.expr import Bound

BATCH_ROWS = 65536


def stored_schema(schema: pa.Schema, stored_type: Callable[[Any], Any]) -> pa.Schema:
    """Return the schema that a format writes for a logical schema."""
    return pa.schema([pa.field(field.name, stored_type(field.type), field.nullable) for field in schema])


def encoded(batches: Iterable[pa.RecordBatch], stored: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches with the stored types, none of them too large; columns must have the stored names."""
    for batch in (part for given in batches for part in cut(given)):
        if batch.schema.names != stored.names:
            raise SchemaError(f"a batch to write has the columns {batch.schema.names}, not {stored.names}")
        columns = [convert(column, field.type) for column, field in zip(batch.columns, stored, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=stored)


def decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of stored types to the logical types and column order of `schema`."""
    as_it_is = batch.num_rows and batch.schema.equals(schema, check_metadata=True)
    if as_it_is and not any(map(pa.types.is_nested, schema.types)):
        return batch
    columns = [convert(batch.column(field.name), field.type) for field in schema]
    return record_batch(columns, schema, batch.num_rows)


def decoded_batches(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the same in several batches if a dictionary cannot number the values of all rows."""
    try:
        whole = decoded(batch, schema)
    except ConstraintError:
        half = batch.num_rows // 2
        if not half:
            raise
        yield from decoded_batches(batch.slice(0, half), schema)
        yield from decoded_batches(batch.slice(half), schema)
        return
    yield whole


def record_batch(columns: list[Any], schema: pa.Schema, row_count: int) -> pa.RecordBatch:
    """Return a batch that knows its row count even without columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    empty = pa.StructArray.from_buffers(pa.struct([]), row_count, [None])
    return pa.RecordBatch.from_struct_array(empty)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in memory of their own."""
    return pa.RecordBatch.from_arrays([pa.concat_arrays([column]) for column in batch.columns], schema=batch.schema)


def truth(batch: pa.RecordBatch, predicate: Bound, schema: pa.Schema) -> Any:
    """Return for which rows of a batch of stored types the predicate is true."""
    names = [name for name in schema.names if name in predicate.columns]
    known = pa.schema([schema.field(name) for name in names])
    masks = [predicate.mask(part) for part in decoded_batches(batch, known)]
    return masks[0] if len(masks) == 1 else pa.concat_arrays(masks)


def matching(batch: pa.RecordBatch, predicate: Bound, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a batch of stored types for which the predicate is true."""
    mask = truth(batch, predicate, schema)
    return batch if mask.true_count == len(mask) else batch.filter(mask)


def selected_rows(rows: pa.Table, predicate: Bound | None, schema: pa.Schema, gone: Any = None) -> pa.RecordBatch:
    """Return, in one batch, the rows of stored types for which the predicate is true, except those at some places.

    Each column is joined and filtered before the next: what was joined is still in the processor's cache.
    """
    if gone is not None and predicate is not None and predicate.fallible:  # it must not fail because of a deleted row
        rows, gone = pa.Table.from_batches([selected_rows(rows, None, schema, gone)]), None
    columns: dict[str, Any] = {}
    mask = None if gone is None else others(rows.num_rows, gone)
    if predicate is not None:
        for name in [name for name in rows.schema.names if name in predicate.columns] or rows.schema.names[:1]:
            columns[name] = _joined_chunks(rows.column(name))
        found = truth(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)), predicate, schema)
        mask = found if mask is None else pc.and_(mask, found)
        if not mask.true_count:
            return pa.RecordBatch.from_pylist([], rows.schema)
        mask = None if mask.true_count == len(mask) else mask
    if mask is None:
        return rows.combine_chunks().to_batches()[0]
    for name, chunks in zip(rows.schema.names, rows.columns, strict=True):
        column = columns[name] if name in columns else _joined_chunks(chunks)
        columns[name] = column.filter(mask)
    return pa.RecordBatch.from_arrays([columns[name] for name in rows.schema.names], schema=rows.schema)


def _joined_chunks(column: Any) -> Any:
    return pa.concat_arrays(column.chunks) if column.num_chunks > 1 else column.chunk(0)


def with_columns_of(columns: Sequence[str], predicate: Bound | None, schema: pa.Schema) -> list[str]:
    """Return the columns to fetch: those requested and those that the predicate needs, each once."""
    extra = predicate.columns if predicate is not None else frozenset[str]()
    return [
        *dict.fromkeys(columns),
        *(name for name in schema.names if name in extra and name not in columns),
    ]


def distinct(positions: Any) -> tuple[Any, Any]:
    """Return the distinct positions, sorted, and the place of each given one among them (None: unchanged)."""
    given = np.ascontiguousarray(positions, dtype=np.uint64)
    if len(given) < 2 or bool(np.all(given[1:] > given[:-1])):
        return given, None
    return np.unique(given, return_inverse=True)


def ahead(
    batches: Iterator[pa.RecordBatch], rows: int, size: int
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """Return the first batches, up to a number of rows or bytes, and an iterator of the others; None: no others."""
    taken: list[pa.RecordBatch] = []
    for batch in batches:
        taken.append(batch)
        rows -= batch.num_rows
        size -= batch.nbytes
        if rows <= 0 or size <= 0:
            return taken, batches
    return taken, None


def rechunked(batches: Iterable[pa.RecordBatch], rows: int, *, equal: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `rows` rows, the last shorter, and others too if they would get too large,
    unless all are to be `equal`."""
    pending: list[pa.RecordBatch] = []
    pending_rows = pending_bytes = 0
    for batch in (part for given in batches for part in cut(given)):
        at = 0
        while at < batch.num_rows:
            piece = batch.slice(at, rows - pending_rows)
            size = batch_bytes(piece)
            if pending and not equal and pending_bytes + size > batch_size.BATCH_BYTES:
                yield _joined(pending)
                pending, pending_rows, pending_bytes = [], 0, 0
                piece, size = batch.slice(at, rows), batch_bytes(batch.slice(at, rows))
            at += piece.num_rows
            pending.append(piece)
            pending_rows += piece.num_rows
            pending_bytes += size
            if pending_rows >= rows:
                yield _joined(pending)
                pending, pending_rows, pending_bytes = [], 0, 0
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        raise StorageError(
            f"An Arrow IPC block has batches of equal length, chosen by its first rows; later rows are so large that "
            f"{sum(b.num_rows for b in batches):,} of them are no batch ({error}). Use another dump_format."
        ) from None
