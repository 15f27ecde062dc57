"""Record batches kept for later: in memory while they are few, beyond a budget in a temporary file.

Any batch can be read again, in any order.  The file has no name and vanishes with the spool, however the process ends.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import IO

import pyarrow as pa

from indexlake.storage.spill import TEMPORARY, Spill

MEMORY_BYTES = 64 << 20


class Spool:
    """Batches of one schema, by number."""

    def __init__(self, memory_bytes: int | None = None, spill: Spill = TEMPORARY) -> None:
        self._spill = spill
        self._budget = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._held: list[pa.RecordBatch] = []
        self.size = 0  # of all batches
        self._file: IO[bytes] | None = None
        self._map: pa.Buffer | None = None
        self._places: list[tuple[int, int]] = []  # where in the file each batch begins, and its length

    def __len__(self) -> int:
        return len(self._held) or len(self._places)

    @property
    def spilled(self) -> bool:
        return self._file is not None

    def add(self, batch: pa.RecordBatch) -> None:
        self.size += batch.nbytes
        if self._file is None and self.size <= self._budget:
            self._held.append(batch)
            return
        if self._file is None:
            self._file = self._spill.file()
            for held in self._held:
                self._write(held)
            self._held = []
        self._write(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        # Each batch gets its own stream, because a column's dictionaries may differ between batches.
        assert self._file is not None
        with self._spill.writing():
            begin = self._file.tell()
            with pa.ipc.new_stream(self._file, batch.schema) as writer:
                writer.write_batch(batch)
            self._file.flush()
        self._places.append((begin, self._file.tell() - begin))

    def batch(self, number: int) -> pa.RecordBatch:
        if self._file is None:
            return self._held[number]
        begin, length = self._places[number]
        data = os.pread(self._file.fileno(), length, begin)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_next_batch()

    def mapped(self, number: int) -> pa.RecordBatch:
        """Return the batch mapped from the file, reading only what is used.  Nothing may be added afterwards."""
        if self._file is None:
            return self._held[number]
        if self._map is None:
            self._map = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        begin, length = self._places[number]
        with pa.ipc.open_stream(self._map.slice(begin, length)) as reader:
            return reader.read_next_batch()

    def __del__(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a failed write does not matter any more
                self._file.close()
