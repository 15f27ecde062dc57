"""The catalog's tables: their definition, their version, and the steps from one version to the next.

Everything is created in one transaction: a half-made catalog does not exist. A catalog of a newer version is refused;
an older one is migrated step by step inside the critical section.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from indexlake.catalog import log_records, named
from indexlake.catalog.clock import SERVER_CLOCK
from indexlake.catalog.dialect import Dialect
from indexlake.catalog.driver import Catalog, ReadTransaction, Transaction
from indexlake.catalog.numbers import take_number
from indexlake.errors import AlreadyExistsError, CatalogError, NotFoundError

SCHEMA_VERSION = 8


def create_statements(d: Dialect) -> list[str]:
    """Return the statements for the newest version. INT is 64 bits wide; times are microseconds since 1970 in UTC."""
    i, b, t = d.int_type, d.bytes_type, d.text_type
    return [
        f"""create table indexlake_lake (
            lake_id {t} not null, incarnation {i} not null, schema_version {i} not null,
            properties {t} not null)""",
        f"create table indexlake_sequence (name {t} primary key, next_value {i} not null)",
        f"""create table indexlake_snapshot (
            snapshot_id {d.key_type} primary key, committed_at {i} not null, operation {t} not null,
            summary {t}, commit_token {t})""",
        """create unique index indexlake_snapshot_token on indexlake_snapshot (commit_token)
            where commit_token is not null""",
        f"""create table indexlake_namespace (
            namespace_id {d.key_type} primary key, namespace_name {t} not null, folded_name {t} not null,
            begin_snapshot {i} not null, end_snapshot {i})""",
        """create unique index indexlake_namespace_name on indexlake_namespace (folded_name)
            where end_snapshot is null""",
        f"""create table indexlake_table (
            table_id {d.key_type} primary key, table_name {t} not null, folded_name {t} not null,
            namespace_id {i} not null, layout {t} not null, config {t} not null, primary_key {t} not null,
            schema_version {i} not null,
            next_row_id {i} not null, hot_floor {i} not null, hot_floor_row_id {i} not null,
            history_floor {i} not null, history_floor_row_id {i} not null, horizon {i} not null,
            purge_number {i} not null, begin_snapshot {i} not null, end_snapshot {i}, changed_in {i} not null,
            named_in {i} not null, bytes_given {i} not null default 0, bytes_written {i} not null default 0,
            log_bound {i} not null default 0)""",
        """create unique index indexlake_table_name on indexlake_table (namespace_id, folded_name)
            where end_snapshot is null""",
        _former_names(d),
        _fields(d, "indexlake_field"),
        _FIELD_INDEX,
        *_rules(d),
        f"""create table indexlake_index (
            index_id {d.key_type} primary key, index_name {t} not null, index_kind {t} not null,
            table_id {i} not null, key_field_ids {t} not null, include_field_ids {t} not null, params {t} not null,
            begin_snapshot {i} not null, end_snapshot {i}, enforced_snapshot {i}, changed_in {i} not null)""",
        "create index indexlake_index_table on indexlake_index (table_id)",
        f"""create table indexlake_data_file (
            data_file_id {d.key_type} primary key, table_id {i} not null, relative_path {t} not null unique,
            format {t} not null, role {t} not null, row_order {t} not null, file_size_bytes {i} not null,
            record_count {i} not null, row_ids {b} not null, min_row_id {i} not null, max_row_id {i} not null,
            min_snapshot {i} not null, max_snapshot {i} not null, column_stats {b} not null,
            checksum {b} not null, partition_id {i}, schema_snapshot {i} not null,
            begin_snapshot {i} not null, end_snapshot {i}, changed_in {i} not null, first_key {b}, last_key {b})""",
        "create index indexlake_data_file_changed on indexlake_data_file (table_id, changed_in)",
        _ENDED_FILES,
        _OF_PARTITION,
        f"""create table indexlake_index_file (
            index_file_id {d.key_type} primary key, index_id {i} not null, table_id {i} not null,
            relative_path {t} not null unique, file_size_bytes {i} not null, checksum {b} not null,
            key_types {t} not null, min_key {b} not null, max_key {b} not null, changed_in {i} not null)""",
        *_links(d),
        _ENDED_LINKS,
        f"""create table indexlake_delete (
            data_file_id {i} not null, snapshot_id {i} not null, table_id {i} not null,
            positions {b} not null, changed_in {i} not null, primary key (data_file_id, snapshot_id))""",
        "create index indexlake_delete_changed on indexlake_delete (table_id, changed_in)",
        f"""create table indexlake_touched (
            table_id {i} not null, snapshot_id {i} not null, row_ids {b},
            primary key (table_id, snapshot_id)){d.clustered}""",
        f"""create table indexlake_locked (
            table_id {i} not null, snapshot_id {i} not null, row_ids {b} not null,
            primary key (table_id, snapshot_id)){d.clustered}""",
        *_partitions(d),
        *log_records.create_statements(d),
        *named.create_statements(d),
        f"""create table indexlake_token (
            token {t} primary key, snapshot_id {i} not null, result {t} not null, created_at {i} not null)""",
        f"""create table indexlake_writer (
            writer_id {t} primary key, owner {t} not null, started_at {i} not null, expires_at {i} not null,
            reaped {i} not null)""",
        f"""create table indexlake_pin (
            pin_id {t} primary key, snapshot_id {i} not null, owner {t} not null, expires_at {i} not null)""",
        f"""create table indexlake_job (
            job_id {t} primary key, kind {t} not null, table_id {i}, scope {t} not null, state {t} not null,
            owner {t} not null, host {t} not null, pid {i} not null, started_at {i} not null,
            heartbeat_at {i} not null, finished_at {i}, progress {t} not null, error {t})""",
        "create index indexlake_job_lease on indexlake_job (table_id, kind, scope) where state = 'running'",
        f"""create table indexlake_garbage (
            relative_path {t} primary key, table_id {i} not null, unreachable_at {i} not null, checksum {b})""",
    ]


def _fields(d: Dialect, name: str) -> str:
    i, t = d.int_type, d.text_type
    return f"""create table {name} (
        field_id {i} not null, table_id {i} not null, field_name {t} not null, data_type {t} not null,
        nullable {i} not null, default_value {t}, metadata {t}, position {i} not null, source_field_id {i},
        steps {t}, released_in {i}, begin_snapshot {i} not null, end_snapshot {i},
        primary key (field_id, begin_snapshot))"""


def _rules(d: Dialect) -> list[str]:
    i, t = d.int_type, d.text_type
    return [
        f"alter table indexlake_field add column default_sql {t}",
        f"alter table indexlake_field add column generated {t}",
        f"alter table indexlake_field add column initial_value {t}",
        f"""create table indexlake_check (
            check_id {d.key_type} primary key, table_id {i} not null, check_name {t} not null, condition {t} not null,
            begin_snapshot {i} not null, end_snapshot {i}, validated_in {i})""",
        "create index indexlake_check_table on indexlake_check (table_id)",
    ]


_FIELD_INDEX = "create index indexlake_field_table on indexlake_field (table_id)"


def _links(d: Dialect) -> list[str]:
    i, name = d.int_type, "indexlake_index_file_block"
    return [
        f"""create table {name} (
            index_id {i} not null, data_file_id {i} not null, index_file_id {i} not null, ordinal {i} not null,
            begin_snapshot {i} not null, end_snapshot {i}, changed_in {i} not null,
            primary key (index_id, data_file_id, index_file_id)){d.clustered}""",
        f"create unique index {name}_live on {name} (index_id, data_file_id) where end_snapshot is null",
        f"create index {name}_segment on {name} (index_file_id)",
        f"create index {name}_changed on {name} (index_id, changed_in)",
    ]


_ENDED_FILES = """create index indexlake_data_file_ended on indexlake_data_file (table_id, end_snapshot)
    where end_snapshot is not null"""
_ENDED_LINKS = """create index indexlake_index_file_block_ended on indexlake_index_file_block (index_id, end_snapshot)
    where end_snapshot is not null"""


_OF_PARTITION = """create index indexlake_data_file_partition on indexlake_data_file (partition_id)
    where partition_id is not null"""


def _partitions(d: Dialect) -> list[str]:
    i, b = d.int_type, d.bytes_type
    return [
        f"""create table indexlake_partition (
            partition_id {d.key_type} primary key, table_id {i} not null, begin_key {b}, end_key {b},
            begin_snapshot {i} not null, end_snapshot {i}, changed_in {i} not null)""",
        "create index indexlake_partition_changed on indexlake_partition (table_id, changed_in)",
    ]


def _former_names(d: Dialect) -> str:
    i, t = d.int_type, d.text_type
    return f"""create table indexlake_former_name (
        table_id {i} not null, begin_snapshot {i} not null, end_snapshot {i} not null, namespace_id {i} not null,
        table_name {t} not null, folded_name {t} not null, primary key (table_id, begin_snapshot))"""


def _to_version_2(tx: Transaction, d: Dialect) -> None:
    """Allow altering columns and tables: field records get versions, tables get former names."""
    tx.execute_batch(
        [
            _fields(d, "indexlake_field_2"),
            """insert into indexlake_field_2 (field_id, table_id, field_name, data_type, nullable, default_value,
                metadata, position, begin_snapshot, end_snapshot)
            select field_id, table_id, field_name, data_type, nullable, default_value, metadata, field_id,
                begin_snapshot, end_snapshot from indexlake_field""",
            "drop table indexlake_field",
            "alter table indexlake_field_2 rename to indexlake_field",
            _FIELD_INDEX,
            f"alter table indexlake_table add column named_in {d.int_type} not null default 0",
            """update indexlake_table set named_in = begin_snapshot,
                schema_version = coalesce(end_snapshot, begin_snapshot)""",
            _former_names(d),
        ]
    )


def _to_version_3(tx: Transaction, d: Dialect) -> None:
    """Replace the end of segments by links to blocks, which say for which files a segment answers."""
    i, t = d.int_type, d.text_type
    tx.execute_batch(
        [
            f"alter table indexlake_index add column enforced_snapshot {i}",
            f"alter table indexlake_index add column changed_in {i} not null default 0",
            "update indexlake_index set enforced_snapshot = begin_snapshot, changed_in = begin_snapshot",
            "alter table indexlake_index_file_block rename to indexlake_index_file_block_2",
            *_links(d),
            """insert into indexlake_index_file_block (index_id, data_file_id, index_file_id, ordinal, begin_snapshot,
                changed_in)
            select s.index_id, l.data_file_id, l.index_file_id, 0, s.begin_snapshot, s.changed_in
            from indexlake_index_file_block_2 l join indexlake_index_file s on s.index_file_id = l.index_file_id""",
            "drop table indexlake_index_file_block_2",
            "drop index indexlake_index_file_changed",
            "alter table indexlake_index_file drop column begin_snapshot",
            "alter table indexlake_index_file drop column end_snapshot",
            f"alter table indexlake_index_file add column key_types {t} not null default '[]'",
        ]
    )
    types: dict[int, str] = dict(
        tx.rows("select field_id, data_type from indexlake_field")
    )  # the types of key columns never change
    for index_id, fields in tx.rows("select index_id, key_field_ids from indexlake_index"):
        key_types = json.dumps([types[int(field_id)] for field_id in fields.split(",")])
        tx.execute("update indexlake_index_file set key_types = ? where index_id = ?", (key_types, index_id))


def _to_version_4(tx: Transaction, d: Dialect) -> None:
    """Add clustered tables. Nothing has written a partition before."""
    tx.execute_batch(
        [
            f"alter table indexlake_table add column layout {d.text_type} not null default 'heap'",
            f"alter table indexlake_table add column bytes_given {d.int_type} not null default 0",
            f"alter table indexlake_table add column bytes_written {d.int_type} not null default 0",
            f"alter table indexlake_data_file add column first_key {d.bytes_type}",
            f"alter table indexlake_data_file add column last_key {d.bytes_type}",
            "drop table indexlake_partition",
            *_partitions(d),
            _OF_PARTITION,
        ]
    )


def _to_version_5(tx: Transaction, d: Dialect) -> None:
    """Add the redo log."""
    tx.execute_batch(
        [
            f"alter table indexlake_table add column log_bound {d.int_type} not null default 0",
            *log_records.create_statements(d),
        ]
    )


def _to_version_6(tx: Transaction, d: Dialect) -> None:
    """Add views, checks, generated columns, and computed defaults."""
    tx.execute_batch([*named.create_statements(d), *_rules(d)])


def _to_version_7(tx: Transaction, d: Dialect) -> None:
    """Add indexes that find ended records without reading live ones."""
    tx.execute_batch([_ENDED_FILES, _ENDED_LINKS])


def _to_version_8(tx: Transaction, d: Dialect) -> None:
    """The checksums of files outlive their records."""
    tx.execute_batch([f"alter table indexlake_garbage add column checksum {d.bytes_type}"])


MIGRATIONS: dict[int, Callable[[Transaction, Dialect], None]] = {
    1: _to_version_2, 2: _to_version_3, 3: _to_version_4, 4: _to_version_5, 5: _to_version_6,
    6: _to_version_7, 7: _to_version_8,
}  # fmt: skip
"""The step from version n to n + 1. Each runs inside the critical section."""


@dataclass(frozen=True, slots=True)
class LakeRecord:
    lake_id: str
    incarnation: int
    schema_version: int
    properties: dict[str, Any]


def read_lake(catalog: Catalog) -> LakeRecord | None:
    """Return the lake's own record, or None if the database holds no lake."""
    with catalog.read() as r:
        if not catalog.dialect.table_exists(r, "indexlake_lake"):
            return None
        return lake_record(r)


