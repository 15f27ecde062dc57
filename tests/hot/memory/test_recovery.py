"""Opening a lake after a crash: what was acknowledged is there once, and a log that has lost something is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.hot.memory import redo
from indexlake.storage import faults
from tests.hot.memory.disk import Disk, flip, log_files, open_file, records_of
from tests.support.lakes import clock_of, connect

OnStep = Callable[[faults.Callback | None], object]


def _fill(lake: il.Lake, count: int = 3) -> il.Table:
    t = lake.create_table("t", {"id": "int64", "note": "string"}, primary_key="id")
    for n in range(1, count + 1):
        t.insert({"id": n, "note": f"n{n}"})
    return t


def _ids(path: Path) -> list[int]:
    with connect(path) as lake:
        return sorted(row["id"] for row in lake.table("t").scan().to_pylist())


def _refused(path: Path, text: str) -> None:
    with pytest.raises(il.CorruptionError, match=text):
        connect(path)


# ---------------------------------------------------------------- what comes back


def test_rows_of_every_kind_history_and_changes_come_back(memory: il.Lake, disk: Disk) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False), ("text", pa.string()), ("bytes", pa.binary()), ("float", pa.float64()),
            ("when", pa.timestamp("us", "UTC")), ("flag", pa.bool_()), ("price", pa.decimal128(38, 4)),
            ("tags", pa.list_(pa.string())), ("big", pa.uint64()),
        ]
    )  # fmt: skip
    t = memory.create_table("t", schema, primary_key="id")
    full = {
        "text": "é" * 300,
        "bytes": b"\x00\xff",
        "float": float("-inf"),
        "flag": True,
        "tags": ["a", None],
        "big": 2**64 - 1,
    }
    t.insert([{"id": n, **full} for n in range(2000)])
    t.insert({"id": 5000})
    t.update({"text": None}, "id < 1000")
    t.delete("id % 3 = 0")
    t.upsert([{"id": 1, "text": "new"}, {"id": 6000, "text": "new"}])

    def picture(lake: il.Lake) -> Any:
        table = lake.table("t")
        history = [(s.snapshot_id, s.committed_at, s.operation) for s in table.history()]
        past = [table.at(number).scan(with_row_id=True, order_by="id").to_pylist() for number, _, _ in history]
        return history, past, table.changes(history[0][0]).to_pylist(), table.get(1), table.get(6000)

    image = disk.image()
    with connect(image) as again:
        assert picture(again) == picture(memory)
        assert again.pipeline().verify().ok


def test_definitions_may_change_between_records(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory, 2)
    gone = memory.create_table("gone", {"id": "int64"}, primary_key="id")
    gone.insert({"id": 1})
    t.add_column("more", pa.int32(), 7)
    t.insert({"id": 3, "note": "n3", "more": 8})
    t.drop_column("note")
    t.insert({"id": 4, "more": 9})
    t.add_column("note", pa.int64(), None)  # another one of that name
    t.update({"note": 5}, "id = 1")
    before = memory.snapshot_id
    gone.insert({"id": 2})
    memory.drop_table("gone")
    t.truncate()
    t.insert({"id": 5, "more": 1, "note": 2})
    with connect(disk.image()) as again:
        assert again.table("t").scan().to_pylist() == [{"id": 5, "more": 1, "note": 2}]
        past = again.at(before)
        assert past.table("t").scan(order_by="id").to_pylist() == [
            {"id": 1, "more": 7, "note": 5}, {"id": 2, "more": 7, "note": None},
            {"id": 3, "more": 8, "note": None}, {"id": 4, "more": 9, "note": None},
        ]  # fmt: skip
        assert past.table("gone").scan().to_pylist() == [{"id": 1}], "a dropped table that is retained is replayed"


def test_records_of_a_table_that_is_gone_are_skipped(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    memory.create_table("gone", {"id": "int64"}, config=il.TableConfig(retention=timedelta(0))).insert({"id": 1})
    memory.drop_table("gone")
    clock_of(memory).advance(hours=1)
    t.insert({"id": 4})
    memory.pipeline().dump()  # which frees the log of the dropped table too
    clock_of(memory).advance(hours=1)
    t.insert({"id": 5})
    memory.pipeline().expire()
    assert list(memory.catalog.query("select count(*) from indexlake_table")) == [(1,)]
    assert _ids(disk.image()) == [1, 2, 3, 4, 5]


def test_a_token_counts_after_a_crash(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    done = t.insert({"id": 4}, token="once")
    with connect(disk.image()) as again:
        assert again._hot.token("once") is not None, "whether or not the catalog was told"  # type: ignore[attr-defined]
        assert again.table("t").insert({"id": 4}, token="once") == done


def test_numbers_and_times_go_on_and_row_ids_are_not_given_twice(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    memory._hot.committed_at += 10**12  # type: ignore[attr-defined]  # and the clock was set back after that
    last = t.insert({"id": 4}).snapshot_id
    assert last is not None
    image = disk.image()
    ids = t.scan(with_row_id=True).to_arrow()["_indexlake_row_id"].to_pylist()
    with connect(image) as again:
        assert again.snapshot_id == last
        new = again.table("t").insert({"id": 5}).snapshot_id
        assert new == last + 1
        times = [s.committed_at for s in again.table("t").history()]
        assert times == sorted(times)
        row = again.table("t").scan("id = 5", with_row_id=True).to_pylist()[0]
        assert row["_indexlake_row_id"] > max(ids)


def test_rows_that_a_commit_of_the_catalog_has_closed_stay_closed(memory: il.Lake, disk: Disk) -> None:
    t = memory.create_table(
        "t", {"id": "int64", "note": "string"}, primary_key="id", config=il.TableConfig(direct_write_row_count=10)
    )
    t.insert([{"id": n, "note": "old"} for n in range(5)])
    t.upsert([{"id": n, "note": "new"} for n in range(20)])
    assert [row["note"] for row in t.scan().to_pylist()] == ["new"] * 20
    image = disk.image()
    with connect(image) as again:
        assert [row["note"] for row in again.table("t").scan().to_pylist()] == ["new"] * 20
    clock_of(memory).advance(days=30)
    memory.pipeline().expire()
    with connect(disk.image()) as again:
        assert [row["note"] for row in again.table("t").scan().to_pylist()] == ["new"] * 20, "history has expired"


def test_a_checkpoint_that_was_planned_before_later_commits_loses_none_of_them(
    memory: il.Lake, disk: Disk, on_step: OnStep
) -> None:
    t = _fill(memory)

    def change(step: str) -> None:
        if step == "dump.written":
            on_step(None)
            t.insert({"id": 4, "note": "late"})
            t.update({"note": "changed"}, "id = 1")
            t.delete("id = 2")

    on_step(change)
    memory.pipeline().dump("t")
    rows = [{"id": 1, "note": "changed"}, {"id": 3, "note": "n3"}, {"id": 4, "note": "late"}]
    assert t.scan(order_by="id").to_pylist() == rows
    with connect(disk.image()) as again:
        assert again.table("t").scan(order_by="id").to_pylist() == rows
        again.pipeline().dump()
        assert again.table("t").scan(order_by="id").to_pylist() == rows


def test_a_column_that_was_released_is_not_asked_for(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    t.drop_column("note")
    clock_of(memory).advance(days=30)
    memory.pipeline().dump()
    memory.pipeline().expire()
    t.insert({"id": 4})
    assert _ids(disk.image()) == [1, 2, 3, 4]


# ---------------------------------------------------------------- a torn tail


def test_a_tail_that_is_cut_at_any_byte_leaves_the_commits_before_it(memory: il.Lake, disk: Disk) -> None:
    _fill(memory)
    name = open_file(disk.lake).name
    records = records_of(open_file(disk.lake))
    assert [content[0] for content, _, _ in records] == [2, 3, 4]
    image = disk.image()
    for cut in range(records[0][1], records[-1][2] + 1):
        shutil.rmtree(disk.lake.parent / "cut", ignore_errors=True)
        shutil.copytree(image, disk.lake.parent / "cut")
        os.truncate(disk.lake.parent / "cut" / "redo" / name, cut)
        whole = [n for n, (_, _, end) in enumerate(records, 1) if end <= cut]
        with connect(disk.lake.parent / "cut") as again:
            assert sorted(row["id"] for row in again.table("t")) == whole
            found = again._recovery
            assert found is not None
            end = max([records[0][1], *(end for _, _, end in records if end <= cut)])
            left = (image / "redo" / name).read_bytes()[end:cut].rstrip(b"\0")
            assert (found.commits, found.rows, found.cut_off) == (len(whole), len(whole), len(left))


def test_a_tail_of_which_only_zeros_are_left_is_cut_at_any_byte(memory: il.Lake, disk: Disk) -> None:
    """What was written ahead of the records is there, and a record on top of it is not, or in part."""
    _fill(memory)
    image = disk.image()
    path, ids = open_file(image), [1, 2, 3]
    content, records = path.read_bytes(), records_of(path)
    assert len(content) > records[-1][2], "zeros were written ahead"
    assert not content[records[-1][2] :].rstrip(b"\0")
    (_, begin, end) = records[-1]
    for cut in range(begin, end):
        path.write_bytes(content[:cut] + bytes(len(content) - cut))
        again = shutil.copytree(image, disk.lake.parent / "again")
        assert _ids(again) == (ids if not content[cut:end].rstrip(b"\0") else ids[:2])
        shutil.rmtree(again)


def test_zeros_where_records_were_that_a_later_one_knew_to_be_durable_are_refused(memory: il.Lake, disk: Disk) -> None:
    _fill(memory, 5)
    image = disk.image()
    path = open_file(image)
    content, records = path.read_bytes(), records_of(path)
    for first in range(len(records) - 1):
        for last in range(first, len(records) - 1):
            begin, end = records[first][1], records[last][2]
            path.write_bytes(content[:begin] + bytes(end - begin) + content[end:])
            _refused(image, "is damaged after commit .*, and a later record shows more was durable")


def test_bytes_among_the_zeros_that_are_no_record_are_cut(memory: il.Lake, disk: Disk) -> None:
    _fill(memory)
    image = disk.image()
    flip(open_file(image), records_of(open_file(image))[-1][2] + 99)
    with connect(image) as again:
        assert len(again.table("t")) == 3
        assert again._recovery is not None
        assert again._recovery.cut_off == 100


def test_what_was_replayed_from_a_tail_survives_a_power_cut_and_the_next_crash(memory: il.Lake, disk: Disk) -> None:
    """It was in the page cache alone when the process was killed; it is shown, so it is durable."""
    t = _fill(memory)
    memory._hot.log.durability = "none"  # type: ignore[attr-defined]
    t.insert({"id": 4})
    assert _ids(disk.image(power_cut=True)) == [1, 2, 3]
    disk.go_on_in(disk.image())
    with connect(disk.lake) as again:
        assert len(again.table("t")) == 4
        assert _ids(disk.image(power_cut=True)) == [1, 2, 3, 4]


def test_the_catalog_knows_of_no_commit_that_a_power_cut_takes(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    memory._hot.log.durability = "interval"  # type: ignore[attr-defined]
    t.insert({"id": 4})
    assert t.history()[-1].snapshot_id == memory.snapshot_id, "the catalog was asked, and told"
    assert _ids(disk.image(power_cut=True)) == [1, 2, 3, 4]


def test_in_a_group_a_good_record_after_a_torn_one_is_void(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory, 1)
    memory._hot.log.durability = "none"  # type: ignore[attr-defined]
    for n in (2, 3, 4):
        t.insert({"id": n})
    image = disk.image()
    (_, _, _), (_, begin, end), *_ = records_of(open_file(image))
    flip(open_file(image), (begin + end) // 2)
    assert _ids(image) == [1]


# ---------------------------------------------------------------- refused


def test_a_changed_byte_before_a_record_that_knew_better_is_refused(memory: il.Lake, disk: Disk) -> None:
    _fill(memory)
    image = disk.image()
    path = open_file(image)
    (_, begin, end) = records_of(path)[1]
    for at in range(begin, end):
        flip(path, at)
        _refused(image, "is damaged after commit 2, and a later record shows more was durable")
        flip(path, at)
    flip(path, records_of(path)[2][2] - 1)
    assert _ids(image) == [1, 2], "nothing later: it may be a torn tail"


def test_a_tail_that_the_catalog_knows_of_is_not_cut(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    t.history()
    image = disk.image()
    os.truncate(open_file(image), records_of(open_file(image))[-1][1] + 5)
    _refused(image, "ends with commit 3, but the catalog knows that commit 4 was in it")


@pytest.fixture
def sealed(memory: il.Lake, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The image of a lake with several files of the log; the one in the middle is sealed."""
    monkeypatch.setattr(redo, "SEGMENT_BYTES", 1)
    _fill(memory, 1)  # with the size of before
    for n in range(2, 6):
        memory.table("t").insert({"id": n})
    image = disk.image()
    assert len(log_files(image)) >= 4
    assert _ids(shutil.copytree(image, disk.lake.parent / "good")) == [1, 2, 3, 4, 5]
    return image


