"""Namespaces, tables and fields in the catalog.

Readers look definitions up in a read transaction; changes are small records (``CreateTable``, ``DropTable`` …) that
the commit applies inside its critical section, where the names are checked again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from indexlake.catalog.dialect import quote
from indexlake.catalog.driver import Catalog, ReadTransaction, Transaction
from indexlake.catalog.tables import next_values
from indexlake.config import TableConfig
from indexlake.errors import AlreadyExistsError, ConflictError, NotFoundError
from indexlake.schema import Field, TableSchema, default_from_text, default_to_text
from indexlake.types import type_from_text, type_to_text

PRIMARY = "primary"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One row of ``indexlake_table``."""

    table_id: int
    namespace: str
    name: str
    config: TableConfig
    primary_key: tuple[int, ...]
    schema_version: int
    hot_floor: tuple[int, int]
    history_floor: tuple[int, int]
    horizon: int
    purge_number: int
    begin_snapshot: int
    end_snapshot: int | None
    changed_in: int

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def folder(self) -> str:
        """Where the table's files live below the storage root."""
        return f"tables/{self.table_id}"


def inline_table(table_id: int) -> str:
    return f"indexlake_inline_row_{table_id}"


def split_name(name: str) -> tuple[str, str]:
    """``"sales.orders"`` → namespace and table; without a dot the namespace is ``main``."""
    namespace, dot, table = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    namespace = namespace if dot else "main"
    if not table or not namespace or "\x00" in name or "." in namespace:
        raise NotFoundError(
            f"{name!r} is not a table name. Write 'table' or 'namespace.table', without further dots.",
            name=str(name),
        )
    return namespace, table


# ---------------------------------------------------------------- reading

_TABLE_COLUMNS = """t.table_id, n.namespace_name, t.table_name, t.config, t.primary_key, t.schema_version,
    t.hot_floor, t.hot_floor_row_id, t.history_floor, t.history_floor_row_id, t.horizon, t.purge_number,
    t.begin_snapshot, t.end_snapshot, t.changed_in"""
_TABLE_FROM = "from indexlake_table t join indexlake_namespace n on n.namespace_id = t.namespace_id"


def _table_record(row: tuple) -> TableRecord:  # type: ignore[type-arg]
    (table_id, namespace, name, config, key, version, hot, hot_row, hist, hist_row, horizon, purge, *rest) = row
    begin, end, changed_in = rest
    key_ids = tuple(int(x) for x in key.split(",") if x)
    return TableRecord(
        table_id, namespace, name, TableConfig.from_json(config), key_ids, version, (hot, hot_row),
        (hist, hist_row), horizon, purge, begin, end, changed_in,
    )  # fmt: skip


def read_table(r: ReadTransaction | Transaction, table_id: int) -> TableRecord | None:
    rows = r.rows(f"select {_TABLE_COLUMNS} {_TABLE_FROM} where t.table_id = ?", (table_id,))
    return _table_record(rows[0]) if rows else None


def find_table(
    r: ReadTransaction | Transaction, namespace: str, name: str, at: int | None = None
) -> TableRecord | None:
    """The table of that name, now or as of a snapshot."""
    visible, params = _visible("t", at)
    rows = r.rows(
        f"select {_TABLE_COLUMNS} {_TABLE_FROM} where n.folded_name = ? and t.folded_name = ? and {visible}",
        (namespace.lower(), name.lower(), *params),
    )
    return _table_record(rows[0]) if rows else None


def list_tables(r: ReadTransaction | Transaction, at: int | None = None) -> list[TableRecord]:
    visible, params = _visible("t", at)
    rows = r.rows(f"select {_TABLE_COLUMNS} {_TABLE_FROM} where {visible} order by 2, 3", params)
    return [_table_record(row) for row in rows]


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


