"""The definition of an index, its segments, and the links between segments and blocks.

A segment is a function of immutable block files, so it is never stale and has neither begin nor end.  A link says that
a segment answers for a block; it ends when another segment takes over or the index is dropped.  All are plain
immutable values that can be pickled and sent to tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from indexlake.errors import CorruptionError
from indexlake.indexes.builder import SegmentWriter
from indexlake.indexes.registry import kind_if_known, kind_named
from indexlake.storage.checksum import Checksums
from indexlake.types import type_to_text

if TYPE_CHECKING:
    from indexlake.indexes.kind import SegmentFile
    from indexlake.schema import Field, TableSchema
    from indexlake.storage import Storage

PRIMARY = "primary"
"""The name of the index on the primary key."""


@dataclass(frozen=True, slots=True)
class Index:
    """The definition of an index, as the catalog holds it."""

    index_id: int
    name: str
    kind: str
    key_field_ids: tuple[int, ...]  # the original ones: an index stays with an altered column
    include_field_ids: tuple[int, ...]
    unique: bool
    params: Mapping[str, Any]  # parameters of the kind
    begin_snapshot: int
    end_snapshot: int | None
    enforced_snapshot: int | None  # the snapshot since which keys must be unique
    changed_in: int
    comment: str | None = None

    @property
    def slow(self) -> bool:
        """Whether its segments take long to build."""
        kind = kind_if_known(self.kind)
        return kind is not None and kind.slow

    @property
    def is_primary(self) -> bool:
        return self.name == PRIMARY

    def serves(self, snapshot: int, schema: TableSchema) -> bool:
        """Return whether readers at the snapshot, which has this schema, may use it, even if it was created later."""
        return (self.end_snapshot is None or self.end_snapshot > snapshot) and self.fits(schema)

    def fits(self, schema: TableSchema) -> bool:
        """Return whether the schema, possibly an old one, has all columns of the index."""
        return all(i in schema.by_root for i in (*self.key_field_ids, *self.include_field_ids))

    def fields(self, schema: TableSchema) -> tuple[Field, ...]:
        """Return its key columns, as the schema has them."""
        if self.is_primary:
            return schema.key_fields
        return tuple([schema.by_root[i] for i in self.key_field_ids])

    def all_fields(self, schema: TableSchema) -> tuple[Field, ...]:
        """Return its key columns, then the included ones."""
        return tuple([schema.by_root[i] for i in (*self.key_field_ids, *self.include_field_ids)])

    def key_types(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the column types that segments built from rows of the schema are labelled with."""
        return tuple(type_to_text(f.type) for f in self.all_fields(schema))

    def writer(self, schema: TableSchema) -> SegmentWriter:
        """Return a writer that builds a segment from rows with the columns of the schema."""
        return SegmentWriter(self, schema)

    def open(self, storage: Storage, file: SegmentFile) -> Any:
        """Open one of its segments."""
        checksums = Checksums.from_bytes(file.checksum)
        if file.size != checksums.size:
            raise CorruptionError(
                f"index segment {file.path!r}: the catalog says {file.size} bytes and its checksums {checksums.size}; "
                "the catalog record is damaged, restore it",
                path=file.path,
            )
        return kind_named(self.kind).open(self, storage.open_file(file.path, checksums))


class Link(NamedTuple):
    """Says that a segment answers for a block, under an ordinal.  ``end_snapshot`` is None while the link is live."""

    data_file_id: int
    index_file_id: int
    segment: SegmentFile
    ordinal: int
    begin_snapshot: int
    end_snapshot: int | None
    changed_in: int

    def serves(self, snapshot: int) -> bool:
        """Return whether a reader at the snapshot may use it, even if it is younger: what it covers never changes."""
        return self.end_snapshot is None or self.end_snapshot > snapshot