def lake_record(r: ReadTransaction | Transaction) -> LakeRecord | None:
    """Return the lake's own record, read in a transaction."""
    rows = r.rows("select lake_id, incarnation, schema_version, properties from indexlake_lake")
    if not rows:
        return None
    lake_id, incarnation, version, properties = rows[0]
    return LakeRecord(lake_id, incarnation, version, json.loads(properties))


def create_lake(catalog: Catalog, properties: dict[str, Any], now: int) -> bool:
    """Create the catalog; return False if another process was faster."""
    with catalog.transaction() as tx:
        if not begin_lake(tx, catalog.dialect, LakeRecord(str(uuid.uuid4()), 1, SCHEMA_VERSION, properties), now):
            return False
        tx.commit()
    return True


def begin_lake(tx: Transaction, dialect: Dialect, record: LakeRecord, now: int) -> bool:
    """Create the tables of a catalog and the first snapshot; return False if there is a lake already."""
    if dialect.table_exists(tx, "indexlake_lake") and lake_record(tx) is not None:
        return False
    tx.execute_batch(create_statements(dialect))
    tx.execute(
        "insert into indexlake_lake values (?, ?, ?, ?)",
        (record.lake_id, record.incarnation, record.schema_version, json.dumps(record.properties)),
    )
    tx.execute(
        "insert into indexlake_snapshot (snapshot_id, committed_at, operation) values (0, ?, 'create lake')",
        (tx.rows(f"select {SERVER_CLOCK}")[0][0] or now,),
    )
    return True


