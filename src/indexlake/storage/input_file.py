"""Reading a file: by position, verified, from any thread; and with a cursor, for libraries that expect a file.

With checksums, no byte is returned before its chunk has been compared: a chunk of a local file is hashed when it is
first touched; ranges of a remote file are widened to whole chunks. Without checksums, bytes are returned unverified.
Local files are memory maps, and reads are slices of them, so a file must not be truncated while it is open.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from indexlake.storage.failure import failure


class FileBytes(Protocol):
    """The bytes of one file. Safe for any number of threads."""

    path: str
    size: int
    bytes_read: int

    @property
    def map(self) -> memoryview | None:
        """The memory map that reads are slices of, if there is one; keeping slices costs nothing."""

    def read_at(self, offset: int, length: int) -> memoryview:
        """Return the bytes in [offset, offset + length), which lie inside the file, verified."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return several ranges (offset, length) at once."""


class InputFile(io.RawIOBase):
    """An open file. `read_at` and `read_ranges` may be called by many threads; the cursor belongs to one."""

    def __init__(self, content: FileBytes) -> None:
        super().__init__()
        self._bytes = content
        self._position = 0

    @property
    def path(self) -> str:
        return self._bytes.path

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the store so far: whole chunks, each counted once for a local file."""
        return self._bytes.bytes_read

    def size(self) -> int:
        return self._bytes.size

    @property
    def map(self) -> memoryview | None:
        """The memory map that reads are slices of, or None if there is none.

        Keeping slices costs nothing. Only what was requested with `read_at` is verified.
        """
        return self._bytes.map

    def let_go(self) -> None:
        """Return the memory of a map's read pages to the system; they are loaded again when needed."""
        if self.map is not None and isinstance(self.map.obj, mmap.mmap):
            self.map.obj.madvise(mmap.MADV_DONTNEED)

    def duplicate(self) -> InputFile:
        """Return another cursor on the same open file."""
        return InputFile(self._bytes)

    def read_at(self, offset: int, length: int) -> memoryview:
        """Return the bytes in [offset, offset + length), fewer only at the end of the file."""
        size = self._bytes.size
        if offset < 0 or length < 0:
            raise ValueError(f"read of {length} bytes at {offset} of {self.path!r}")
        if offset + length > size:
            offset = min(offset, size)
            length = size - offset
        if length == 0:
            return memoryview(b"")
        try:
            return self._bytes.read_at(offset, length)
        except OSError as error:
            raise failure("read", self.path, error) from None

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return several ranges (offset, length), in parallel if that helps; each must lie inside the file."""
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > self._bytes.size:
                raise ValueError(f"read of {length} bytes at {offset} of {self.path!r}, {self.size()} bytes long")
        return self._bytes.read_ranges(ranges)

    def verify(self) -> None:
        """Compare the whole file with its checksums."""
        step = 16 * 1024 * 1024
        for offset in range(0, self._bytes.size, step):
            self.read_at(offset, step)

    # The interface that pyarrow and other libraries expect.

    def read_buffer(self, size: int = -1) -> memoryview:
        """Return the same as `read`, without a copy if the bytes are mapped."""
        if size is None or size < 0:
            size = max(self._bytes.size - self._position, 0)
        data = self.read_at(self._position, size)
        self._position += len(data)
        return data

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        data = self.read_buffer(len(target))
        target[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._position, self._bytes.size)[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset} in {self.path!r}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"InputFile({self.path!r}, {self.size()} bytes)"


class _MemoryBytes:
    """Bytes that exist only in memory."""

    path = "(memory)"
    bytes_read = 0

    def __init__(self, data: memoryview) -> None:
        self.map = data
        self.size = len(data)

    def read_at(self, offset: int, length: int) -> memoryview:
        return self.map[offset : offset + length]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return [self.read_at(*each) for each in ranges]


def in_memory(pieces: Iterable[Any]) -> InputFile:
    """Return a file made of buffers, one after the other, that is in no storage."""
    data = b"".join(memoryview(piece).cast("B") if len(piece) else b"" for piece in pieces)
    return InputFile(_MemoryBytes(memoryview(data)))
