"""Writes many rows as blocks of a clustered table: sorted by key, and cut so that no two blocks overlap.

Rows that come in key order are written as they come. Others are sorted, with a temporary file if they are more than one
block, so memory holds about the rows of a block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats import open_reader
from indexlake.blocks.new_block import NewBlock, Placed
from indexlake.blocks.stream import RowStream, Target, write_blocks
from indexlake.blocks.writer import file_batch
from indexlake.errors import IndexLakeError
from indexlake.indexes.keys import Key, KeyColumn, key_to_bytes
from indexlake.partitions.runs import in_order, read_stretch, sort_keys, stretches, write_runs
from indexlake.schema import ROW_ID, TableSchema
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums

TakeIds = Callable[[int], int]
"""``take_ids(n)`` returns the first of n new row ids."""

_SLICE = 65_536


def write_many(
    storage: Storage, target: Target, batches: Iterator[pa.RecordBatch], take_ids: TakeIds
) -> Iterator[NewBlock]:
    """Write new rows, which have all columns of the schema, as blocks of a table of either layout."""
    if target.ranges is None:
        yield from write_blocks(storage, target, batches, take_ids)
        return
    rows = RowStream(without_ids(batches, target.schema))
    written: list[NewBlock] = []
    last: Key | None = None
    while rows.more():
        chunk = list(rows.take(target.block_row_count, target.block_bytes))
        keys = sort_keys(pa.Table.from_batches(chunk, target.schema.file), target)
        if (last is None and not rows.more()) or (keys.is_sorted() and _follows(keys, last)):
            written += write_sorted(storage, target, chunk, take_ids)
            last = keys[len(keys) - 1]
            continue
        before = (batch for block in written for batch in _undone_rows(storage, target, block))
        yield from _write_staged(storage, target, chain(before, chunk, rows.rest()), take_ids)
        return
    yield from written


def _follows(keys: KeyColumn, last: Key | None) -> bool:
    return last is None or key_to_bytes(keys[0]) > key_to_bytes(last)


def without_ids(batches: Iterable[pa.RecordBatch], schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Yield new rows in file format; they get row ids when they are sorted, so that ids increase with the keys."""
    for batch in batches:
        yield file_batch(batch, schema, pa.array(np.zeros(batch.num_rows, np.int64)), None)


def write_sorted(
    storage: Storage,
    target: Target,
    batches: Sequence[pa.RecordBatch],
    take_ids: TakeIds | None,
    *,
    is_delta: bool = True,
) -> list[NewBlock]:
    """Sort rows in file format, and write one block for each partition that has some of them.

    Without ``take_ids`` the rows keep their row ids.
    """
    ordered, keys = in_order(batches, target)
    rows = pa.Table.from_batches(ordered, target.schema.file)
    if take_ids is not None and rows.num_rows:
        rows = _numbered(rows, take_ids(rows.num_rows))
    if target.ranges is None:
        return [target.write(storage, iter(rows.to_batches(_SLICE)), lasting=True)] if rows.num_rows else []
    return [
        target.write_placed(
            storage, iter(rows.slice(start, end - start).to_batches(_SLICE)),
            _placed(partition.partition_id, keys, start, end, is_delta=is_delta),
        )
        for partition, start, end in target.ranges.cut(keys)
    ]  # fmt: skip


def _placed(partition_id: int, keys: KeyColumn, start: int, end: int, *, is_delta: bool) -> Placed:
    return Placed(partition_id, key_to_bytes(keys[start]), key_to_bytes(keys[end - 1]), is_delta)


def _numbered(rows: pa.Table, first: int) -> pa.Table:
    place = rows.schema.get_field_index(ROW_ID)
    ids = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return rows.set_column(place, rows.schema.field(place), ids)


def _write_staged(
    storage: Storage, target: Target, batches: Iterator[pa.RecordBatch], take_ids: TakeIds
) -> Iterator[NewBlock]:
    """Write blocks of unsorted rows, sorted with the help of a temporary file."""
    with storage.spill.file() as file:
        with storage.spill.writing():
            runs = write_runs(file, target, batches)
            file.flush()

        def read_at(offset: int, length: int) -> bytes:
            return os.pread(file.fileno(), length, offset)

        for stretch in stretches(runs, target):
            rows = list(read_stretch(read_at, runs, stretch, target))
            if rows:
                yield from write_sorted(storage, target, rows, take_ids)


def block_rows(storage: Storage, block: NewBlock, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a block that is not part of the lake yet."""
    checksums = Checksums.from_bytes(block.file.checksum)
    yield from open_reader(storage, block.file.path, block.format, block.file.size, checksums, schema).read(
        schema.names
    )


def _undone_rows(storage: Storage, target: Target, block: NewBlock) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a block that was written too early, then delete it."""
    yield from block_rows(storage, block, target.schema.file)
    with suppress(IndexLakeError):  # vacuum finds them
        for path in (block.file.path, *(segment.path for segment in block.segments)):
            storage.delete(path)
