"""A lake belongs to the process that opened it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from tests.processes.scripts import in_forked_child


def _refusals(uses: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """The error of each use, by name."""
    found = {}
    for name, use in uses.items():
        try:
            found[name] = f"not refused: {use()!r}"
        except il.OwnershipError as error:
            found[name] = str(error)
        except BaseException as error:
            found[name] = f"not an OwnershipError: {error!r}"
    return found


def test_every_use_in_a_forked_child_says_to_connect_again_and_the_parent_goes_on(filled_lake: il.Lake) -> None:
    t, scan, tx = filled_lake.table("t"), filled_lake.table("t").scan("id < 5"), filled_lake.transaction()
    in_tx = tx.table("t")
    begun = filled_lake.table("t").scan().to_batches()
    next(begun)
    uses: dict[str, Callable[[], Any]] = {
        "snapshot_id": lambda: filled_lake.snapshot_id,
        "tables": filled_lake.tables,
        "table": lambda: filled_lake.table("t"),
        "namespaces": filled_lake.namespaces,
        "create_table": lambda: filled_lake.create_table("u", [{"x": 1}]),
        "drop_table": lambda: filled_lake.drop_table("t"),
        "transaction": filled_lake.transaction,
        "run": lambda: filled_lake.run(lambda tx: None),
        "jobs": filled_lake.jobs,
        "pipeline": lambda: filled_lake.pipeline().dump(),
        "at": lambda: filled_lake.at(1).table("t"),
        "schema": lambda: t.schema,
        "len": lambda: len(t),
        "get": lambda: t.get(1),
        "get of a hot row": lambda: t.get(10_001),
        "get_many": lambda: t.get_many([1, 2]),
        "insert": lambda: t.insert({"id": -1, "name": "child"}),
        "update": lambda: t.update({"name": "child"}, "id = 1"),
        "delete": lambda: t.delete("id = 1"),
        "truncate": lambda: t.truncate(),
        "stats": t.stats,
        "history": t.history,
        "locate": lambda: t.locate(1),
        "new scan": lambda: t.scan().to_arrow(),
        "scan made before": scan.to_pylist,
        "scan begun before": lambda: list(begun),
        "count": scan.count,
        "explain": scan.explain,
        "transaction begun before": lambda: in_tx.insert({"id": -2, "name": "child"}),
        "commit": tx.commit,
    }
    refused = in_forked_child(lambda: _refusals(uses), seconds=30)
    assert {n: text for n, text in refused.items() if "onnect again" not in text and "il.connect" not in text} == {}
    in_tx.insert({"id": -3, "name": "parent"})
    assert tx.commit().rows == 1
    assert t.get(1) == {"id": 1, "name": "n1"}
    assert len(t) == 4011
    assert sum(batch.num_rows for batch in begun) > 0
    assert t.insert({"id": -4, "name": "parent"}).rows == 1


def test_a_forked_child_may_close_what_it_inherited_without_harm_to_the_parent(filled_lake: il.Lake) -> None:
    in_forked_child(filled_lake.close)
    assert len(filled_lake.table("t")) == 4010
    assert filled_lake.table("t").insert({"id": -1, "name": "parent"}).rows == 1


def test_a_forked_child_connects_anew_and_both_write(filled_lake: il.Lake, tmp_path: Path) -> None:
    def child() -> int:
        with il.connect(tmp_path / "lake") as own:
            for n in range(20):
                own.table("t").insert({"id": -1 - n, "name": "child"})
            own.pipeline().dump()
            return len(own.table("t"))

    assert in_forked_child(child) == 4030
    assert len(filled_lake.table("t").scan("name = 'child'").to_arrow()) == 20
    assert filled_lake.table("t").insert({"id": 77_777, "name": "parent"}).rows == 1


def test_a_fork_while_other_threads_write_harms_neither_side(filled_lake: il.Lake, tmp_path: Path) -> None:
    t = filled_lake.table("t")
    stop = threading.Event()
    written: list[int] = []

    def write(first: int) -> None:
        n = first
        while not stop.is_set():
            t.insert({"id": n, "name": "thread"})
            written.append(n)
            n += 1

    threads = [threading.Thread(target=write, args=(100_000 * (i + 1),)) for i in range(3)]
    for thread in threads:
        thread.start()

    def child() -> str:
        try:
            t.get(1)
        except il.OwnershipError as error:
            refused = str(error)
        try:
            with il.connect(tmp_path / "lake") as own:
                own.table("t").insert({"id": -1 - os.getpid(), "name": "child"})
        except il.OwnershipError as error:  # the fork came while a connection was in use: refused, with advice
            return refused if "spawn" in str(error) else str(error)
        return refused

    for _ in range(10):
        assert "onnect again" in in_forked_child(child, seconds=30)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(t.scan("name = 'thread'").to_arrow()) == len(written) > 0


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_children_end_well_however_they_are_started(
    filled_lake: il.Lake, tmp_path: Path, method: str
) -> None:
    process = multiprocessing.get_context(method).Process(target=_work, args=(str(tmp_path / "lake"),))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert filled_lake.table("t").get(-5) == {"id": -5, "name": "worker"}


def _work(path: str) -> None:
    il.connect(path).table("t").insert({"id": -5, "name": "worker"})  # not closed: the exit has to
