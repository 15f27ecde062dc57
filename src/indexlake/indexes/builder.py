"""Writes index segments: for one block while the block is written, for several blocks, or in memory.

Everything written is read back: a segment that does not know all rows, or does not find the keys of the first and last
row, is an error here and is never committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.read_back import Wrong, removing
from indexlake.indexes.kind import SegmentFile
from indexlake.indexes.registry import kind_named
from indexlake.storage.input_file import in_memory
from indexlake.storage.names import FileName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexlake.indexes.index import Index
    from indexlake.indexes.keys import KeyColumn
    from indexlake.indexes.kind import Content
    from indexlake.schema import TableSchema
    from indexlake.storage import Storage


class KeyedRows(NamedTuple):
    """The rows of a block without a null in their key: their keys and positions, in row order."""

    keys: KeyColumn
    positions: npt.NDArray[np.int64]


class SegmentWriter:
    """Takes rows with the columns of a schema, block by block, and writes their segment."""

    def __init__(self, index: Index, schema: TableSchema) -> None:
        self.index = index
        fields = index.all_fields(schema)
        self._columns = [f.column for f in fields]
        self._types = index.key_types(schema)
        self._builder = kind_named(index.kind).builder(index, fields, lasting=True)
        self._ends = [0]
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows as a file holds them."""
        self.add_columns([batch.column(c) for c in self._columns], batch.num_rows)

    def add_columns(self, columns: Sequence[pa.Array], rows: int) -> None:
        """Add rows as columns, key columns first."""
        self._builder.add(columns)
        self._rows += rows

    def end_block(self) -> None:
        self._builder.end_block()
        self._ends.append(self._rows)

    def keyed(self) -> KeyedRows | None:
        """Return the keys of the rows, if the kind has keys."""
        keyed = getattr(self._builder, "keyed", None)
        return None if keyed is None else KeyedRows(*keyed())

    def finish(self, storage: Storage, table_id: int, writer_id: str) -> SegmentFile:
        keyed = self.keyed()
        content = self._builder.content()
        return write_content(storage, self.index, self._types, content, table_id, writer_id, self._ends, keyed)


def write_content(
    storage: Storage,
    index: Index,
    types: tuple[str, ...],
    content: Content,
    table_id: int,
    writer_id: str,
    starts: Sequence[int],
    keyed: KeyedRows | None = None,
) -> SegmentFile:
    """Write a segment to a file and read it back."""
    path = FileName.new(table_id, "index", writer_id, index.kind).path
    size = 0
    with storage.create_file(path) as file:
        for piece in content.pieces:
            data = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
            file.write(data)
            size += len(data)
    made = SegmentFile(index.index_id, path, size, file.checksums.to_bytes(), types, content.low, content.high)
    with removing(storage, path, "A new index segment"):
        segment = index.open(storage, made)
        if list(segment.starts) != list(starts):
            raise Wrong(f"it has rows {list(segment.starts)} instead of {list(starts)}")
        if keyed is not None and len(keyed.keys):
            for n in {0, len(keyed.keys) - 1}:
                if int(keyed.positions[n]) not in segment.find(keyed.keys[n]):
                    raise Wrong(f"the key of row {keyed.positions[n]} is not found in it")
    return made


def segment_in_memory(index: Index, schema: TableSchema, batches: Sequence[Sequence[pa.Array]]) -> Any:
    """Return an open segment of some rows, given as the columns of ``index.all_fields``, as one block."""
    builder = kind_named(index.kind).builder(index, index.all_fields(schema), lasting=False)
    for columns in batches:
        builder.add(columns)
    builder.end_block()
    pieces = builder.content().pieces
    return kind_named(index.kind).open(index, in_memory(pieces))
