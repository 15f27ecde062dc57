"""Views and other named definitions come and go: changes that the commit applies inside its critical section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from indexlake.catalog.definitions import find_table, make_namespace, namespace_id_of
from indexlake.catalog.driver import Transaction
from indexlake.catalog.named import Named, end_named, find_named, insert_named
from indexlake.catalog.tables import next_values
from indexlake.errors import AlreadyExistsError, NotFoundError

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
        full = f"{self.namespace}.{self.name}"
        if self.kind == "view" and (table := find_table(tx, self.namespace, self.name)) is not None:
            raise AlreadyExistsError(
                f"{table.full_name!r} is a table; a view needs a name of its own. Choose another, or drop the table.",
                name=full,
            )
        there = find_named(tx, self.kind, self.namespace, self.name)
        if there is not None:
            if self.exist_ok or (self.replace and there.body == self.body and there.name == self.name):
                return False
            if not self.replace:
                raise AlreadyExistsError(
                    f"There is a {self.kind} {there.full_name!r} already. Replace it with CREATE OR REPLACE, accept it "
                    "with IF NOT EXISTS, or drop it first.",
                    name=full,
                )
            end_named(tx, there.named_id, snapshot)
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
    table_id: ClassVar[None] = None

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        there = find_named(tx, self.kind, self.namespace, self.name)
        if there is None:
            table = find_table(tx, self.namespace, self.name) if self.kind == "view" else None
            if self.missing_ok and table is None:
                return False
            full = f"{self.namespace}.{self.name}"
            hint = "" if table is None else f" {full!r} is a table: DROP TABLE drops it."
            raise NotFoundError(f"There is no {self.kind} {full!r}.{hint}", name=full)
        end_named(tx, there.named_id, snapshot)
        return True
