"""The definition of an index, its segments, and the links between segments and blocks.

A segment is a function of immutable block files, so it is never stale and has neither begin nor end.  A link says that
a segment answers for a block; it ends when another segment takes over or the index is dropped.  Plain immutable values
that pickle and go to tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexlake.indexes.registry import kind_named
from indexlake.storage.checksum import Checksums

if TYPE_CHECKING:
    from indexlake.blocks.writer import SegmentBuilder
    from indexlake.indexes.kind import Segment, SegmentFile
    from indexlake.schema import Field, TableSchema
    from indexlake.storage import Storage

PRIMARY = "primary"
"""The name of the index on the primary key."""


@dataclass(frozen=True, slots=True)
class Index:
    """The definition of an index, as the catalog has it."""

    index_id: int
    name: str
    kind: str
    key_field_ids: tuple[int, ...]
    unique: bool
    begin_snapshot: int
    end_snapshot: int | None
    enforced_snapshot: int | None  # since when no two rows may have the same key
    changed_in: int

    def fields(self, schema: TableSchema) -> Sequence[Field]:
        """The columns that make its keys."""
        return [schema.by_id[i] for i in self.key_field_ids]

    def builder(self, schema: TableSchema) -> SegmentBuilder:
        """Makes the segment of one block with the columns of the schema."""
        return kind_named(self.kind).builder(self, schema)

    def open(self, storage: Storage, file: SegmentFile) -> Segment:
        """Open one of its segments."""
        checksums = Checksums.from_bytes(file.checksum)
        return kind_named(self.kind).open(storage, file.path, file.size, checksums)


@dataclass(frozen=True, slots=True)
class Link:
    """A segment answers for a block, which it knows by an ordinal.  ``end_snapshot`` is None while the link is live."""

    data_file_id: int
    index_file_id: int
    segment: SegmentFile
    ordinal: int
    begin_snapshot: int
    end_snapshot: int | None
    changed_in: int

    def serves(self, snapshot: int) -> bool:
        """Whether a reader at the snapshot may use it, however young it is: what it covers never changes."""
        return self.end_snapshot is None or self.end_snapshot > snapshot
