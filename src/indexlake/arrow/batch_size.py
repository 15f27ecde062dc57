"""How large a batch of rows may get: limited by rows and by bytes, wherever rows are gathered, joined or cut.

An Arrow column of text, bytes or lists holds at most 2 GiB, so a batch that is limited by rows alone may be impossible
to build.  Batches built here hold at most ``BATCH_BYTES``, or a single row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from indexlake.errors import ConstraintError

BATCH_BYTES = 64 << 20

JOINED_BYTES = 1 << 30
"""Batches up to this size in total may be joined temporarily, for example to be sorted."""

VALUE_BYTES = 2**31 - 1
"""The most bytes that a single value of any type may take: what 32-bit offsets allow."""

_TURNED_ROWS = 256

_REFERRING = frozenset([pa.lib.Type_DICTIONARY, pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW])
"""Types of which several rows may have one value in memory: written out, they take more than their buffers."""

Row = TypeVar("Row")


def encoded_bytes(rows: Iterable[Iterable[Any]]) -> int:
    """Return the size of the byte strings in encoded rows."""
    return sum([len(value) for row in rows for value in row if type(value) is bytes])


def column_chunks(columns: Sequence[Sequence[Any]], count: int, start: int = 0) -> Iterator[slice]:
    """Yield slices of encoded columns, from ``start`` to ``count``, of at most ``BATCH_BYTES`` or a single row each."""
    part = slice(start, count)
    if count - start <= 1 or sum([encoded_bytes([column[part]]) for column in columns]) <= BATCH_BYTES:
        yield part
        return
    middle = (start + count) // 2
    yield from column_chunks(columns, middle, start)
    yield from column_chunks(columns, count, middle)


def python_bytes(rows: Iterable[Any]) -> int:
    """Return the approximate size of Python values; dicts and lists count with their contents."""
    total = 0
    for value in rows:
        if isinstance(value, str | bytes):
            total += len(value)
        elif isinstance(value, Mapping):
            total += python_bytes(value.values())
        elif isinstance(value, list | tuple):
            total += python_bytes(value)
    return total


def row_chunks(rows: Iterable[Row], most: int, bytes_of: Callable[[Any], int] = encoded_bytes) -> Iterator[list[Row]]:
    """Yield rows in lists of at most ``most`` rows and ``BATCH_BYTES``."""
    source = iter(rows)
    chunk: list[Row] = []
    size, step = 0, 1
    while group := list(islice(source, min(step, most - len(chunk)))):
        more = bytes_of(group)
        if size + more > BATCH_BYTES:
            for row in group:
                own = bytes_of([row])
                if chunk and (size + own > BATCH_BYTES or len(chunk) == most):
                    yield chunk
                    chunk, size = [], 0
                chunk.append(row)
                size += own
        else:
            chunk += group
            size += more
        if len(chunk) >= most:
            yield chunk
            chunk, size = [], 0
        step = max(1, min(4 * step, BATCH_BYTES * len(group) // (more + 1)))
    if chunk:
        yield chunk


def row_columns(rows: Iterable[Sequence[Any]], most: int) -> Iterator[list[list[Any]]]:
    """Yield encoded rows as columns, at most ``most`` rows and ``BATCH_BYTES`` at a time.

    Only a few rows are transposed at once: with many, each value would have left the processor's caches.
    """
    source = iter(rows)
    columns: list[list[Any]] = []
    count = size = 0
    step = 1
    while group := list(islice(source, min(step, most - count))):
        parts = list(zip(*group, strict=True))
        more = sum([_bytes_in(part) for part in parts])
        if count and size + more > BATCH_BYTES:
            yield columns
            columns, count, size = [], 0, 0
        if more > BATCH_BYTES and len(group) > 1:
            for some in row_chunks(group, most):
                yield [list(part) for part in zip(*some, strict=True)]
        elif count:
            for column, part in zip(columns, parts, strict=True):
                column.extend(part)
        else:
            columns = [list(part) for part in parts]
        if columns:
            count += len(group)
            size += more
        if count >= most:
            yield columns
            columns, count, size = [], 0, 0
        step = max(1, min(4 * step, _TURNED_ROWS, BATCH_BYTES * len(group) // (more + 1)))
    if count:
        yield columns


def _bytes_in(values: Sequence[Any]) -> int:
    kinds = set(map(type, values))
    if bytes not in kinds:
        return 0
    return sum(map(len, values)) if len(kinds) == 1 else sum([len(v) for v in values if type(v) is bytes])


def rows_of(row_bytes: int) -> int:
    """Return how many rows of this size a batch may have."""
    return max(1, BATCH_BYTES // max(1, row_bytes))


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most ``BATCH_BYTES`` each; a value that no column can hold is an error."""
    if batch.get_total_buffer_size() <= BATCH_BYTES and not any(t.id in _REFERRING for t in batch.schema.types):
        yield batch
        return
    rows, size = batch.num_rows, batch_bytes(batch)
    if size > BATCH_BYTES and rows > 1:
        step = max(1, min(rows // 2, rows * BATCH_BYTES // size))
        for start in range(0, rows, step):
            yield from cut(batch.slice(start, step))
        return
    if size > VALUE_BYTES:
        _check_values(batch)
    yield batch


def _check_values(batch: pa.RecordBatch) -> None:
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if (size := _array_bytes(array)) > VALUE_BYTES + 64:  # with offsets and validity
            raise ConstraintError(f"Column {name!r}: {too_large(size)}", column=name)


def too_large(size: int) -> str:
    """Return why a value cannot be stored."""
    return f"a value takes {size:,} bytes; the limit is {VALUE_BYTES:,}. Store it in pieces, or outside the table."


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch when every value is written out."""
    return sum(map(_array_bytes, batch.columns))


def _array_bytes(array: Any) -> int:
    t, type = pa.types, array.type
    if t.is_string_view(type) or t.is_binary_view(type):
        return int(_view_lengths(array).sum()) + 16 * len(array)
    if t.is_dictionary(type):
        indices = np.asarray(array.indices.drop_null())
        return int(_value_lengths(array.dictionary)[indices].sum()) + int(array.indices.nbytes)
    return int(array.nbytes)


def _view_lengths(array: Any) -> Any:
    if not len(array):
        return np.zeros(0, np.int64)
    end = array.offset + len(array)
    lengths = np.frombuffer(array.buffers()[1], np.int32, 4 * end)[4 * array.offset :: 4].astype(np.int64)
    if array.null_count:
        lengths[np.asarray(array.is_null())] = 0
    return lengths


def _value_lengths(values: Any) -> Any:
    """Return the size of each value of a dictionary."""
    t, type = pa.types, values.type
    if t.is_string_view(type) or t.is_binary_view(type):
        return _view_lengths(values)
    if t.is_string(type) or t.is_large_string(type) or t.is_binary(type) or t.is_large_binary(type):
        from indexlake.arrow import kernels as pc

        return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    return np.full(len(values), -(-type.bit_width // 8), np.int64)
