"""Namespaces, tables and fields in the catalog.

Readers look definitions up in a read transaction. Changes are small records (``CreateTable``, ``DropTable`` …) that the
commit applies inside its critical section, where the names are checked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.fields import insert_checks, insert_fields
from indexlake.catalog.named import end_named, find_named, list_named
from indexlake.catalog.owned_sequences import end_owned
from indexlake.catalog.partitions import add_partitions, new_partition_ids
from indexlake.catalog.segments import add_primary_index
from indexlake.catalog.tables import next_values
from indexlake.config import TableConfig
from indexlake.errors import AlreadyExistsError, ConflictError, NotFoundError, SchemaError
from indexlake.schema import Field
from indexlake.schema.names import full_name
from indexlake.schema.rules import Check

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One row of ``indexlake_table``."""

    table_id: int
    namespace: str
    namespace_id: int
    name: str
    layout: str
    config: TableConfig
    primary_key: tuple[int, ...]
    schema_version: int  # the commit that last changed the columns
    hot_floor: tuple[int, int]
    history_floor: tuple[int, int]
    horizon: int
    purge_number: int
    begin_snapshot: int
    end_snapshot: int | None
    changed_in: int
    named_in: int  # the commit that gave it its name

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name)

    @property
    def is_clustered(self) -> bool:
        """Whether rows are kept by primary key, in partitions."""
        return self.layout == "clustered"


def near_name(wanted: str, known: Iterable[str]) -> str | None:
    """Return the full name whose table is spelled most like the wanted one; None if none is similar."""
    from difflib import SequenceMatcher

    def likeness(name: str) -> tuple[float, float]:
        pairs = [(part(wanted.lower()), part(name.lower())) for part in (lambda n: n.rpartition(".")[2], str)]
        table, full = (SequenceMatcher(None, *pair).ratio() for pair in pairs)
        return table, full

    found = max(known, key=likeness, default=None)
    return found if found is not None and likeness(found)[0] >= 0.6 else None


# ---------------------------------------------------------------- reading

_TABLE_COLUMNS = """t.table_id, n.namespace_name, t.namespace_id, t.table_name, t.layout, t.config, t.primary_key,
    t.schema_version,
    t.hot_floor, t.hot_floor_row_id, t.history_floor, t.history_floor_row_id, t.horizon, t.purge_number,
    t.begin_snapshot, t.end_snapshot, t.changed_in, t.named_in"""
_TABLE_FROM = "from indexlake_table t join indexlake_namespace n on n.namespace_id = t.namespace_id"


def _table_record(row: tuple) -> TableRecord:  # type: ignore[type-arg]
    (table_id, namespace, namespace_id, name, layout, config, key, *rest) = row
    version, hot, hot_row, hist, hist_row, horizon, purge, begin, end, changed_in, named_in = rest
    key_ids = tuple(int(x) for x in key.split(",") if x)
    return TableRecord(
        table_id, namespace, namespace_id, name, layout, TableConfig.from_json(config), key_ids, version,
        (hot, hot_row), (hist, hist_row), horizon, purge, begin, end, changed_in, named_in,
    )  # fmt: skip


def read_table(r: ReadTransaction | Transaction, table_id: int) -> TableRecord | None:
    rows = r.rows(f"select {_TABLE_COLUMNS} {_TABLE_FROM} where t.table_id = ?", (table_id,))
    return _table_record(rows[0]) if rows else None


def find_table(
    r: ReadTransaction | Transaction, namespace: str, name: str, at: int | None = None
) -> TableRecord | None:
    """Return the table with a name now or at a snapshot; the record has the name of that time."""
    visible, params = _visible("t", at)
    folded = (namespace.lower(), name.lower())
    if at is not None:
        visible, params = f"{visible} and t.named_in <= ?", (*params, at)
    rows = r.rows(
        f"select {_TABLE_COLUMNS} {_TABLE_FROM} where n.folded_name = ? and t.folded_name = ? and {visible}",
        (*folded, *params),
    )
    if rows or at is None:
        return _table_record(rows[0]) if rows else None
    for table_id, space, former in former_names(r, at):
        if (space.lower(), former.lower()) == folded and (record := read_table(r, table_id)) is not None:
            return replace(record, namespace=space, name=former)
    return None


def list_tables(r: ReadTransaction | Transaction, at: int | None = None) -> list[TableRecord]:
    """Return the tables of now or of a snapshot, by name."""
    visible, params = _visible("t", at)
    rows = r.rows(f"select {_TABLE_COLUMNS} {_TABLE_FROM} where {visible} order by 2, 4", params)
    tables = [_table_record(row) for row in rows]
    if at is None or all(t.named_in <= at for t in tables):
        return tables
    former = {table_id: (space, name) for table_id, space, name in former_names(r, at)}
    named = [t for t in tables if t.named_in <= at]
    for t in tables:
        if t.table_id in former:  # otherwise its history, including the name, has expired
            namespace, name = former[t.table_id]
            named.append(replace(t, namespace=namespace, name=name))
    return sorted(named, key=lambda t: (t.namespace, t.name))


