"""Folders that end with their process: private (mode 0700), and removed by others if it was killed.

The owner holds a lock in its folder, so a folder that a killed process left behind can be recognised, and is removed by
the next process that creates or sweeps folders in the same place. A living process's folder is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref

MEMORY_PREFIX = "indexlake-memory-"
_SETTLED = 60.0  # seconds after which a folder without a lock file counts as abandoned


def is_writable(folder: str) -> bool:
    """Return whether this process may create files in a folder: by permission, and by its file system."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


class TemporaryFolder:
    """Removed by `remove()`, when this object is collected, or at exit.

    By default it lies under /dev/shm if that exists, otherwise under the system's temporary directory.
    """

    def __init__(self, parent: str | None = None, prefix: str = MEMORY_PREFIX) -> None:
        if parent is None:
            parent = "/dev/shm" if is_writable("/dev/shm") else tempfile.gettempdir()
        sweep(parent, prefix)
        self._folder, self._lock = _make_owned(parent, prefix)
        self.remove = weakref.finalize(self, _remove, self._folder, self._lock, os.getpid())

    def path(self, name: str = "") -> str:
        return os.path.join(self._folder, name) if name else self._folder

    def after_fork_in_child(self) -> None:
        if self.remove.detach() is not None:
            os.close(self._lock)


def _make_owned(parent: str, prefix: str) -> tuple[str, int]:
    """Create a folder and lock it; return it and the descriptor of the lock."""
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        path = os.path.join(folder, "owner")
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(path):
                return folder, lock
            os.close(lock)  # another process swept it before it was locked


def _remove(folder: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def sweep(parent: str, prefix: str) -> None:
    """Remove the folders whose owners are dead."""
    try:
        with os.scandir(parent) as entries:
            names = [entry.path for entry in entries if entry.name.startswith(prefix)]
    except OSError:
        return
    for folder in names:
        with contextlib.suppress(OSError):
            _sweep_one(folder)


def _sweep_one(folder: str) -> None:
    try:
        lock = os.open(os.path.join(folder, "owner"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - os.stat(folder).st_mtime > _SETTLED:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
