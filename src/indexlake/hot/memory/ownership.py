"""Who owns a lake whose newest rows are in memory: a kernel lock on the folder of its log, and a lease in the catalog.

The lock ends with the process, so a lake whose owner was killed is free at once. It protects only against processes
that open the same folder. Each folder therefore has an identity, which a copy does not share, and the lease records the
owner's folder. A process with another folder is refused unless the owner has closed the lake, or ran on this machine
and is gone, or ran elsewhere and the caller says ``take_over``.

An owner rereads its lease at least once a second before it acknowledges a commit. If the former owner was on another
machine, the lock may prove nothing. The new owner then raises the epoch and waits before it reads the log: by that time
the former owner has written everything it acknowledged, and will acknowledge nothing more.
"""

from __future__ import annotations

import fcntl
import os
import socket
import uuid
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from indexlake.catalog import log_records
from indexlake.catalog.clock import now
from indexlake.catalog.log_records import LogOwner
from indexlake.errors import OwnershipError, StorageError
from indexlake.hot.memory.redo import segment_name

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog, Transaction

LOCK = "owner.lock"
CHECK_SECONDS = 1.0
"""How long an owner acknowledges commits without reading its lease again."""

BESIDE = "beside the catalog"
"""The recorded place of a log folder that lies in the catalog's own folder, where everyone finds it."""

_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


class FolderLock:
    """The lock on a log's folder, held by this process until it is released or the process ends."""

    def __init__(self, folder: str, *, beside: bool) -> None:
        """Take the lock; raise ``BlockingIOError`` if another process holds it."""
        self.folder = folder
        path = os.path.join(folder, LOCK)
        try:
            self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot lock the redo log: {path}: {error.strerror}", path=path) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.place = BESIDE if beside else self._identity()
        except BaseException:
            os.close(self._file)
            raise
        _locks.add(self)

    def _identity(self) -> str:
        """Return the folder's identity, with the lock file's inode number, so that a copy gets another one."""
        identity = os.pread(self._file, 200, 0).decode(errors="replace")
        number = str(os.fstat(self._file).st_ino)
        if not identity.endswith(f" {number}"):
            identity = f"{uuid.uuid4()} {number}"
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, identity.encode(), 0)
            os.fsync(self._file)
        return identity

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        _locks.discard(self)


def _forked() -> None:
    """Release the parent's locks in a forked child, which would otherwise keep them after the parent ends."""
    for lock in list(_locks):
        lock.release()


os.register_at_fork(after_in_child=_forked)


def lock_folder(catalog: Catalog, folder: str, *, beside: bool) -> FolderLock:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder} for the redo log: {error.strerror}", path=folder) from None
    try:
        return FolderLock(folder, beside=beside)
    except BlockingIOError:
        with catalog.read() as r:
            owner = log_records.read_owner(r)
        raise is_open_elsewhere(owner) from None


def become_owner(
    tx: Transaction, lock: FolderLock | None, bound: int, *, take_over: bool, above: int = 0
) -> tuple[int, float]:
    """Raise the epoch unless another process may own the lake; return it and how long to wait before reading the log.

    ``bound`` becomes the lake's bound if it never had a log. ``above`` is the highest epoch of the files in the folder.
    """
    known, host = log_records.read_owner(tx), socket.gethostname()
    wait = 0.0
    if known is not None and known.is_open and lock is not None:
        if known.place != lock.place:
            lives = _lives(known, host)
            if lives:
                raise is_open_elsewhere(known)
            if lives is None and not take_over:
                raise may_be_open_elsewhere(known, lock.folder)
        if known.host != host:
            wait = 2 * CHECK_SECONDS
    if known is not None and lock is not None and known.place != lock.place:
        _check_files(tx, known, lock.folder)
    folder, place = ("", "") if lock is None else (lock.folder, lock.place)
    identity = f"process {os.getpid()}", host, folder, place
    return log_records.take_over(tx, *identity, now(), bound, above), wait


def _check_files(tx: Transaction, known: LogOwner, folder: str) -> None:
    """Check that a folder other than the last owner's has all the files of the log."""
    for segment in log_records.read_segments(tx):
        name = segment_name(segment.epoch, segment.number)
        if not os.path.exists(os.path.join(folder, name)):
            raise StorageError(
                f"The redo log of this lake is not in {folder}: {name} is missing there. It was written by "
                f"{described(known)}. Pass log_dir={known.folder!r} there, or bring its files to your folder first. "
                "Nothing was changed.",
                path=folder,
            )


def _lives(owner: LogOwner, host: str) -> bool | None:
    """Return whether an owner holds the lock of its folder; None: it ran on another machine, or nobody can tell."""
    if owner.host != host or not os.path.exists(os.path.join(owner.folder, LOCK)):
        return None
    try:
        FolderLock(owner.folder, beside=True).release()
    except BlockingIOError:
        return True
    except StorageError:
        return None
    return False


def described(owner: LogOwner | None) -> str:
    if owner is None:
        return "another process"
    since = datetime.fromtimestamp(owner.since / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
    return f"{owner.owner} on {owner.host} (since {since}, redo log in {owner.folder})"


def is_open_elsewhere(owner: LogOwner | None) -> OwnershipError:
    here = owner is not None and (owner.owner, owner.host) == (f"process {os.getpid()}", socket.gethostname())
    close = "That is this process: use the lake that it has, or close it first" if here else "Close it there first"
    return OwnershipError(
        f"This lake keeps its newest rows in the memory of {described(owner)}, which has it open. {close}, or connect "
        "with read_only=True to read what its last checkpoint holds.",
        owner=owner,
    )


def may_be_open_elsewhere(owner: LogOwner, folder: str) -> OwnershipError:
    return OwnershipError(
        f"This lake was last opened by {described(owner)}, which has not closed it; {folder} is not its log's folder. "
        f"Connect there, with log_dir={owner.folder!r}. If that process is gone for good and the files of its log are "
        "in your folder, connect with take_over=True.",
        owner=owner,
    )
