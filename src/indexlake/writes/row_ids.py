"""Row ids are reserved in ranges per process: unique, increasing within a process, with gaps."""

from __future__ import annotations

import threading

from indexlake.catalog import table_heads
from indexlake.catalog.current import commit_in
from indexlake.catalog.driver import Catalog
from indexlake.snapshots.state import gone

RANGE = 8192
_ENDLESS = 1 << 62


class RowIdAllocator:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._lock = threading.Lock()
        self._ranges: dict[int, tuple[int, int]] = {}  # table id -> (next, end)

    def begin(self, table_id: int) -> None:
        """Number the rows of a table that exists only in a transaction of this process so far."""
        self._ranges[table_id] = (1, _ENDLESS)

    def end(self, table_id: int) -> int:
        """Forget the table's range; return the next number of it."""
        return self._ranges.pop(table_id, (1, 1))[0]

    def next(self, table_id: int) -> int:
        return self._ranges[table_id][0]

    def take(self, table_id: int, count: int) -> int:
        """Return the first of ``count`` consecutive row ids for the caller alone."""
        with self._lock:
            first, end = self._ranges.get(table_id, (0, 0))
            if end - first < count:
                size = max(count, RANGE)
                reserved = commit_in(self, lambda tx: table_heads.reserve_row_ids(tx, table_id, size))
                if reserved is None:
                    raise gone(table_id)
                first, end = reserved, reserved + size
            self._ranges[table_id] = (first + count, end)
            return first