def test_a_sealed_file_with_any_changed_byte_is_refused(sealed: Path) -> None:
    path = log_files(sealed)[1]
    for at in range(path.stat().st_size):
        flip(path, at)
        _refused(sealed, f"{path.name} (is damaged after|does not start like)")
        flip(path, at)


def test_a_sealed_file_that_is_shorter_empty_or_missing_is_refused(sealed: Path) -> None:
    path = log_files(sealed)[1]
    content = path.read_bytes()
    os.truncate(path, len(content) - 1)
    _refused(sealed, f"has {len(content) - 1} bytes instead of {len(content)}")
    os.truncate(path, 0)
    _refused(sealed, "has 0 bytes instead of")
    path.unlink()
    _refused(sealed, f"{path.name} is missing: commits that were acknowledged are lost. Nothing was changed")
    path.write_bytes(content + b"what came after the seal counts for nothing")
    assert _ids(sealed) == [1, 2, 3, 4, 5]


def test_an_open_file_that_is_empty_is_refused(sealed: Path) -> None:
    os.truncate(open_file(sealed), 0)
    _refused(sealed, "does not start like a file of this lake's log")


def test_files_that_change_places_are_refused(sealed: Path) -> None:
    one, two = log_files(sealed)[1:3]
    shutil.copy(one, two)
    _refused(sealed, "(does not start like|instead of)")