def read_schema(r: ReadTransaction | Transaction, table: TableRecord) -> TableSchema:
    """All fields the table ever had, in order; ``TableSchema.at`` picks those of a snapshot."""
    rows = r.rows(
        """select field_id, field_name, data_type, nullable, default_value, metadata, begin_snapshot, end_snapshot
        from indexlake_field where table_id = ? order by field_id""",
        (table.table_id,),
    )
    fields = [
        Field(i, name, type_from_text(t), bool(null), default_from_text(d), _metadata(m), begin, end)
        for i, name, t, null, d, m, begin, end in rows
    ]
    return TableSchema(fields, table.primary_key)


def primary_index_id(r: ReadTransaction | Transaction, table_id: int) -> int | None:
    rows = r.rows(
        "select index_id from indexlake_index where table_id = ? and index_name = ? and end_snapshot is null",
        (table_id, PRIMARY),
    )
    return int(rows[0][0]) if rows else None


def _metadata(text: str | None) -> Mapping[bytes, bytes] | None:
    if text is None:
        return None
    return {base64.b64decode(k): base64.b64decode(v) for k, v in json.loads(text).items()}


def _metadata_text(metadata: Mapping[bytes, bytes] | None) -> str | None:
    if not metadata:
        return None
    return json.dumps({base64.b64encode(k).decode(): base64.b64encode(v).decode() for k, v in metadata.items()})


# ---------------------------------------------------------------- changes, applied inside the critical section


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    name: str
    exist_ok: bool = False

    def apply(self, tx: Transaction, catalog: Catalog, snapshot: int) -> bool:
        if _namespace_id(tx, self.name) is not None:
            if self.exist_ok:
                return False
            raise AlreadyExistsError(
                f"Namespace {self.name!r} exists already. Pass exist_ok=True to accept that.", name=self.name
            )
        _make_namespace(tx, self.name, snapshot)
        return True


@dataclass(frozen=True, slots=True)
class DropNamespace:
    name: str
    cascade: bool
    missing_ok: bool = False

    def apply(self, tx: Transaction, catalog: Catalog, snapshot: int) -> bool:
        namespace_id = _namespace_id(tx, self.name)
        if namespace_id is None:
            if self.missing_ok:
                return False
            raise NotFoundError(f"There is no namespace {self.name!r}.", name=self.name)
        tables = [t for t in list_tables(tx) if t.namespace.lower() == self.name.lower()]
        if tables and not self.cascade:
            raise AlreadyExistsError(
                f"Namespace {self.name!r} still holds {', '.join(t.name for t in tables)}. "
                "Drop these tables first or pass cascade=True.",
                name=self.name,
            )
        for table in tables:
            _end_table(tx, table.table_id, snapshot)
        tx.execute("update indexlake_namespace set end_snapshot = ? where namespace_id = ?", (snapshot, namespace_id))
        return True


