"""Selecting rows of any supported type.

pyarrow has no `take` and no `filter` for string and binary views, also inside nested types: such columns are converted
to the plain type and back.  Batches without them are handled directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import batch_size
from indexlake.arrow.batch_size import batch_bytes
from indexlake.arrow.buffers import array_around, holds
from indexlake.errors import ConstraintError
from indexlake.types.convert import convert, mapped_leaves, without_view

_FEW_ROWS = 2_048
"""Larger batches are filtered column by column, which takes half as long; in smaller ones, each call counts."""

_SLICE_ROWS = 4_096
"""With at least this many rows between dropped ones, they are returned as slices. Smaller ones would cost consumers
more than a copy: DuckDB takes twice as long over batches of a thousand rows."""


def take(data: Any, indices: Any) -> Any:
    """Return the rows at `indices` of an array, a record batch or a table."""
    return _select(data, lambda plain: plain.take(indices))


def keep(data: Any, mask: Any) -> Any:
    """Return the rows of an array, a record batch or a table for which `mask` is true."""
    return _select(data, lambda plain: plain.filter(mask))


def others(count: int, places: Any) -> pa.BooleanArray:
    """Return a mask of ``count`` rows that is false at these places."""
    mask = np.ones(count, np.bool_)
    mask[places] = False
    return as_mask(mask)


def as_mask(truth: Any) -> pa.BooleanArray:
    """Return NumPy's booleans as an Arrow array; Arrow itself takes fifty times as long."""
    bits = pa.py_buffer(np.packbits(truth, bitorder="little"))
    return pa.BooleanArray.from_buffers(pa.bool_(), len(truth), [None, bits])


def are_sparse(places: Any, rows: int) -> bool:
    """Return whether so few of some rows are at these places that the others are best returned as slices."""
    return bool(len(places) * _SLICE_ROWS <= rows)


def without(batch: pa.RecordBatch, places: Any) -> list[pa.RecordBatch]:
    """Return a batch without the rows at ascending places, in as many non-empty parts as is cheapest."""
    count, rows = len(places), batch.num_rows
    if not count:
        return [batch]
    if count == rows:
        return []
    if are_sparse(places, rows) or not batch.num_columns:
        firsts, ends = [0, *(places + 1).tolist()], [*places.tolist(), rows]
        return [batch.slice(first, end - first) for first, end in zip(firsts, ends, strict=True) if first < end]
    return [remove(batch, places)]


def remove(batch: pa.RecordBatch, places: Any) -> pa.RecordBatch:
    """Return a batch without the rows at some places."""
    if not batch.num_columns:
        return batch.slice(len(places))
    mask = others(batch.num_rows, places)
    if batch.num_rows <= _FEW_ROWS:
        return keep(batch, mask)
    return pa.RecordBatch.from_arrays([keep(column, mask) for column in batch.columns], schema=batch.schema)


def gather(batches: Sequence[pa.RecordBatch], indices: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return rows of several batches, numbered consecutively, in the order of ``indices``.

    Dictionaries are rebuilt, in more than one batch if a single one could not number all values.
    """
    if sum(map(batch_bytes, batches)) > batch_size.JOINED_BYTES:
        return _gather_much(batches, indices, schema)
    if not any(has_dictionaries(f.type) for f in schema):
        return take(pa.Table.from_batches(batches, schema), indices).to_batches()  # type: ignore[no-any-return]
    plain = pa.schema([pa.field(str(n), _plain(f.type)) for n, f in enumerate(schema)])
    parts = [
        pa.RecordBatch.from_arrays([convert(c, f.type) for c, f in zip(b.columns, plain, strict=True)], schema=plain)
        for b in batches
    ]
    rows = pa.Table.from_batches(parts, plain).take(indices).combine_chunks()
    return [part for batch in rows.to_batches() for part in with_dictionaries(batch, schema)]


def _gather_much(batches: Sequence[pa.RecordBatch], indices: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Do the same if all rows together are more than one batch should hold, or can."""
    wanted = np.asarray(indices).astype(np.int64)
    ends = np.cumsum([batch.num_rows for batch in batches])
    at = np.searchsorted(ends, wanted, "right")
    parts, places = [], []
    for number in np.unique(at).tolist():
        here = np.flatnonzero(at == number)
        parts.append(take(batches[number], array_around(wanted[here] - (ends[number] - batches[number].num_rows))))
        places.append(here)
    if sum(map(batch_bytes, parts)) > batch_size.BATCH_BYTES and len(wanted) > 1:
        half = len(wanted) // 2
        return [
            row for some in (wanted[:half], wanted[half:]) for row in _gather_much(batches, array_around(some), schema)
        ]
    if len(parts) < 2:
        return parts
    back = np.empty(len(wanted), np.int64)
    back[np.concatenate(places)] = np.arange(len(wanted))
    return gather(parts, array_around(back), schema)


def with_dictionaries(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a batch of plain values with the types of ``schema``, split if a dictionary could not number all values."""
    try:
        columns = [convert(c, f.type) for c, f in zip(batch.columns, schema, strict=True)]
    except ConstraintError:
        half = batch.num_rows // 2
        if not half:
            raise
        yield from with_dictionaries(batch.slice(0, half), schema)
        yield from with_dictionaries(batch.slice(half), schema)
        return
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


@lru_cache(1024)
def has_dictionaries(type: Any) -> bool:
    """Return whether a type is a dictionary or has one inside."""
    return holds(type, pa.types.is_dictionary)


def _select(data: Any, select: Callable[[Any], Any]) -> Any:
    if isinstance(data, (pa.RecordBatch, pa.Table)):
        schema = data.schema
        if not any(_has_views(f.type) for f in schema):
            return select(data)
        names = [str(n) for n in range(len(schema))]
        rows = select(type(data).from_arrays([_converted(c, _plain(c.type)) for c in data.columns], names))
        columns = [_converted(c, f.type) for c, f in zip(rows.columns, schema, strict=True)]
        return type(data).from_arrays(columns, schema=schema)
    if not _has_views(data.type):
        return select(data)
    return _converted(select(_converted(data, _plain(data.type))), data.type)


def _converted(array: Any, wanted: Any) -> Any:
    return array if array.type.equals(wanted, check_metadata=True) else convert(array, wanted)


def _has_views(type: Any) -> bool:
    t = pa.types
    if t.is_dictionary(type):
        return False  # selecting rows of a dictionary array only touches its indices
    if t.is_nested(type):
        return bool(_plain(type) != type)
    return bool(t.is_string_view(type) or t.is_binary_view(type))


@lru_cache(1024)
def _plain(type: Any) -> Any:
    """Return the type with plain strings and binaries in place of views."""
    return mapped_leaves(type, without_view)
