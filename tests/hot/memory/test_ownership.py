"""One process owns a lake whose newest rows are in its memory; others are told who, a dead one is followed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from tests.processes.scripts import in_forked_child
from tests.support.lakes import Address, connect

_OWNER = """
import sys
import indexlake as il
lake = il.connect(sys.argv[1], hot="memory", automatic=False)
t = lake.create_table("t", {"id": "int64"}, primary_key="id", exist_ok=True)
t.insert({"id": 1})
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory_on_postgres(new_address: Callable[[str], Address]) -> Callable[..., il.Lake]:
    address = new_address("postgres")

    def open_lake(**options: Any) -> il.Lake:
        return address.connect(hot="memory", **options)

    return open_lake


def _other_owner(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _ids(lake: il.Lake) -> list[int]:
    return sorted(row["id"] for row in lake.table("t"))


# ---------------------------------------------------------------- one owner


def test_a_second_opener_in_the_same_process_is_told_who_has_the_lake(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        with pytest.raises(il.OwnershipError) as refused:
            connect(tmp_path / "lake")
        said = str(refused.value)
        assert f"process {os.getpid()} on {socket.gethostname()} (since 20" in said
        assert str(tmp_path / "lake" / "redo") in said
        assert "That is this process: use the lake that it has, or close it first" in said
        assert "read_only=True" in said
        lake.create_table("t", {"id": "int64"}).insert({"id": 1})  # the owner is not disturbed
        assert _ids(lake) == [1]


def test_another_process_is_told_too_and_takes_over_as_soon_as_the_owner_is_killed(tmp_path: Path) -> None:
    owner = _other_owner(tmp_path / "lake")
    try:
        with pytest.raises(il.OwnershipError, match=f"process {owner.pid} on .*Close it there first"):
            connect(tmp_path / "lake")
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        with connect(tmp_path / "lake") as lake:
            assert _ids(lake) == [1]
            lake.table("t").insert({"id": 2})
            assert _ids(lake) == [1, 2]
    finally:
        owner.kill()
        owner.communicate()


def test_a_child_of_a_killed_owner_does_not_keep_the_lake(tmp_path: Path) -> None:
    """It has inherited the files that its parent had open."""
    with connect(tmp_path / "lake", hot="memory"):
        held = in_forked_child(lambda: [os.readlink(f"/proc/self/fd/{fd}") for fd in _open_files()])
        assert not [path for path in held if path.endswith("owner.lock")]
        with pytest.raises(il.OwnershipError):
            connect(tmp_path / "lake")


def _open_files() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def test_a_forked_child_can_neither_read_nor_write_the_lake_and_the_parent_goes_on(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        t = lake.create_table("t", {"id": "int64"}, primary_key="id")
        t.insert({"id": 1})

        def use() -> list[str]:
            said = []
            for each in (lambda: t.get(1), lambda: t.insert({"id": 2}), lambda: lake.snapshot_id):
                try:
                    each()
                except il.OwnershipError as error:
                    said.append(str(error))
            lake.close()
            return said

        assert ["before a fork" in said for said in in_forked_child(use)] == [True] * 3
        t.insert({"id": 3})
        assert _ids(lake) == [1, 3]
    with connect(tmp_path / "lake") as again:
        assert _ids(again) == [1, 3]


def test_a_closed_lake_leaves_no_lock_no_open_file_and_no_thread(tmp_path: Path) -> None:
    before = len(_open_files())
    with connect(tmp_path / "lake", hot="memory") as lake:
        lake.create_table("t", {"id": "int64"}).insert({"id": 1})
    assert len(_open_files()) <= before
    with connect(tmp_path / "lake") as again:
        assert _ids(again) == [1]
        with pytest.raises(il.OwnershipError, match="closed"):
            lake.table("t")


def test_a_write_during_which_the_lake_is_closed_says_so(tmp_path: Path, on_step: Any) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        t = lake.create_table("t", {"id": "int64"})
        t.insert({"id": 1})
        on_step(lambda step: lake.close() if step == "commit.begin" else None)
        with pytest.raises(il.OwnershipError, match="This lake is closed"):
            t.insert({"id": 2})
        on_step(None)
    with connect(tmp_path / "lake") as again:
        assert _ids(again) == [1]


# ---------------------------------------------------------------- the persisted hot store


def test_another_hot_store_than_the_lake_has_is_refused_with_what_to_do(tmp_path: Path) -> None:
    connect(tmp_path / "memory", hot="memory").close()
    connect(tmp_path / "inline").close()
    with pytest.raises(il.SchemaError, match=r"hot store 'memory', not 'inline'.*lake.convert\(hot='inline'\)"):
        connect(tmp_path / "memory", hot="inline")
    with pytest.raises(il.SchemaError, match=r"hot store 'inline', not 'memory'.*lake.convert\(hot='memory'\)"):
        connect(tmp_path / "inline", hot="memory")


def test_who_names_no_hot_store_gets_the_one_of_the_lake(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        lake.create_table("t", {"id": "int64"}).insert({"id": 1})
    with connect(tmp_path / "lake") as again:
        t = again.table("t")
        row_id = t.scan(with_row_id=True).to_pylist()[0]["_indexlake_row_id"]
        assert t.locate(row_id).startswith("memory:")


# ---------------------------------------------------------------- other folders


def test_on_postgres_a_log_folder_is_needed(memory_on_postgres: Callable[..., il.Lake], tmp_path: Path) -> None:
    with pytest.raises(il.SchemaError, match="pass log_dir="):
        memory_on_postgres()
    memory_on_postgres(log_dir=tmp_path / "log").close()


def test_another_folder_is_refused_while_the_owner_lives(
    memory_on_postgres: Callable[..., il.Lake], tmp_path: Path
) -> None:
    with memory_on_postgres(log_dir=tmp_path / "log") as lake:
        t = lake.create_table("t", {"id": "int64"})
        t.insert({"id": 1})
        shutil.copytree(tmp_path / "log", tmp_path / "copy")
        for options in ({"log_dir": "other"}, {"log_dir": "copy"}, {"log_dir": "copy", "take_over": True}):
            with pytest.raises(il.OwnershipError, match="which has it open") as refused:
                memory_on_postgres(**{**options, "log_dir": tmp_path / options["log_dir"]})
            assert str(tmp_path / "log") in str(refused.value)
        t.insert({"id": 2})  # nobody has deposed it
        assert _ids(lake) == [1, 2]


def test_a_folder_without_the_files_of_the_log_loses_nothing(
    memory_on_postgres: Callable[..., il.Lake], tmp_path: Path
) -> None:
    with memory_on_postgres(log_dir=tmp_path / "log") as lake:
        lake.create_table("t", {"id": "int64"}).insert({"id": 1})
    for options in ({}, {"take_over": True}):
        with pytest.raises(il.StorageError, match=r"is missing there.*Nothing was changed"):
            memory_on_postgres(log_dir=tmp_path / "other", **options)
    with memory_on_postgres(log_dir=tmp_path / "log") as lake:
        assert _ids(lake) == [1]


def test_a_log_that_was_moved_after_a_close_is_read_in_its_new_place(
    memory_on_postgres: Callable[..., il.Lake], tmp_path: Path
) -> None:
    with memory_on_postgres(log_dir=tmp_path / "log") as lake:
        lake.create_table("t", {"id": "int64"}).insert({"id": 1})
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    with memory_on_postgres(log_dir=tmp_path / "copy") as lake:
        lake.table("t").insert({"id": 2})
    with pytest.raises(il.StorageError, match="is missing there"):  # the old one is behind
        memory_on_postgres(log_dir=tmp_path / "log")
    with memory_on_postgres(log_dir=tmp_path / "copy") as lake:
        assert _ids(lake) == [1, 2]


def test_who_was_taken_over_acknowledges_nothing_more(
    memory_on_postgres: Callable[..., il.Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "another.example")
    former = memory_on_postgres(log_dir=tmp_path / "log")
    monkeypatch.undo()
    t = former.create_table("t", {"id": "int64"}, primary_key="id")
    t.insert({"id": 1})
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    with memory_on_postgres(log_dir=tmp_path / "copy", take_over=True) as lake:
        with pytest.raises(il.OwnershipError, match=f"process {os.getpid()} on .* has taken it over"):
            t.insert({"id": 2})  # a commit of the log
        with pytest.raises(il.OwnershipError, match="has taken it over"):
            former.create_table("u", {"id": "int64"})  # one of the catalog
        lake.table("t").insert({"id": 3})
        former.close()
        assert _ids(lake) == [1, 3]
        with pytest.raises(il.OwnershipError):  # closing the former one has not freed the lake
            memory_on_postgres(log_dir=tmp_path / "log")
    with memory_on_postgres(log_dir=tmp_path / "copy") as lake:
        assert _ids(lake) == [1, 3]


def test_an_owner_on_another_machine_is_waited_for(
    memory_on_postgres: Callable[..., il.Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold the same folder over a network, without a lock that is seen here."""
    monkeypatch.setattr(socket, "gethostname", lambda: "another.example")
    former = memory_on_postgres(log_dir=tmp_path / "log")
    former.create_table("t", {"id": "int64"}).insert({"id": 1})
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    monkeypatch.undo()
    with pytest.raises(il.OwnershipError, match=r"on another\.example.*is not its log's folder.*take_over=True"):
        memory_on_postgres(log_dir=tmp_path / "copy")
    begun = time.monotonic()
    with memory_on_postgres(log_dir=tmp_path / "copy", take_over=True) as lake:
        assert time.monotonic() - begun >= 2
        assert _ids(lake) == [1]
        with pytest.raises(il.OwnershipError, match="has taken it over"):
            former.table("t").insert({"id": 2})
    former.close()
