"""Bytes that are written once and read back: in memory while there are few, then in the lake's spill folder."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from indexlake.storage.input_file import InputFile
from indexlake.storage.spill import current_spill

IN_MEMORY = 1 << 20
_PIECE = 1 << 20


class Spool:
    """A growing sequence of bytes.  Up to ``in_memory`` bytes (by default `IN_MEMORY`) stay in memory."""

    def __init__(self, in_memory: int | None = None) -> None:
        self.size = 0
        self._in_memory = IN_MEMORY if in_memory is None else in_memory
        self._kept: list[memoryview] = []
        self._kept_size = 0
        self._file: IO[bytes] | None = None
        self._spill = current_spill()

    def write(self, array: npt.NDArray[Any] | bytes) -> int:
        """Append the bytes and return where they begin."""
        view = _bytes(array)
        at = self.size
        self.size += len(view)
        if len(view):
            self._kept.append(view)
            self._kept_size += len(view)
            if self._kept_size > self._in_memory:
                self._flush()
        return at

    def read(self, at: int, count: int, dtype: Any) -> npt.NDArray[Any]:
        """Return an array that was written."""
        size = count * np.dtype(dtype).itemsize
        if self._file is None:
            self._kept = [memoryview(b"".join(self._kept))] if len(self._kept) > 1 else self._kept
            return np.frombuffer(self._kept[0][at : at + size] if size else b"", dtype)
        if self._kept:
            self._flush()
        data = bytearray(size)
        done = 0
        while done < size:
            got = os.preadv(self._file.fileno(), [memoryview(data)[done:]], at + done)
            if not got:
                raise EOFError(f"a temporary file has {at + done} bytes instead of {at + size}")
            done += got
        return np.frombuffer(data, dtype)

    def pieces(self) -> Iterator[memoryview]:
        """Yield everything in pieces."""
        if self._file is None:
            yield from self._kept
            return
        for at in range(0, self.size, _PIECE):
            yield _bytes(self.read(at, min(_PIECE, self.size - at), np.uint8))

    def as_file(self) -> InputFile:
        """Return the bytes as a file that can be read like one in storage, once everything has been written."""
        return InputFile(_SpooledBytes(self))

    def _flush(self) -> None:
        if self._file is None:
            self._file = self._spill.file()
            weakref.finalize(self, self._file.close)
        with self._spill.writing():
            for view in self._kept:
                self._file.write(view)
            self._file.flush()
        self._kept = []
        self._kept_size = 0


class _SpooledBytes:
    path = "(temporary)"
    map = None
    bytes_read = 0

    def __init__(self, spool: Spool) -> None:
        self.size = spool.size
        self._spool = spool

    def read_at(self, offset: int, length: int) -> memoryview:
        return _bytes(self._spool.read(offset, length, np.uint8))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return [self.read_at(*each) for each in ranges]


def _bytes(array: npt.NDArray[Any] | bytes) -> memoryview:
    buffer: Any = np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array
    return memoryview(buffer).cast("B")
