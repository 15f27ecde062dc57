"""The writers' lock of a SQLite catalog: one writer at a time, in order of arrival, with a timeout.

SQLite's own busy handler lets writers starve: of 8 processes, one made 1 commit while another made thousands. So
writers queue here before they begin. Threads of a process queue in `FairLock`. Processes queue on two lock files: the
holder of `.queue` is the next to get `.lock`, so a process that has just left cannot overtake it. The locks are
`flock`s: the kernel drops them when the process dies, however it dies.

This lock orders writers and makes waiting cheap; what excludes them is SQLite's BEGIN IMMEDIATE.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import deque

from indexlake.catalog.driver import DatabaseError
from indexlake.errors import CatalogError

_QUIET = 1000  # after this many commits without a queue,
_UNCHECKED = 8  # the queue is not checked for this many commits

_WAIT, _TRY, _DROP = fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN


class FairLock:
    """A lock that waiters get in order of arrival.

    It may be released from a finalizer, which runs in any thread at any point, even inside `acquire`. So it has no
    mutex of its own, and each step leaves it consistent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def try_acquire(self) -> bool:
        return not self._waiting and self._lock.acquire(False)

    def acquire(self, timeout: float) -> bool:
        if self.try_acquire():
            return True
        if timeout <= 0:
            return False
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        self._pass_on()
        try:
            return turn.acquire(timeout=timeout) or self._leave(turn)
        except BaseException:
            if self._leave(turn):
                self.release()
            raise

    def release(self) -> None:
        self._lock.release()
        if self._waiting:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give a free lock to the first waiter. Called after each release and each arrival, so that one sees the
        other."""
        while self._waiting and self._lock.acquire(False):
            try:
                turn = self._waiting.popleft()
            except IndexError:
                self._lock.release()
            else:
                turn.release()
                return

    def _leave(self, turn: threading.Lock) -> bool:
        """Stop waiting; return True if the lock was granted at the last moment."""
        try:
            self._waiting.remove(turn)
        except ValueError:
            return True
        return False


class WriterLock:
    """The lock of one catalog; `path` is its lock file, or None if there is only one process."""

    def __init__(self, path: str | None, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
        self._threads = FairLock()
        self._files: _FileQueue | None = None

    def acquire(self, timeout: float | None = None) -> None:
        mine = self._threads.try_acquire()
        try:
            if mine and (self.path is None or (self._files is not None and self._files.try_acquire())):
                return
        except BaseException:  # an interrupt: nobody would release it
            self._threads.release()
            raise
        self._acquire_slowly(mine, self.timeout if timeout is None else timeout)

    def _acquire_slowly(self, mine: bool, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        if not mine and not self._threads.acquire(timeout):
            raise self._timed_out(timeout, "another thread of this process")
        if self.path is None:
            return
        try:
            if self._files is None:
                self._files = _FileQueue(self.path)
            if not self._files.try_acquire() and not self._files.wait(deadline - time.monotonic()):
                raise self._timed_out(timeout, _holder(self.path))
        except BaseException:
            self._threads.release()
            raise

    def try_acquire(self, timeout: float = 0.0) -> bool:
        try:
            self.acquire(timeout)
        except CatalogError:  # somebody else has it, or its file cannot be opened here
            return False
        return True

    def release(self) -> None:
        try:
            if self._files is not None:
                self._files.release()
        finally:
            self._threads.release()

    def retire(self) -> None:
        """Release it for good and close the lock files."""
        files, self._files = self._files, None
        if files is not None:
            files.release()
            files.close()
        self._threads.release()

    def after_fork_in_child(self) -> None:
        """Close the parent's lock files without releasing the parent's lock."""
        if self._files is not None:
            self._files.close_in_child()
            self._files = None

    def _timed_out(self, timeout: float, holder: str) -> DatabaseError:
        return DatabaseError(
            f"Waited {timeout:g} s for the right to write to the catalog {self.path or ''}; {holder} holds it. "
            f"Try again; if that process hangs, end it: its lock ends with it.",
            retryable=True,
        )


class SqliteTurn:
    """A similar lock with files of its own, with which writers that lost take turns."""

    def __init__(self, path: str | None, slot: int) -> None:
        self._lock = WriterLock(path and f"{path.removesuffix('.lock')}.turn{slot}.lock", 0.0)

    def acquire(self, timeout: float) -> bool:
        return self._lock.try_acquire(timeout)

    def release(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock.after_fork_in_child()


class _FileQueue:
    """The two lock files. Used by one thread at a time; a second, daemon thread does the waiting.

    A blocked `flock` cannot be timed out, so it is that thread which blocks. When the caller stops waiting, the thread
    stays in the kernel's queue; the next caller takes over its place, otherwise it releases the lock at once.
    """

    def __init__(self, path: str) -> None:
        self._closed = True
        self._lock = _open(path)
        try:
            self._queue = _open(path.removesuffix(".lock") + ".queue")
        except BaseException:
            os.close(self._lock)
            raise
        self._mutex = threading.Lock()
        self._asked = _closed_gate()
        self._granted = _closed_gate()
        self._waiter: threading.Thread | None = None
        self._pending = False
        self._wanted = False
        self._closed = False
        self._quiet = 0
        self._unchecked = 0

    def try_acquire(self) -> bool:
        """Take the lock if it is free and nobody is in the queue.

        If the queue was empty lately, it is checked only now and then, because that costs half of the time.
        """
        if self._pending:
            return False
        if self._unchecked:
            self._unchecked -= 1
            if not self._try_lock():
                self._unchecked = 0
                return False
            return True
        try:
            fcntl.flock(self._queue, _TRY)
            if not self._try_lock():
                return False
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._queue, _DROP)
        self._quiet += 1
        if self._quiet >= _QUIET:
            self._unchecked = _UNCHECKED
        return True

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock, _TRY)
        except BlockingIOError:
            return False
        except BaseException:  # an interrupt may come when the lock is already taken
            fcntl.flock(self._lock, _DROP)
            raise
        return True

    def wait(self, timeout: float) -> bool:
        self._quiet = 0
        if timeout <= 0:
            return False
        with self._mutex:
            self._wanted = True
            if not self._pending:
                self._pending = True
                self._asked.release()
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._wait_for_files, name="indexlake-lock", daemon=True)
            self._waiter.start()
        try:
            return self._granted.acquire(timeout=timeout) or self._withdraw()
        except BaseException:
            if self._withdraw():
                self.release()
            raise

    def _withdraw(self) -> bool:
        """Stop wanting the lock; return True if it was granted at the last moment."""
        with self._mutex:
            self._wanted = False
            return self._granted.acquire(False)

    def _wait_for_files(self) -> None:
        while True:
            self._asked.acquire()
            if not self._closed:
                fcntl.flock(self._queue, _WAIT)
                fcntl.flock(self._lock, _WAIT)
                fcntl.flock(self._queue, _DROP)
            with self._mutex:
                self._pending = False
                if self._closed:
                    self._close_files()
                    return
                if self._wanted:
                    self._wanted = False
                    self._granted.release()
                else:
                    fcntl.flock(self._lock, _DROP)

    def release(self) -> None:
        fcntl.flock(self._lock, _DROP)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._waiter is None:
                self._close_files()
            elif not self._pending:
                self._asked.release()

    def close_in_child(self) -> None:
        if not self._closed:
            self._closed = True
            self._close_files()

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def _close_files(self) -> None:
        os.close(self._queue)
        os.close(self._lock)


def _closed_gate() -> threading.Lock:
    """Return a lock that is already held: acquiring it waits until another thread releases it."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def _open(path: str) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # created by another user: a flock needs no more
    except OSError as error:
        raise CatalogError(
            f"The catalog's lock file {path} cannot be opened: {error.strerror}. Writing needs a directory that "
            f"this user may write to; to read only, connect with read_only=True."
        ) from None


def _holder(path: str) -> str:
    """Return who holds the lock file, as far as the kernel tells."""
    with contextlib.suppress(OSError):
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if "->" not in fields and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                    return f"process {fields[4]}"
    return "another process"
