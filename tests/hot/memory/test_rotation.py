"""Files of the redo log: one after the other, none missing, and none longer than it is needed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import indexlake as il
from indexlake.hot.memory import redo
from indexlake.storage import faults
from tests.crash.failing import failing
from tests.hot.memory.disk import Disk, log_files, records_of
from tests.support.lakes import connect

OnStep = Callable[[faults.Callback | None], object]


@pytest.fixture
def table(memory: il.Lake, monkeypatch: pytest.MonkeyPatch) -> il.Table:
    """Each commit but the first is followed by another file of the log."""
    table = memory.create_table("t", {"id": "int64"}, primary_key="id")
    table.insert({"id": 0})
    monkeypatch.setattr(redo, "SEGMENT_BYTES", 1)
    return table


def _insert(table: il.Table, *ids: int) -> None:
    for n in ids:
        table.insert({"id": n})


def _ids(path: Path) -> list[int]:
    with connect(path) as lake:
        assert lake.pipeline().verify().ok
        return sorted(row["id"] for row in lake.table("t").scan().to_pylist())


def _numbers(lake: Path) -> list[int]:
    return [content[0] for path in log_files(lake) for content, _, _ in records_of(path)]


def test_a_log_in_many_files_comes_back_whole_and_in_order(table: il.Table, disk: Disk) -> None:
    _insert(table, *range(1, 20))
    assert len(log_files(disk.lake)) == 20
    assert _numbers(disk.lake) == list(range(2, 22))
    assert _ids(disk.image()) == list(range(20))
    assert _ids(disk.image(power_cut=True)) == list(range(20))


def test_a_checkpoint_leaves_no_record_and_one_file(table: il.Table, memory: il.Lake, disk: Disk) -> None:
    _insert(table, 1, 2, 3)
    memory.create_table("idle", {"id": "int64"})
    memory.pipeline().dump()
    assert _numbers(disk.lake) == []
    assert len(log_files(disk.lake)) == 1
    _insert(table, 4)
    image = disk.image()
    assert _numbers(image) == [int(memory.snapshot_id)]
    assert _ids(image) == [0, 1, 2, 3, 4]


def test_a_checkpoint_empties_the_open_file_too(memory: il.Lake, disk: Disk) -> None:
    t = memory.create_table("t", {"id": "int64"}, primary_key="id")
    _insert(t, 1, 2, 3)
    assert (len(log_files(disk.lake)), len(_numbers(disk.lake))) == (1, 3)
    memory.pipeline().dump()
    assert (len(log_files(disk.lake)), len(_numbers(disk.lake))) == (1, 0)
    assert _ids(disk.image()) == [1, 2, 3]


def test_no_file_goes_that_any_table_needs(table: il.Table, memory: il.Lake, disk: Disk) -> None:
    _insert(table, 1)
    other = memory.create_table("other", {"id": "int64"}, primary_key="id")
    other.insert({"id": 1})
    needed = other.insert({"id": 2}).snapshot_id
    assert needed is not None
    _insert(table, 2, 3)
    memory.pipeline().dump("t")
    assert _numbers(disk.lake)[0] == needed - 1, "not below the rows of the other table"
    image = disk.image()
    assert _ids(image) == [0, 1, 2, 3]
    with connect(image) as again:
        assert sorted(row["id"] for row in again.table("other")) == [1, 2]
    memory.pipeline().dump("other")
    assert _numbers(disk.lake) == []


def test_a_dropped_table_keeps_neither_the_log_nor_history_from_ending(
    table: il.Table, memory: il.Lake, disk: Disk
) -> None:
    gone = memory.create_table("gone", {"id": "int64", "note": "string"}, primary_key="id")
    gone.insert([{"id": 1, "note": "a"}, {"id": 2, "note": "b"}])
    gone.update({"note": "c"}, "id = 1")
    before = memory.snapshot_id
    memory.drop_table("gone")
    _insert(table, 1)
    memory.pipeline().dump()
    assert _numbers(disk.lake) == []
    for n in (2, 3):
        with connect(disk.image()) as again:
            past = again.at(before).table("gone")
            assert past.scan(order_by="id").to_pylist() == [{"id": 1, "note": "c"}, {"id": 2, "note": "b"}]
            assert past.get(1) == {"id": 1, "note": "c"}
        _insert(table, n)


@pytest.mark.parametrize("step", ["log.create", "log.sealed", "sql.begin"])
def test_while_a_file_cannot_be_begun_the_log_goes_on_in_the_same_one(
    table: il.Table, memory: il.Lake, disk: Disk, step: str
) -> None:
    with failing(step, code=errno.ENOSPC, always=True) as failure:
        _insert(table, 1, 2, 3)
    assert failure.fired == step
    assert len(log_files(disk.lake)) == 1
    assert _ids(disk.image(power_cut=True)) == [0, 1, 2, 3]
    _insert(table, 4)
    assert len(log_files(disk.lake)) == 2
    assert _ids(disk.image(power_cut=True)) == [0, 1, 2, 3, 4]


def test_a_rotation_whose_answer_is_lost_is_looked_up(table: il.Table, disk: Disk) -> None:
    with failing("sql.commit.after") as failure:
        _insert(table, 1)
    assert failure.fired
    _insert(table, 2)
    assert len(log_files(disk.lake)) == 3
    assert _ids(disk.image(power_cut=True)) == [0, 1, 2]


def test_an_emptied_log_whose_answer_is_lost_is_looked_up(memory: il.Lake, disk: Disk, on_step: OnStep) -> None:
    t = memory.create_table("t", {"id": "int64"}, primary_key="id")
    _insert(t, 1)
    sealed: list[str] = []

    def lose(step: str) -> None:
        if step in ("log.sealed", "sql.commit.after"):
            sealed.append(step)
            if sealed[-2:] == ["log.sealed", "sql.commit.after"]:
                raise OSError(errno.EIO, "lost")

    on_step(lose)
    memory.pipeline().dump()
    on_step(None)
    assert "log.sealed" in sealed
    _insert(t, 2)
    assert _ids(disk.image(power_cut=True)) == [1, 2]


def test_a_sealed_file_is_durable_whatever_a_commit_is(table: il.Table, memory: il.Lake, disk: Disk) -> None:
    memory._hot.log.durability = "none"  # type: ignore[attr-defined]
    _insert(table, 1, 2, 3)
    assert _ids(disk.image(power_cut=True)) == [0, 1, 2, 3]


def test_a_rotation_that_nobody_can_look_up_ends_the_ownership(table: il.Table, memory: il.Lake, disk: Disk) -> None:
    with failing("sql.commit.after", "sql.begin", nth=2, always=True):
        _insert(table, 1)
    with pytest.raises(il.OwnershipError, match="not known whether the redo log goes on in another file"):
        _insert(table, 2)
    assert _ids(disk.image(power_cut=True)) == [0, 1]


def test_a_crash_between_the_commit_and_the_end_of_a_file_leaves_nothing_behind(
    table: il.Table, memory: il.Lake, disk: Disk, on_step: OnStep
) -> None:
    _insert(table, 1, 2, 3)
    images: list[Path] = []
    on_step(lambda step: images.append(disk.image()) if step == "log.truncate" else None)
    memory.pipeline().dump()
    on_step(None)
    assert len(images) == 3
    for image in images:
        assert len(log_files(image)) > 1
        with connect(image) as again:
            assert sorted(row["id"] for row in again.table("t")) == [0, 1, 2, 3]
            assert len(log_files(image)) == 1


# ---------------------------------------------------------------- failures of the disk


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", ["log.append", "log.sync"])
def test_a_write_or_sync_that_fails_stops_all_writing_and_no_reading(
    memory: il.Lake, disk: Disk, step: str, code: int
) -> None:
    t = memory.create_table("t", {"id": "int64"}, primary_key="id")
    _insert(t, 1, 2)
    todo = "Make room on the disk" if code == errno.ENOSPC else "Check the disk"
    said = rf"no more writes: it could not (write to|sync) its redo log .*{os.strerror(code).lower()}.*{todo}, then"
    with failing(step, code=code), pytest.raises(il.StorageError, match=said):
        _insert(t, 3)
    for write in (lambda: _insert(t, 4), lambda: memory.create_table("u", {"id": "int64"}), t.truncate):
        with pytest.raises(il.StorageError, match=said):
            write()
    assert sorted(row["id"] for row in t) == [1, 2]
    assert (t.get(1), t.get(3)) == ({"id": 1}, None)
    assert [s.operation for s in t.history()] == ["create table", "insert", "insert"]
    assert memory.sql("select count(*) as n from t").to_pylist() == [{"n": 2}]
    assert _ids(disk.image(power_cut=True)) == [1, 2]
    there = _ids(disk.image())
    assert there == ([1, 2] if step == "log.append" else [1, 2, 3]), "the one that failed may be there, and whole"


FULL = """
import os, resource, sys
import indexlake as il

