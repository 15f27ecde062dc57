"""Creating and dropping views and other named definitions, as changes that a commit applies in its critical section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from indexlake.catalog.definitions import end_table, find_table, list_tables, make_namespace, namespace_id_of
from indexlake.catalog.driver import Transaction
from indexlake.catalog.named import Named, end_named, find_named, insert_named, set_body
from indexlake.catalog.owned_sequences import OWNER, needed, tables_needing
from indexlake.catalog.sequence_calls import forget_calls
from indexlake.catalog.tables import next_values
from indexlake.errors import AlreadyExistsError, NotFoundError, SchemaError
from indexlake.schema.names import full_name

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore


@dataclass(frozen=True, slots=True)
class CreateNamed:
    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]
    replace: bool = False
    exist_ok: bool = False
    table_id: ClassVar[None] = None

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        full = full_name(self.namespace, self.name)
        if self.kind == "view" and (table := find_table(tx, self.namespace, self.name)) is not None:
            raise AlreadyExistsError(
                f"{table.full_name!r} is a table; a view needs a name of its own. Choose another, or drop the table.",
                name=full,
            )
        existing = find_named(tx, self.kind, self.namespace, self.name)
        if existing is not None:
            same = self.kind != "sequence" and existing.body == self.body and existing.name == self.name
            if self.exist_ok or (self.replace and same):
                return False
            if not self.replace:
                raise AlreadyExistsError(
                    f"There is a {self.kind} {existing.full_name!r} already. Replace it with CREATE OR REPLACE, "
                    "accept it with IF NOT EXISTS, or drop it first.",
                    name=full,
                )
            end_named(tx, existing.named_id, snapshot)
            if self.kind == "sequence":
                forget_calls(tx, existing.named_id)
        namespace_id = namespace_id_of(tx, self.namespace)
        if namespace_id is None:
            namespace_id = make_namespace(tx, self.namespace, snapshot)
        new = Named(next_values(tx, "named"), self.kind, self.namespace, self.name, self.body)
        insert_named(tx, new.named_id, namespace_id, new, snapshot)
        return True


@dataclass(frozen=True, slots=True)
class DropNamed:
    kind: str
    namespace: str
    name: str
    missing_ok: bool = False
    cascade: bool = False  # together with the tables that need it
    table_id: ClassVar[None] = None
    found: list[int] = field(default_factory=list, compare=False)
    """The clustered tables that were dropped with it."""

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        existing = find_named(tx, self.kind, self.namespace, self.name)
        if existing is None:
            table = find_table(tx, self.namespace, self.name) if self.kind == "view" else None
            if self.missing_ok and table is None:
                return False
            full = full_name(self.namespace, self.name)
            hint = "" if table is None else f" {full!r} is a table: DROP TABLE drops it."
            raise NotFoundError(f"There is no {self.kind} {full!r}.{hint}", name=full)
        end_named(tx, existing.named_id, snapshot)
        if self.kind == "sequence":
            needing = tables_needing(tx, existing)
            if needing and not self.cascade:
                raise needed(existing, needing)
            dropped = {table_id for table_id, _, _ in needing}
            clustered = [t.table_id for t in list_tables(tx) if t.is_clustered and t.table_id in dropped]
            for table_id in dropped:
                end_table(tx, table_id, snapshot)
            self.found[:] = clustered
            forget_calls(tx, existing.named_id)
        return True


@dataclass(frozen=True, slots=True)
class RenameNamed:
    kind: str
    namespace: str
    name: str
    new: str
    missing_ok: bool = False
    table_id: ClassVar[None] = None

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        existing = find_named(tx, self.kind, self.namespace, self.name)
        if not DropNamed(self.kind, self.namespace, self.name, self.missing_ok).apply(tx, hot, snapshot):
            return False
        assert existing is not None
        return CreateNamed(self.kind, existing.namespace, self.new, existing.body).apply(tx, hot, snapshot)


@dataclass(frozen=True, slots=True)
class ChangeNamed:
    """Changes entries of a definition's body; a sequence keeps counting where it was."""

    kind: str
    namespace: str
    name: str
    changes: Mapping[str, Any]
    table_id: ClassVar[None] = None

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        existing = find_named(tx, self.kind, self.namespace, self.name)
        if existing is None:
            full = full_name(self.namespace, self.name)
            raise NotFoundError(f"There is no {self.kind} {full!r}.", name=full)
        body = {**existing.body, **self.changes}
        if body == existing.body:
            return False
        if self.kind == "sequence":  # its numbers belong to this record
            set_body(tx, existing.named_id, body)
            return True
        namespace_id = namespace_id_of(tx, self.namespace)
        assert namespace_id is not None
        end_named(tx, existing.named_id, snapshot)
        new = Named(next_values(tx, "named"), self.kind, existing.namespace, existing.name, body)
        insert_named(tx, new.named_id, namespace_id, new, snapshot)
        return True


@dataclass(frozen=True, slots=True)
class OwnSequence:
    """Makes a sequence belong to a table: it is dropped with it, and not without it."""

    namespace: str
    name: str
    table_namespace: str
    table: str
    missing_ok: bool = False
    table_id: ClassVar[None] = None

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        sequence = find_named(tx, "sequence", self.namespace, self.name)
        full = full_name(self.namespace, self.name)
        if sequence is None:
            if self.missing_ok:
                return False
            raise NotFoundError(f"There is no sequence {full!r}.", name=full)
        table = find_table(tx, self.table_namespace, self.table)
        if table is None:
            full = full_name(self.table_namespace, self.table)
            raise NotFoundError(f"There is no table {full!r}.", name=full)
        owner = sequence.body.get(OWNER)
        if owner is not None and owner != table.table_id:
            raise SchemaError(f"The sequence {full!r} belongs to another table already.", name=full)
        set_body(tx, sequence.named_id, {**sequence.body, OWNER: table.table_id})
        return owner is None
