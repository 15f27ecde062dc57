"""Bytes that are written once and read back: in memory while they are few, then in a temporary file without a name."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

IN_MEMORY = 4 << 20
_PIECE = 1 << 20


class Spool:
    """One growing sequence of bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._kept: list[memoryview] = []
        self._kept_size = 0
        self._file: IO[bytes] | None = None

    def write(self, array: npt.NDArray[Any] | bytes) -> int:
        """Append, and say where."""
        view = _bytes(array)
        at = self.size
        self.size += len(view)
        if len(view):
            self._kept.append(view)
            self._kept_size += len(view)
            if self._kept_size > IN_MEMORY:
                self._flush()
        return at

    def read(self, at: int, count: int, dtype: Any) -> npt.NDArray[Any]:
        """An array that was written."""
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
        """Everything, in pieces."""
        if self._file is None:
            yield from self._kept
            return
        for at in range(0, self.size, _PIECE):
            yield _bytes(self.read(at, min(_PIECE, self.size - at), np.uint8))

    def _flush(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="indexlake-", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        for view in self._kept:
            while len(view):
                view = view[self._file.write(view) :]
        self._kept = []
        self._kept_size = 0


def _bytes(array: npt.NDArray[Any] | bytes) -> memoryview:
    buffer: Any = np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array
    return memoryview(buffer).cast("B")
