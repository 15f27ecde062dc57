"""Vacuum spares the newest meta file of a clustered table and what it names; the rest goes when its time has come."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import indexlake as il
from indexlake.pipeline.meta import publish_meta
from indexlake.pipeline.meta_garbage import OLDER_KEPT
from tests.partitions.clustered_tables import clustered, content, metas, newest_meta, rows
from tests.pipeline.job_tables import expire_everything
from tests.support.lakes import clock_of

NOW = timedelta(0)


def vacuum(lake, grace=NOW):
    return lake.pipeline().vacuum(dry_run=False, grace=grace)


def stored(lake) -> set[str]:
    root = Path(lake.storage.root)
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file() and p.name != "indexlake.json"}


def merged_without_meta(lake, t):
    """The inputs of a merge have expired, and the newest meta file still names them."""
    from indexlake.pipeline.reshape import merge
    from indexlake.pipeline.runner import ThreadRunner

    merge(lake, t._table_id, runner=ThreadRunner(lake.storage))
    expire_everything(lake)


def test_files_of_the_newest_meta_file_stay_until_there_is_a_newer_one(lake):
    t = clustered(lake)
    for n in range(3):
        t.insert(rows(n * 50, 50))
    publish_meta(lake, t._table_id)
    named = {file.path for file in newest_meta(lake, t).files}
    merged_without_meta(lake, t)
    before = content(t)
    vacuum(lake)
    assert named <= stored(lake), "a catalog that is lost now is rebuilt from these"
    publish_meta(lake, t._table_id)
    vacuum(lake)
    assert stored(lake) == {file.path for file in newest_meta(lake, t).files} | {metas(lake, t._table_id)[0]}
    assert not named <= stored(lake)
    assert content(t) == before
    assert lake.pipeline().verify().ok


def test_a_meta_file_published_while_vacuum_runs_protects_what_it_names(lake, on_step):
    """It names files that expired after its snapshot was read; the first listing does not have it."""
    t = clustered(lake)
    for n in range(3):
        t.insert(rows(n * 50, 50))
    publish_meta(lake, t._table_id)
    merged_without_meta(lake, t)
    first = metas(lake, t._table_id)[0]
    data = (Path(lake.storage.root) / first).read_bytes()
    newest = []

    def publish(step):
        if step == "vacuum.read" and not newest:
            newest.append(first.replace(first.split(".")[1], str(lake.snapshot_id), 1))
            newer = data.replace(b"indexlake-meta 1 1 ", b"indexlake-meta 1 2 ", 1)
            (Path(lake.storage.root) / newest[0]).write_bytes(newer)
            (Path(lake.storage.root) / first).unlink()

    on_step(publish)
    vacuum(lake)
    on_step(None)
    assert newest[0] in stored(lake)
    assert {file.path for file in newest_meta(lake, t).files} <= stored(lake)


def test_older_meta_files_go_after_the_grace_period(lake):
    t = clustered(lake)
    for n in range(3):
        t.insert(rows(n * 50, 50))
        publish_meta(lake, t._table_id)
    assert len(metas(lake, t._table_id)) == 4
    done = lake.pipeline().vacuum(dry_run=False)
    assert (done.files, done.waiting) == (0, 3)
    newest = metas(lake, t._table_id)[0]
    clock_of(lake).advance(hours=25)
    trial = lake.pipeline().vacuum()
    assert trial.files == 3
    assert len(metas(lake, t._table_id)) == 4, "a dry run deletes nothing"
    assert lake.pipeline().vacuum(dry_run=False).files == 3
    assert metas(lake, t._table_id) == [newest]


def test_of_many_older_meta_files_a_few_wait(lake):
    t = clustered(lake)
    for n in range(OLDER_KEPT + 5):
        t.insert(rows(n * 50, 50))
        publish_meta(lake, t._table_id)
    lake.pipeline().vacuum(dry_run=False)
    assert len(metas(lake, t._table_id)) == 1 + OLDER_KEPT


def test_what_a_failed_insert_left_in_a_clustered_folder_goes(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 50))
    publish_meta(lake, t._table_id)
    other = il.connect(tmp_path / "lake", automatic=False)
    with pytest.raises(il.DuplicateKeyError):
        other.table("s.t").insert(rows(0, 50))
    left = stored(lake)
    assert vacuum(lake).files == 1, "an older meta file; the writer of the rest is alive"
    other.close()
    assert vacuum(lake).files == 2
    assert stored(lake) < left
    assert len(t) == 50


def test_the_folders_of_a_dropped_table_and_namespace_go_when_they_have_expired(lake):
    t, kept = clustered(lake), clustered(lake, "kept.t")
    for table in (t, kept):
        table.insert(rows(0, 50))
    lake.pipeline().run()
    lake.drop_namespace("s", cascade=True)
    vacuum(lake)
    root = Path(lake.storage.root)
    assert {b.path for b in lake._readings.latest(t._table_id).blocks.records} <= stored(lake), "the past shows it"
    expire_everything(lake)
    vacuum(lake)
    assert sorted(p.name for p in root.iterdir()) == ["indexlake.json", "schema_2", "tables"]
    assert [p.name for p in (root / "tables").iterdir()] == [str(kept._table_id)]
    assert len(kept) == 50


def test_the_meta_file_that_says_a_table_is_gone_goes_last(lake, on_step):
    t = clustered(lake)
    t.insert(rows(0, 50))
    lake.pipeline().run()
    lake.drop_table("s.t")
    expire_everything(lake)
    paths = metas(lake, t._table_id)
    assert len(paths) >= 2

    def stop(step):
        if step == "vacuum.deleted":
            raise RuntimeError("killed")

    on_step(stop)
    with pytest.raises(RuntimeError):
        vacuum(lake)
    on_step(None)
    assert metas(lake, t._table_id) == paths[:1]
    vacuum(lake)
    assert stored(lake) == set()


def test_files_that_are_not_ours_are_left_alone(lake):
    t = clustered(lake)
    t.insert(rows(0, 50))
    root = Path(lake.storage.root)
    foreign = ["schema_1/notes.txt", "schema_1/table_1/readme.md", "schema_77/table_1/x.data", "elsewhere/a.meta"]
    for path in foreign:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("mine")
    lake.drop_table("s.t")
    expire_everything(lake)
    vacuum(lake)
    assert stored(lake) == set(foreign)
