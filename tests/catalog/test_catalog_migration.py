"""A lake whose catalog has an older version is brought to the newest when it is opened, and reads as before.

``tests/golden/catalog-version-1.tar.gz`` holds a lake that was made by the code of that version: a table with hot
rows, a block with deleted rows, a history block and a default; a table without key; a table that was dropped.  For
PostgreSQL its catalog is made anew there, with the statements and the rows that the archive holds.
"""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog import tables
from indexlake.catalog.dialect import POSTGRES
from tests.support.lakes import Address, clock_of

ARCHIVE = Path(__file__).parents[1] / "golden" / "catalog-version-1.tar.gz"
FILLED, CHANGED, HOT, WITH_GONE, LAST = 2, 3, 8, 12, 13  # snapshots of the golden lake


def order(n: int) -> dict[str, Any]:
    note = None if n % 3 == 0 else f"note {n}"
    return {"id": n, "note": note, "total": n * 10, "address": {"city": "Köln", "zip": 50_000 + n}}


def orders() -> list[dict[str, Any]]:
    found = [order(n) for n in range(20) if n not in (5, 6)]
    for n in range(3):
        found[n]["note"] = "changed"
    found[5]["total"] = 1000
    return [
        *found,
        {"id": 100, "note": "hot", "total": 7, "address": None},
        {"id": 101, "note": None, "total": None, "address": None},
    ]


Open = Callable[..., il.Lake]


