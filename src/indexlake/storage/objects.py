"""Object storage through OpenDAL: S3-compatible stores, and memory.

An object is collected locally (in memory up to 8 MiB, then in a temporary file) and sent when it is closed, large ones
in parts; until the last request succeeds nothing is visible. OpenDAL's retry layer repeats requests that failed with a
status or connection error it knows to be temporary, with back-off and jitter.
"""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from indexlake.errors import IndexLakeError, NotFoundError
from indexlake.storage import faults
from indexlake.storage.cache import CachedFile, LocalCache
from indexlake.storage.checksum import ChecksumBuilder, Checksums
from indexlake.storage.failure import damaged, missing, translated, wrong_size
from indexlake.storage.input_file import FileBytes
from indexlake.storage.output_file import Sink
from indexlake.storage.path import FileInfo
from indexlake.storage.spill import TEMPORARY, Spill

PART_SIZE = 8 * 1024 * 1024
PARALLEL_REQUESTS = 8
_WHOLE_FILE = 1024 * 1024
_CACHED_CHUNKS = 16
_PAGE = 1000


def s3_operator(bucket: str, prefix: str, options: Mapping[str, str]) -> Any:
    """Return an OpenDAL operator; `options` are those of OpenDAL's S3 service."""
    settings = {"region": "us-east-1", **options}
    if "access_key_id" in options:  # do not look for other keys in files, or wait for a metadata server
        settings = {"disable_config_load": "true", "disable_ec2_metadata": "true", **settings}
    return operator("s3", bucket=bucket, root=f"/{prefix}", **settings)


def operator(service: str, **settings: str) -> Any:
    import opendal
    from opendal.layers import RetryLayer, TimeoutLayer

    with translated("open", service):
        plain = opendal.Operator(service, **settings)
    return plain.layer(TimeoutLayer(timeout=60.0, io_timeout=60.0)).layer(
        RetryLayer(max_times=6, factor=2.0, jitter=True, min_delay=0.05, max_delay=5.0)
    )


class ObjectBackend:
    """Objects below one prefix of one store; those with checksums are read through the local cache if there is one."""

    def __init__(self, operator: Any, cache: LocalCache | None = None, spill: Spill = TEMPORARY) -> None:
        self._spill = spill
        self._operator = operator
        self._cache = cache
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def create(self, path: str, overwrite: bool) -> Sink:
        return _ObjectSink(self._operator, path, overwrite, self._spill)

    def open(self, path: str, checksums: Checksums | None) -> FileBytes:
        cached = self._cache.file(path, checksums) if self._cache is not None and checksums is not None else None
        if checksums is not None and cached is not None and cached.known():
            return _RangedBytes(self, path, checksums.size, checksums, cached)
        size = self._operator.stat(path).content_length
        if checksums is not None and size != checksums.size:
            raise wrong_size(path, checksums.size, size)
        return _RangedBytes(self, path, size, checksums, cached)

    def delete(self, path: str) -> None:
        self._operator.delete(path)
        if self._cache is not None:
            self._cache.drop(path)

    def exists(self, path: str) -> bool:
        return bool(self._operator.exists(path))

    def make_dir(self, path: str) -> None:
        """Do nothing: objects need no directory."""

    def remove_dir_all(self, path: str) -> None:
        self._operator.remove_all(f"{path}/")
        if self._cache is not None:
            self._cache.drop(path)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        # OpenDAL's blocking listing holds the GIL while it waits for the store, so pages are fetched with its
        # asynchronous one, in a thread without an event loop of the user's.
        if not self._operator.capability().list_with_start_after:
            yield from _files(self._operator.list(f"{prefix}/", recursive=True))
            return
        page: Sequence[Any] | None = None
        while page is None or len(page) == _PAGE:
            after = page[-1].path if page else None
            page = self.pool().submit(asyncio.run, self._page(f"{prefix}/", after)).result()
            yield from _files(page)

    async def _page(self, directory: str, after: str | None) -> Sequence[Any]:
        entries = []
        operator = self._operator.to_async_operator()
        async for entry in await operator.list(directory, recursive=True, start_after=after):
            entries.append(entry)
            if len(entries) == _PAGE:
                break
        return entries

    def read(self, path: str, offset: int, length: int) -> bytes:
        faults.step("storage.read")
        return bytes(
            self._operator.read(
                path, offset=offset, size=length, chunk=PART_SIZE // 2, concurrent=PARALLEL_REQUESTS // 2
            )
        )

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="indexlake-storage")
            return self._pool


def _files(entries: Iterable[Any]) -> Iterator[FileInfo]:
    for entry in entries:
        found = entry.metadata
        if found.is_file:
            yield FileInfo(entry.path, found.content_length, found.last_modified)


