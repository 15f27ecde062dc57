"""Writes a block: the data file, its statistics, and its index segments.

Everything written is read back (``read_back``): a block that cannot be read is an error here and is never committed.
The result is not part of the lake until a commit adds it. File names are never reused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.addresses import Addresses, LookedUp
from indexlake.blocks.formats import write_file
from indexlake.blocks.new_block import NewBlock, NewFile, Placed
from indexlake.blocks.read_back import Ends, check_block
from indexlake.blocks.row_ids import RowIds
from indexlake.blocks.statistics import StatisticsBuilder, stats_to_bytes
from indexlake.errors import StorageError
from indexlake.schema import ROW_ID, VERSION, TableSchema
from indexlake.storage import faults
from indexlake.storage.names import Clustered, FileName, Role
from indexlake.storage.spill import spilling
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.indexes.builder import KeyedRows, SegmentWriter
    from indexlake.indexes.index import Index
    from indexlake.indexes.kind import SegmentFile
    from indexlake.storage import Storage

log = logging.getLogger("indexlake")

EXTENSIONS = {"vortex": "vortex", "parquet": "parquet", "ipc": "arrow"}


@spilling
def write_block(
    storage: Storage,
    table_id: int,
    writer_id: str,
    schema: TableSchema,
    schema_snapshot: int,
    format: str,
    batches: Iterable[pa.RecordBatch],
    indexes: Sequence[Index],
    *,
    history: bool = False,
    placed: Placed | None = None,
    clustered: Clustered | None = None,
) -> NewBlock:
    """Write batches of the schema's file columns, in row-id order unless it is a history block or ``placed``.

    ``clustered`` is for the name of a placed block. The block gets a segment of each index. A segment that cannot be
    built is left out and logged, except for the primary key: index look-ups then scan the block, and the next build
    tries again.
    """
    role: Role = "history" if history else "delta" if placed is not None and placed.is_delta else "data"
    extension = "" if clustered is not None and format == "ipc" else EXTENSIONS[format]
    name = FileName.new(table_id, role, writer_id, extension, clustered)
    file_schema = schema.history_file if history else schema.file
    statistics = StatisticsBuilder(pa.schema([f.arrow(f.column) for f in schema.fields]))
    row_ids: list[npt.NDArray[np.int64]] = []
    versions: tuple[int, int] | None = None
    ends = Ends()

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal versions
        for batch in batches:
            ends.add(batch)
            statistics.add(batch)
            row_ids.append(batch.column(ROW_ID).to_numpy())
            versions = _widened(versions, batch.column(VERSION))
            for builder in builders:
                builder.add(batch)
            yield batch

    names = {f.column: f.name for f in schema.fields}
    builders = [_Segment(index, schema) for index in indexes if index.fits(schema)]
    faults.step("block.begin")
    written = write_file(storage, name.path, format, file_schema, watched(), names)
    check_block(storage, written, format, file_schema, ends, names)
    faults.step("block.written")
    ids = np.concatenate(row_ids) if row_ids else np.zeros(0, np.int64)
    segments: list[SegmentFile] = []
    keys: dict[int, KeyedRows] = {}
    for builder in builders:
        segment, keyed = builder.finish(storage, table_id, writer_id)
        if segment is not None:
            segments.append(segment)
        if keyed is not None:
            keys[builder.index.index_id] = keyed
        faults.step("block.segment")
    return NewBlock(
        file=NewFile(written.path, written.size, written.checksums.to_bytes()),
        format=format,
        record_count=written.row_count,
        row_ids=_addresses(ids) if not history else RowIds.from_range(0, 0),
        column_stats=stats_to_bytes(statistics.finish()),
        schema_snapshot=schema_snapshot,
        segments=tuple(segments),
        keys=keys,
        bounds=(int(ids.min()), int(ids.max())) if len(ids) else (0, 0),
        versions=versions,
        placed=placed,
    )


def _addresses(ids: npt.NDArray[np.int64]) -> Addresses:
    """Return addresses by rank if the rows lie in row-id order, whatever else they are sorted by."""
    if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()):
        return RowIds.from_array(ids)
    return LookedUp(ids, ready=True)


def _widened(known: tuple[int, int] | None, versions: pa.Array) -> tuple[int, int] | None:
    """Widen the bounds by some versions; null versions are those of the block's own commit."""
    if not len(versions) or versions.null_count:
        return known
    values = versions.to_numpy()
    low, high = int(values.min()), int(values.max())
    return (low, high) if known is None else (min(known[0], low), max(known[1], high))


class _Segment:
    """The segment of one index, which may fail without failing the block."""

    def __init__(self, index: Index, schema: TableSchema) -> None:
        self.index = index
        self._writer: SegmentWriter | None = None
        with self._failing():
            self._writer = index.writer(schema)

    def add(self, batch: pa.RecordBatch) -> None:
        with self._failing():
            if self._writer is not None:
                self._writer.add(batch)

    def finish(self, storage: Storage, table_id: int, writer_id: str) -> tuple[SegmentFile | None, KeyedRows | None]:
        """Return the segment and, for a unique index, the rows' keys, which are known even if the segment fails."""
        segment, keyed = None, None
        with self._failing():
            if self._writer is not None:
                self._writer.end_block()
                keyed = self._writer.keyed() if self.index.unique else None
                segment = self._writer.finish(storage, table_id, writer_id)
        return segment, keyed

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self.index.unique or isinstance(error, StorageError):
                raise
            log.warning("a block gets no segment of index %r: %s", self.index.name, error)
            self._writer = None


def file_batch(
    batch: pa.RecordBatch, schema: TableSchema, row_ids: pa.Array, versions: pa.Array | None
) -> pa.RecordBatch:
    """Return a batch of user-facing columns in file order; null versions are those of the block's own commit."""
    arrays = [batch.column(f.name) for f in schema.fields]
    arrays += [row_ids, versions if versions is not None else pa.nulls(batch.num_rows, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.file)


def sorted_by_row_id(table: pa.Table) -> pa.Table:
    """Sort rows by row id, so that the rank of a row id is its position in the block."""
    ids = table.column(ROW_ID).to_numpy()
    if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()):
        return table
    order = pa.array(np.argsort(ids, kind="stable"))
    return pa.Table.from_batches(gather(table.to_batches(), order, table.schema), table.schema)
