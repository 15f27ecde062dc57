"""A folder in memory for a catalog that goes with its process.

It lies under /dev/shm where there is one, else under the system's temporary directory.  The owner holds a lock in
it, so a folder that a killed process left behind is known as such, and removed by the next one that needs a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref

_PREFIX = "indexlake-memory-"
_SETTLED = 60.0  # seconds after which a folder without a lock has lost its owner


class TemporaryFolder:
    """Removed by `remove()`, with this object, or at exit."""

    def __init__(self) -> None:
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        _sweep(parent)
        self._folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        self._lock = os.open(self.path("owner"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.remove = weakref.finalize(self, _remove, self._folder, self._lock)

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def after_fork_in_child(self) -> None:
        if self.remove.detach() is not None:
            os.close(self._lock)


def _remove(folder: str, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _sweep(parent: str) -> None:
    with os.scandir(parent) as entries:
        names = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for folder in names:
        with contextlib.suppress(OSError):
            if time.time() - os.stat(folder).st_mtime < _SETTLED:
                continue
            lock = os.open(os.path.join(folder, "owner"), os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
