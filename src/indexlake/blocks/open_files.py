"""Open readers of blocks and key segments, kept for reuse: opening verifies, reusing costs nothing.

Bounded: the least recently used reader is let go; whoever still reads through it keeps it alive until done.
Safe to share between threads; two threads may open the same file at once, and one of the readers is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.blocks.checksum import Checksums

if TYPE_CHECKING:
    import pyarrow as pa

    from indexlake.blocks.formats import BlockReader
    from indexlake.keys.segment import Segment
    from indexlake.storage import Storage

T = TypeVar("T")


class OpenFiles:
    def __init__(self, storage: Storage, limit: int = 512) -> None:
        self.storage = storage
        self._readers: _Recent[BlockReader] = _Recent(limit)
        self._segments: _Recent[Segment] = _Recent(4 * limit)

    def reader(self, block: BlockRecord, schema: pa.Schema) -> BlockReader:
        """The reader of a block, whose file has the given columns."""
        return self.reader_of(block.path, block.format, block.size, block.checksum, schema)

    def reader_of(self, path: str, format: str, size: int, checksum: bytes, schema: pa.Schema) -> BlockReader:
        found = self._readers.get(path)
        if found is None:
            from indexlake.blocks.formats import open_reader

            found = open_reader(self.storage, path, format, size, Checksums.from_bytes(checksum), schema)
            self._readers.put(path, found)
        return found

    def segment(self, record: SegmentRecord) -> Segment:
        return self.segment_of(record.path, record.size, record.checksum)

    def segment_of(self, path: str, size: int, checksum: bytes) -> Segment:
        found = self._segments.get(path)
        if found is None:
            from indexlake.keys.segment import open_segment

            found = open_segment(self.storage, path, size, Checksums.from_bytes(checksum))
            self._segments.put(path, found)
        return found

    def clear(self) -> None:
        self._readers.clear()
        self._segments.clear()


class _Recent(Generic[T]):
    """A dictionary that forgets what was used longest ago."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._items: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        with self._lock:
            item = self._items.get(key)
            if item is not None:
                self._items.move_to_end(key)
            return item

    def put(self, key: str, item: T) -> None:
        with self._lock:
            self._items[key] = item
            self._items.move_to_end(key)
            while len(self._items) > self._limit:
                self._items.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
