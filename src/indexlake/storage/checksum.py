"""Chunk checksums, stored apart from the file, that verify every byte of it.

A file is cut into chunks of at most 256 KiB; the xxh3-64 of each, with the size of the file, is stored in the file's
catalog record. A reader compares every chunk it touches before a decoder sees it, so a flipped bit, a swapped chunk, or
a short or long file is found whatever the format. xxh3 finds accidents, not forgery.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from typing import Any, SupportsBytes

from xxhash import xxh3_64, xxh3_64_intdigest

from indexlake.errors import CorruptionError

CHUNK_SIZE = 256 * 1024
_HEADER = struct.Struct("<BIQ")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checksums:
    """The size of a file and the xxh3-64 of each of its chunks, in order."""

    size: int
    chunks: tuple[int, ...]
    chunk_size: int = CHUNK_SIZE

    def __post_init__(self) -> None:
        if self.chunk_size <= 0 or len(self.chunks) != -(-self.size // self.chunk_size):
            raise CorruptionError(
                f"checksums of a file of {self.size} bytes: {len(self.chunks)} chunks of {self.chunk_size} "
                "bytes do not cover it; the catalog record of the file is damaged"
            )

    @staticmethod
    def of(data: Any, chunk_size: int = CHUNK_SIZE) -> Checksums:
        """Return the checksums of bytes in memory or of a memory map."""
        view = memoryview(data).cast("B")
        digests = (xxh3_64_intdigest(view[at : at + chunk_size]) for at in range(0, len(view), chunk_size))
        return Checksums(len(view), tuple(digests), chunk_size)

    def matches(self, index: int, chunk: Any) -> bool:
        """Return whether these bytes are chunk number `index`."""
        return bool(xxh3_64_intdigest(chunk) == self.chunks[index])

    def to_bytes(self) -> bytes:
        digests = array("Q", self.chunks)
        if sys.byteorder == "big":
            digests.byteswap()
        return _HEADER.pack(_VERSION, self.chunk_size, self.size) + digests.tobytes()

    @staticmethod
    def from_bytes(stored: SupportsBytes) -> Checksums:
        data = bytes(stored)
        try:
            version, chunk_size, size = _HEADER.unpack_from(data)
            digests = array("Q", data[_HEADER.size :])
        except (struct.error, ValueError) as error:
            raise CorruptionError(f"checksums in the catalog cannot be read: {error}") from None
        if version != _VERSION:
            raise CorruptionError(f"checksums in the catalog are of version {version}, this release reads {_VERSION}")
        if sys.byteorder == "big":
            digests.byteswap()
        return Checksums(size, tuple(digests), chunk_size)


class ChecksumBuilder:
    """Computes the checksums of a file as it is written."""

    def __init__(self, chunk_size: int = CHUNK_SIZE) -> None:
        self._chunk_size = chunk_size
        self._chunks: list[int] = []
        self._hash = xxh3_64()
        self._filled = 0
        self.size = 0

    def update(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            piece = view[at : at + self._chunk_size - self._filled]
            self._hash.update(piece)
            self._filled += len(piece)
            at += len(piece)
            if self._filled == self._chunk_size:
                self._end_chunk()
        self.size += len(view)

    def finish(self) -> Checksums:
        if self._filled:
            self._end_chunk()
        return Checksums(self.size, tuple(self._chunks), self._chunk_size)

    def _end_chunk(self) -> None:
        self._chunks.append(self._hash.intdigest())
        self._hash.reset()
        self._filled = 0
