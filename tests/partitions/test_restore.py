"""A lost catalog is rebuilt from storage: precisely the rows that lay in blocks, and a list of what is lost."""

from __future__ import annotations

import random
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.owner import marked_owner
from indexlake.pipeline.meta import publish_meta
from tests.partitions.clustered_tables import clustered, content, in_blocks, lose_catalog, metas, newest_meta, rows
from tests.support.lakes import connect

NOW = timedelta(0)


def restored(lake, tmp_path, name="restored", **options):
    """A lake from the files of another one."""
    storage = lose_catalog(lake, tmp_path / f"{name}-files")
    result = il.restore(storage, tmp_path / name, **options)
    return connect(tmp_path / name), result


def check_whole(lake):
    """It is a lake like any other."""
    for name in lake.tables():
        t = lake.table(name)
        state = lake._readings.latest(t._table_id)
        assert state.primary is None or not state.primary.gaps
        for row in t.scan(limit=20).to_pylist():
            assert t.get(row["id"]) == row
    assert lake.pipeline().verify().ok


def test_rows_in_blocks_come_back_and_hot_ones_do_not(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.insert(rows(100, 5))
    lake.pipeline().dump()
    t.delete("id < 7")
    t.update({"v": 5}, "id = 50")  # its new version is hot
    t.insert(rows(200, 3))
    publish_meta(lake, t._table_id)
    expected = in_blocks(t)
    assert len(expected) == 60 + 5 - 7 - 1
    t.insert(rows(300, 60))  # after the meta file
    new, result = restored(lake, tmp_path)
    with new:
        assert content(new.table("s.t")) == expected
        check_whole(new)
    assert [(r.table, r.rows, r.hot_rows_lost) for r in result.tables] == [("s.t", len(expected), 4)]
    assert [Path(p).suffix for p in result.newer_files] == [".delta", ".btree"]
    said = str(result)
    assert "s.t as of snapshot" in said
    assert "4 rows that lay in the hot store lost" in said
    assert "history, tokens, streams" in said
    assert result.newer_files[0] in said


def test_a_restored_lake_lives_on(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.create_index("by_text", "text")
    lake.pipeline().run()
    t.insert(rows(100, 60))  # not in the meta file
    before = {row["_indexlake_row_id"] for row in content(t)}
    last = lake.snapshot_id
    new, result = restored(lake, tmp_path)
    with new:
        t = new.table("s.t")
        assert new.snapshot_id == result.snapshot > last
        with pytest.raises(il.DuplicateKeyError):
            t.insert(rows(5, 1))
        t.insert(rows(100, 70))
        t.insert(rows(500, 3))
        t.update({"v": -1}, "id = 10")
        assert new.snapshot_id > result.snapshot
        fresh = {row["_indexlake_row_id"] for row in t.scan("id >= 100", with_row_id=True).to_pylist()}
        assert not fresh & before, "no row id is given twice"
        assert t.scan("text = 'row 130'").to_pylist() == rows(130, 1)
        with pytest.raises(il.SnapshotExpiredError):
            t.at(last).scan().to_pylist()
        assert len(t.at(result.snapshot).scan().to_pylist()) == 60
        other = new.create_table("s.u", {"id": "int64"}, primary_key="id", layout="clustered")
        assert other._table_id > t._table_id
        new.pipeline().dump()
        new.pipeline().merge("s.t")
        assert len(t) == 133
        check_whole(new)
        again, _ = restored(new, tmp_path, "again")
        with again:
            assert len(again.table("s.t")) == 133
            assert again.table("s.t").get(10)["v"] == -1


def test_the_new_catalog_owns_the_files(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    publish_meta(lake, t._table_id)
    owner = marked_owner(lake.storage)
    t.insert(rows(100, 60))
    new, result = restored(lake, tmp_path)
    with new:
        assert marked_owner(new.storage) == (owner[0], owner[1] + 1) == (result.lake_id, result.incarnation)
        assert new.pipeline().vacuum(dry_run=False).files == 0, "what is newer waits for the grace period"
        assert set(new.pipeline().vacuum(dry_run=False, grace=NOW).paths) >= set(result.newer_files)
        assert new.pipeline().verify().ok
        assert len(new.table("s.t")) == 60


def test_into_the_folder_that_lost_its_catalog(tmp_path):
    with connect(tmp_path / "lake") as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
        publish_meta(lake, t._table_id)
    for left in (tmp_path / "lake").glob("catalog.sqlite*"):
        left.unlink()
    il.restore(tmp_path / "lake" / "files", tmp_path / "lake")
    (tmp_path / "lake").rename(tmp_path / "moved")
    with connect(tmp_path / "moved") as lake:
        assert len(lake.table("s.t")) == 60


def test_beside_the_redo_log_of_the_lost_catalog(tmp_path):
    folder = tmp_path / "lake"
    with connect(folder, hot="memory") as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
        publish_meta(lake, t._table_id)
        expected = content(t)
    for n in range(3):  # each time it is opened, the log goes on in other files
        with connect(folder) as lake:
            lake.table("s.t").insert(rows(1_000 + n, 1))
    for path in folder.glob("catalog*"):
        path.unlink()
    assert len(il.restore(folder / "files", folder).tables) == 1
    with connect(folder) as lake:
        assert lake.hot == "inline"
        assert content(lake.table("s.t")) == expected
        lake.convert(hot="memory")
        for n in range(3):
            lake.table("s.t").insert(rows(2_000 + n, 1))
    with connect(folder) as lake:
        assert lake.hot == "memory"
        assert [row["id"] for row in content(lake.table("s.t"))] == [*range(60), 2_000, 2_001, 2_002]
        check_whole(lake)


def test_columns_that_were_altered(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.alter().add_column("more", "int64", default=4).rename_column("text", "words").commit()
    t.insert([{"id": n, "v": 1, "words": "w", "more": n} for n in range(100, 150)])
    t.alter().widen_column("v", "int64").drop_column("more").commit()
    t.insert([{"id": n, "v": 1 << 40, "words": "w"} for n in range(200, 250)])
    t.alter().add_column("more", "string").rename("other.name").commit()
    t.create_index("by_v", "v")
    lake.pipeline().run()
    expected, schema = content(t), lake.table("other.name").schema
    new, _ = restored(lake, tmp_path)
    with new:
        t = new.table("other.name")
        assert t.schema == schema
        assert content(t) == expected
        assert len(t.scan(f"v = {1 << 40}").to_pylist()) == 50
        t.insert({"id": 1000, "v": 1, "words": "hot", "more": "x"})
        t.alter().add_column("last", "date32[day]").commit()
        t.update({"words": "changed"}, "id < 20")
        new.pipeline().dump()
        assert t.get(3)["words"] == "changed"
        check_whole(new)


def test_keys_of_every_kind(lake, tmp_path):
    data = pa.table({"a": ["ä", "b", "c\0d"] * 20, "b": list(range(60)), "c": [b"\xff"] * 60})
    config = il.TableConfig(direct_write_row_count=40, partition_row_count=20)
    lake.create_table("k", data, primary_key=["a", "b"], layout="clustered", config=config)
    lake.pipeline().split("k", at=("b", 10))
    assert len(lake._readings.latest(lake.table("k")._table_id).ranges.live) > 1
    new, result = restored(lake, tmp_path, verify=True)
    with new:
        assert result.tables[0].partitions > 1
        assert new.table("k").scan(order_by="b").to_pylist() == data.to_pylist()
        assert new.table("k").get(("ä", 3)) == {"a": "ä", "b": 3, "c": b"\xff"}
        assert new.pipeline().verify().ok


def test_an_empty_and_a_truncated_table(lake, tmp_path):
    clustered(lake, "s.empty")
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.truncate()
    lake.pipeline().run()
    new, result = restored(lake, tmp_path)
    with new:
        assert [r.rows for r in result.tables] == [0, 0]
        assert [len(new.table(name)) for name in new.tables()] == [0, 0]
        new.table("s.t").insert(rows(0, 60))
        check_whole(new)


def test_a_table_that_was_dropped_stays_dropped(lake, tmp_path):
    clustered(lake, "s.kept").insert(rows(0, 50))
    clustered(lake).insert(rows(0, 60))
    lake.pipeline().run()
    lake.drop_table("s.t")
    new, result = restored(lake, tmp_path)
    with new:
        assert new.tables() == ["s.kept"]
        assert result.dropped == ("s.t",)
        clustered(new).insert(rows(0, 5))


def test_heap_tables_are_named_and_their_files_left_alone(lake, tmp_path):
    heap = lake.create_table("heap", rows(0, 20_000), primary_key="id")
    t = clustered(lake)
    t.insert(rows(0, 60))
    lake.pipeline().run()
    new, result = restored(lake, tmp_path)
    with new:
        (lost,) = result.lost_tables
        assert (lost.table_id, lost.folder, lost.files) == (heap._table_id, f"tables/{heap._table_id}", 2)
        assert "a heap table, of which only the catalog knew" in str(result)
        new.pipeline().vacuum(dry_run=False, grace=NOW)
        assert len(list(new.storage.list(lost.folder))) == 2


def test_rules_of_rows_come_back_and_the_sequences_that_they_call_are_named_as_lost(lake, tmp_path):
    lake.sql("create sequence numbers")
    lake.sql("create view few as select 1 a")
    lake.sql("""create table t (id bigint default nextval('numbers') primary key, v int check (v > 0),
        twice int generated always as (v * 2)) with (layout = 'clustered')""")
    lake.sql("insert into t (v) values (5), (6)")
    lake.pipeline().dump()
    new, result = restored(lake, tmp_path)
    assert "not a table: views, macros, sequences, named types" in str(result)
    with new:
        with pytest.raises(il.ConstraintError, match="v > 0"):
            new.sql("insert into t (id, v) values (3, -1)")
        with pytest.raises(il.NotFoundError, match=r"no sequence 'main\.numbers'"):
            new.sql("insert into t (v) values (7)")
        new.sql("create sequence numbers start 3")
        new.sql("insert into t (v) values (7)")
        assert new.sql("from t order by id").to_pylist() == [
            {"id": 1, "v": 5, "twice": 10}, {"id": 2, "v": 6, "twice": 12}, {"id": 3, "v": 7, "twice": 14},
        ]  # fmt: skip


def test_of_heap_tables_alone_nothing_can_be_restored(lake, tmp_path):
    lake.create_table("heap", rows(0, 20_000), primary_key="id")
    with pytest.raises(il.NotFoundError, match=r"no meta file.*Table 1 has 2 files of .* bytes in tables/1; its name"):
        restored(lake, tmp_path)
    assert not (tmp_path / "restored").exists()
    (tmp_path / "nothing").mkdir()
    with pytest.raises(il.NotFoundError, match="is this the storage root"):
        il.restore(tmp_path / "nothing", tmp_path / "restored")


def test_a_lake_that_is_there_is_not_written_over(lake, tmp_path):
    clustered(lake).insert(rows(0, 60))
    files = lose_catalog(lake, tmp_path / "files")
    with connect(tmp_path / "there") as there:
        there.create_table("x", {"a": "int64"})
    with pytest.raises(il.AlreadyExistsError, match="There is a lake at"):
        il.restore(files, tmp_path / "there")
    with connect(tmp_path / "there") as there:
        assert there.tables() == ["main.x"]
    with pytest.raises(il.AlreadyExistsError, match="catalog of these files is not lost"):
        il.restore(lake.storage.root, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert marked_owner(lake.storage)[1] == 1
    with pytest.raises(il.SchemaError, match="not into memory"):
        il.restore(files, ":memory:")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["gone", "short", "flipped"])
def test_missing_and_damaged_blocks_are_named(lake, tmp_path, how):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.insert(rows(100, 50))
    t.delete("id = 100")
    lake.pipeline().build_index()
    files = lose_catalog(lake, tmp_path / "files")
    block = files / newest_meta(lake, t).blocks[1].path
    if how == "gone":
        block.unlink()
    elif how == "short":
        block.write_bytes(block.read_bytes()[:-10])
    else:
        damage(block)
        il.restore(lose_catalog(lake, tmp_path / "unseen"), tmp_path / "sizes")
    with pytest.raises(il.CorruptionError, match=r"Nothing was restored: 1 of the blocks.*50 rows.*partial=True"):
        il.restore(files, tmp_path / "new", verify=True)
    assert not (tmp_path / "new").exists()
    result = il.restore(files, tmp_path / "new", verify=True, partial=True)
    assert [(b.table, b.rows) for b in result.lost_blocks] == [("s.t", 50)]
    assert result.lost_blocks[0].path in str(result)
    with connect(tmp_path / "new") as new:
        assert [row["id"] for row in content(new.table("s.t"))] == list(range(60))
        check_whole(new)


@pytest.mark.parametrize("how", ["gone", "flipped"])
def test_segments_are_built_again(lake, tmp_path, how):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.insert(rows(100, 50))
    t.create_index("by_text", "text")
    t.create_index("words", "text", kind="bm25")
    lake.pipeline().run()
    files = lose_catalog(lake, tmp_path / "files")
    for segment in (files / "tables").rglob("index/*"):
        segment.unlink() if how == "gone" else damage(segment)
    expected = content(t)
    result = il.restore(files, tmp_path / "new", verify=True)
    assert result.tables[0].segments_lost == len(newest_meta(lake, t).segments)
    assert "to build again" in str(result)
    with connect(tmp_path / "new") as new:
        t = new.table("s.t")
        assert content(t) == expected
        assert t.get(105) == rows(105, 1)[0], "the primary key finds every row at once"
        assert t.scan("text = 'row 7'").to_pylist() == rows(7, 1)
        new.pipeline().run()
        assert {info.rows_uncovered for info in t.indexes()} == {0}
        assert t.search("words", "row 33", 1).to_pylist()[0]["id"] == 33
        new.pipeline().vacuum(dry_run=False, grace=NOW)
        check_whole(new)


def test_an_older_meta_file_stands_in_for_a_damaged_one(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    publish_meta(lake, t._table_id)
    t.insert(rows(100, 50))
    publish_meta(lake, t._table_id)
    newest = metas(lake, t._table_id)[0]
    files = lose_catalog(lake, tmp_path / "files")
    damage(files / newest)
    result = il.restore(files, tmp_path / "new")
    assert result.damaged_metas == (newest,)
    assert newest in str(result)
    with connect(tmp_path / "new") as new:
        assert len(new.table("s.t")) == 60


def test_files_of_another_lake_are_not_mixed_in(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    publish_meta(lake, t._table_id)
    files = lose_catalog(lake, tmp_path / "files")
    with connect(tmp_path / "second") as second:
        u = clustered(second, "s.u")
        stranger = metas(second, u._table_id)[0]
        target = files / stranger.replace("schema_1", "schema_9").replace("table_1", "table_9")
        target.parent.mkdir(parents=True)
        shutil.copy(Path(second.storage.root) / stranger, target)
    result = il.restore(files, tmp_path / "new")
    assert [r.table for r in result.tables] == ["s.t"]
    assert len(result.damaged_metas) == 1


@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_done_before(any_address, new_address, tmp_path, seed):
    """Random writes and jobs, each catalog; the oracle is what lay in blocks when the last meta file was published."""
    chance = random.Random(seed)
    with any_address.connect() as lake:
        t = clustered(lake, partition_row_count=60)
        t.create_index("by_v", "v")
        jobs = lake.pipeline()
        next_id = altered = 0
        expected: list = []
        for _ in range(40):
            low = chance.randrange(max(1, next_id))
            what = chance.choice(
                ("direct", "direct", "hot", "hot", "update", "delete", "job", "job", "alter", "truncate")
            )
            if what in ("direct", "hot"):
                count = 60 if what == "direct" else 5
                ids = chance.sample(range(next_id, next_id + 2 * count), count)
                t.insert([{"id": n, "v": n % 7} for n in ids])
                next_id += 2 * count
            elif what == "update":
                t.update({"v": chance.randrange(1000)}, f"id >= {low} and id < {low + 20}")
            elif what == "delete":
                t.delete(f"id >= {low} and id < {low + 15}")
            elif what == "alter":
                altered += 1
                t.alter().add_column(f"c{altered}", "int64", default=altered).commit()
            elif what == "truncate" and chance.random() < 0.3:
                t.truncate()
            elif what == "job":
                job = chance.choice((jobs.dump, jobs.merge, jobs.build_index, jobs.run))
                job(**({} if job == jobs.run else {"table": "s.t"}))
                if chance.random() < 0.5:
                    jobs.vacuum(dry_run=False, grace=NOW)
                expected = in_blocks(t)
        jobs.build_index("s.t")
        expected = in_blocks(t)
        t.insert([{"id": next_id, "v": 1}])
        files = lose_catalog(lake, tmp_path / "files")
    into = new_address("postgres" if seed % 2 else "sqlite")
    result = il.restore(files, into.catalog, catalog_schema=into.catalog_schema, verify=True)
    with connect(into.catalog, catalog_schema=into.catalog_schema) as new:
        assert content(new.table("s.t")) == expected
        assert result.tables[0].rows == len(expected)
        check_whole(new)


@pytest.mark.parametrize(("before", "after"), [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_on_s3_and_into_the_other_kind_of_catalog(new_address, before, after):
    address = new_address(before, "s3")
    with address.connect() as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
        t.delete("id < 5")
        lake.pipeline().run()
        lake.create_namespace("nothing")
        lake.pipeline().vacuum(dry_run=False, grace=NOW)
        expected, storage = content(t), address.storage or lake.storage.root
    into = new_address(after)
    options = {"storage_options": address.storage_options, "catalog_schema": into.catalog_schema}
    result = il.restore(storage, into.catalog, verify=True, **options)
    assert result.tables[0].rows == 55
    with connect(into.catalog, **options) as new:
        t = new.table("s.t")
        assert content(t) == expected
        t.insert(rows(100, 60))
        new.pipeline().run()
        new.pipeline().vacuum(dry_run=False, grace=NOW)
        check_whole(new)


def test_a_storage_is_named_as_it_is_seen_from_here(tmp_path, monkeypatch):
    """Also where its name is that of the folder which a lake has inside its own one."""
    monkeypatch.chdir(tmp_path)
    with connect(tmp_path / "old") as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
        publish_meta(lake, t._table_id)
        lose_catalog(lake, tmp_path / "files")
    result = il.restore("files", into="new")
    assert [table.rows for table in result.tables] == [60]
    with connect(tmp_path / "new") as lake:
        assert lake.storage.root == str(tmp_path / "files")
    with connect(tmp_path / "other", storage="files2") as lake:
        assert lake.storage.root == str(tmp_path / "files2")
    with connect("lake", storage="lake/files") as lake:
        assert lake.storage.root == str(tmp_path / "lake" / "files")
    (tmp_path / "lake").rename(tmp_path / "moved")
    with connect("moved") as lake:
        assert lake.storage.root == str(tmp_path / "moved" / "files")