def there_is_a_lake(where: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"There is a lake at {where} already, which a restore would replace. Nothing was restored: give it another "
        "place, a new folder or an empty PostgreSQL schema.",
        name=where,
    )


def set_property(tx: Transaction, name: str, value: Any) -> None:
    """Change one property of the lake."""
    record = lake_record(tx)
    assert record is not None
    tx.execute("update indexlake_lake set properties = ?", (json.dumps({**record.properties, name: value}),))


def next_incarnation(catalog: Catalog) -> LakeRecord:
    """Give this copy of the catalog an incarnation that no other copy has."""
    with catalog.transaction() as tx:
        tx.execute("update indexlake_lake set incarnation = incarnation + 1")
        record = lake_record(tx)
        tx.commit()
    assert record is not None
    return record


def advice(read_only: bool) -> str:
    """Return advice for a place without a lake."""
    if read_only:
        return "A read-only connection does not create one."
    return "Pass create=True to il.connect to create one."


def open_lake(catalog: Catalog, where: str, *, read_only: bool = False) -> LakeRecord:
    """Return the lake's record after running any migrations that are due."""
    record = read_lake(catalog)
    if record is None:
        raise NotFoundError(f"There is no lake at {where}. {advice(read_only)}", name=where)
    if record.schema_version > SCHEMA_VERSION:
        raise CatalogError(
            f"The catalog at {where} has version {record.schema_version}; this IndexLake knows versions up to "
            f"{SCHEMA_VERSION}. Upgrade with: pip install -U indexlake"
        )
    if record.schema_version < SCHEMA_VERSION and read_only:
        raise CatalogError(
            f"The catalog at {where} has version {record.schema_version} and must be brought to version "
            f"{SCHEMA_VERSION} first. Connect once without read_only=True."
        )
    while record.schema_version < SCHEMA_VERSION:
        with catalog.transaction() as tx:
            current = lake_record(tx)
            assert current is not None
            if current.schema_version == record.schema_version:
                MIGRATIONS[record.schema_version](tx, catalog.dialect)
                tx.execute("update indexlake_lake set schema_version = ?", (record.schema_version + 1,))
            tx.commit()
        record = read_lake(catalog)
        assert record is not None
    return record


def next_values(tx: Transaction, name: str, count: int = 1) -> int:
    """Return the first of ``count`` fresh numbers. Numbers are never given twice, unlike max(id) + 1."""

    def draw(name: str, count: int) -> int:
        rows = tx.rows(
            """insert into indexlake_sequence (name, next_value) values (?, ?)
            on conflict (name) do update set next_value = indexlake_sequence.next_value + ?
            returning next_value""",
            (name, 1 + count, count),
        )
        return int(rows[0][0]) - count

    return take_number(name, count, draw)
