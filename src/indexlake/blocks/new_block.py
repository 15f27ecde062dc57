"""A block that has been written but is not part of the lake yet, with everything a commit needs to add it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexlake.storage.names import FileName

if TYPE_CHECKING:
    from indexlake.blocks.addresses import Addresses
    from indexlake.indexes.builder import KeyedRows
    from indexlake.indexes.kind import SegmentFile


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and is not yet part of the lake."""

    path: str
    size: int
    checksum: bytes

    @property
    def writer_id(self) -> str:
        """The writer in the file's name: the file is safe from vacuum only while that writer counts as alive."""
        name = FileName.parse(self.path)
        assert name is not None
        return name.writer_id


@dataclass(frozen=True, slots=True)
class Placed:
    """Where in a clustered table a block belongs: its partition, and its first and last key as bytes in key order."""

    partition_id: int
    first_key: bytes
    last_key: bytes
    is_delta: bool = True


@dataclass(slots=True)
class NewBlock:
    """A finished block, with what the commit needs to create its record."""

    file: NewFile
    format: str
    record_count: int
    row_ids: Addresses
    column_stats: bytes
    schema_snapshot: int
    segments: tuple[SegmentFile, ...]
    keys: dict[int, KeyedRows]  # keys of unique indexes, by index id
    bounds: tuple[int, int]  # smallest and largest row id
    versions: tuple[int, int] | None = None  # smallest and largest; None: those of the commit that adds it
    last_end: int | None = None  # of superseded versions; None: they are live
    placed: Placed | None = None
    keys_known: bool = False  # the rows keep the keys they had: no need to look them up
    dead: Any = field(default_factory=BitMap)  # positions that the same transaction took back
    token: int = 0  # stands for the file id while the block is uncommitted

    def all_row_ids(self) -> npt.NDArray[np.int64]:
        """Return the row ids by position, including those of rows that were taken back."""
        return self.row_ids.row_ids_at(np.arange(self.record_count))

    def segment(self, index_id: int) -> SegmentFile | None:
        return next((s for s in self.segments if s.index_id == index_id), None)
