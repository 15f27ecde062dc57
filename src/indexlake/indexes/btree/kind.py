"""The kind "btree": sorted runs of keys behind a Bloom filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from indexlake.indexes.btree.segment import Segment, open_segment
from indexlake.indexes.btree.writer import write_segment
from indexlake.indexes.builder import KeySegmentBuilder, WrittenSegment

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.indexes.keys import KeyColumn
    from indexlake.schema import TableSchema
    from indexlake.storage import Storage
    from indexlake.storage.checksum import Checksums


class BTree:
    def builder(self, index: Index, schema: TableSchema) -> KeySegmentBuilder:
        return KeySegmentBuilder(index, schema, _write)

    def open(self, storage: Storage, path: str, size: int, checksums: Checksums) -> Segment:
        return open_segment(storage, path, size, checksums)


def _write(storage: Storage, path: str, keys: KeyColumn) -> WrittenSegment:
    return write_segment(storage, path, keys, np.arange(len(keys)))
