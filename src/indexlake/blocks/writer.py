"""Writes a block: the data file, its statistics, and the key segment of a table with a primary key.

What is written is read back (``read_back``): a block that cannot be read is an error here, and never committed.  The
result is not part of the lake until a commit adds it.  File names are never used twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake import faults
from indexlake.blocks.formats import write_file
from indexlake.blocks.new_block import NewBlock, NewFile, NewSegment
from indexlake.blocks.read_back import Ends, check_block, check_segment
from indexlake.blocks.row_ids import RowIds
from indexlake.blocks.statistics import StatisticsBuilder, stats_to_bytes
from indexlake.keys.encoding import KeyColumn
from indexlake.keys.writer import write_segment
from indexlake.schema import ROW_ID, TableSchema
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.storage import Storage

EXTENSIONS = {"vortex": "vortex", "parquet": "parquet", "ipc": "arrow"}


def write_block(
    storage: Storage,
    folder: str,
    writer_id: str,
    schema: TableSchema,
    schema_snapshot: int,
    format: str,
    batches: Iterable[pa.RecordBatch],
    *,
    history: bool = False,
) -> NewBlock:
    """Write batches of the schema's file columns, in row-id order unless it is a history block."""
    name = f"{writer_id}-{uuid.uuid4().hex}"
    file_schema = schema.history_file if history else schema.file
    statistics = StatisticsBuilder(pa.schema([f.arrow(f.column) for f in schema.fields]))
    keyed = bool(schema.primary_key) and not history
    keys: list[KeyColumn] = []
    row_ids: list[npt.NDArray[np.int64]] = []
    ends = Ends()

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ends.add(batch)
            statistics.add(batch)
            row_ids.append(batch.column(ROW_ID).to_numpy())
            if keyed:
                keys.append(
                    KeyColumn.from_arrays(schema.key_codecs, [batch.column(f.column) for f in schema.key_fields])
                )
            yield batch

    role = "history" if history else "data"
    path = f"{folder}/{role}/{name}.{EXTENSIONS[format]}"
    names = {f.column: f.name for f in schema.fields}
    faults.step("block.begin")
    written = write_file(storage, path, format, file_schema, watched(), names)
    check_block(storage, written, format, file_schema, ends, names)
    faults.step("block.written")
    ids = np.concatenate(row_ids) if row_ids else np.zeros(0, np.int64)
    segment = all_keys = None
    if keyed:
        all_keys = KeyColumn.concat(keys)
        made = write_segment(storage, f"{folder}/index/{name}.keys", all_keys, np.arange(len(all_keys)))
        check_segment(storage, made, all_keys)
        segment = NewSegment(NewFile(made.path, made.size, made.checksums.to_bytes()), made.min_key, made.max_key)
        faults.step("block.segment")
    return NewBlock(
        file=NewFile(written.path, written.size, written.checksums.to_bytes()),
        format=format,
        record_count=written.row_count,
        row_ids=RowIds.from_array(ids) if not history else RowIds.from_range(0, 0),
        column_stats=stats_to_bytes(statistics.finish()),
        schema_snapshot=schema_snapshot,
        segment=segment,
        keys=all_keys,
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