lake = il.connect(sys.argv[1], automatic=False)
t = lake.table("t")
path = lake._hot.log.path
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
n = 0
try:
    while True:
        t.insert({"id": n, "text": "x" * 2000})
        n += 1
except il.StorageError as error:
    assert "accepts no more writes: it could not write to its redo log" in str(error)
assert sorted(row["id"] for row in t) == list(range(n))
print(n, os.path.getsize(path))
os._exit(9)  # without closing anything
"""


@pytest.mark.parametrize("room", [300, 5_000, 300_000])
def test_the_log_uses_the_last_bytes_of_a_disk_that_is_full(tmp_path: Path, room: int) -> None:
    """Of the zeros ahead as many are written as there is room for, and records over them."""
    with connect(tmp_path / "lake", hot="memory") as lake:
        lake.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
    room += (tmp_path / "lake" / "catalog.sqlite").stat().st_size
    told = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "lake"), str(room)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 9, told.stderr
    count, size = map(int, told.stdout.split())
    assert size == room
    assert room // 2200 <= count <= room // 2000
    with connect(tmp_path / "lake") as again:
        assert sorted(row["id"] for row in again.table("t")) == list(range(count))
        assert again.table("t").insert({"id": count}).rows == 1


def test_a_sync_that_succeeds_after_one_that_failed_is_not_believed(memory: il.Lake, disk: Disk) -> None:
    t = memory.create_table("t", {"id": "int64"}, primary_key="id")
    _insert(t, 1)
    memory._hot.log.durability = "interval"  # type: ignore[attr-defined]
    _insert(t, 2)
    with failing("log.sync"), pytest.raises(il.StorageError, match="accepts no more writes"):
        t.history()
    with pytest.raises(il.StorageError, match="accepts no more writes"):
        t.history()
    assert t.get(2) == {"id": 2}
    assert _ids(disk.image(power_cut=True)) == [1], "the catalog knows of nothing that was lost"


def test_an_interrupted_commit_did_not_happen_and_the_next_has_its_number(memory: il.Lake, disk: Disk) -> None:
    t = memory.create_table("t", {"id": "int64"}, primary_key="id")
    _insert(t, 1)
    for at in ("log.append", "log.sync", "log.synced"):

        def interrupt(step: str, at: str = at) -> None:
            if step == at:
                faults.install(None)
                raise KeyboardInterrupt

        faults.install(interrupt)
        with pytest.raises(KeyboardInterrupt):
            _insert(t, 2)
        faults.install(None)
    _insert(t, 3)
    assert sorted(row["id"] for row in t) == [1, 3]
    assert _ids(disk.image()) == [1, 3]


@pytest.mark.parametrize("step", ["log.rotate", "log.create", "log.sealed", "sql.commit.before", "sql.commit.after"])
def test_an_interrupted_rotation_goes_on_in_the_file_that_is_listed(table: il.Table, disk: Disk, step: str) -> None:
    def interrupt(name: str) -> None:
        if name == step:
            faults.install(None)
            raise KeyboardInterrupt

    faults.install(interrupt)
    with pytest.raises(KeyboardInterrupt):
        _insert(table, 1)
    faults.install(None)
    _insert(table, 2, 3)
    assert _ids(disk.image(power_cut=True)) == [0, 1, 2, 3]
