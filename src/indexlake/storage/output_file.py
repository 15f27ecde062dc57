"""Writing a file: it appears whole when `close` returns; before that, and after `abort`, it does not exist.

Checksums are computed as the bytes pass. A file is written once: its name must be free, unless the caller passes
`overwrite`.
"""

from __future__ import annotations

import io
import mmap
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from indexlake.storage import faults
from indexlake.storage.checksum import CHUNK_SIZE, ChecksumBuilder, Checksums
from indexlake.storage.failure import translated

_BUFFER_SIZE = 1024 * 1024


class Sink(Protocol):
    """Where the bytes wait until the file is published."""

    def write(self, data: Any) -> None: ...

    def local_path(self) -> str:
        """Return the path of a local file for another library to fill; its contents become the file's."""

    def publish(self, checksums: Checksums) -> None:
        """Make the file durable and visible under its name, in one step."""

    def discard(self) -> None:
        """Leave nothing behind."""


class OutputFile(io.RawIOBase):
    """A file being written. Leaving its `with` block closes it, or aborts it after an error."""

    def __init__(self, path: str, sink: Sink, chunk_size: int = CHUNK_SIZE) -> None:
        super().__init__()
        self.path = path
        self._sink = sink
        self._buffer = bytearray()
        self._chunk_size = chunk_size
        self._builder = ChecksumBuilder(chunk_size)
        self._external: Checksums | None = None
        self._checksums: Checksums | None = None
        self._done = False

    @property
    def checksums(self) -> Checksums:
        """Size and checksums of the whole file, once it is closed."""
        if self._checksums is None:
            raise ValueError(f"{self.path!r} is not written yet: its checksums are known after close()")
        return self._checksums

    def write(self, data: Any) -> int:
        if self._done:
            raise ValueError(f"{self.path!r} is closed")
        view = memoryview(data).cast("B")
        if len(self._buffer) + len(view) > _BUFFER_SIZE:
            self._drain()
        if len(view) > _BUFFER_SIZE:
            self._pass_on(view)
        else:
            self._buffer += view
        return len(view)

    @contextmanager
    def as_local_path(self) -> Iterator[str]:
        """Yield the path of a local file to fill instead of calling `write`, for libraries that need a path."""
        if self.tell():
            raise ValueError(f"{self.path!r} has been written to already")
        with translated("write", self.path):
            faults.step("storage.write")
            path = self._sink.local_path()
        yield path
        with translated("write", self.path):
            self._external = _checksums_of_file(path, self._chunk_size)

    def close(self) -> None:
        if self._done:
            return
        try:
            self._drain()
            self._done = True
            checksums = self._external or self._builder.finish()
            with translated("publish", self.path):
                faults.step("storage.publish")
                self._sink.publish(checksums)
                faults.step("storage.published")
            self._checksums = checksums
        except BaseException:
            self._done = True
            self._discard()
            raise
        finally:
            super().close()

    def abort(self) -> None:
        """Discard the file. Harmless after `close` and when repeated."""
        if not self._done:
            self._done = True
            self._discard()
            super().close()

    def tell(self) -> int:
        return self._builder.size + len(self._buffer)

    def writable(self) -> bool:
        return True

    def _drain(self) -> None:
        if self._buffer:
            data, self._buffer = self._buffer, bytearray()
            self._pass_on(data)

    def _pass_on(self, data: Any) -> None:
        with translated("write", self.path):
            faults.step("storage.write")
            self._sink.write(data)
        self._builder.update(data)

    def _discard(self) -> None:
        with suppress(Exception):  # the error that led here matters more; vacuum removes what is left
            self._sink.discard()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            warnings.warn(f"{self!r} was neither closed nor aborted", ResourceWarning, source=self)
            self.abort()

    def __repr__(self) -> str:
        return f"OutputFile({self.path!r})"


def _checksums_of_file(path: str, chunk_size: int) -> Checksums:
    if os.path.getsize(path) == 0:
        return Checksums.of(b"", chunk_size)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole, memoryview(whole) as view:
        return Checksums.of(view, chunk_size)
