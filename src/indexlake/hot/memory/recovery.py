"""Recover the versions in memory from the catalog and the redo log, and continue the log.

The opener raises the epoch before it reads the log, so that a former owner that is still writing acknowledges nothing
that is not read here. The good records of the open file are copied into a file of the new epoch before any of them is
shown: they may have been in the page cache only, and a former owner might still append to the old file. If recovery
crashes at any point, the log can be read again in the same way.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from indexlake.catalog import commits, log_records
from indexlake.catalog.log_records import LogOwner, Segment
from indexlake.catalog.tables import lake_record
from indexlake.display import counted, html_facts
from indexlake.display.progress import ProgressBar
from indexlake.errors import CorruptionError, OwnershipError, StorageError
from indexlake.hot.memory import record
from indexlake.hot.memory.ownership import become_owner
from indexlake.hot.memory.redo import Durability, RedoLog, segment_name, sync_folder, write_all
from indexlake.hot.memory.replay import Replay
from indexlake.hot.memory.rotation import numbers_of, sweep
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.hot.memory.ownership import FolderLock
    from indexlake.hot.memory.record import Commit
    from indexlake.hot.memory.store import MemoryStore


@dataclass(slots=True)
class Recovery:
    """What opening the lake found in its redo log."""

    epoch: int = 0
    files: int = 0
    commits: int = 0
    """Commits that were replayed."""
    rows: int = 0
    """Row versions that they restored."""
    cut_off: int = 0
    """Bytes of incomplete records at the end of the log, from commits that were never acknowledged."""
    last_commit: int = 0

    def __str__(self) -> str:
        text = f"epoch {self.epoch}: {counted(self.commits, 'commit')} with {counted(self.rows, 'row')} replayed"
        text += f" from {counted(self.files, 'file')} of the redo log, up to snapshot {self.last_commit}"
        return text + (
            f"; {counted(self.cut_off, 'byte')} at its end were an incomplete record" if self.cut_off else ""
        )

    def _repr_html_(self) -> str:
        facts = {"epoch": self.epoch, "files": self.files, "commits": self.commits, "rows": self.rows}
        return html_facts("recovery", {**facts, "cut off": self.cut_off, "last commit": self.last_commit})


def recover(
    store: MemoryStore, catalog: Catalog, lock: FolderLock, durability: Durability, *, take_over: bool
) -> Recovery:
    """Become the owner of the lake and restore what its log holds."""
    folder = lock.folder
    with catalog.transaction() as tx:
        known = lake_record(tx)
        assert known is not None
        lake = known.lake_id, known.incarnation
        _check_folder(folder, lake[0])
        # A restored catalog does not know the epochs of log files written since its backup.
        above = max((found[0] for found in map(numbers_of, os.listdir(folder)) if found), default=0)
        store.epoch, wait = become_owner(tx, lock, commits.last_snapshot(tx)[0], take_over=take_over, above=above)
        tx.commit()
    faults.step("recovery.epoch")
    time.sleep(wait)
    with catalog.read() as r:
        owner = log_records.read_owner(r)
        assert owner is not None
        store.layout, store.committed_at = commits.last_snapshot(r)
        store.set_clock(r)
        replay = Replay(store, r)
        log = _Reading(folder, lake[0], owner, store.layout, replay)
        log.read(log_records.read_segments(r))
    try:
        store.log = _continue_log(store.epoch, catalog, folder, lake, log, durability)
    except OSError as error:
        raise StorageError(f"The redo log cannot be written in {folder}: {error.strerror}.", path=folder) from None
    store.untold = log.untold
    for commit in log.untold:
        store.committed_at = max(store.committed_at, commit.committed_at)
        if commit.token is not None and commit.result is not None:
            store.remember(commit.token, commit.result)
    store.begin_at(log.untold[-1].number if log.untold else store.layout)
    sweep(catalog, folder, (store.epoch, 0))
    faults.step("recovery.done")
    return Recovery(store.epoch, log.files, replay.commits, replay.rows, log.cut_off, store.visible)


def _check_folder(folder: str, lake_id: str) -> None:
    """Refuse a folder with files of another lake's log: both use the same file names."""
    for name in filter(numbers_of, os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            head = next(record.parts(memoryview(file.read(1024))), None)
        if head is not None and head[0][0] == record.MAGIC and head[0][2] != lake_id:
            raise StorageError(
                f"The folder {folder} holds the redo log of another lake. Pass another log_dir=, the one that this "
                "lake had before if it had one.",
                path=folder,
            )


# ---------------------------------------------------------------- reading


@dataclass(slots=True)
class _Reading:
    """The log from its first listed file to its last good record, replayed while it is read."""

    folder: str
    lake_id: str
    owner: LogOwner
    known: int  # the newest commit that the catalog knows
    replay: Replay
    files: int = 0
    cut_off: int = 0
    last: int = 0  # the newest commit in the log
    untold: list[Commit] = field(default_factory=list)
    open: Segment | None = None
    before_tail: int = 0
    tail: bytes = b""  # the good records of the open file, unparsed

    def read(self, listed: list[Segment]) -> None:
        with ProgressBar("replaying the redo log", None) as bar, _no_collection():
            for n, segment in enumerate(listed):
                bar.show(n, len(listed), rows=self.replay.rows, size=0)
                self._read_file(segment)
                self.files += 1
        if self.owner.told > max(self.owner.bound, self.last):
            raise CorruptionError(
                f"The redo log ends with commit {self.last}, but the catalog knows that commit {self.owner.told} was "
                f"in it: a part of the log is lost. {_TO_DO}"
            )
        self.replay.end()

    def _read_file(self, segment: Segment) -> None:
        path = os.path.join(self.folder, segment_name(segment.epoch, segment.number))
        sealed = segment.size is not None
        try:
            with open(path, "rb") as file:
                content = file.read() if segment.size is None else file.read(segment.size)
        except FileNotFoundError:
            raise _damaged(path, "is missing") from None
        if len(content) < (segment.size or 0):
            raise _damaged(path, f"has {len(content):,} bytes instead of {segment.size:,}")
        data = memoryview(content)
        head = next(record.parts(data), None)
        wanted = (record.MAGIC, record.FORMAT, self.lake_id, segment.epoch, segment.number)
        if head is None or (*head[0][:3], *head[0][4:6]) != wanted:
            raise _damaged(path, "does not start like a file of this lake's log")
        start, before = head[1], head[0][6]
        if before > max(self.last, self.owner.bound):
            raise _gap(max(self.last, self.owner.bound) + 1)
        self.last = max(self.last, before)
        end = self._read_records(data, start)
        if sealed and end < len(data):
            raise _damaged(path, f"is damaged after commit {self.last}")
        if rest := content[end:].rstrip(b"\0"):  # zeros were written ahead
            if record.is_evidence(data, end, self.last):
                raise _damaged(path, f"is damaged after commit {self.last}, and a later record shows more was durable")
            self.cut_off = len(rest)
        if not sealed:
            self.open, self.before_tail, self.tail = segment, before, content[start:end]

    def _read_records(self, data: memoryview, start: int) -> int:
        """Replay the records of a file, and return where the last good one ends."""
        replay, known = self.replay.record, self.known
        for content, end in record.parts(data, start):
            number, durable = content[0], content[7]
            if durable > self.last or number <= self.last:
                raise _gap(self.last + 1)
            replay(number, content[8])
            if number > known:
                if number != known + 1:
                    raise _gap(known + 1)
                known = number
                self.untold.append(record.commit_of(content))
            self.last, start = number, end
        self.known = known
        return start


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: what is read stays in memory and has no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


_TO_DO = "Nothing was changed. Bring the log's files back, or restore the lake from a backup."


def _damaged(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"The redo log's file {path} {what}: commits that were acknowledged are lost. {_TO_DO}", path=path
    )


def _gap(number: int) -> CorruptionError:
    return CorruptionError(
        f"Commit {number} is neither in the redo log nor in the catalog: a part of the log is lost. {_TO_DO}"
    )


# ---------------------------------------------------------------- going on


def _continue_log(
    epoch: int, catalog: Catalog, folder: str, lake: tuple[str, int], log: _Reading, durability: Durability
) -> RedoLog:
    """Copy the good records of the open file into a sealed file of this epoch, and begin the next file."""
    number, copied = 1, 0
    if log.tail:
        content = record.header(*lake, epoch, number, log.before_tail) + log.tail
        handle = os.open(
            os.path.join(folder, segment_name(epoch, number)),
            os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC,
            0o644,
        )
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_folder(folder)
        faults.step("recovery.copied")
        number, copied = 2, len(content)
    begun = RedoLog(folder, lake, epoch, number, durability, log.last)
    try:
        with catalog.transaction() as tx:
            if log_records.read_epoch(tx) != epoch:
                raise OwnershipError("Another process took the lake over while it was opened. Connect again.")
            if log.open is not None:
                log_records.unlist(tx, log.open.epoch, log.open.number)
            if log.tail:
                log_records.list_segment(tx, Segment(epoch, 1, log.last, copied))
            log_records.list_segment(tx, Segment(epoch, number, None, None))
            log_records.unlist_up_to(tx, log.owner.bound)
            faults.step("recovery.listed")
            tx.commit()
    except BaseException:
        begun.close()
        raise
    return begun