def name_at(r: ReadTransaction | Transaction, table: TableRecord, at: int) -> str:
    """Return the full name that a table had at a snapshot."""
    if table.named_in > at:
        for table_id, space, name in former_names(r, at):
            if table_id == table.table_id:
                return full_name(space, name)
    return table.full_name


def former_names(r: ReadTransaction | Transaction, at: int) -> list[tuple[int, str, str]]:
    """Return (table id, namespace, name) of tables that existed at the snapshot and were renamed since."""
    return r.rows(
        """select f.table_id, n.namespace_name, f.table_name from indexlake_former_name f
        join indexlake_namespace n on n.namespace_id = f.namespace_id
        join indexlake_table t on t.table_id = f.table_id
        where f.begin_snapshot <= ? and f.end_snapshot > ? and (t.end_snapshot is null or t.end_snapshot > ?)""",
        (at, at, at),
    )


def list_namespaces(r: ReadTransaction | Transaction, at: int | None = None) -> list[str]:
    visible, params = _visible("n", at)
    rows = r.rows(f"select namespace_name from indexlake_namespace n where {visible} order by 1", params)
    return [name for (name,) in rows]


def _visible(alias: str, at: int | None) -> tuple[str, tuple[int, ...]]:
    if at is None:
        return f"{alias}.end_snapshot is null", ()
    return f"{alias}.begin_snapshot <= ? and ({alias}.end_snapshot is null or {alias}.end_snapshot > ?)", (at, at)


def list_dropped_tables(r: ReadTransaction | Transaction) -> list[TableRecord]:
    rows = r.rows(f"select {_TABLE_COLUMNS} {_TABLE_FROM} where t.end_snapshot is not null")
    return [_table_record(row) for row in rows]


# ---------------------------------------------------------------- changes, applied inside the critical section


class DefinitionChange(Protocol):
    """A change of definitions; ``table_id`` is the table whose history shows it."""

    @property
    def table_id(self) -> int | None: ...

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        """Check the change against the current definitions and write it; return False if there is nothing to change."""
        ...


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    name: str
    exist_ok: bool = False
    table_id: ClassVar[None] = None
    found: list[int] = field(default_factory=list, compare=False)
    """The id of the new namespace, so that no read is needed after the commit."""

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        if namespace_id_of(tx, self.name) is not None:
            if self.exist_ok:
                return False
            raise AlreadyExistsError(
                f"Namespace {self.name!r} already exists. Accept that with exist_ok=True (in SQL: IF NOT EXISTS).",
                name=self.name,
            )
        self.found[:] = [make_namespace(tx, self.name, snapshot)]
        return True


@dataclass(frozen=True, slots=True)
class DropNamespace:
    name: str
    cascade: bool
    missing_ok: bool = False
    table_id: ClassVar[None] = None
    found: list[int] = field(default_factory=list, compare=False)
    """The clustered tables that were dropped with it."""

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        namespace_id = namespace_id_of(tx, self.name)
        if namespace_id is None:
            if self.missing_ok:
                return False
            raise NotFoundError(f"There is no namespace {self.name!r}.", name=self.name)
        tables = [t for t in list_tables(tx) if t.namespace.lower() == self.name.lower()]
        others = [d for d in list_named(tx) if d.namespace.lower() == self.name.lower()]
        if (tables or others) and not self.cascade:
            held = [t.name for t in tables] + [f"{d.kind} {d.name}" for d in others]
            raise AlreadyExistsError(
                f"Namespace {self.name!r} still holds {', '.join(held)}. "
                "Drop these first, or use cascade=True (in SQL: CASCADE).",
                name=self.name,
            )
        for other in others:
            end_named(tx, other.named_id, snapshot)
        for table in tables:
            end_table(tx, table.table_id, snapshot)
        self.found[:] = [table.table_id for table in tables if table.is_clustered]
        tx.execute("update indexlake_namespace set end_snapshot = ? where namespace_id = ?", (snapshot, namespace_id))
        return True


LAYOUTS = ("heap", "clustered")


def check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise SchemaError(f"layout={layout!r} is not known; it is one of {', '.join(map(repr, LAYOUTS))}.")


