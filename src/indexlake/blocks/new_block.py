"""A block that is written and not yet part of the lake: what a commit needs to add it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap

from indexlake.blocks.block import SegmentRecord
from indexlake.blocks.row_ids import RowIds
from indexlake.keys.encoding import KeyColumn


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and is not yet part of the lake."""

    path: str
    size: int
    checksum: bytes

    @property
    def writer_id(self) -> str:
        """Whose name the file bears: only while that writer counts as alive is it safe from vacuum."""
        return self.path.rpartition("/")[2].partition("-")[0]


@dataclass(frozen=True, slots=True)
class NewSegment:
    file: NewFile
    min_key: bytes
    max_key: bytes

    @staticmethod
    def of(record: SegmentRecord) -> NewSegment:
        """A segment of the lake, as far as reading it goes."""
        return NewSegment(NewFile(record.path, record.size, record.checksum), record.min_key, record.max_key)


@dataclass(slots=True)
class NewBlock:
    """A finished block, with what the commit needs to make its record."""

    file: NewFile
    format: str
    record_count: int
    row_ids: RowIds
    column_stats: bytes
    schema_snapshot: int
    segment: NewSegment | None
    keys: KeyColumn | None  # in position order
    bounds: tuple[int, int]  # smallest and largest row id
    keys_known: bool = False  # the rows have the keys they had before: no need to look for them
    dead: Any = field(default_factory=BitMap)  # positions that the same transaction took back
    token: int = 0  # stands for the file id while the block is uncommitted
