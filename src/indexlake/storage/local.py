"""A folder as storage, by the operating system's own calls.

OpenDAL's file service leaves half a file behind when a writer is dropped, does not sync directories and hides error
numbers, so local files do not use it. A file is written under a temporary name beside its final place, synced, and
linked to its name (which fails if the name is taken); then the directory is synced.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from indexlake.storage import faults
from indexlake.storage.checksum import Checksums
from indexlake.storage.failure import damaged, wrong_size
from indexlake.storage.input_file import FileBytes
from indexlake.storage.names import unfinished
from indexlake.storage.output_file import Sink
from indexlake.storage.path import FileInfo

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalBackend:
    """Files below one directory."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._directories: set[str] = set()

    def create(self, path: str, overwrite: bool) -> Sink:
        target = self._full(path)
        self._make_directory(os.path.dirname(target))
        if not overwrite and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return _LocalSink(target, overwrite)

    def open(self, path: str, checksums: Checksums | None) -> FileBytes:
        return _MappedBytes(path, self._full(path), checksums)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._full(path))

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._full(path))

    def make_dir(self, path: str) -> None:
        self._make_directory(self._full(path))

    def remove_dir_all(self, path: str) -> None:
        import shutil

        self._directories.clear()
        with suppress(FileNotFoundError):
            shutil.rmtree(self._full(path))

    def list(self, prefix: str) -> Iterator[FileInfo]:
        pending = [prefix]
        while pending:
            directory = pending.pop()
            with suppress(FileNotFoundError), os.scandir(self._full(directory)) as entries:
                for entry in entries:
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    else:
                        with suppress(FileNotFoundError):
                            found = entry.stat(follow_symlinks=False)
                            modified = datetime.fromtimestamp(found.st_mtime, UTC)
                            yield FileInfo(path, found.st_size, modified)

    def _full(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def _make_directory(self, directory: str) -> None:
        """Create a directory and its missing parents so that they survive a power cut."""
        if directory in self._directories and os.path.isdir(directory):
            return
        missing = []
        while not os.path.isdir(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for made in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(made)
            _sync_directory(os.path.dirname(made))
        self._directories.add(missing[0] if missing else directory)


class _LocalSink:
    def __init__(self, target: str, overwrite: bool) -> None:
        self._target = target
        self._overwrite = overwrite
        directory, name = os.path.split(target)
        self._temporary = os.path.join(directory, unfinished(name))
        self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, data: Any) -> None:
        view = memoryview(data)
        while len(view):
            view = view[os.write(self._descriptor, view) :]

    def local_path(self) -> str:
        return self._temporary

    def publish(self, checksums: Checksums) -> None:
        os.fsync(self._descriptor)
        self._close()
        if self._overwrite:
            os.replace(self._temporary, self._target)
        else:
            self._link()
        _sync_directory(os.path.dirname(self._target))

    def discard(self) -> None:
        self._close()
        with suppress(FileNotFoundError):
            os.unlink(self._temporary)

    def _link(self) -> None:
        try:
            os.link(self._temporary, self._target)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if os.path.lexists(self._target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._target) from None
            os.rename(self._temporary, self._target)
        else:
            os.unlink(self._temporary)

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class _MappedBytes:
    """A memory map whose chunks are verified when first touched."""

    def __init__(self, path: str, full: str, checksums: Checksums | None) -> None:
        self.path = path
        with open(full, "rb", buffering=0) as file:
            self.size = os.fstat(file.fileno()).st_size
            if checksums is not None and self.size != checksums.size:
                raise wrong_size(path, checksums.size, self.size)
            # The map is not closed: slices of it live in decoded arrays, and it is freed with the last one.
            self.map = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if self.size else b"")
        self.bytes_read = 0
        self._checksums = checksums
        self._unverified = len(checksums.chunks) if checksums else 0
        self._verified = bytearray(self._unverified)
        self._lock = threading.Lock()

    def read_at(self, offset: int, length: int) -> memoryview:
        faults.step("storage.read")
        if self._unverified:
            self._verify(offset, length)
        elif self._checksums is None:
            self.bytes_read += length
        return self.map[offset : offset + length]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return [self.read_at(offset, length) for offset, length in ranges]

    def _verify(self, offset: int, length: int) -> None:
        assert self._checksums is not None
        size = self._checksums.chunk_size
        first, end = offset // size, (offset + max(length, 1) - 1) // size + 1
        if self._verified.find(0, first, end) < 0:
            return
        for index in range(first, end):
            if not self._verified[index]:
                chunk = self.map[index * size : (index + 1) * size]
                if not self._checksums.matches(index, chunk):
                    raise damaged(self.path, index * size, len(chunk))
                with self._lock:
                    if not self._verified[index]:
                        self._verified[index] = 1
                        self._unverified -= 1
                        self.bytes_read += len(chunk)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