@pytest.mark.parametrize("told", [False, True])
def test_a_record_that_is_missing_in_the_middle_is_refused(memory: il.Lake, disk: Disk, told: bool) -> None:
    t = _fill(memory)
    if told:
        t.history()
    image = disk.image()
    data, (_, begin, end) = open_file(image).read_bytes(), records_of(open_file(image))[1]
    open_file(image).write_bytes(data[:begin] + data[end:])
    _refused(image, "Commit 3 is neither in the redo log nor in the catalog")


def test_a_catalog_that_is_older_than_its_log_is_refused(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory, 1)
    old = disk.image()
    memory.create_table("u", {"id": "int64"})
    t.insert({"id": 2})
    shutil.rmtree(old / "redo")
    shutil.copytree(disk.lake / "redo", old / "redo")
    _refused(old, "Commit 3 is neither in the redo log nor in the catalog")


def test_the_folder_of_another_lakes_log_is_refused_and_left_alone(memory: il.Lake, disk: Disk, tmp_path: Path) -> None:
    _fill(memory)
    image = disk.image()
    before = {path: path.read_bytes() for path in log_files(image)}
    with pytest.raises(il.StorageError, match="holds the redo log of another lake"):
        connect(tmp_path / "other", hot="memory", log_dir=image / "redo")
    assert {path: path.read_bytes() for path in log_files(image)} == before
    assert _ids(image) == [1, 2, 3]


