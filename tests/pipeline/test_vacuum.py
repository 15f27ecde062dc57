"""Vacuum deletes what nothing reaches, when its time has come, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

import indexlake as il
from indexlake.catalog import activity
from indexlake.catalog.clock import now
from indexlake.storage import faults
from tests.pipeline.job_tables import content, expire_everything, files, in_blocks, rows, table
from tests.support.lakes import clock_of

NOW = timedelta(0)


def vacuum(lake, grace=NOW):
    return lake.pipeline().vacuum(dry_run=False, grace=grace)


def failed_insert(t):
    """Writes its blocks and then loses: orphans."""
    with pytest.raises(il.DuplicateKeyError):
        t.insert(rows(0, 20))


def test_what_compaction_replaced_goes_when_its_history_has_expired(lake):
    t = in_blocks(table(lake), 20, 20, 20)
    before = content(t)
    lake.pipeline().compact("t")
    assert vacuum(lake).files == 0, "past snapshots need the inputs"
    expire_everything(lake)
    trial = lake.pipeline().vacuum(grace=NOW)
    assert trial.dry_run
    assert trial.files == 6
    assert str(trial).startswith("would delete 6 files of ")
    assert len(files(lake)) == 8, "a dry run deletes nothing"
    done = vacuum(lake)
    assert (done.files, done.waiting, done.kept) == (6, 0, 2)
    assert done.paths == trial.paths
    assert done.bytes == trial.bytes > 0
    assert len(files(lake)) == 2
    assert vacuum(lake).files == 0
    assert content(t) == before
    assert lake.pipeline().verify().ok


def test_the_grace_period_counts_from_the_moment_it_became_unreachable(lake):
    in_blocks(table(lake), 20, 20)
    lake.pipeline().compact("t")
    expire_everything(lake)
    done = lake.pipeline().vacuum(dry_run=False)
    assert (done.files, done.waiting) == (0, 4)
    clock_of(lake).advance(hours=23)
    assert lake.pipeline().vacuum(dry_run=False).files == 0
    clock_of(lake).advance(hours=2)
    assert lake.pipeline().vacuum(dry_run=False).files == 4


def test_files_of_a_living_writer_stay_and_those_of_one_that_left_go(lake, tmp_path):
    t = in_blocks(table(lake), 20)
    other = il.connect(tmp_path / "lake", automatic=False)
    failed_insert(other.table("t"))
    assert len(files(lake)) == 4
    assert vacuum(lake).files == 0, "its writer is alive and might commit them"
    other.close()
    assert lake.pipeline().vacuum(dry_run=False).waiting == 2, "written a moment ago"
    assert vacuum(lake).files == 2
    assert len(t) == 20


def test_a_writer_that_was_not_heard_of_is_reaped_and_can_commit_nothing(lake, tmp_path):
    t = in_blocks(table(lake), 20)
    other = il.connect(tmp_path / "lake", automatic=False)
    tx = other.transaction()
    tx.table("t").insert(rows(100, 20))
    with lake.catalog.transaction() as c:
        c.execute("update indexlake_writer set expires_at = 5 where writer_id = ?", (other._maintenance.writer_id,))
        c.commit()
    assert lake.pipeline().vacuum(grace=NOW).files == 2, "a dry run says it"
    assert vacuum(lake).files == 2
    other._maintenance._beat_once()
    tx.table("t").insert(rows(200, 20))  # by the writer that took its place
    with pytest.raises(il.StorageError, match="declared dead"):
        tx.commit()
    assert len(t) == 20
    assert other.table("t").insert(rows(100, 20)).rows == 20, "with another writer it goes on"
    assert vacuum(lake).files == 0
    assert len(t) == 40
    other.close()
    assert lake.pipeline().verify().ok


def test_a_job_of_a_reaped_writer_commits_nothing(lake):
    t = table(lake)
    t.insert(rows(0, 9).to_pylist())

    def reap(step):
        if step == "dump.written":
            faults.install(None)
            with lake.catalog.transaction() as c:
                c.execute("update indexlake_writer set expires_at = 5")
                c.commit()
            vacuum(lake)

    faults.install(reap)
    try:
        with pytest.raises(il.StorageError, match="declared dead"):
            lake.pipeline().dump("t")
    finally:
        faults.install(None)
    assert len(t) == 9
    lake._maintenance._beat_once()
    assert lake.pipeline().dump("t")["main.t"].rows == 9
    assert lake.pipeline().verify().ok


def test_half_written_files_of_a_killed_process_are_found(lake):
    in_blocks(table(lake), 20)
    folder = Path(lake.storage.root, "tables", "1", "data")
    half = folder / f".{uuid.uuid4().hex[:12]}-{uuid.uuid4().hex}.vortex.{uuid.uuid4().hex[:12]}.tmp"
    half.write_bytes(b"half")
    assert vacuum(lake).paths == (f"tables/1/data/{half.name}",)
    assert not half.exists()


def test_staged_rows_stay_as_long_as_their_writer(lake):
    in_blocks(table(lake), 20)
    reader, gone = uuid.uuid4().hex[:12], uuid.uuid4().hex[:12]
    with lake.catalog.transaction() as tx:
        activity.add_writer(tx, reader, "a read on Spark", now(), now() + 24 * 3600 * 1_000_000)
        tx.commit()
    paths = [f"tables/1/stage/{writer}-{uuid.uuid4().hex}.arrow" for writer in (reader, gone)]
    for path in paths:
        with lake.storage.create_file(path) as out:
            out.write(b"rows")
    assert vacuum(lake).paths == (paths[1],)
    with lake.catalog.transaction() as tx:
        tx.execute("update indexlake_writer set expires_at = ? where writer_id = ?", (now() - 1, reader))
        tx.commit()
    assert vacuum(lake).paths == (paths[0],)


def test_files_that_are_not_ours_are_never_touched(lake):
    in_blocks(table(lake), 20)
    root = Path(lake.storage.root)
    strange = ["tables/1/data/notes.txt", "tables/readme", "other/file", "tables/1/data/abc-def.vortex"]
    for name in strange:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("mine")
    assert vacuum(lake).files == 0
    assert all((root / name).read_text() == "mine" for name in strange)


def test_the_folder_of_a_table_that_is_gone_for_good_goes(lake):
    in_blocks(table(lake), 20)
    keep = in_blocks(table(lake, "keep"), 20)
    lake.pipeline().dump()
    lake.drop_table("t")
    assert vacuum(lake).files == 0, "the past shows it"
    expire_everything(lake)
    assert vacuum(lake).files == 2
    assert sorted(os.listdir(Path(lake.storage.root, "tables"))) == ["2"]
    assert len(keep) == 20
    with lake.catalog.read() as r:
        assert r.rows("select count(*) from indexlake_garbage") == [(0,)]


def test_a_run_that_died_between_deleting_and_saying_so_is_made_good(lake):
    in_blocks(table(lake), 20, 20)
    lake.pipeline().compact("t")
    expire_everything(lake)

    def fail(step):
        if step == "vacuum.deleted":
            raise il.StorageError("the power went")

    faults.install(fail)
    try:
        with pytest.raises(il.StorageError, match="the power went"):
            vacuum(lake)
    finally:
        faults.install(None)
    assert len(files(lake)) == 2
    with lake.catalog.read() as r:
        assert r.rows("select count(*) from indexlake_garbage") == [(4,)]
    assert vacuum(lake).files == 0
    with lake.catalog.read() as r:
        assert r.rows("select count(*) from indexlake_garbage") == [(0,)]


def test_a_file_that_is_committed_after_the_listing_is_safe(lake, tmp_path):
    t = in_blocks(table(lake), 20)
    other = il.connect(tmp_path / "lake", automatic=False)
    tx = other.transaction()
    tx.table("t").insert(rows(100, 20))

    def commit(step):
        if step == "vacuum.listed":
            faults.install(None)
            tx.commit()
            other.close()

    faults.install(commit)
    try:
        assert vacuum(lake).files == 0
    finally:
        faults.install(None)
    assert len(content(t)) == 40


# ---------------------------------------------------------------- whose files these are


def test_the_files_of_another_lake_or_copy_are_refused_until_adopted(lake, tmp_path):
    t = in_blocks(table(lake), 20)
    mark = Path(lake.storage.root, "indexlake.json")
    mine = json.loads(mark.read_text())
    failed_insert(t)
    for other, match in (
        ({**mine, "lake_id": "somebody else's"}, "belong to lake somebody else's"),
        ({**mine, "incarnation": 2}, r"incarnation 2; this catalog is .* incarnation 1: .* lake.adopt\(\)"),
    ):
        mark.write_text(json.dumps(other))
        for dry_run in (True, False):
            with pytest.raises(il.StorageError, match=match):
                lake.pipeline().vacuum(dry_run=dry_run, grace=NOW)
    for text in ("", "{", "[]", '{"lake_id": 1}'):
        mark.write_text(text)
        with pytest.raises(il.StorageError, match="damaged"):
            vacuum(lake)
    mark.unlink()
    with pytest.raises(il.StorageError, match=r"no indexlake.json.*Open the lake for writing once"):
        vacuum(lake)
    assert len(files(lake)) == 4
    il.connect(tmp_path / "lake", automatic=False).close()
    assert vacuum(lake).files == 0, "the mark is there again"


def test_adopting_a_restored_catalog_shuts_the_older_copy_out(lake, tmp_path):
    in_blocks(table(lake), 20)
    files_at = lake.storage.root
    lake.close()
    shutil.copytree(tmp_path / "lake", tmp_path / "copy", ignore=shutil.ignore_patterns("files"))
    os.symlink(files_at, tmp_path / "copy" / "files")
    with il.connect(tmp_path / "copy", automatic=False) as copy, il.connect(tmp_path / "lake") as old:
        assert copy.adopt() == 2
        assert json.loads(Path(files_at, "indexlake.json").read_text())["incarnation"] == 2
        assert copy.pipeline().vacuum().files == 0
        with pytest.raises(il.StorageError, match="incarnation 2; this catalog is"):
            old.pipeline().vacuum()
        assert len(copy.table("t")) == 20
    with il.connect(tmp_path / "copy", read_only=True) as reader, pytest.raises(il.OwnershipError):
        reader.adopt()


def test_vacuum_works_on_an_object_store(new_address):
    with new_address("sqlite", "s3").connect(automatic=False) as lake:
        t = in_blocks(table(lake), 20, 20)
        before = content(t)
        with new_address("sqlite", "s3").connect(automatic=False) as elsewhere:
            in_blocks(table(elsewhere), 20)
        lake.pipeline().compact("t")
        failed_insert(t)
        expire_everything(lake)
        lake._maintenance.forget()
        assert vacuum(lake).files == 6
        assert len(list(lake.storage.list("tables"))) == 2
        assert content(t) == before
        assert lake.pipeline().verify().ok
        with lake.storage.create_file("indexlake.json", overwrite=True) as out:
            out.write(b'{"lake_id": "x", "incarnation": 1}')
        with pytest.raises(il.StorageError, match="belong to lake x"):
            vacuum(lake)
        assert lake.adopt() == 2
        assert vacuum(lake).files == 0


def test_a_wrong_grace_is_refused(lake):
    for wrong in (timedelta(days=-1), 0):
        with pytest.raises(il.SchemaError, match="grace must be a timedelta"):
            lake.pipeline().vacuum(grace=wrong)
