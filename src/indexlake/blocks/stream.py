"""Turns a stream of rows into blocks, each written as its rows arrive, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import batch_bytes, cut
from indexlake.blocks.formats.batches import ahead
from indexlake.blocks.new_block import NewBlock, Placed
from indexlake.blocks.writer import file_batch, write_block
from indexlake.schema import TableSchema
from indexlake.storage import Storage
from indexlake.storage.names import Clustered
from indexlake.types.selection import has_dictionaries

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.partitions.ranges import Ranges
    from indexlake.snapshots.state import TableState

_SLICE = 65_536

BLOCK_BYTES = 512 << 20
"""The maximum size of a new block, however few rows that is: much of it is in memory while it is written."""

SMALL_PART = 32
"""A block with fewer rows than a full one divided by this is small,"""

SMALL_BYTES = 16 * 1024 * 1024
"""if it also has fewer bytes than this."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the blocks of one writer for one table have in common. Sent to tasks."""

    table_id: int
    writer_id: str
    schema: TableSchema
    schema_version: int
    format: str
    block_row_count: int  # of a clustered table: rows that a partition should have
    block_bytes: int
    indexes: tuple[Index, ...]  # each block gets a segment of each
    namespace_id: int
    planned_at: int
    ranges: Ranges | None  # of a clustered table: its live partitions

    @staticmethod
    def of(state: TableState, writer_id: str, format: str | None = None, *, waiting: bool = False) -> Target:
        """Return the target for blocks with the current columns, in the table's dump format unless one is given.

        ``waiting``: a user is waiting, so segments that take long to build are left to the background.
        """
        table = state.table
        indexes = tuple(index for index in state.live_indexes if not (waiting and index.slow))
        ranges = None if state.ranges is None else state.ranges.only_live()
        format = format or (table.config.dump_format if ranges is None else "ipc")
        config = table.config
        full = (
            (config.block_row_count, BLOCK_BYTES)
            if ranges is None
            else (config.partition_row_count, min(config.partition_bytes, BLOCK_BYTES))
        )
        return Target(
            table.table_id, writer_id, state.current, table.schema_version, format, *full, indexes,
            table.namespace_id, state.at, ranges,
        )  # fmt: skip

    def with_schema(self, schema: TableSchema, schema_snapshot: int) -> Target:
        return replace(self, schema=schema, schema_version=schema_snapshot)

    def write_rows(
        self, storage: Storage, batches: Iterator[pa.RecordBatch], *, lasting: bool = False
    ) -> list[NewBlock]:
        """Write one block, or for a clustered table one delta for each partition; the rows already have ids.

        The rows of a clustered table are held in memory.
        """
        if self.ranges is None:
            return [self.write(storage, batches, lasting=lasting)]
        rows = pa.Table.from_batches(list(batches), self.schema.file)
        return [
            self.write_placed(storage, iter(part.to_batches(_SLICE)), placed)
            for placed, part in self.ranges.place(rows, self.schema)
        ]

    def write_placed(self, storage: Storage, batches: Iterator[pa.RecordBatch], placed: Placed) -> NewBlock:
        """Write a block of rows in key order, all of one partition."""
        return write_block(
            storage, self.table_id, self.writer_id, self.schema, self.schema_version, self.format, batches,
            self.indexes, placed=placed, clustered=Clustered(self.namespace_id, placed.partition_id, self.planned_at),
        )  # fmt: skip

    def write(self, storage: Storage, batches: Iterator[pa.RecordBatch], *, lasting: bool = False) -> NewBlock:
        """Write one block of rows that have their ids.

        Unless it is ``lasting``, a small Vortex block becomes Arrow IPC: Vortex takes ten times as long to write a few
        rows, and compaction rewrites them anyway.
        """
        format = self.format
        # Not with dictionaries, which IPC would write out value by value.
        if format == "vortex" and not lasting and not any(has_dictionaries(f.type) for f in self.schema.fields):
            few, rest = ahead(batches, self.block_row_count // SMALL_PART, SMALL_BYTES)
            format = "ipc" if rest is None else format
            batches = chain(few, rest or ())
        return write_block(
            storage, self.table_id, self.writer_id, self.schema, self.schema_version, format, batches, self.indexes
        )


def write_blocks(
    storage: Storage, target: Target, batches: Iterator[pa.RecordBatch], take_ids: Callable[[int], int]
) -> Iterator[NewBlock]:
    """Yield new blocks of a heap table; the batches have all columns of the schema.

    ``take_ids(n)`` returns the first of n new row ids.
    """
    rows = RowStream(batches)
    while rows.more():
        taken = _numbered(rows.take(target.block_row_count, target.block_bytes), target.schema, take_ids)
        yield target.write(storage, taken)


class RowStream:
    """Batches, to be taken by numbers of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def more(self) -> bool:
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return False
        return True

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows that are left."""
        while self.more():
            assert self._rest is not None
            part, self._rest = self._rest, None
            yield part

    def take(self, rows: int, size: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield up to ``rows`` rows, or fewer once they reach ``size`` bytes."""
        while rows and self.more() and (size is None or size > 0):
            assert self._rest is not None
            part = next(cut(self._rest.slice(0, min(rows, _SLICE))))
            if size is not None and (found := batch_bytes(part)) > size:
                part = part.slice(0, max(1, part.num_rows * size // found))
            self._rest = self._rest.slice(part.num_rows)
            rows -= part.num_rows
            size = None if size is None else size - batch_bytes(part)
            yield part


def _numbered(
    parts: Iterator[pa.RecordBatch], schema: TableSchema, take_ids: Callable[[int], int]
) -> Iterator[pa.RecordBatch]:
    for part in parts:
        first = take_ids(part.num_rows)
        ids = pa.array(np.arange(first, first + part.num_rows, dtype=np.int64))
        yield file_batch(part, schema, ids, None)