def test_a_file_that_is_not_listed_holds_nothing_and_is_deleted(memory: il.Lake, disk: Disk) -> None:
    """Of a former owner, or of an opener that was slower."""
    _fill(memory)
    image = disk.image()
    late = image / "redo" / "redo.1.9.log"
    shutil.copy(open_file(image), late)
    assert _ids(image) == [1, 2, 3]
    assert not late.exists()


# ---------------------------------------------------------------- again and again


def test_a_recovery_that_is_killed_at_any_of_its_steps_is_begun_again(disk: Disk, on_step: OnStep) -> None:
    with connect(disk.lake, hot="memory") as lake:
        t = _fill(lake)
        lake._hot.log.durability = "none"  # type: ignore[attr-defined]
        t.insert({"id": 4})
        disk.go_on_in(disk.image())
    images: dict[str, list[tuple[Path, list[int]]]] = {}

    def at(step: str) -> None:
        images.setdefault(step, []).append((disk.image(), [1, 2, 3, 4]))
        if step in ("recovery.epoch", "recovery.copied", "recovery.listed", "recovery.done"):
            shown = [1, 2, 3, 4] if step == "recovery.done" else [1, 2, 3]
            images[step].append((disk.image(power_cut=True), shown))

    on_step(at)
    connect(disk.lake).close()
    on_step(None)
    steps = {"recovery.epoch", "recovery.copied", "log.create", "recovery.listed", "log.truncate", "recovery.done"}
    assert steps <= set(images)
    for step, made in images.items():
        for image, there in made:
            with connect(image) as again:
                assert sorted(row["id"] for row in again.table("t")) == there, step
                again.table("t").insert({"id": 5})
            assert _ids(image) == [*there, 5], step


def test_a_former_owner_that_still_appends_changes_nothing(memory: il.Lake, disk: Disk) -> None:
    t = _fill(memory)
    image = disk.image()
    old = open_file(image)
    with connect(image) as again:
        t.insert({"id": 4})
        shutil.copy(open_file(disk.lake), old)
        again.table("t").insert({"id": 5})
    assert _ids(image) == [1, 2, 3, 5]