@pytest.fixture(params=["sqlite", "postgres"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the golden lake; its catalog has version 1 until then."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "lake"
    opened: list[il.Lake] = []
    address: dict[str, Any] = {"catalog": folder}
    if request.param == "postgres":
        schema = f"lake_{uuid.uuid4().hex[:12]}"
        dsn = request.getfixturevalue("postgres_dsn")
        move_to_postgres(folder, dsn, schema)
        address = {"catalog": dsn, "catalog_schema": schema}

    def connect(**options: Any) -> il.Lake:
        opened.append(il.connect(**address, automatic=False, **options))
        return opened[-1]

    yield connect
    for lake in opened:
        lake.close()


def move_to_postgres(folder: Path, dsn: str, schema: str) -> None:
    """The catalog of the golden lake in a PostgreSQL schema, as version 1 made it."""
    import psycopg

    source = apsw.Connection(str(folder / "catalog.sqlite"))
    made = source.execute(
        "select name, sql from sqlite_schema where sql is not null order by type desc, rowid"
    ).fetchall()
    kinds = {" INTEGER": " BIGINT", " BLOB": " BYTEA", " TEXT": f" {POSTGRES.text_type}", " WITHOUT ROWID": ""}
    with psycopg.connect(dsn, autocommit=True) as target:
        target.execute(f'create schema "{schema}"')
        target.execute(f'set search_path to "{schema}"')
        for name, sql in made:
            if name.startswith("sqlite_"):
                continue
            for old, new in kinds.items():
                sql = sql.replace(old, new)
            target.execute(sql)
        for (name,) in source.execute("select name from sqlite_schema where type = 'table'").fetchall():
            for values in source.execute(f'select * from "{name}"').fetchall():
                marks = ", ".join(["%s"] * len(values))
                target.execute(f'insert into "{name}" values ({marks})', values)
        storage = f'{{"hot": "inline", "storage": "{folder / "files"}"}}'
        target.execute("update indexlake_lake set properties = %s", (storage,))
    source.close()


def version(lake: il.Lake) -> int:
    return int(next(iter(lake.catalog.query("select schema_version from indexlake_lake")))[0])


def test_a_lake_of_version_1_reads_as_before_and_can_be_altered(golden: Open) -> None:
    lake = golden()
    assert version(lake) == tables.SCHEMA_VERSION == 8
    assert lake.tables() == ["main.plain", "shop.Orders"]
    t = lake.table("shop.orders")
    found = sorted(t.scan().to_pylist(), key=lambda r: r["id"])
    assert found == orders()
    assert [t.get(r["id"]) for r in orders()] == orders()
    assert lake.table("plain").scan().to_pylist() == [{"a": 1.5, "b": "x"}, {"a": None, "b": "y"}]
    assert sorted(t.at(FILLED).scan().to_pylist(), key=lambda r: r["id"]) == [order(n) for n in range(20)]
    assert t.at(FILLED).get(1) == order(1)
    assert t.at(CHANGED).get(1)["note"] == "changed"
    assert len(t.at(HOT)) == 20
    assert lake.at(WITH_GONE).tables() == ["main.plain", "shop.Orders", "shop.gone"]
    assert len(lake.at(WITH_GONE).table("shop.gone")) == 2
    assert lake.snapshot_id == LAST

    t.widen_column("total", pa.int64())
    t.rename_column("note", "remark")
    t.drop_column("address.city")
    t.add_column("kind", pa.string(), default="old")
    t.rename("shop.sales")
    t.insert({"id": 200, "total": 2**40})
    assert t.get(7) == {"id": 7, "remark": "note 7", "total": 1000, "address": {"zip": 50_007}, "kind": "old"}
    assert t.get(100)["total"] == 7
    assert t.get(200)["kind"] == "old"
    lake.pipeline().dump("shop.sales")
    assert t.scan("total > 999").count() == 2
    assert sorted(lake.at(LAST).table("shop.orders").scan().to_pylist(), key=lambda r: r["id"]) == orders()
    assert lake.pipeline().verify().ok
    with golden() as again:
        assert len(again.table("shop.sales")) == 21


def test_a_lake_of_version_1_is_not_migrated_by_one_who_only_reads(golden: Open) -> None:
    with pytest.raises(il.CatalogError, match=r"has version 1 .* Connect once without read_only=True"):
        golden(read_only=True)
    golden().close()
    with golden(read_only=True) as lake:
        assert len(lake.table("shop.orders")) == 20


def test_a_migration_failed_at_each_statement_leaves_the_old_catalog_or_the_new(tmp_path: Path) -> None:
    from tests.crash.failing import failing

    for nth in range(1, 60):
        folder = tmp_path / str(nth)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        with failing("sql.", nth=nth) as failure:
            try:
                il.connect(folder / "lake", automatic=False).close()
            except il.IndexLakeError:
                assert failure.fired is not None
        with il.connect(folder / "lake", automatic=False) as lake:
            assert sorted(lake.table("shop.orders").scan().to_pylist(), key=lambda r: r["id"]) == orders()
        if failure.fired is None:
            break
    assert nth > 8


# ---------------------------------------------------------------- from version 2

VERSION_2 = """
alter table indexlake_index drop column enforced_snapshot;
alter table indexlake_index drop column changed_in;
alter table indexlake_index_file add column begin_snapshot INT;
alter table indexlake_index_file add column end_snapshot INT;
update indexlake_index_file set
    begin_snapshot = (select b.begin_snapshot from indexlake_data_file b join indexlake_index_file_block l
        on l.data_file_id = b.data_file_id where l.index_file_id = indexlake_index_file.index_file_id),
    end_snapshot = (select b.end_snapshot from indexlake_data_file b join indexlake_index_file_block l
        on l.data_file_id = b.data_file_id where l.index_file_id = indexlake_index_file.index_file_id);
alter table indexlake_index_file drop column key_types;
create index indexlake_index_file_changed on indexlake_index_file (table_id, changed_in);
create table links_2 (index_file_id INT not null, data_file_id INT not null, primary key (index_file_id, data_file_id));
insert into links_2 select index_file_id, data_file_id from indexlake_index_file_block;
drop table indexlake_index_file_block;
alter table links_2 rename to indexlake_index_file_block;
create index indexlake_index_file_block_file on indexlake_index_file_block (data_file_id);
alter table indexlake_table drop column layout;
alter table indexlake_table drop column bytes_given;
alter table indexlake_table drop column bytes_written;
drop index indexlake_data_file_ended;
drop index indexlake_data_file_partition;
alter table indexlake_data_file drop column first_key;
alter table indexlake_data_file drop column last_key;
alter table indexlake_table drop column log_bound;
drop table indexlake_log_owner;
drop table indexlake_log_segment;
drop table indexlake_named;
drop table indexlake_check;
alter table indexlake_garbage drop column checksum;
alter table indexlake_field drop column default_sql;
alter table indexlake_field drop column generated;
alter table indexlake_field drop column initial_value;
update indexlake_lake set schema_version = 2
"""
"""What versions 3 to 8 did, undone: a segment has begin and end, and its own blocks' numbers beside it."""


def test_segments_of_version_2_become_links_that_outlive_their_blocks(any_address: Address) -> None:
    config = il.TableConfig(direct_write_row_count=5, block_row_count=100)
    schema = pa.schema([pa.field("a", pa.string(), False), pa.field("b", pa.int64(), False), ("v", pa.int64())])

    def rows(start: int) -> pa.Table:
        return pa.table({"a": [f"k{n % 3}" for n in range(start, start + 10)], "b": range(start, start + 10)})

    with any_address.connect() as lake:
        t = lake.create_table("t", schema, primary_key=["b", "a"], config=config)
        lake.create_table("plain", pa.schema([("x", pa.int64())]))
        t.insert(rows(0))
        t.insert(rows(10))
        then = lake.snapshot_id
        lake.pipeline(runner="threads").compact("t")
        t.insert(rows(100))
        read = [t.at(snapshot=s).scan(order_by="b").to_pylist() for s in (then, lake.snapshot_id)]
        with lake.catalog.transaction() as tx:
            tx.execute_batch(VERSION_2.replace("INT", lake.catalog.dialect.int_type).split(";"))
            tx.commit()
    with any_address.connect() as lake:
        assert version(lake) == tables.SCHEMA_VERSION
        t = lake.table("t")
        with lake._readings.open(t._table_id) as reading:
            state = reading.state
        assert state.primary is not None
        assert (state.primary.index.enforced_snapshot, state.primary.index.changed_in) == (1, 1)  # that made the table
        assert len(state.primary.links) == len(state.blocks) == 4
        assert not state.primary.gaps
        assert {link.segment.key_types for link in state.primary.links.values()} == {("int64", "string")}
        assert {(link.ordinal, link.end_snapshot) for link in state.primary.links.values()} == {(0, None)}
        assert [t.at(snapshot=s).scan(order_by="b").to_pylist() for s in (then, lake.snapshot_id)] == read
        assert t.at(snapshot=then).get((5, "k2"))["b"] == t.get((5, "k2"))["b"] == 5
        with pytest.raises(il.DuplicateKeyError):
            t.insert(rows(5))
        lake.pipeline(runner="threads").compact("t")
        assert lake.pipeline(runner="threads").verify().ok
        clock_of(lake).stop()
        lake.pipeline(runner="threads").expire("t")
        for name in ("data_file", "index_file", "index_file_block"):
            count = f"select count(*) from indexlake_{name}"
            assert next(iter(lake.catalog.query(count))) == (1,), "what ended is gone, and its segments with it"
        assert t.get((105, "k0"))["b"] == 105
        assert lake.pipeline(runner="threads").verify().ok
