"""Collects the keys of a block's rows while the block is written, and has an index kind write them as a segment.

What is written is read back: a segment that does not find the keys of the first and the last row is an error here, and
never committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.blocks.read_back import Wrong, removing
from indexlake.indexes.keys import KeyColumn
from indexlake.indexes.kind import SegmentFile
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import FileName
from indexlake.types import type_to_text

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.schema import TableSchema
    from indexlake.storage import Storage


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment file that is in storage.  `min_key` and `max_key` bound its keys, in `key_to_bytes` form."""

    size: int
    checksums: Checksums
    min_key: bytes
    max_key: bytes


class KeySegmentBuilder:
    """``write`` puts a segment of the keys, which stand in the order of their positions, at a path."""

    def __init__(
        self, index: Index, schema: TableSchema, write: Callable[[Storage, str, KeyColumn], WrittenSegment]
    ) -> None:
        self._index = index
        self._fields = index.fields(schema)
        self._codecs = [f.codec for f in self._fields]
        self._write = write
        self._keys: list[KeyColumn] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._keys.append(KeyColumn.from_arrays(self._codecs, [batch.column(f.column) for f in self._fields]))

    def finish(self, storage: Storage, table_id: int, writer_id: str) -> tuple[SegmentFile, KeyColumn]:
        keys = KeyColumn.concat(self._keys)
        path = FileName.new(table_id, "index", writer_id, "keys").path
        made = self._write(storage, path, keys)
        types = tuple(type_to_text(f.type) for f in self._fields)
        checksum = made.checksums.to_bytes()
        file = SegmentFile(self._index.index_id, path, made.size, checksum, types, made.min_key, made.max_key)
        with removing(storage, path, "A new key segment"):
            segment = self._index.open(storage, file)
            for position in {0, len(keys) - 1} if len(keys) else ():
                if position not in segment.find(keys[position]):
                    raise Wrong(f"the key of row {position} is not found in it")
        return file, keys
