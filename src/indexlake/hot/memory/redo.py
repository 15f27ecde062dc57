"""The redo log on disk: append-only files, of which one is open.

Zeros are written ahead of the records. A sync of a file whose length has not changed has no new length to make durable,
and takes half to three quarters of the time. If the disk has no room for the zeros, the log does without them.

A record is durable once ``sync`` has returned. A failed write or sync leaves the log *poisoned*: nobody knows what is
on disk, so nothing more is appended. What was written before a write that failed can still be synced; after a sync that
failed, a second, successful one would prove nothing.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import Literal

from indexlake.errors import StorageError
from indexlake.hot.memory import record
from indexlake.storage import faults

Durability = Literal["fdatasync", "interval", "none"]
SYNC_SECONDS = 0.01
"""Seconds between a write and its sync in the background; a power cut may lose commits from that time plus the sync."""

SEGMENT_BYTES = 64 << 20
"""A file larger than this is followed by another."""

_AHEAD = bytes(256 << 10)
"""The zeros that follow a record that does not fit into those already there."""


def segment_name(epoch: int, number: int) -> str:
    return f"redo.{epoch}.{number}.log"


class RedoLog:
    """The open file of the log. One thread appends at a time.

    Commits are named by their numbers: ``last`` is the newest in the log, ``before`` the newest in the files before
    this one, ``durable`` the newest that is known to survive a power cut.
    """

    def __init__(
        self, folder: str, lake: tuple[str, int], epoch: int, number: int, durability: Durability, before: int
    ) -> None:
        self.folder = folder
        self.epoch = epoch
        self.number = number
        self.durability = durability
        self.poisoned: str | None = None
        self._may_sync = True
        self.before = self.last = self.durable = before
        self._lake = lake
        self._syncing = threading.Lock()
        self._file, self.size = self.create(number, before)
        self._reserved = self.size  # where the zeros end that were written ahead
        self._try_at = 0
        self._unwanted: tuple[int, int] | None = None  # the end of the log before what is being taken back
        self._syncer = _Syncer(self) if durability == "interval" else None

    @property
    def path(self) -> str:
        return os.path.join(self.folder, segment_name(self.epoch, self.number))

    def create(self, number: int, before: int) -> tuple[int, int]:
        """Create a file of the log, durable with its name, or none at all; return the open file and its size."""
        path = os.path.join(self.folder, segment_name(self.epoch, number))
        faults.step("log.create")
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            head = record.header(*self._lake, self.epoch, number, before)
            write_all(handle, head)
            os.fsync(handle)
            sync_folder(self.folder)
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                os.unlink(path)
            raise
        return handle, len(head)

    def append(self, data: bytes, last: int) -> None:
        """Append all records of a group, whose newest commit is ``last``, in one write; for a log that was checked."""
        end = self.end
        try:
            faults.step("log.append")
            self._write(data)
        except OSError as error:
            raise self._poison("write to", error) from None
        except BaseException:  # an interrupt, perhaps in the middle of a record
            self.take_back(end)
            raise
        self.size, self.last = self.size + len(data), last
        if self._syncer is not None:
            self._syncer.written.set()

    def _write(self, data: bytes) -> None:
        if self.size + len(data) > self._reserved:
            self._reserved = self.size + write_all(self._file, data + _AHEAD, self.size, len(data))
        else:
            write_all(self._file, data, self.size)

    @property
    def end(self) -> tuple[int, int]:
        """The current end of the log, for ``take_back``."""
        return self.size, self.last

    def take_back(self, end: tuple[int, int]) -> None:
        """Remove what was appended since the log had this end."""
        if self.poisoned is None:
            self._unwanted = end
            with self._syncing:
                try:
                    os.ftruncate(self._file, end[0])
                except OSError as error:
                    self._may_sync = False
                    self._poison("truncate", error)
                else:
                    self.size, self.last = end
                    self._reserved = self.size
                    self.durable = min(self.durable, self.last)
            self._unwanted = None

    def tidy(self) -> None:
        """Take back what an interrupted ``take_back`` has left."""
        if self._unwanted is not None:
            self.take_back(self._unwanted)

    def sync(self) -> None:
        """Make everything appended so far durable."""
        if not self._may_sync:
            self.check()
        with self._syncing:
            upto, handle = self.last, self._file
            try:
                faults.step("log.sync")
                os.fdatasync(handle)
            except OSError as error:
                self._may_sync = False
                raise self._poison("sync", error) from None
            self.durable = upto
        faults.step("log.synced")

    def sync_through(self, number: int) -> None:
        """Make the log durable up to a commit, whatever the setting, before the catalog learns of it."""
        if self.durable < number:
            self.sync()

    @property
    def is_full(self) -> bool:
        return self.size > max(SEGMENT_BYTES, self._try_at) and self.last > self.before

    def try_later(self) -> None:
        """Postpone the next attempt to begin another file."""
        self._try_at = self.size + SEGMENT_BYTES // 8

    def switch(self, handle: int, size: int) -> None:
        """Make the next file, which has been listed, the open one."""
        with self._syncing:
            with suppress(OSError):  # bytes after the sealed length are ignored
                os.ftruncate(self._file, self.size)
            os.close(self._file)
            self._file, self.size, self.before = handle, size, self.last
            self._reserved = size
            self.number += 1
            self._try_at = 0

    def close(self) -> None:
        if self._syncer is not None:
            self._syncer.stop()
        if self._file >= 0:
            try:
                if self._may_sync and self.durability != "none":
                    self.sync_through(self.last)
            finally:
                os.close(self._file)
                self._file = -1

    def check(self) -> None:
        if self.poisoned is not None:
            raise StorageError(self.poisoned, path=self.path)

    def _poison(self, what: str, error: OSError) -> StorageError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "Make room on the disk" if full else "Check the disk"
        self.poisoned = (
            f"The lake accepts no more writes: it could not {what} its redo log {self.path} "
            f"({os.strerror(error.errno or 0).lower()}). Reading still works. {todo}, then close the lake and connect "
            "again: every acknowledged write will be there."
        )
        return StorageError(self.poisoned, path=self.path)


class _Syncer(threading.Thread):
    """Syncs a log shortly after it was written to. A failed sync poisons the log; the next commit reports it."""

    def __init__(self, log: RedoLog) -> None:
        super().__init__(name="indexlake-sync", daemon=True)
        self._log = log
        self.written = threading.Event()
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while True:
            self.written.wait()
            if self._ended.wait(SYNC_SECONDS):
                return
            self.written.clear()
            with suppress(StorageError):
                self._log.sync_through(self._log.last)

    def stop(self) -> None:
        self._ended.set()
        self.written.set()
        self.join()


def write_all(handle: int, data: bytes, at: int = 0, needed: int | None = None) -> int:
    """Write data to a file from offset ``at`` on; return how many bytes were written, ``needed`` of them at least."""
    needed = len(data) if needed is None else needed
    written = os.pwrite(handle, data, at)
    while written < needed:
        written += os.pwrite(handle, memoryview(data)[written:], at + written)
    return written


def sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
