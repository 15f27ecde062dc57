"""The redo log on disk: files that are only appended to, one of them open.

A record is durable when ``sync`` has returned.  A write or a sync that fails leaves the log *poisoned*: nobody knows
what is on disk, and a second sync that succeeds would prove nothing, so nothing is appended any more.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Literal

from indexlake.errors import StorageError
from indexlake.hot.memory import record
from indexlake.storage import faults

Durability = Literal["fdatasync", "interval", "none"]
SEGMENT_BYTES = 64 << 20


def segment_name(epoch: int, number: int) -> str:
    return f"redo.{epoch}.{number}.log"


class RedoLog:
    """The open file.  One thread appends at a time."""

    def __init__(self, folder: str, lake: tuple[str, int], epoch: int, number: int, durability: Durability) -> None:
        self.folder = folder
        self.epoch = epoch
        self.number = number
        self.durability = durability
        self.poisoned: str | None = None
        self.size = 0
        self.appended = self.synced = 0  # bytes
        self._lake = lake
        self._syncing = threading.Lock()
        self._file = self._create(number)

    @property
    def path(self) -> str:
        return os.path.join(self.folder, segment_name(self.epoch, self.number))

    def _create(self, number: int) -> int:
        path = os.path.join(self.folder, segment_name(self.epoch, number))
        faults.step("log.create")
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            head = record.header(*self._lake, self.epoch, number)
            write_all(handle, head)
            os.fsync(handle)
            sync_folder(self.folder)
        except BaseException:
            os.close(handle)
            raise
        self.size = self.appended = self.synced = len(head)
        return handle

    def append(self, data: bytes) -> None:
        """One write for all records of a group."""
        self._check()
        try:
            faults.step("log.append")
            write_all(self._file, data)
        except OSError as error:
            raise self._poison("write to", error) from None
        self.size += len(data)
        self.appended = self.size

    def sync(self) -> None:
        self._check()
        with self._syncing:
            upto, handle = self.appended, self._file
            try:
                faults.step("log.sync")
                os.fdatasync(handle)
            except OSError as error:
                raise self._poison("sync", error) from None
            self.synced = upto
        faults.step("log.synced")

    def sync_all(self) -> None:
        """Whatever the durability: the catalog must not know of commits that the log may lose."""
        if self.synced < self.appended:
            self.sync()

    def next_file(self) -> Callable[[], None]:
        """Make the file after this one.  Returns what makes it the open one, once the catalog lists it."""
        self.sync()
        faults.step("log.rotate")
        before = self.size
        number = self.number + 1
        try:
            handle = self._create(number)
        except OSError as error:
            self.size = self.appended = self.synced = before
            raise self._poison("make a file of", error) from None
        first = self.size
        self.size = self.appended = self.synced = before

        def switch() -> None:
            with self._syncing:
                old, self._file, self.number = self._file, handle, number
                self.size = self.appended = self.synced = first
                os.close(old)

        return switch

    def close(self) -> None:
        if self._file >= 0:
            if self.poisoned is None and self.synced < self.appended and self.durability != "none":
                self.sync()
            os.close(self._file)
            self._file = -1

    def _check(self) -> None:
        if self.poisoned is not None:
            raise StorageError(self.poisoned, path=self.path)

    def _poison(self, what: str, error: OSError) -> StorageError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "Make room on the disk" if full else "Check the disk"
        self.poisoned = (
            f"The lake takes no more writes: it could not {what} its redo log {self.path} "
            f"({os.strerror(error.errno or 0).lower()}). Reading goes on. {todo}, then close the lake and connect "
            "again; of the last writes those that were acknowledged will be there."
        )
        return StorageError(self.poisoned, path=self.path)


def write_all(handle: int, data: bytes) -> None:
    written = os.write(handle, data)
    while written < len(data):
        written += os.write(handle, memoryview(data)[written:])


def sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
