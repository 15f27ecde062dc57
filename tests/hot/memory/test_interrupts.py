"""Ctrl-C at any moment of a commit: it is there whole or not at all, and the lake goes on."""

from __future__ import annotations

import _thread
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.support.interrupts import Interrupt
from tests.support.lakes import connect

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("batch", pa.int64()), pa.field("text", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[il.Lake]:
    with connect(tmp_path / "lake", hot="memory") as lake:
        t = lake.create_table("t", SCHEMA, "id", config=il.TableConfig(direct_write_row_count=100_000))
        t.create_index("by_batch", "batch")
        t.insert({"id": -1, "batch": -1, "text": ""})
        yield lake


def batch(n: int, size: int = 50) -> list[dict[str, Any]]:
    return [{"id": n * 1000 + i, "batch": n, "text": f"{n}.{i}"} for i in range(size)]


def batches(t: il.Table, size: int) -> set[int]:
    """Those that are there; none in part, none twice, found by every way."""
    rows = t.scan().to_pylist()
    numbers = {row["batch"] for row in rows} - {-1}
    assert sorted(row["id"] for row in rows if row["id"] >= 0) == sorted(
        r["id"] for n in numbers for r in batch(n, size)
    )
    assert all(row["text"] == f"{row['batch']}.{row['id'] % 1000}" for row in rows if row["id"] >= 0)
    for n in numbers:
        assert t.scan("batch = $n", params={"n": n}).count() == size
        assert t.get(n * 1000) is not None
    return numbers


@pytest.mark.parametrize("change", ["insert", "update"])
def test_after_an_interrupt_at_any_moment_of_a_commit_other_threads_go_on(lake: il.Lake, change: str) -> None:
    t, ours = lake.table("t"), Path(il.__file__).parent
    t.insert({"id": 0, "batch": 0, "text": "0.0"})
    hot, commits = str(ours / "hot" / "memory"), str(ours / "commit")
    for moment in range(1_000):
        interrupt = Interrupt(moment, lambda file: file.startswith((hot, commits)))
        before = t.get(0)
        with interrupt.here():
            if change == "insert":
                t.insert({"id": moment + 1, "batch": 1, "text": ""})
            else:
                t.update({"batch": moment + 1}, "id = 0")
        if interrupt.came is None:
            break
        other = threading.Thread(target=t.insert, args=({"id": -2 - moment, "batch": 2, "text": ""},), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), interrupt.came
        assert t.get(-2 - moment) is not None
        if change == "update":
            assert t.get(0) in (before, {"id": 0, "batch": moment + 1, "text": "0.0"})
    assert moment > 100


STEPS = ["commit.begin", "commit.validated", "commit.applied", "log.append", "log.sync", "log.synced", "log.published"]


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_at_a_step_of_the_log(lake: il.Lake, tmp_path: Path, step: str, on_step: Any) -> None:
    _interrupted_at(lake, tmp_path, step, on_step, lambda t: t.insert(batch(1)))


@pytest.mark.parametrize("step", ["log.catalog", "sql.commit.before", "sql.commit.after", "commit.applied"])
def test_interrupted_at_a_step_of_the_catalog(lake: il.Lake, tmp_path: Path, step: str, on_step: Any) -> None:
    def replace_all(t: il.Table) -> None:
        with lake.transaction() as tx:
            tx.table("t").truncate()
            tx.table("t").insert([*batch(1), {"id": -1, "batch": -1, "text": ""}])

    _interrupted_at(lake, tmp_path, step, on_step, replace_all)


def _interrupted_at(lake: il.Lake, tmp_path: Path, step: str, on_step: Any, write: Any) -> None:
    t = lake.table("t")
    once = [step]

    def interrupt(name: str) -> None:
        if once and name == step:
            once.clear()
            raise KeyboardInterrupt

    on_step(interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(t)
    on_step(None)
    there = batches(t, 50)
    t.insert(batch(2))
    assert batches(t, 50) == there | {2}
    if 1 not in there:
        t.insert(batch(1))
    lake.close()
    with connect(tmp_path / "lake") as again:
        assert batches(again.table("t"), 50) == {1, 2}


@pytest.mark.parametrize("before", [True, False])
def test_interrupted_again_while_the_log_takes_a_commit_back(
    lake: il.Lake, tmp_path: Path, before: bool, on_step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    t, real, twice = lake.table("t"), os.ftruncate, ["log.sync", "truncate"]

    def interrupt(name: str) -> None:
        if twice and name == twice[0]:
            del twice[0]
            raise KeyboardInterrupt

    def truncate(file: int, size: int) -> None:
        if before:
            interrupt("truncate")
        real(file, size)
        interrupt("truncate")

    on_step(interrupt)
    monkeypatch.setattr(os, "ftruncate", truncate)
    with pytest.raises(KeyboardInterrupt):
        t.insert(batch(1))
    on_step(None)
    assert not twice
    for n in (2, 3, 4):
        t.insert(batch(n))
    assert batches(t, 50) == {2, 3, 4}
    lake.close()
    with connect(tmp_path / "lake") as again:
        assert batches(again.table("t"), 50) == {2, 3, 4}


def test_interrupted_at_any_moment(lake: il.Lake, tmp_path: Path) -> None:
    """In the midst of pages, trees, undoing and publishing."""
    t, pick, size = lake.table("t"), random.Random(5), 300
    acknowledged: set[int] = set()
    stop = threading.Event()
    go, fired = threading.Semaphore(0), threading.Event()

    def pester() -> None:
        while go.acquire() and not stop.is_set():
            time.sleep(pick.random() * 0.012)
            _thread.interrupt_main()
            fired.set()

    pestering = threading.Thread(target=pester)
    pestering.start()
    interrupted = 0
    try:
        for n in range(40):
            try:
                fired.clear()
                go.release()
                t.insert(batch(n, size))
                acknowledged.add(n)
                fired.wait(20)
                time.sleep(0.01)  # the interrupt comes here at the latest
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        stop.set()
        go.release()
        with suppress(KeyboardInterrupt):
            pestering.join()
            time.sleep(0.02)
    assert interrupted > 10
    there = batches(t, size)
    assert acknowledged <= there
    lake.close()
    with connect(tmp_path / "lake") as again:
        assert batches(again.table("t"), size) == there


def test_interrupted_while_a_new_table_and_an_index_are_undone(lake: il.Lake, on_step: Any) -> None:
    memory, failing = Path(il.__file__).parent / "hot" / "memory", threading.Event()
    undoing = {str(memory / f"{name}.py") for name in ("store", "versions", "tree", "page")}

    def fail(step: str) -> None:
        if step == "commit.applied":
            failing.set()
            raise il.StorageError("the disk is full")

    for moment in range(1, 1_000):  # 0: as the undoing is called
        interrupt = Interrupt(moment, lambda file: failing.is_set() and file in undoing)
        on_step(fail)
        with interrupt.here(), suppress(il.StorageError), lake.transaction() as tx:
            tx.create_table(f"t{moment}", SCHEMA, "id").insert(batch(1, 1))
            tx.table("t").drop_index("by_batch")
            tx.table("t").create_index("by_text", "text")
        on_step(None)
        assert failing.is_set()
        failing.clear()
        lake.table("t").insert({"id": -2 - moment, "batch": -1, "text": ""})
        if interrupt.came is None:
            break
    assert moment > 10
    assert lake.tables() == ["main.t"]
