"""Creating and dropping indexes in the catalog, inside the critical section.

A definition is checked against the current columns; if it was made for other columns, that is a conflict and it is
retried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from indexlake.catalog import segments, table_heads
from indexlake.catalog.definitions import read_table
from indexlake.catalog.driver import Transaction
from indexlake.errors import AlreadyExistsError, ConflictError, NotFoundError
from indexlake.indexes.index import Index
from indexlake.schema import Field

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Creates an index; ``hot_fields`` are what the hot store keeps ordered for it."""

    table_id: int
    full_name: str
    schema_version: int  # of the columns that the definition was made for; negative: defined in the same transaction
    name: str
    kind: str
    key_field_ids: tuple[int, ...]
    include_field_ids: tuple[int, ...]
    unique: bool
    params: Mapping[str, Any]
    hot_fields: tuple[Field, ...]
    enforced: bool = False  # it is unique and the table is new
    found: list[int] = field(default_factory=list, compare=False)
    """The id of the index, so that no read is needed after the commit."""

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        table = read_table(tx, self.table_id)
        if table is None or table.end_snapshot is not None:
            raise NotFoundError(f"Table {self.full_name!r} was dropped by another commit.", name=self.full_name)
        if self.schema_version >= 0 and table.schema_version != self.schema_version:
            raise ConflictError(
                f"The columns of table {self.full_name!r} changed meanwhile. Run it again.", table=self.full_name
            )
        existing = live_index(tx, self.table_id, self.name)
        if existing is not None:
            if self.equals(existing):
                self.found[:] = [existing.index_id]
                return False
            raise AlreadyExistsError(
                f"Table {self.full_name!r} has another index {existing.name!r}, a {existing.kind}. Drop it first with "
                f"t.drop_index({existing.name!r}), or choose another name.",
                name=self.name,
            )
        params = {"unique": True, **self.params} if self.unique else self.params
        index_id = segments.add_index(
            tx,
            self.table_id,
            self.name,
            self.kind,
            self.key_field_ids,
            self.include_field_ids,
            params,
            snapshot,
            snapshot if self.enforced else None,
        )
        if self.hot_fields:
            hot.add_index(tx, self.table_id, index_id, self.hot_fields)
        table_heads.touch_table(tx, self.table_id, snapshot)
        self.found[:] = [index_id]
        return True

    def equals(self, index: Index) -> bool:
        return (index.kind, index.key_field_ids, index.include_field_ids, index.unique, dict(index.params)) == (
            self.kind, self.key_field_ids, self.include_field_ids, self.unique, dict(self.params),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DropIndex:
    table_id: int
    full_name: str
    name: str
    missing_ok: bool = False
    index_id: int | None = None  # only this index, even if another has the name now

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        table = read_table(tx, self.table_id)
        if table is None or table.end_snapshot is not None:
            raise NotFoundError(f"Table {self.full_name!r} was dropped.", name=self.full_name)
        existing = live_index(tx, self.table_id, self.name)
        if existing is None or self.index_id not in (None, existing.index_id):
            if self.missing_ok:
                return False
            raise no_index(self.full_name, self.name, [i.name for i in live_indexes(tx, self.table_id)])
        drop_index(tx, hot, self.table_id, existing, snapshot)
        return True


@dataclass(frozen=True, slots=True)
class CommentOnIndex:
    """Describes an index; None removes the comment."""

    table_id: int
    full_name: str
    name: str
    comment: str | None

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        existing = live_index(tx, self.table_id, self.name)
        if existing is None:
            raise no_index(self.full_name, self.name, [i.name for i in live_indexes(tx, self.table_id)])
        if existing.comment == self.comment:
            return False
        segments.set_comment(tx, existing.index_id, self.comment, snapshot)
        table_heads.touch_table(tx, self.table_id, snapshot)
        return True


def drop_index(tx: Transaction, hot: HotStore, table_id: int, index: Index, snapshot: int) -> None:
    segments.end_index(tx, index.index_id, snapshot)
    hot.drop_index(tx, table_id, index.index_id)
    table_heads.touch_table(tx, table_id, snapshot)


def live_indexes(tx: Transaction, table_id: int) -> list[Index]:
    """Return the indexes that are live, except the primary key."""
    return [i for i in segments.read_indexes(tx, table_id) if i.end_snapshot is None and not i.is_primary]


def live_index(tx: Transaction, table_id: int, name: str) -> Index | None:
    return next((i for i in live_indexes(tx, table_id) if i.name.lower() == name.lower()), None)


def no_index(table: str, name: str, names: list[str]) -> NotFoundError:
    has = f"it has {', '.join(map(repr, sorted(names)))}" if names else "it has none"
    return NotFoundError(f"Table {table!r} has no index {name!r}; {has}.", name=name)
