"""What an index kind is to the rest of IndexLake: it writes segments while blocks are written, and opens them.

A segment names rows by address: the block's ordinal in the segment, shifted by 32 bits, plus the position in the
block.  The addresses of a segment for one block are plain positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from indexlake.blocks.writer import SegmentBuilder
    from indexlake.indexes.index import Index
    from indexlake.indexes.keys import Key, KeyColumn
    from indexlake.schema import TableSchema
    from indexlake.storage import Storage
    from indexlake.storage.checksum import Checksums

ORDINAL_SHIFT = 32
POSITION_MASK = (1 << ORDINAL_SHIFT) - 1

Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Indices into the keys that were asked for, ascending, and the address of each."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment: a file, the types of the columns that its keys were made from, as text, and `key_to_bytes` bounds."""

    index_id: int
    path: str
    size: int
    checksum: bytes
    key_types: tuple[str, ...]
    min_key: bytes
    max_key: bytes


class Segment(Protocol):
    """An open segment.  It never misses a key, and every address that it names holds exactly that key.

    Hashes are those of `hash_key` and `hash_keys`: whoever asks several segments makes them once.
    """

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        """The addresses that hold a key, in order."""
        ...

    def find_many(self, keys: KeyColumn, hashes: npt.NDArray[np.uint64] | None = None) -> Found: ...

    @property
    def several(self) -> bool:
        """Whether its addresses may be in more than one block."""
        ...

    # Whole segments are compared with each other.

    def __len__(self) -> int: ...
    @property
    def unique(self) -> bool:
        """Whether no key is there twice."""
        ...

    def keys(self) -> KeyColumn:
        """All keys in order."""
        ...

    def addresses(self) -> npt.NDArray[np.int64]:
        """Where each of ``keys()`` is."""
        ...

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """The rows of ``keys()`` with low <= key < high; None is no bound."""
        ...

    def sample(self, count: int) -> list[Key]:
        """Up to so many of the keys, evenly spaced, the first and the last among them."""
        ...


class IndexKind(Protocol):
    def builder(self, index: Index, schema: TableSchema) -> SegmentBuilder:
        """What makes the segment of one new block, whose file has the columns of the schema."""
        ...

    def open(self, storage: Storage, path: str, size: int, checksums: Checksums) -> Segment: ...
