"""Open readers of blocks and index segments, kept for reuse: opening verifies, reusing costs nothing.

The number is limited: the least recently used reader is dropped, but stays alive while somebody reads through it. Safe
to share between threads; two threads may open the same file at once, and one of the readers is kept.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, SupportsBytes, TypeVar

import numpy as np

from indexlake.blocks.addresses import LookedUp
from indexlake.blocks.block import BlockRecord
from indexlake.schema import ROW_ID
from indexlake.storage.checksum import Checksums

if TYPE_CHECKING:
    import pyarrow as pa

    from indexlake.blocks.formats import BlockReader
    from indexlake.indexes.kind import SegmentFile
    from indexlake.storage import Storage

T = TypeVar("T")


MOST_READERS = 1024


def most_open() -> int:
    """Return how many blocks may be open: no more than half of the files that the process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_READERS if limit == resource.RLIM_INFINITY else max(64, min(MOST_READERS, limit // 2))


class OpenFiles:
    def __init__(self, storage: Storage) -> None:
        limit = most_open()
        self.storage = storage
        self.use_indexes = "auto"  # "always" and "never" are for comparing costs
        self._readers: Recent[BlockReader] = Recent(limit)
        self._segments: Recent[Any] = Recent(2 * limit)
        self._addresses: Recent[LookedUp] = Recent(16)  # up to 12 bytes for each row of a block

    def reader(self, block: BlockRecord, schema: pa.Schema) -> BlockReader:
        """Return the reader of a block, whose file has the given columns."""
        return self.reader_of(block.path, block.format, block.size, block.checksum, schema)

    def open_reader(self, path: str) -> BlockReader | None:
        """Return the reader of a block if it is open."""
        return self._readers.get(path)

    def reader_of(self, path: str, format: str, size: int, checksum: SupportsBytes, schema: pa.Schema) -> BlockReader:
        found = self._readers.get(path)
        if found is None:
            from indexlake.blocks.formats import open_reader

            found = open_reader(self.storage, path, format, size, Checksums.from_bytes(checksum), schema)
            self._readers.put(path, found)
        return found

    def addresses(self, block: BlockRecord, schema: pa.Schema) -> LookedUp:
        """Return the addresses of a block that is not ordered by row id."""
        found = self._addresses.get(block.path)
        if found is None:
            batches = self.reader(block, schema).read([ROW_ID])
            found = LookedUp(np.concatenate([batch.column(ROW_ID).to_numpy() for batch in batches]))
            self._addresses.put(block.path, found)
        return found

    def segment(self, file: SegmentFile, open: Callable[[Storage, SegmentFile], T]) -> T:
        """Return the open segment, opening it with its index's ``open`` if necessary."""
        found: T | None = self._segments.get(file.path)
        if found is None:
            found = open(self.storage, file)
            self._segments.put(file.path, found)
        return found

    def clear(self) -> None:
        self._readers.clear()
        self._segments.clear()
        self._addresses.clear()


class Recent(Generic[T]):
    """A dictionary that drops the least recently used items beyond a number of items and, optionally, of bytes."""

    def __init__(self, limit: int, most_bytes: int | None = None) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._items: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, item: T, size: int = 0) -> None:
        """Add an item; ``size`` is its size in bytes, if bytes are limited."""
        with self._lock:
            _, before = self._items.pop(key, (None, 0))
            self._items[key] = item, size
            self._bytes += size - before
            while len(self._items) > self._limit or (self._most_bytes is not None and self._bytes > self._most_bytes):
                self._bytes -= self._items.popitem(last=False)[1][1]

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
            self._bytes = 0
