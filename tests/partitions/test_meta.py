"""Meta files: written after the commits that they tell about, the same as the catalog, never going back in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import indexlake as il
from indexlake.partitions.meta import meta_from_bytes, meta_to_bytes, read_header
from indexlake.pipeline import partition_policy, reshape
from indexlake.pipeline.meta import publish_meta, read_meta
from indexlake.pipeline.runner import ThreadRunner
from tests.partitions.clustered_tables import clustered, in_blocks, metas, newest_meta, rows
from tests.support.waiting import wait_until


def test_a_namespace_and_a_clustered_table_get_folders_and_an_empty_meta_file(lake):
    lake.create_namespace("s")
    root = Path(lake.storage.root)
    assert [p.name for p in root.iterdir() if p.is_dir()] == ["schema_1"]
    t = clustered(lake)
    assert (root / "schema_1" / f"table_{t._table_id}").is_dir()
    meta = newest_meta(lake, t)
    assert (meta.full_name, meta.snapshot, meta.blocks, meta.hot_rows) == ("s.t", lake.snapshot_id, (), 0)
    assert [(p.begin_key, p.end_key) for p in meta.partitions] == [(None, None)]


def live_blocks(lake, t):
    state = lake._readings.latest(t._table_id)
    live = [b for b in state.blocks.records if b.end_snapshot is None and b.role != "history"]
    return {b._replace(checksum=bytes(b.checksum)) for b in live}


def test_a_heap_table_has_no_meta_file(lake):
    t = lake.create_table("h", rows(0, 50), primary_key="id")
    lake.pipeline().run()
    assert metas(lake, t._table_id) == []


def test_what_a_file_says_is_what_was_written(lake):
    t = clustered(lake)
    t.insert(rows(0, 50))
    t.create_index("by_text", "text", include=["v"])
    t.delete("id < 3")
    lake.pipeline().run()
    meta = newest_meta(lake, t)
    header, data = meta_to_bytes(meta)
    assert meta_from_bytes(data, "x") == meta
    assert read_header(data, "x") == header
    assert {i.name for i in meta.indexes} == {"primary", "by_text"}
    assert len(meta.deletes) == 1


def test_a_damaged_file_is_found(lake):
    t = clustered(lake)
    path = metas(lake, t._table_id)[0]
    data = (Path(lake.storage.root) / path).read_bytes()
    assert meta_from_bytes(data, path).table_id == t._table_id
    for at in (3, len(data) // 2, len(data) - 2):
        with pytest.raises(il.CorruptionError, match="is damaged"):
            meta_from_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], path)
    with pytest.raises(il.CorruptionError, match="is damaged"):
        meta_from_bytes(data[:-1], path)
    with pytest.raises(il.CorruptionError, match="pip install -U indexlake"):
        meta_from_bytes(data.replace(b"indexlake-meta 1", b"indexlake-meta 2", 1), path)


@pytest.mark.parametrize("job", ["dump", "merge", "run", "build_index", "freeze"])
def test_a_job_leaves_a_meta_file_that_equals_the_catalog(lake, job):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.insert(rows(100, 5))
    getattr(lake.pipeline(), job)()
    state = lake._readings.latest(t._table_id)
    live = live_blocks(lake, t)
    meta = newest_meta(lake, t)
    assert set(meta.blocks) == live
    assert live
    assert meta.partitions == state.ranges.live
    assert {link.segment.path for link in meta.links} == {
        link.segment.path for c in state.indexes.values() for link in c.links.values() if link.end_snapshot is None
        if link.data_file_id in {b.data_file_id for b in live}
    }  # fmt: skip
    assert meta.hot_rows == len(t) - len(in_blocks(t))


def test_a_load_publishes(lake):
    t = clustered(lake)
    lake.pipeline().load(rows(0, 60), "s.t")
    assert sum(b.record_count for b in newest_meta(lake, t).blocks) == 60


def test_nothing_is_written_when_nothing_has_changed(lake):
    t = clustered(lake)
    t.insert(rows(0, 60))
    lake.pipeline().run()
    before = metas(lake, t._table_id)
    lake.create_table("other", {"x": "int64"}).insert([{"x": 1}])  # expire moves the horizon of every table
    lake.pipeline().run()
    lake.pipeline().dump()
    assert metas(lake, t._table_id) == before
    lake._metas.clear()  # as another process would begin
    assert publish_meta(lake, t._table_id) is None
    assert metas(lake, t._table_id) == before


def test_the_newest_is_that_of_the_highest_snapshot_and_not_the_last_one_written(lake, on_step):
    t = clustered(lake)
    t.insert(rows(0, 60))
    slow = []

    def publisher(step):
        if step == "storage.create" and not slow:
            slow.append(lake.snapshot_id)
            t.delete("id < 10")
            lake._metas.clear()
            assert publish_meta(lake, t._table_id) is not None

    on_step(publisher)
    late = publish_meta(lake, t._table_id)
    on_step(None)
    assert read_meta(lake.storage, late).deletes == {}
    assert read_meta(lake.storage, late).snapshot == slow[0]
    assert len(newest_meta(lake, t).deletes) == 1, "the slow publisher did not take it back in time"


def test_a_merge_that_was_dropped_is_told_of_by_no_meta_file(two_handles, on_step):
    one, two = two_handles
    t = clustered(one)
    t.insert(rows(0, 120)[::2])
    t.insert(rows(0, 120)[1::2])
    won = []

    def rival(step):
        if step == "reshape.written" and not won:
            won.append(step)
            done = reshape.reshape(
                two, t._table_id, "merge", partition_policy.everything, ThreadRunner(two.storage), "two"
            )
            assert done.merges == 1

    on_step(rival)
    one.pipeline(runner="threads").merge()
    on_step(None)
    assert won
    named = {path for file in metas(one, t._table_id) for path in (b.path for b in read_meta(one.storage, file).blocks)}
    with one.catalog.read() as r:
        assert named <= {path for (path,) in r.rows("select relative_path from indexlake_data_file", ())}
    assert {b.path for b in newest_meta(one, t).blocks} == {b.path for b in live_blocks(one, t)}


def test_the_snapshot_is_pinned_until_the_file_is_there(lake, on_step):
    t = clustered(lake)
    t.insert(rows(0, 60))
    seen = []
    on_step(lambda step: seen.append([p.snapshot for p in lake._pins.held]) if step == "storage.publish" else None)
    publish_meta(lake, t._table_id)
    on_step(None)
    assert seen == [[lake.snapshot_id]]
    assert list(lake._pins.held) == []


def test_a_meta_file_that_cannot_be_written_fails_no_job_and_is_written_by_the_next(lake, on_step, caplog):
    def fail(step):
        if step == "storage.publish":
            raise OSError(28, "no space")

    on_step(fail)
    t = clustered(lake)
    on_step(None)
    assert "meta file of table" in caplog.text
    assert metas(lake, t._table_id) == []
    lake.pipeline().run()
    assert newest_meta(lake, t).blocks == ()


def test_renamed_and_altered_tables_are_told_of(lake):
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.alter().add_column("more", "int64", default=4).rename_column("text", "words").rename("s2.new").commit()
    lake.pipeline().run()
    meta = newest_meta(lake, t)
    assert meta.full_name == "s2.new"
    assert {f["field_name"] for f in meta.fields if f["end_snapshot"] is None} == {"id", "v", "words", "more"}


def test_a_dropped_table_leaves_a_meta_file_that_says_so(lake):
    t = clustered(lake)
    t.insert(rows(0, 60))
    lake.pipeline().run()
    lake.drop_table("s.t")
    assert newest_meta(lake, t).ended
    assert newest_meta(lake, t).blocks == ()
    u = clustered(lake, "s.u")
    lake.drop_namespace("s", cascade=True)
    assert newest_meta(lake, u).ended


def test_a_table_that_is_not_clustered_any_more_is_ended(lake):
    t = clustered(lake)
    t.insert(rows(0, 60))
    lake.pipeline().run()
    with lake.catalog.transaction() as tx:
        tx.execute("update indexlake_table set layout = 'heap', changed_in = 100 where table_id = ?", (t._table_id,))
        tx.execute(
            "insert into indexlake_snapshot (snapshot_id, committed_at, operation) values (100, 9999999999999999, '')"
        )
        tx.commit()
    assert publish_meta(lake, t._table_id) is not None
    assert publish_meta(lake, t._table_id) is None
    assert newest_meta(lake, t).ended


def test_the_background_publishes_what_statements_have_written(tmp_path):
    with il.connect(tmp_path / "lake") as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
        wait_until(lambda: sum(b.record_count for b in newest_meta(lake, t).blocks) == 60, "a meta file")
        t.alter().add_column("more", "int64").commit()
        t.insert(rows(100, 60))
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        meta = newest_meta(lake, lake.table("s.t"))
        assert sum(b.record_count for b in meta.blocks) == 120, "what was due is written when the lake is closed"
        assert "more" in {f["field_name"] for f in meta.fields}


def test_many_statements_share_meta_files(tmp_path):
    """Each costs as much as the table has blocks: they are written at a pace, not once for each commit."""
    with il.connect(tmp_path / "lake") as lake:
        t = clustered(lake, partition_row_count=1_000_000)
        for n in range(60):
            t.insert(rows(n * 100, 40))
        written = len(metas(lake, t._table_id))
    assert written < 40, written


def test_a_copy_of_the_catalog_that_took_the_files_over_publishes_its_own(tmp_path):
    """Its snapshots may be behind those of the copy that owned the files before."""
    import shutil

    with il.connect(tmp_path / "lake", storage=tmp_path / "files", automatic=False) as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        for n in range(1, 6):
            lake.table("s.t").insert(rows(n * 100, 60))
        lake.pipeline().run()
    with il.connect(tmp_path / "copy", automatic=False) as lake:
        lake.adopt()
        t = lake.table("s.t")
        lake.pipeline().dump()
        meta = newest_meta(lake, t)
        assert (meta.incarnation, sum(b.record_count for b in meta.blocks)) == (2, 60)
        assert os.path.exists(tmp_path / "files" / metas(lake, t._table_id)[1])
