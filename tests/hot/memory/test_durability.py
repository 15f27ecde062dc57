"""When a commit to the redo log returns, and what a lake in memory says of itself."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.hot.memory import redo
from tests.support.lakes import connect


def _fill(lake: il.Lake, count: int = 30) -> il.Table:
    t = lake.create_table("t", {"id": "int64"}, primary_key="id")
    for n in range(count):
        t.insert({"id": n})
    return t


@pytest.mark.parametrize(("durability", "least", "most"), [("fdatasync", 30, 40), ("interval", 1, 15), ("none", 0, 2)])
def test_how_often_the_log_is_synced(
    tmp_path: Path, on_step: Callable[..., Any], durability: Any, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redo, "SYNC_SECONDS", 0.2)
    steps: list[str] = []
    with connect(tmp_path / "lake", hot="memory", durability=durability) as lake:
        t = lake.create_table("t", {"id": "int64"}, primary_key="id")
        t.insert({"id": -1})
        on_step(steps.append)
        for n in range(30):
            t.insert({"id": n})
        time.sleep(0.5)
        on_step(None)
        assert least <= steps.count("log.sync") <= most
        log: Any = lake._hot.log  # type: ignore[attr-defined]
        assert (log.durable == log.last) == (durability != "none")
    with connect(tmp_path / "lake") as again:
        assert len(again.table("t")) == 31


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_a_process_that_is_killed_loses_nothing_whatever_the_durability(tmp_path: Path, durability: str) -> None:
    text = """
import os, signal, sys
import indexlake as il
lake = il.connect(sys.argv[1], hot="memory", automatic=False, durability=sys.argv[2])
t = lake.create_table("t", {"id": "int64"}, primary_key="id")
for n in range(50):
    t.insert({"id": n})
os.kill(os.getpid(), signal.SIGKILL)
"""
    folder = tmp_path / "lake"
    assert subprocess.run([sys.executable, "-c", text, str(folder), durability]).returncode == -9
    with connect(folder) as lake:
        assert len(lake.table("t")) == 50


def test_a_sync_in_the_background_that_fails_poisons_the_store(tmp_path: Path, on_step: Callable[..., Any]) -> None:
    def fail(name: str) -> None:
        if name == "log.sync" and threading.current_thread().name == "indexlake-sync":
            raise OSError(5, "injected")

    with connect(tmp_path / "lake", hot="memory", durability="interval") as lake:
        t = _fill(lake)
        on_step(fail)
        t.insert({"id": 100})
        time.sleep(0.2)
        on_step(None)
        with pytest.raises(il.StorageError, match="accepts no more writes: it could not sync its redo log"):
            t.insert({"id": 101})
        assert t.get(100) == {"id": 100}
    with connect(tmp_path / "lake") as again:
        assert again.table("t").get(5) == {"id": 5}
        again.table("t").insert({"id": 101})


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_when_the_disk_of_the_log_is_full_everything_can_still_be_read(
    tmp_path: Path, on_step: Callable[..., Any], durability: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is read through the catalog, which is told only of commits that are durable."""
    monkeypatch.setattr(redo, "SYNC_SECONDS", 60)

    def full(step: str) -> None:
        if step == "log.append":
            raise OSError(errno.ENOSPC, "injected")

    lake = connect(tmp_path / "lake", hot="memory", durability=durability)
    t = _fill(lake, 3)
    on_step(full)
    with pytest.raises(il.StorageError, match=r"no space left.*Reading still works"):
        t.insert({"id": 3})
    on_step(None)
    assert lake.sql("select count(*) from t").fetchall() == [(3,)]
    assert len(t.history()) == 4
    assert lake.catalog.store.log.durable == lake.snapshot_id
    with pytest.raises(il.StorageError, match="accepts no more writes"):
        t.insert({"id": 3})
    with pytest.raises(il.StorageError, match="accepts no more writes"):
        lake.create_table("u", {"id": "int64"})
    lake.close()
    with connect(tmp_path / "lake") as lake:
        assert lake.table("t").count() == 3


def test_no_thread_is_left_when_the_lake_is_closed(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory", durability="interval") as lake:
        _fill(lake)
        assert "indexlake-sync" in {thread.name for thread in threading.enumerate()}
    assert "indexlake-sync" not in {thread.name for thread in threading.enumerate()}


# ---------------------------------------------------------------- what it says of itself


def test_what_was_recovered_is_told(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        first = lake.recovery()
        assert first is not None
        assert (first.commits, first.rows) == (0, 0)
        _fill(lake)
        last = lake.snapshot_id
    with connect(tmp_path / "lake") as lake:
        found = lake.recovery()
        assert found is not None
        assert (found.rows, found.cut_off, found.last_commit) == (30, 0, last)
        assert "30 rows replayed" in str(found)
        assert "30" in found._repr_html_()
    with connect(tmp_path / "inline") as lake:
        assert lake.recovery() is None


def test_lake_table_and_row_say_that_they_are_in_memory(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        t = _fill(lake)
        assert lake.hot == "memory"
        assert "newest rows in memory" in repr(lake)
        assert t.stats().hot == "memory"
        assert "\n  memory   █" in str(t.stats())
        row_id = t.scan("id = 3", with_row_id=True).to_pylist()[0]["_indexlake_row_id"]
        assert (t.locate(row_id) or "").startswith("memory:0:")


# ---------------------------------------------------------------- the command line


def _command(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "indexlake", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **env},
    )  # fmt: skip


def test_commands_work_on_a_lake_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with connect(folder, hot="memory") as lake:
        _fill(lake)
    told = json.loads(_command("recovery", folder, "--json").stdout)
    assert (told["rows"], told["cut_off"]) == (30, 0)
    assert json.loads(_command("sql", folder, "select count(*) n from t", "--json").stdout) == [{"n": 30}]
    assert json.loads(_command("sql", folder, "insert into t values (500)", "--json").stdout)
    assert "memory" in _command("stats", folder, "t").stdout
    done = _command("pipeline", "dump", folder, "--runner", "threads")
    assert done.returncode == 0, done.stderr
    assert json.loads(_command("tables", folder, "--json").stdout)[0]["in blocks"] == 31
    assert "hot store 'inline'" in _command("convert", folder, "inline").stdout
    assert "there is no redo log" in _command("recovery", folder).stdout
    assert json.loads(_command("scan", folder, "t", "--where", "id = 500", "--json").stdout) == [{"id": 500}]


def test_beside_the_owner_commands_that_read_show_its_last_checkpoint(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        t = _fill(lake)
        lake.pipeline(runner="threads").dump("t")
        t.insert({"id": 100})
        shown = _command("sql", tmp_path / "lake", "select count(*) n from t", "--json")
        assert json.loads(shown.stdout) == [{"n": 30}]
        assert f"the last checkpoint of process {os.getpid()} on" in shown.stderr
        refused = _command("pipeline", "dump", tmp_path / "lake", "--runner", "threads")
        assert refused.returncode == 1
        assert "OwnershipError" in refused.stderr
        assert "read_only" not in refused.stderr