@dataclass(frozen=True, slots=True)
class CreateTable:
    namespace: str
    name: str
    fields: tuple[Field, ...]  # field ids are numbered from 0 here and made unique at the commit
    primary_key: tuple[int, ...]  # places in fields
    config: TableConfig
    exist_ok: bool = False
    found: list[tuple[int, str, bool]] = field(default_factory=list, compare=False)
    """Table id, full name, whether it is new: known after the commit without another read, which could fail."""

    def apply(self, tx: Transaction, catalog: Catalog, snapshot: int) -> bool:
        there = find_table(tx, self.namespace, self.name)
        if there is not None:
            if self.exist_ok:
                self.found[:] = [(there.table_id, there.full_name, False)]
                return False
            full = f"{self.namespace}.{self.name}"
            raise AlreadyExistsError(
                f"Table {full!r} exists already. Pass exist_ok=True to use it, or drop it first.", name=full
            )
        namespace_id = _namespace_id(tx, self.namespace)
        if namespace_id is None:
            namespace_id = _make_namespace(tx, self.namespace, snapshot)
        table_id = next_values(tx, "table")
        first = next_values(tx, "field", len(self.fields))
        key = [first + place for place in self.primary_key]
        key_text = ",".join(map(str, key))
        tx.execute(
            """insert into indexlake_table (table_id, table_name, folded_name, namespace_id, config, primary_key,
            schema_version, next_row_id, hot_floor, hot_floor_row_id, history_floor, history_floor_row_id, horizon,
            purge_number, begin_snapshot, changed_in) values (?, ?, ?, ?, ?, ?, 0, 1, 0, 0, 0, 0, 0, 0, ?, ?)""",
            (table_id, self.name, self.name.lower(), namespace_id, self.config.to_json(), key_text, snapshot, snapshot),
        )
        tx.execute_many(
            """insert into indexlake_field (field_id, table_id, field_name, data_type, nullable, default_value,
            metadata, begin_snapshot) values (?, ?, ?, ?, ?, ?, ?, ?)""",
            [
                (first + place, table_id, f.name, type_to_text(f.type), int(f.nullable),
                 default_to_text(f.default), _metadata_text(f.metadata), snapshot)
                for place, f in enumerate(self.fields)
            ],
        )  # fmt: skip
        if key:
            tx.execute(
                """insert into indexlake_index (index_id, index_name, index_kind, table_id, key_field_ids,
                include_field_ids, params, begin_snapshot) values (?, ?, 'btree', ?, ?, '', '{"unique": true}', ?)""",
                (next_values(tx, "index"), PRIMARY, table_id, key_text, snapshot),
            )
        tx.execute_batch(self._inline_statements(catalog, table_id, first, key))
        self.found[:] = [(table_id, f"{self.namespace}.{self.name}", True)]
        return True

    def _inline_statements(self, catalog: Catalog, table_id: int, first: int, key: list[int]) -> list[str]:
        d, name = catalog.dialect, inline_table(table_id)
        kinds = {"int": d.int_type, "bytes": d.bytes_type}
        columns = ", ".join(f"{quote(f'f{first + n}')} {kinds[f.codec.kind]}" for n, f in enumerate(self.fields))
        statements = [
            f"""create table {quote(name)} (_begin {d.int_type} not null, _indexlake_row_id {d.int_type} not null,
            _end {d.int_type}, {columns}, primary key (_begin, _indexlake_row_id)){d.clustered}""",
            f"create index {quote(name + '_row_id')} on {quote(name)} (_indexlake_row_id)",
            f"create index {quote(name + '_end')} on {quote(name)} (_end, _indexlake_row_id) where _end is not null",
        ]
        if key:
            columns = ", ".join(quote(f"f{field_id}") for field_id in key)
            statements.append(f"create index {quote(name + '_key')} on {quote(name)} ({columns})")
        return statements


@dataclass(frozen=True, slots=True)
class DropTable:
    table_id: int
    full_name: str

    def apply(self, tx: Transaction, catalog: Catalog, snapshot: int) -> bool:
        if not _end_table(tx, self.table_id, snapshot):
            raise ConflictError(f"Table {self.full_name!r} was dropped by another commit.", table=self.full_name)
        return True


DefinitionChange = CreateNamespace | DropNamespace | CreateTable | DropTable


def _namespace_id(tx: Transaction, name: str) -> int | None:
    rows = tx.rows(
        "select namespace_id from indexlake_namespace where folded_name = ? and end_snapshot is null",
        (name.lower(),),
    )
    return int(rows[0][0]) if rows else None


def _make_namespace(tx: Transaction, name: str, snapshot: int) -> int:
    namespace_id = next_values(tx, "namespace")
    tx.execute(
        """insert into indexlake_namespace (namespace_id, namespace_name, folded_name, begin_snapshot)
        values (?, ?, ?, ?)""",
        (namespace_id, name, name.lower(), snapshot),
    )
    return namespace_id


def _end_table(tx: Transaction, table_id: int, snapshot: int) -> bool:
    return bool(
        tx.execute(
            """update indexlake_table set end_snapshot = ?, changed_in = ?, schema_version = schema_version + 1
            where table_id = ? and end_snapshot is null""",
            (snapshot, snapshot, table_id),
        )
    )


def remove_table(tx: Transaction, table_id: int) -> None:
    """Delete every record of a table; its blocks are gone already."""
    for name in ("touched", "locked", "field", "index", "table"):
        tx.execute(f"delete from indexlake_{name} where table_id = ?", (table_id,))
