"""A cache of an object store on local disk: chunks of files that were read, for all processes of this machine.

Files never change, so a cached chunk is either right or damaged, and the checksums in the catalog tell which: every
chunk is compared when it is read, and a damaged one is fetched again. Below the cache directory, each store has a
folder that contains the store's paths; a file is a directory that holds its chunks. A chunk appears whole under its
name, or not at all. A failing local disk costs a request, never a read.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

import numpy as np
from xxhash import xxh3_64_hexdigest

from indexlake.display import html_facts
from indexlake.errors import StorageError
from indexlake.storage import faults
from indexlake.storage.cache_space import CacheSpace
from indexlake.storage.checksum import Checksums
from indexlake.storage.failure import translated

log = logging.getLogger("indexlake")

CACHE_BYTES = 10 << 30
LEAST_BYTES = 1 << 20
USED_SECONDS = 10
"""How long to wait before recording the use of a chunk again."""

Fetch = Callable[[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """Where a cache is and how many bytes it may take."""

    directory: str
    limit: int = CACHE_BYTES

    @staticmethod
    def of(directory: str | os.PathLike[str] | None, limit: int) -> CacheSpec | None:
        """Check what a user gave, and return it as a spec."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < LEAST_BYTES:
            raise StorageError(f"cache_bytes must be a number of bytes, {LEAST_BYTES:,} or more; got {limit!r}.")
        if directory is None:
            return None
        path = os.fspath(directory) if isinstance(directory, str | os.PathLike) else None
        if not isinstance(path, str) or not path or "\0" in path:
            raise StorageError(f"cache_dir is the path of a local directory, not {directory!r}.")
        if "://" in path:
            raise StorageError(f"cache_dir is a directory on this machine, not {path.partition('://')[0]}://….")
        return CacheSpec(os.path.abspath(os.path.expanduser(path)), limit)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the local cache did for some files since this process opened the lake. Prints itself."""

    hits: int
    """Chunks found undamaged in the cache."""
    misses: int
    """Chunks that had to be fetched."""
    damaged: int
    """Misses because a cached chunk did not match its checksum."""
    not_stored: int
    """Misses that were not stored: the disk is full or fails, or room was just being made."""
    used_bytes: int
    """An upper bound for all files of all lakes in the directory: deleted ones count until room is made."""
    limit_bytes: int

    def __str__(self) -> str:
        text = f"local cache: {self.hits:,} chunks found, {self.misses:,} fetched"
        text += f", {self.damaged:,} damaged" if self.damaged else ""
        text += f", {self.not_stored:,} not stored" if self.not_stored else ""
        return f"{text}; at most {self.used_bytes:,} of {self.limit_bytes:,} bytes used"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_facts("local cache", asdict(self))


class LocalCache:
    """The cache of one store. Safe for any number of threads and processes."""

    def __init__(self, spec: CacheSpec, root: str, endpoint: str = "") -> None:
        self.spec = spec
        self._directory = os.path.join(spec.directory, _folder_name(root, endpoint))
        self.space = CacheSpace(spec.directory, spec.limit)
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._complained = False

    def check(self) -> None:
        """Create the directory; raise if it cannot be used. A full disk is no error, since it can still be read."""
        with translated("use cache_dir", self.spec.directory):
            try:
                probe = os.path.join(self._directory, f"{uuid.uuid4().hex[:12]}.probe")
                os.close(_create(probe))
                os.unlink(probe)
                self.space.prepare()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self.complain(error)

    def file(self, path: str, checksums: Checksums) -> CachedFile:
        return CachedFile(self, path, os.path.join(self._directory, path), checksums)

    def drop(self, path: str) -> None:
        """Remove a file, or all files of a folder."""
        shutil.rmtree(os.path.join(self._directory, path), ignore_errors=True)

    def chunks(self, path: str) -> int:
        """Return how many chunks of a file are cached."""
        try:
            return sum(name.endswith(".chunk") for name in os.listdir(os.path.join(self._directory, path)))
        except OSError:
            return 0

    def stats(self, folder: str) -> CacheStats:
        """Return what the cache did for the files of a folder."""
        total: Counter[str] = Counter()
        with self._lock:
            for name, counts in self._counts.items():
                if f"{name}/".startswith(f"{folder}/"):
                    total.update(counts)
        used, limit = self.space.used() or 0, self.spec.limit
        return CacheStats(total["hits"], total["misses"], total["damaged"], total["not_stored"], used, limit)

    def count(self, path: str, counts: Counter[str]) -> None:
        with self._lock:
            self._counts[os.path.dirname(path)].update(counts)

    def complain(self, error: OSError) -> None:
        """Log once what is wrong with the local disk."""
        with self._lock:
            before, self._complained = self._complained, True
        if not before:
            log.warning("the cache in %s cannot be used, so files are fetched: %s", self.spec.directory, error)


class CachedFile:
    """The chunks of one file. Nothing is kept open: what is deleted meanwhile is fetched again."""

    def __init__(self, cache: LocalCache, path: str, directory: str, checksums: Checksums) -> None:
        self._cache = cache
        self._path = path
        self._directory = directory
        self._checksums = checksums
        self._lock = threading.Lock()
        self._fetching: dict[int, threading.Event] = {}

    def known(self) -> bool:
        """Return whether a chunk was ever cached: then the file was in the store, with the right size."""
        return os.path.isdir(self._directory)

    def read(self, offset: int, length: int, fetch: Fetch) -> memoryview:
        """Return whole, verified chunks; fetch and store what is missing with one ``fetch(offset, length)``."""
        size = self._checksums.chunk_size
        data = np.empty(length, np.uint8).data
        counts: Counter[str] = Counter()
        wanted = range(offset // size, -(-(offset + length) // size))
        missing = self._take(wanted, data, offset, counts)
        if missing and self._others_fetch(missing):
            missing = self._take(missing, data, offset, counts)
        if missing:
            with self._claimed(missing):
                start = missing[0] * size
                found = fetch(start, min((missing[-1] + 1) * size, offset + length) - start)
                if len(found) == length:
                    data = found
                else:
                    data[start - offset : start - offset + len(found)] = found
                for index in missing:
                    self._store(index, found[index * size - start : (index + 1) * size - start], counts)
            counts["misses"] = len(missing)
        counts["hits"] = len(wanted) - counts["misses"]
        self._cache.count(self._path, counts)
        return data.toreadonly()

    # ------------------------------------------------------------ one request for threads that want the same

    def _others_fetch(self, missing: Sequence[int]) -> bool:
        """Wait for other threads that are fetching some of the chunks; return False if there are none."""
        with self._lock:
            others = {event for index in missing if (event := self._fetching.get(index)) is not None}
        for event in others:
            event.wait()
        return bool(others)

    @contextmanager
    def _claimed(self, missing: Sequence[int]) -> Iterator[None]:
        done = threading.Event()
        with self._lock:
            mine = [index for index in missing if self._fetching.setdefault(index, done) is done]
        try:
            yield
        finally:
            with self._lock:
                for index in mine:
                    del self._fetching[index]
            done.set()

    # ------------------------------------------------------------ chunks on disk

    def _place(self, index: int) -> str:
        return f"{self._directory}/{index}.chunk"

    def _take(self, wanted: Sequence[int], data: memoryview, offset: int, counts: Counter[str]) -> list[int]:
        """Read the cached chunks into their places, and return the others."""
        size = self._checksums.chunk_size
        return [
            index
            for index in wanted
            if not self._take_one(index, data[index * size - offset : (index + 1) * size - offset], counts)
        ]

    def _take_one(self, index: int, target: memoryview, counts: Counter[str]) -> bool:
        try:
            descriptor = os.open(self._place(index), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._cache.complain(error)
            return False
        try:
            found = os.fstat(descriptor)
            right = found.st_size == len(target) and os.preadv(descriptor, [target], 0) == len(target)
            if right and self._checksums.matches(index, target):
                if time.time() - found.st_mtime > USED_SECONDS:
                    with suppress(OSError):  # it belongs to another user
                        os.utime(descriptor)
                return True
            counts["damaged"] += 1
            os.unlink(self._place(index))
        except FileNotFoundError:
            pass  # another reader was faster
        except OSError as error:
            self._cache.complain(error)
        finally:
            os.close(descriptor)
        return False

    def _store(self, index: int, chunk: memoryview, counts: Counter[str]) -> None:
        place = self._place(index)
        temporary = f"{place}.{uuid.uuid4().hex[:12]}.tmp"
        stored = False
        try:
            faults.step("cache.write")
            descriptor = _create(temporary)
            try:
                view = chunk
                while len(view):
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
            faults.step("cache.publish")
            stored = self._cache.space.publish(temporary, place, len(chunk))
        except BlockingIOError:
            pass  # the count is locked for too long
        except OSError as error:
            self._cache.complain(error)
        finally:
            if not stored:
                counts["not_stored"] += 1
                with suppress(OSError):
                    os.unlink(temporary)


def _folder_name(root: str, endpoint: str) -> str:
    """Return the store's folder name: readable, and unique by its hash."""
    root = root.rstrip("/")
    shown = re.sub(r"[^A-Za-z0-9.-]+", "-", root.partition("://")[2])[:64]
    return f"{shown}-{xxh3_64_hexdigest(' '.join([endpoint.rstrip('/'), root]).encode())}"


def _create(path: str) -> int:
    """Create a file readable only by its owner, with the directories above it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(3):  # an eviction may delete the directory while it is empty
        with suppress(FileNotFoundError):
            return os.open(path, flags, 0o600)
        _make_directory(os.path.dirname(path))
    return os.open(path, flags, 0o600)


def _make_directory(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_directory(os.path.dirname(path))
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