@dataclass(frozen=True, slots=True)
class CreateTable:
    namespace: str
    name: str
    fields: tuple[Field, ...]  # field ids are numbered from 0 here and made unique at the commit
    primary_key: tuple[int, ...]  # places in fields
    config: TableConfig
    layout: str = "heap"
    exist_ok: bool = False
    replace: bool = False  # end a table that has the name
    checks: tuple[Check, ...] = ()  # over fields, by their places
    table_id: ClassVar[None] = None
    replaced: list[int] = field(default_factory=list, compare=False)
    found: list[tuple[int, str, bool]] = field(default_factory=list, compare=False)
    """Table id, full name and whether it is new, so that no read, which could fail, is needed after the commit."""

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        existing = find_table(tx, self.namespace, self.name)
        self.replaced.clear()
        if existing is not None and self.replace:
            end_table(tx, existing.table_id, snapshot)
            self.replaced[:] = [existing.table_id]
        elif existing is not None:
            if self.exist_ok:
                self.found[:] = [(existing.table_id, existing.full_name, False)]
                return False
            full = full_name(self.namespace, self.name)
            raise AlreadyExistsError(
                f"Table {full!r} already exists. Use it with exist_ok=True (in SQL: IF NOT EXISTS), or drop it first.",
                name=full,
            )
        refuse_view(tx, self.namespace, self.name)
        namespace_id = namespace_id_of(tx, self.namespace)
        if namespace_id is None:
            namespace_id = make_namespace(tx, self.namespace, snapshot)
        table_id = next_values(tx, "table")
        first = next_values(tx, "field", len(self.fields))
        key = [first + place for place in self.primary_key]
        key_text = ",".join(map(str, key))
        tx.execute(
            """insert into indexlake_table (table_id, table_name, folded_name, namespace_id, layout, config,
            primary_key, schema_version, next_row_id, hot_floor, hot_floor_row_id, history_floor, history_floor_row_id,
            horizon, purge_number, begin_snapshot, changed_in, named_in)
            values (?, ?, ?, ?, ?, ?, ?, ?, 1, 0, 0, 0, 0, 0, 0, ?, ?, ?)""",
            (table_id, self.name, self.name.lower(), namespace_id, self.layout, self.config.to_json(), key_text,
             snapshot, snapshot, snapshot, snapshot),
        )  # fmt: skip
        numbers = {place: first + place for place in range(len(self.fields))}
        fields = [
            replace(
                f, field_id=first + place, position=place, generated=f.generated and f.generated.renumbered(numbers)
            )
            for place, f in enumerate(self.fields)
        ]
        insert_fields(tx, table_id, fields, snapshot)
        if self.checks:
            number = next_values(tx, "check", len(self.checks))
            checks = [replace(c.renumbered(numbers), check_id=n) for n, c in enumerate(self.checks, number)]
            insert_checks(tx, table_id, checks, snapshot)
        if key:
            add_primary_index(tx, table_id, key, snapshot)
        if self.layout == "clustered":
            (number,) = new_partition_ids(tx, 1)
            add_partitions(tx, table_id, [(number, None, None)], snapshot)
        hot.create(tx, table_id, fields, key)
        self.found[:] = [(table_id, full_name(self.namespace, self.name), True)]
        return True


@dataclass(frozen=True, slots=True)
class DropTable:
    table_id: int
    full_name: str

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        if not end_table(tx, self.table_id, snapshot):
            raise ConflictError(f"Table {self.full_name!r} was dropped by another commit.", table=self.full_name)
        return True


def refuse_view(tx: Transaction, namespace: str, name: str) -> None:
    """Raise if a view has the name."""
    if (view := find_named(tx, "view", namespace, name)) is not None:
        raise AlreadyExistsError(
            f"{view.full_name!r} is a view; a table needs a name of its own. Choose another, or drop the view.",
            name=view.full_name,
        )


def namespace_id_of(tx: Transaction, name: str) -> int | None:
    rows = tx.rows(
        "select namespace_id from indexlake_namespace where folded_name = ? and end_snapshot is null",
        (name.lower(),),
    )
    return int(rows[0][0]) if rows else None


def make_namespace(tx: Transaction, name: str, snapshot: int) -> int:
    namespace_id = next_values(tx, "namespace")
    tx.execute(
        """insert into indexlake_namespace (namespace_id, namespace_name, folded_name, begin_snapshot)
        values (?, ?, ?, ?)""",
        (namespace_id, name, name.lower(), snapshot),
    )
    return namespace_id


def end_table(tx: Transaction, table_id: int, snapshot: int) -> bool:
    ended = tx.execute(
        """update indexlake_table set end_snapshot = ?, changed_in = ?, schema_version = ?
        where table_id = ? and end_snapshot is null""",
        (snapshot, snapshot, snapshot, table_id),
    )
    end_owned(tx, table_id, snapshot)
    return bool(ended)


def set_layout(tx: Transaction, table_id: int, layout: str, snapshot: int) -> None:
    """Change a table's layout; work prepared for the old layout then finds another version of the table."""
    tx.execute(
        "update indexlake_table set layout = ?, schema_version = ?, changed_in = ? where table_id = ?",
        (layout, snapshot, snapshot, table_id),
    )


def forget_former_names(tx: Transaction, table_id: int, horizon: int) -> None:
    """Remove names that no retained snapshot shows."""
    tx.execute("delete from indexlake_former_name where table_id = ? and end_snapshot <= ?", (table_id, horizon))


def remove_table(tx: Transaction, table_id: int) -> None:
    """Delete every record of a table whose blocks are gone already."""
    for name in ("touched", "locked", "field", "check", "index", "partition", "former_name", "table"):
        tx.execute(f"delete from indexlake_{name} where table_id = ?", (table_id,))