class _ObjectSink:
    def __init__(self, operator: Any, path: str, overwrite: bool, spill: Spill) -> None:
        self._spill = spill
        self._operator = operator
        self._path = path
        self._spool: Any = io.BytesIO()
        self._named: str | None = None
        conditional = not overwrite and operator.capability().write_with_if_not_exists
        self._condition = {"if_not_exists": True} if conditional else {}

    def write(self, data: Any) -> None:
        self._spool.write(data)
        if isinstance(self._spool, io.BytesIO) and self._spool.tell() > PART_SIZE:
            held, self._spool = self._spool, self._spill.file()
            self._spool.write(held.getbuffer())

    def local_path(self) -> str:
        if self._named is None:
            self._named = self._spill.named_file()
        return self._named

    def publish(self, checksums: Checksums) -> None:
        if self._named is not None:
            self._spool.close()
            self._spool = open(self._named, "rb")  # noqa: SIM115
        self._spool.seek(0)
        try:
            self._send(checksums.size)
        except Exception as error:
            # If the answer to a successful request was lost, repeating it finds our own object in the way.
            if type(error).__name__ != "ConditionNotMatch" or not self._is_ours(checksums):
                raise
        self.discard()

    def discard(self) -> None:
        self._spool.close()
        if self._named is not None:
            named, self._named = self._named, None
            with suppress(FileNotFoundError):
                os.unlink(named)

    def _send(self, size: int) -> None:
        if size <= PART_SIZE:
            self._operator.write(self._path, self._spool.read(), **self._condition)
            return
        # If it is dropped without close(), the writer sends no completion and the object does not appear.
        writer = self._operator.open(
            self._path, "wb", chunk=PART_SIZE, concurrent=PARALLEL_REQUESTS // 2, **self._condition
        )
        while piece := self._spool.read(PART_SIZE):
            faults.step("storage.write")
            writer.write(piece)
        writer.close()

    def _is_ours(self, checksums: Checksums) -> bool:
        if self._operator.stat(self._path).content_length != checksums.size:
            return False
        builder = ChecksumBuilder(checksums.chunk_size)
        for offset in range(0, checksums.size, PART_SIZE):
            length = min(PART_SIZE, checksums.size - offset)
            builder.update(self._operator.read(self._path, offset=offset, size=length))
        return builder.finish() == checksums


def _joined(ranges: Sequence[tuple[int, int]], unit: int) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Join ascending ranges in the same or neighbouring units, to (offset, length, the ranges in it)."""
    found: list[tuple[int, int, list[tuple[int, int]]]] = []
    for offset, length in ranges:
        if found:
            start, size, parts = found[-1]
            end = start + size
            if start <= offset <= -(-end // unit) * unit and offset + length - start <= PART_SIZE:
                parts.append((offset, length))
                found[-1] = start, max(end, offset + length) - start, parts
                continue
        found.append((offset, length, [(offset, length)]))
    return found


class _RangedBytes:
    """An object read by ranges of whole chunks. Small objects are fetched whole, once."""

    map = None

    def __init__(
        self, backend: ObjectBackend, path: str, size: int, checksums: Checksums | None, cached: CachedFile | None
    ) -> None:
        self.path = path
        self.size = size
        self.bytes_read = 0
        self._backend = backend
        self._checksums = checksums
        self._local = cached
        self._whole: memoryview | None = None
        self._cache: OrderedDict[int, memoryview] = OrderedDict()
        self._lock = threading.Lock()

    def read_at(self, offset: int, length: int) -> memoryview:
        if self._whole is None and self.size <= _WHOLE_FILE:
            self._whole = self._load(0, self.size)
        if self._whole is not None:
            return self._whole[offset : offset + length]
        if self._checksums is None:
            return self._fetch(offset, length)
        return self._read_chunks(offset, length, self._checksums.chunk_size)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        if len(ranges) < 2 or self.size <= _WHOLE_FILE:
            return [self.read_at(offset, length) for offset, length in ranges]
        joined = _joined(ranges, 1 if self._checksums is None else self._checksums.chunk_size)
        pieces = self._backend.pool().map(lambda wanted: self.read_at(*wanted[:2]), joined)
        return [
            piece[offset - start : offset - start + length]
            for piece, (start, _, parts) in zip(pieces, joined, strict=True)
            for offset, length in parts
        ]

    def _read_chunks(self, offset: int, length: int, size: int) -> memoryview:
        """Widen the range to chunks, take those at its edges from memory, and load the rest at once."""
        first, last = offset // size, (offset + length - 1) // size
        head: list[memoryview] = []
        tail: list[memoryview] = []
        low, high = first, last
        while low <= high and (chunk := self._cached(low)) is not None:
            head.append(chunk)
            low += 1
        while high >= low and (chunk := self._cached(high)) is not None:
            tail.append(chunk)
            high -= 1
        middle = []
        if low <= high:
            data = self._load(low * size, min((high + 1) * size, self.size) - low * size)
            middle.append(data)
            self._remember(low, data[:size])
            self._remember(high, data[(high - low) * size :])
        pieces = head + middle + tail[::-1]
        joined = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        start = offset - first * size
        return joined[start : start + length]

    def _load(self, offset: int, length: int) -> memoryview:
        """Return verified chunks, from the local cache as far as possible."""
        if self._local is None:
            return self._fetch(offset, length)
        return self._local.read(offset, length, self._fetch)

    def _fetch(self, offset: int, length: int) -> memoryview:
        """Read from the store and verify; `offset` is at the start of a chunk if there are checksums."""
        try:
            with translated("read", self.path):
                data = memoryview(self._backend.read(self.path, offset, length))
        except NotFoundError as error:
            raise (missing(self.path) if self._checksums else error) from None
        except IndexLakeError as error:
            if self._checksums and getattr(error, "kind", None) == "RangeNotSatisfied":
                raise wrong_size(self.path, self.size, self._backend.open(self.path, None).size) from None
            raise
        with self._lock:
            self.bytes_read += len(data)
        if self._checksums is not None:
            size = self._checksums.chunk_size
            for at in range(0, length, size):
                if not self._checksums.matches((offset + at) // size, data[at : at + size]):
                    raise damaged(self.path, offset + at, min(size, length - at))
        return data

    def _cached(self, index: int) -> memoryview | None:
        with self._lock:
            chunk = self._cache.get(index)
            if chunk is not None:
                self._cache.move_to_end(index)
            return chunk

    def _remember(self, index: int, chunk: memoryview) -> None:
        with self._lock:
            self._cache[index] = memoryview(bytes(chunk))  # a copy, so that the larger range can be freed
            self._cache.move_to_end(index)
            while len(self._cache) > _CACHED_CHUNKS:
                self._cache.popitem(last=False)
