"""The space in a cache directory, shared by all processes that use it: a count of bytes, and the eviction of chunks.

The count is a small file that is changed under a lock for microseconds. It is never less than what the chunks take: it
is raised before a chunk appears, and lowered only after looking at all of them. So chunks never take more than the
limit. One process at a time evicts; the others hardly wait for it, and go on without storing.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from indexlake.storage import faults

COUNT = ".bytes"
EVICTION = ".eviction"
LOCK_SECONDS = 0.5
"""How long to wait for others to raise the count; they need microseconds, unless one is stopped in the middle."""
ROOM_SECONDS = 0.005
"""How long to wait for others to make room: enough for a small cache."""
KEPT = 0.9
"""The share of the limit to which eviction goes down, so that all files need not be looked at too often."""
ABANDONED_SECONDS = 3600
"""A temporary file older than this belongs to nobody."""
UNIT = 4096
"""File systems allocate space in units of this many bytes."""

_FOLDER = re.compile(r".+-[0-9a-f]{16}")
_CHUNK = re.compile(r"\d+\.chunk")
_TEMPORARY = re.compile(r"\d+\.chunk\.[0-9a-f]{12}\.tmp")


class CacheSpace:
    """At most ``limit`` bytes of chunks below a directory. Keeps nothing open, so forking does no harm."""

    def __init__(self, directory: str, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._threads = threading.Lock()

    def prepare(self) -> None:
        """Count what is there if nobody has, and make room if it is more than the limit."""
        used = self.used()
        if used is None or used > self._limit:
            self._make_room(0)

    def used(self) -> int | None:
        """Return the count of bytes, or None if nobody has counted."""
        try:
            with open(os.path.join(self._directory, COUNT), "rb") as file:
                return _number(file.read(8))
        except OSError:
            return None

    def publish(self, temporary: str, place: str, size: int) -> bool:
        """Give a chunk its name; return False if there is no room for it now."""
        size = -(-size // UNIT) * UNIT
        return self._enter(temporary, place, size) or (self._make_room(size) and self._enter(temporary, place, size))

    def _enter(self, temporary: str, place: str, size: int) -> bool:
        with self._counting() as count:
            used = _number(os.pread(count, 8, 0))
            if used is None or used + size > self._limit:
                return False
            if os.path.exists(place):  # another process was faster
                os.unlink(temporary)
            else:
                os.pwrite(count, (used + size).to_bytes(8, "little"), 0)
                os.rename(temporary, place)
            return True

    def _make_room(self, size: int) -> bool:
        """Delete the chunks that were not used for longest; return False if another process is already doing so."""
        try:
            with _locked(os.path.join(self._directory, EVICTION), ROOM_SECONDS):
                with self._counting() as count:  # so nobody is between raising the count and publishing a chunk
                    used = _number(os.pread(count, 8, 0))
                if used is not None and used + size <= self._limit:
                    return True  # another process has just made room
                before = used or 0
                left = self._evict(min(int(self._limit * KEPT), self._limit - size))
                faults.step("cache.evicted")
                with self._counting() as count:
                    # Chunks that came meanwhile may have been seen or not: count them, twice rather than never.
                    came = max(0, (_number(os.pread(count, 8, 0)) or 0) - before)
                    os.pwrite(count, (left + came).to_bytes(8, "little"), 0)
        except BlockingIOError:
            return False
        return True

    def _evict(self, target: int) -> int:
        """Reduce the chunks to at most ``target`` bytes; return how many bytes are left."""
        found = sorted(self._chunks())
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= target:
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))  # removed only if it is empty
        return total

    def _chunks(self) -> Iterator[tuple[int, int, str]]:
        """Yield (time of use, bytes, path) of all chunks, ignoring files that are not ours."""
        old = time.time() - ABANDONED_SECONDS
        pending = [e.path for e in os.scandir(self._directory) if _FOLDER.fullmatch(e.name) and e.is_dir()]
        while pending:
            with suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        elif _CHUNK.fullmatch(entry.name):
                            found = entry.stat(follow_symlinks=False)
                            yield found.st_mtime_ns, -(-found.st_size // UNIT) * UNIT, entry.path
                        elif _TEMPORARY.fullmatch(entry.name) and entry.stat().st_mtime < old:
                            os.unlink(entry.path)

    @contextmanager
    def _counting(self) -> Iterator[int]:
        if not self._threads.acquire(timeout=LOCK_SECONDS):
            raise BlockingIOError(f"the count of {self._directory!r} is locked")
        try:
            with _locked(os.path.join(self._directory, COUNT), LOCK_SECONDS) as descriptor:
                yield descriptor
        finally:
            self._threads.release()


@contextmanager
def _locked(path: str, seconds: float) -> Iterator[int]:
    """Open a file and lock it; raise ``BlockingIOError`` if that takes too long."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.0005)
        try:
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has the descriptor too
    finally:
        os.close(descriptor)


def _number(data: bytes) -> int | None:
    return int.from_bytes(data, "little") if len(data) == 8 else None
