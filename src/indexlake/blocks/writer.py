"""Writes a block: the data file, its statistics, and the segments of the indexes that it is written for.

What is written is read back (``read_back``): a block that cannot be read is an error here, and never committed.  The
result is not part of the lake until a commit adds it.  File names are never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.formats import write_file
from indexlake.blocks.new_block import NewBlock, NewFile
from indexlake.blocks.read_back import Ends, check_block
from indexlake.blocks.row_ids import RowIds
from indexlake.blocks.statistics import StatisticsBuilder, stats_to_bytes
from indexlake.schema import ROW_ID, TableSchema
from indexlake.storage import faults
from indexlake.storage.names import FileName
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.indexes.keys import KeyColumn
    from indexlake.indexes.kind import SegmentFile
    from indexlake.storage import Storage

EXTENSIONS = {"vortex": "vortex", "parquet": "parquet", "ipc": "arrow"}


class SegmentBuilder(Protocol):
    """Makes the segment of one index from the rows of a block, in their order."""

    def add(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, storage: Storage, table_id: int, writer_id: str) -> tuple[SegmentFile, KeyColumn]:
        """Write the segment and read it back.  Returns the keys, in the order of the rows, too."""
        ...


def write_block(
    storage: Storage,
    table_id: int,
    writer_id: str,
    schema: TableSchema,
    schema_snapshot: int,
    format: str,
    batches: Iterable[pa.RecordBatch],
    builders: Sequence[SegmentBuilder],
    *,
    history: bool = False,
) -> NewBlock:
    """Write batches of the schema's file columns, in row-id order unless it is a history block."""
    name = FileName.new(table_id, "history" if history else "data", writer_id, EXTENSIONS[format])
    file_schema = schema.history_file if history else schema.file
    statistics = StatisticsBuilder(pa.schema([f.arrow(f.column) for f in schema.fields]))
    row_ids: list[npt.NDArray[np.int64]] = []
    ends = Ends()

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ends.add(batch)
            statistics.add(batch)
            row_ids.append(batch.column(ROW_ID).to_numpy())
            for builder in builders:
                builder.add(batch)
            yield batch

    names = {f.column: f.name for f in schema.fields}
    faults.step("block.begin")
    written = write_file(storage, name.path, format, file_schema, watched(), names)
    check_block(storage, written, format, file_schema, ends, names)
    faults.step("block.written")
    ids = np.concatenate(row_ids) if row_ids else np.zeros(0, np.int64)
    segments: list[SegmentFile] = []
    keys: dict[int, KeyColumn] = {}
    for builder in builders:
        segment, its_keys = builder.finish(storage, table_id, writer_id)
        segments.append(segment)
        keys[segment.index_id] = its_keys
        faults.step("block.segment")
    return NewBlock(
        file=NewFile(written.path, written.size, written.checksums.to_bytes()),
        format=format,
        record_count=written.row_count,
        row_ids=RowIds.from_array(ids) if not history else RowIds.from_range(0, 0),
        column_stats=stats_to_bytes(statistics.finish()),
        schema_snapshot=schema_snapshot,
        segments=tuple(segments),
        keys=keys,
        bounds=(int(ids.min()), int(ids.max())) if len(ids) else (0, 0),
    )


def file_batch(
    batch: pa.RecordBatch, schema: TableSchema, row_ids: pa.Array, versions: pa.Array | None
) -> pa.RecordBatch:
    """A batch of user-facing columns as it lies in a file; null versions are those of the block's own commit."""
    arrays = [batch.column(f.name) for f in schema.fields]
    arrays += [row_ids, versions if versions is not None else pa.nulls(batch.num_rows, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.file)


def sorted_by_row_id(table: pa.Table) -> pa.Table:
    """Blocks lie in row-id order, so that the rank of a row id is its position."""
    ids = table.column(ROW_ID).to_numpy()
    if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()):
        return table
    order = pa.array(np.argsort(ids, kind="stable"))
    return pa.Table.from_batches(gather(table.to_batches(), order, table.schema), table.schema)
