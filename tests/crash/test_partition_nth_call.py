"""Jobs on partitions that fail at their Nth SQL statement or storage call, or are killed at a named step.

Nothing is lost, nothing is there twice, partitions cover all keys, and the same job done again completes it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline import partition_policy, reshape
from indexlake.pipeline.runner import ThreadRunner
from indexlake.snapshots.state import TableState
from indexlake.storage import faults
from tests.crash.failing import failing, picture
from tests.support.lakes import connect
from tests.support.partitions import range_problems

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
CONFIG = il.TableConfig(direct_write_row_count=5, block_row_count=20, partition_row_count=8)
MANY = 500
LATE = [16, -50, 19, -51, -52]


def fill(lake: il.Lake) -> None:
    """Three partitions: with data and deltas, with one delta, with a hot row; rows are deleted and superseded."""
    lake.drop_table("t", missing_ok=True)
    t = lake.create_table("t", SCHEMA, primary_key="id", layout="clustered", config=CONFIG)
    p = lake.pipeline(runner="threads")
    t.insert(pa.table({"id": range(9, -1, -1), "v": range(10)}, SCHEMA))
    p.split("t", at=10)
    p.split("t", at=20)
    t.insert(pa.table({"id": [12, 17, 11, 15, 13], "v": range(5)}, SCHEMA))
    t.insert([{"id": 8 + n, "v": 7} for n in (2, 20)])
    t.update({"v": -1}, "id in (3, 15)")
    p.dump("t")
    t.delete("id in (4, 12)")
    t.insert([{"id": n, "v": 5} for n in (30, 18, 14)])


def _choose_join(state: TableState, beyond: Any) -> list[partition_policy.Step]:
    parts = partition_policy.parts_of(state)
    return [partition_policy.join(parts[:2])] if len(parts) > 2 else []


def _choose_fold(state: TableState, beyond: Any) -> list[partition_policy.Step]:
    """The deltas of each partition as one delta."""
    several = [p for p in partition_policy.parts_of(state) if len(p.deltas) > 1]
    return [partition_policy.Step("fold", (p,), p.deltas) for p in several]


def _choose_move(state: TableState, beyond: Any) -> list[partition_policy.Step]:
    alone = [p for p in partition_policy.parts_of(state) if not p.data and len(p.deltas) == 1]
    return [partition_policy.Step("move", (p,)) for p in alone]


def _reshape(lake: il.Lake, choose: Any) -> None:
    reshape.reshape(lake, lake.table("t")._table_id, "merge", choose, ThreadRunner(lake.storage))


def _pipeline(lake: il.Lake) -> Any:
    return lake.pipeline(runner="threads")


JOBS: dict[str, Callable[[il.Lake], Any]] = {
    "dump": lambda lake: _pipeline(lake).dump("t"),
    "merge": lambda lake: _pipeline(lake).merge("t"),
    "split": lambda lake: _pipeline(lake).split("t", at=5),
    "cut": lambda lake: _pipeline(lake).split("t", at=25),
    "join": lambda lake: _reshape(lake, _choose_join),
    "fold": lambda lake: _reshape(lake, _choose_fold),
    "move": lambda lake: _reshape(lake, _choose_move),
    "policy": lambda lake: reshape.keep_shape(lake, lake.table("t")._table_id, ThreadRunner(lake.storage)),
}


def sound(lake: il.Lake, where: str) -> None:
    t = lake.table("t")
    since = t._state().table.begin_snapshot
    assert not list(range_problems(lake, t._table_id, range(since, lake.snapshot_id + 1))), where
    rows = t.scan().to_pylist()
    assert [t.get(r["id"]) for r in rows] == rows, where
    found = lake.pipeline().verify("t")
    assert found.ok, f"{where}: {found}"


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
@pytest.mark.parametrize("job", JOBS)
def test_a_job_failed_at_each_call_changes_no_answer_and_is_completed_by_the_next(
    lake: il.Lake, job: str, prefix: str, request: pytest.FixtureRequest
) -> None:
    if (job, prefix) in (("cut", "storage."), ("move", "storage.")):
        pytest.skip("it touches no file")
    fill(lake)
    wanted = {r["id"]: r["v"] for r in lake.table("t").scan().to_pylist()}
    step = 1 if request.config.getoption("--full") else 5 if prefix == "storage." else 13
    for nth in range(1, MANY, step):
        fill(lake)
        lake._files.clear()
        before = picture(lake)
        with failing(prefix, nth=nth) as failure:
            try:
                JOBS[job](lake)
            except il.IndexLakeError:
                assert failure.fired is not None
        where = f"{job}: {prefix} {nth} at {failure.fired}"
        assert picture(lake) == before, where
        sound(lake, where)
        if failure.fired is None:
            break
        JOBS[job](lake)
        assert picture(lake) == before, where
        sound(lake, where)
    else:
        raise AssertionError("it never ran untouched")
    assert nth > 1
    assert {r["id"]: r["v"] for r in lake.table("t").scan().to_pylist()} == wanted


# ---------------------------------------------------------------- kills

RESHAPED = ("reshape.planned", "reshape.written", "reshape.commit", "reshape.committed")
KILLS = [
    *(("dump", step) for step in ("dump.planned", "dump.written", "dump.commit", "dump.committed", "dump.purged")),
    ("dump", "block.written"),
    *((job, step) for job in ("merge", "split", "join", "fold") for step in RESHAPED),
    *((job, step) for job in ("cut", "move") for step in ("reshape.planned", "reshape.commit", "sql.commit.after")),
    *((job, step) for job in ("merge", "split") for step in ("block.segment", "storage.publish", "sql.commit.before")),
]


def _run_and_die(path: str, job: str, step: str, during: str | None) -> None:
    lake = connect(path)
    kill = faults.from_text(f"{step}=kill")

    def callback(name: str) -> None:
        kill(name)
        if name == during:
            faults.install(kill)
            _rival(path, job)

    faults.install(callback)
    JOBS[job](lake)
    os._exit(0)


def _rival(path: str, job: str) -> None:
    """What makes the job cut blocks once more: a bound through what a dump wrote, or a delta across a new bound."""
    with connect(path) as other:
        if job == "dump":
            other.pipeline(runner="threads").split("t", at=16)
        else:
            other.table("t").insert(pa.table({"id": LATE, "v": [0] * 5}, SCHEMA))


def _die(tmp_path: Path, job: str, step: str, during: str | None = None) -> None:
    path = str(tmp_path / "lake")
    with connect(path) as lake:
        fill(lake)
        if during is not None and job != "dump":
            JOBS["join"](lake)
        before = picture(lake)
    worker = multiprocessing.get_context("fork").Process(target=_run_and_die, args=(path, job, step, during))
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL, f"{job} did not come to {step}"
    with connect(path) as lake:
        if during is not None and job != "dump":
            assert lake.table("t").delete("id in $late", {"late": LATE}).rows == 5
        assert picture(lake) == before
        sound(lake, "after the kill")
        JOBS[job](lake)
        assert picture(lake) == before
        sound(lake, "done again")


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(("job", "step"), KILLS)
def test_a_job_killed_at_a_step_loses_nothing_and_is_completed_by_the_next(tmp_path: Path, job: str, step: str) -> None:
    _die(tmp_path, job, step)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(
    ("job", "step", "during"), [("dump", "dump.cut", "dump.written"), ("split", "reshape.late", "reshape.written")]
)
def test_a_job_killed_while_it_cuts_what_came_late_loses_nothing(
    tmp_path: Path, job: str, step: str, during: str
) -> None:
    _die(tmp_path, job, step, during)
