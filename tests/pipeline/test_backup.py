"""A backup is the lake at one snapshot, whatever goes on meanwhile and wherever it is interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.backup import BackupResult
from indexlake.catalog import sqlite_copy
from indexlake.hot.memory import redo
from indexlake.pipeline.job import JobBusy
from indexlake.storage import faults
from tests.pipeline.job_tables import SCHEMA, content, expire_everything, files, in_blocks, rows, table
from tests.support.forks import exit_code, fork
from tests.support.lakes import clock_of, connect
from tests.support.waiting import wait_until

HOT = pytest.mark.parametrize("hot", ["inline", "memory"])


def everything(folder: Path | str) -> dict[str, list[dict[str, Any]]]:
    """What a lake that nobody has open holds; every byte of it is as it should be."""
    with connect(folder, create=False) as lake:
        assert lake.pipeline().verify().ok
        assert Path(lake.storage.root) == Path(folder) / "files"
        return {name: content(lake.table(name)) for name in lake.tables()}


def small_lake(folder: Path, hot: str = "inline") -> il.Lake:
    """Blocks, history, deletes, hot rows, an index, and a clustered table."""
    lake = connect(folder, hot=hot)
    t = in_blocks(table(lake), 20, 20)
    t.create_index("by_v", "v")
    lake.pipeline().build_index()
    t.delete("id = 3")
    t.insert({"id": 1000, "v": 1, "text": "hot"})
    clustered = lake.create_table("c", SCHEMA, primary_key="id", layout="clustered")
    clustered.insert(rows(0, 5))
    lake.pipeline().dump("c")
    clustered.insert(rows(100, 2))
    return lake


@HOT
def test_a_backup_has_what_was_committed_before_and_is_a_lake_of_its_own(tmp_path: Path, hot: str) -> None:
    target = tmp_path / "backups" / "monday"
    with small_lake(tmp_path / "lake", hot) as lake:
        t, before = lake.table("t"), lake.snapshot_id
        done = lake.backup(target)
        expected = {name: content(lake.table(name)) for name in lake.tables()}
        past = content(t.at(2))
        assert (done.path, done.snapshot_id, done.files_kept) == (str(target), before, 0)
        assert done.files > 0
        assert str(done).startswith(f"{target} is a backup as of snapshot {before}: {done.files} files of ")
        job = lake.jobs()[0]
        assert (job.kind, job.state, job.progress.tasks_done, job.progress.bytes) == (
            "backup", "done", done.files, done.bytes,
        )  # fmt: skip
        assert everything(target) == expected, "while the original is open"
        t.delete("true")
        expire_everything(lake)
        lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
    shutil.rmtree(tmp_path / "lake")
    shutil.move(target, tmp_path / "shop")
    assert everything(tmp_path / "shop") == expected
    with connect(tmp_path / "shop") as copy:
        assert (copy.hot, [job.state for job in copy.jobs()].count("running")) == (hot, 0)
        assert content(copy.table("t").at(2)) == past, "with its history"
        copy.table("t").insert({"id": 2000, "v": 1, "text": "new"})
        copy.pipeline().run()
        assert copy.table("t").get(2000) is not None
        assert copy.pipeline().verify().ok
    whole = b"".join(path.read_bytes() for path in (tmp_path / "shop").rglob("*") if path.is_file())
    assert str(tmp_path / "lake").encode() not in whole


def test_a_backup_has_the_meta_files_from_which_a_lost_catalog_is_rebuilt(tmp_path: Path) -> None:
    with small_lake(tmp_path / "lake") as lake:
        lake.backup(tmp_path / "backup")
    (tmp_path / "backup" / "catalog.sqlite").unlink()
    found = il.restore(tmp_path / "backup" / "files", tmp_path / "restored", verify=True)
    assert [(t.table, t.rows, t.segments_lost) for t in found.tables] == [("main.c", 5, 0)]


@HOT
def test_the_next_backup_copies_what_is_new(tmp_path: Path, hot: str) -> None:
    target = tmp_path / "backup"
    with small_lake(tmp_path / "lake", hot) as lake:
        first = lake.backup(target)
        t = in_blocks(lake.table("t"), 20, start=100)
        t.insert({"id": 2000, "v": 1, "text": "hot"})
        lake.drop_table("c")
        times = {path: path.stat().st_mtime_ns for path in (target / "files").rglob("*") if path.is_file()}
        second = lake.backup(target)
        assert (second.files, second.files_kept) == (3, first.files)  # a block and a segment of each index
        assert everything(target) == {"main.t": content(t)}
        assert all(path.stat().st_mtime_ns == time for path, time in times.items())
        third = lake.backup(target)
        assert (third.files, third.bytes, third.files_kept) == (0, 0, first.files + 3)


def test_a_redo_log_of_many_files_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo, "SEGMENT_BYTES", 1000)
    with connect(tmp_path / "lake", hot="memory", log_dir=tmp_path / "log") as lake:
        t = table(lake)
        for n in range(60):
            t.insert({"id": n, "v": n, "text": "hot"})
        assert len(list((tmp_path / "log").glob("*.log"))) > 3
        lake.backup(tmp_path / "backup")
        t.delete("id < 5")
        lake.backup(tmp_path / "backup")
        assert everything(tmp_path / "backup")["main.t"] == content(t)


def test_whoever_reads_a_backup_sees_the_next_one(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        t = in_blocks(table(lake), 20)
        lake.backup(tmp_path / "backup")
        with connect(tmp_path / "backup", read_only=True) as reader:
            copy = reader.table("t")
            with reader.transaction(read_only=True) as tx:
                assert tx.table("t").count() == 20
                in_blocks(t, 20, start=20)
                t.delete("id < 5")
                lake.backup(tmp_path / "backup")
                assert tx.table("t").count() == 20
            assert content(copy) == content(t)


# ------------------------------------------------------------ beside others


@HOT
def test_jobs_delete_no_file_before_it_is_copied(tmp_path: Path, on_step: Any, hot: str) -> None:
    with small_lake(tmp_path / "lake", hot) as lake:
        expected = {name: content(lake.table(name)) for name in lake.tables()}

        def meanwhile(step: str) -> None:
            if step == "backup.catalog":
                on_step(None)
                lake.pipeline().compact("t", cluster_by=["v"])
                lake.drop_table("c")
                lake.table("t").delete("id = 1000")
                lake.pipeline().dump()
                expire_everything(lake)
                with pytest.raises(JobBusy, match=r"backup of this lake is running already, by .*Wait for it"):
                    lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
                left = [step for step in lake.pipeline().run().steps if step.job == "vacuum"]
                assert len(left) == 1
                assert "backup of this lake is running" in str(left[0])
                assert lake.pipeline().vacuum(grace=timedelta(0)).files > 0, "a dry run may say what is due"

        on_step(meanwhile)
        lake.backup(tmp_path / "backup")
        assert lake.pipeline().vacuum(dry_run=False, grace=timedelta(0)).files > 0
        assert everything(tmp_path / "backup") == expected


@HOT
def test_a_vacuum_that_has_begun_before_deletes_nothing_of_the_backup(tmp_path: Path, on_step: Any, hot: str) -> None:
    with small_lake(tmp_path / "lake", hot) as lake:
        expected = {name: content(lake.table(name)) for name in lake.tables()}
        listed, copied = threading.Event(), threading.Event()
        refused: list[Exception] = []

        def meanwhile(step: str) -> None:
            if step == "vacuum.listed":
                listed.set()
                assert copied.wait(20)
            if step == "backup.catalog":
                lake.pipeline().compact("t", cluster_by=["v"])
                expire_everything(lake)
                copied.set()
                sweep.join(20)

        def vacuum() -> None:
            try:
                lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
            except JobBusy as error:
                refused.append(error)

        on_step(meanwhile)
        sweep = threading.Thread(target=vacuum)
        sweep.start()
        assert listed.wait(20)
        lake.backup(tmp_path / "backup")
        assert len(refused) == 1
        assert everything(tmp_path / "backup") == expected


@HOT
def test_beside_writers_and_jobs_it_is_the_lake_at_its_snapshot(tmp_path: Path, hot: str) -> None:
    model: dict[int, dict[int, int]] = {}  # the rows as of each commit of the writer
    done = threading.Event()
    alone = threading.Lock()  # a day passes at once, so that history goes while a writer would still read it
    vacuumed: list[int] = []
    problems: list[BaseException] = []

    def write() -> None:
        state: dict[int, int] = {}
        for n in range(100_000):
            if done.is_set():
                return
            new = {20 * n + i: n for i in range(20 if n % 5 == 0 else 1)}

            def change(tx: il.Transaction, n: int = n, new: dict[int, int] = new) -> il.Transaction:
                for name in ("t", "u"):
                    tx.table(name).insert([{"id": key, "v": value} for key, value in new.items()])
                    tx.table(name).update({"v": -n}, f"id % 7 = {n % 7}")
                return tx

            with alone:
                tx = lake.run(change)
            state = {key: -n if key % 7 == n % 7 else value for key, value in (state | new).items()}
            assert tx.result is not None
            model[tx.result.snapshot_id] = state

    def work() -> None:
        while not done.is_set():
            for job in ("dump", "compact", "build_index"):
                getattr(lake.pipeline(), job)()
            with alone, suppress(JobBusy):
                lake.pipeline().expire()
                vacuumed.append(lake.pipeline().vacuum(dry_run=False, grace=timedelta(0)).files)

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            problems.append(error)

    with connect(tmp_path / "lake", hot=hot) as lake:
        for name in ("t", "u"):
            table(lake, name, retention=timedelta(0))
        clock_of(lake).advance(days=1)
        threads = [threading.Thread(target=guarded, args=[run]) for run in (write, work)]
        for thread in threads:
            thread.start()
        results: list[tuple[BackupResult, dict[str, Any]]] = []
        for _ in range(4):
            seen = len(model) + 4
            wait_until(lambda seen=seen: len(model) > seen or problems, "some commits")
            assert problems == []
            acknowledged = max(model)
            result = lake.backup(tmp_path / "backup")
            assert result.snapshot_id >= acknowledged
            results.append((result, everything(tmp_path / "backup")))
        wait_until(lambda: max(model) > result.snapshot_id or problems, "a commit after the last backup")
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert sum(vacuumed) > 0
    for result, found in results:
        t, u = ({row["id"]: row["v"] for row in found[f"main.{name}"]} for name in "tu")
        assert t == u, "a transaction is there whole, or not at all"
        assert t == model[max(at for at in model if at <= result.snapshot_id)]


# ------------------------------------------------------------ interrupted


@HOT
def test_a_backup_killed_anywhere_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hot: str
) -> None:
    monkeypatch.setattr(sqlite_copy, "PAGES", 20)
    small_lake(tmp_path / "lake", hot).close()
    target = tmp_path / "backup"
    steps = _steps(tmp_path / "lake", tmp_path / "another")
    old: Any = None
    outcomes = set()
    kills = [*range(1, steps, max(1, steps // 9)), "backup.files", "backup.replaced", "never"]
    for n, at in enumerate(kills):
        with connect(tmp_path / "lake") as lake:
            in_blocks(lake.table("t"), 10, start=10_000 + 20 * n)
            lake.table("t").insert({"id": 100_000 + n, "v": n, "text": "hot"})
            new = {name: content(lake.table(name)) for name in lake.tables()}
        killed = _killed(tmp_path / "lake", target, at)
        try:
            found = everything(target)
        except il.NotFoundError:
            found = None
        assert found == new or (killed and found == old), (at, killed)
        outcomes.add((killed, found == new))
        old = found
    assert outcomes == {(True, False), (True, True), (False, True)}
    with connect(tmp_path / "lake") as lake:
        lake.backup(target)
        assert not (target / "new").exists()


def _steps(source: Path, target: Path) -> int:
    """How many steps a backup passes."""
    passed: list[str] = []
    with connect(source) as lake:
        before = faults.install(passed.append)
        lake.backup(target)
        faults.install(before)
    assert set(passed) >= {"backup.pages", "backup.catalog", "backup.files", "backup.replaced", "storage.published"}
    return len(passed)


def _killed(source: Path, target: Path, at: int | str) -> bool:
    """Back up in a process that is killed at a step, by its name or its number, if it gets there."""
    passed = count(1)

    def die(step: str) -> None:
        if at in (step, next(passed)):
            os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        with connect(source) as lake:
            faults.install(die)
            lake.backup(target)
            faults.install(None)

    code = exit_code(fork(run))
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_an_interrupted_backup_goes_on_where_it_was(tmp_path: Path, on_step: Any) -> None:
    with small_lake(tmp_path / "lake") as lake:
        published = iter(range(3))

        def interrupt(step: str) -> None:
            if step == "storage.published" and next(published, None) is None:
                raise KeyboardInterrupt

        on_step(interrupt)
        with pytest.raises(KeyboardInterrupt):
            lake.backup(tmp_path / "backup")
        on_step(None)
        assert lake.jobs()[0].state == "failed"
        with pytest.raises(il.NotFoundError):
            connect(tmp_path / "backup", create=False)
        with pytest.raises(il.StorageError, match="belong to another lake"):
            connect(tmp_path / "backup")
        assert lake.backup(tmp_path / "backup").files_kept >= 2
        assert everything(tmp_path / "backup")["main.t"] == content(lake.table("t"))


def test_a_damaged_file_is_found_and_nothing_replaces_the_backup(tmp_path: Path) -> None:
    with small_lake(tmp_path / "lake") as lake:
        lake.backup(tmp_path / "backup")
        before, known = everything(tmp_path / "backup"), files(lake)
        in_blocks(lake.table("t"), 20, start=100)
        block = next(Path(lake.storage.root, name) for name in files(lake) - known)
        data = bytearray(block.read_bytes())
        data[len(data) // 2] ^= 1
        block.write_bytes(data)
        with pytest.raises(il.CorruptionError, match=block.name):
            lake.backup(tmp_path / "backup")
        assert everything(tmp_path / "backup") == before


# ------------------------------------------------------------ refused


@HOT
def test_folders_that_hold_anything_else_are_refused_and_left_alone(tmp_path: Path, hot: str) -> None:
    with small_lake(tmp_path / "lake", hot) as lake:

        def refused(folder: Path, why: str) -> None:
            with pytest.raises(il.AlreadyExistsError, match=f"Nothing was backed up: .* {why}. Choose another folder"):
                lake.backup(folder)

        refused(tmp_path / "lake", "is where this lake itself is")
        (tmp_path / "photos" / "2026").mkdir(parents=True)
        (tmp_path / "photos" / "2026" / "cat.png").write_bytes(b"cat")
        refused(tmp_path / "photos", "holds other files")
        connect(tmp_path / "other").close()
        refused(tmp_path / "other", "holds another lake")
        (tmp_path / "other" / "catalog.sqlite").unlink()
        refused(tmp_path / "other", "holds files of another lake")
        lake.backup(tmp_path / "backup")
        shutil.copytree(tmp_path / "backup", tmp_path / "older")
        lake.table("t").delete("id = 5")
        lake.backup(tmp_path / "backup")
        with connect(tmp_path / "older") as older:
            refusal = f"holds a backup as of snapshot {lake.snapshot_id}, and this lake is only at {older.snapshot_id}"
            with pytest.raises(il.AlreadyExistsError, match=refusal):
                older.backup(tmp_path / "backup")
        with connect(tmp_path / "backup") as changed:
            changed.table("t").insert({"id": 3000, "v": 1, "text": "only here"})
        refused(tmp_path / "backup", "holds a backup that was opened and changed since")
        assert 3000 in [row["id"] for row in everything(tmp_path / "backup")["main.t"]]


def test_a_copy_made_otherwise_is_refused(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table(lake)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with connect(tmp_path / "lake") as lake:
        with pytest.raises(il.AlreadyExistsError, match=r"a copy of this lake that lake\.backup did not make"):
            lake.backup(tmp_path / "copy")
        with pytest.raises(il.SchemaError, match="into a local folder, not to 's3://bucket/x'"):
            lake.backup("s3://bucket/x")
        with pytest.raises(il.CatalogError, match="is a file"):
            lake.backup(tmp_path / "lake" / "catalog.sqlite")
    with connect(tmp_path / "lake", read_only=True) as lake, pytest.raises(il.OwnershipError, match="read_only"):
        lake.backup(tmp_path / "backup")


def test_a_backup_whose_newest_rows_are_in_the_memory_of_a_process_is_refused(tmp_path: Path) -> None:
    with small_lake(tmp_path / "lake", "memory") as lake:
        lake.backup(tmp_path / "backup")
        with connect(tmp_path / "backup"), pytest.raises(il.OwnershipError, match="has it open"):
            lake.backup(tmp_path / "backup")


def test_a_lake_in_memory_can_be_kept(tmp_path: Path) -> None:
    with connect(":memory:") as lake:
        t = in_blocks(table(lake), 20)
        lake.backup(tmp_path / "kept")
        assert everything(tmp_path / "kept")["main.t"] == content(t)
    with connect(":memory:", hot="memory") as lake, pytest.raises(il.SchemaError, match="without a redo log"):
        lake.backup(tmp_path / "none")


def test_a_catalog_in_postgres_is_refused_with_advice(new_address: Any, tmp_path: Path) -> None:
    with new_address("postgres").connect() as lake, pytest.raises(il.CatalogError, match="pg_dump first"):
        lake.backup(tmp_path / "backup")


def test_files_in_an_object_store_are_copied_too(new_address: Any, tmp_path: Path) -> None:
    with new_address("sqlite", "s3").connect() as lake:
        t = in_blocks(table(lake), 20, 20)
        assert lake.backup(tmp_path / "backup").files == 4
        assert everything(tmp_path / "backup")["main.t"] == content(t)
