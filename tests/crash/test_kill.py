"""SIGKILL at every named step and at random times: acknowledged writes are there once, nothing else is.

`python -m tests.crash.campaign --kills 5000` is the long version.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import indexlake

from .campaign import STEPS, kill_at_step, run
from .ledger import LakeUnderTest, new_lake, remove
from .nursery import Nursery

SEED = int(os.environ.get("INDEXLAKE_SEED", "20261115"))
HISTORY_GOES = {"expire.commit", "vacuum.deleted"}
"""Where history expires, in a test of their own."""
OF_THE_CACHE = {"cache.write", "cache.publish", "cache.evicted"}
"""No row is lost with the cache of an object store; `tests/storage/test_cache.py` kills there."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def lake(nursery: Nursery) -> Iterator[LakeUnderTest]:
    """One lake that lives through all the named steps."""
    lake = new_lake(nursery, SEED)
    yield lake
    lake.finish(most=60)
    remove(lake)


def test_every_step_that_the_engine_names_is_killed_at() -> None:
    source = Path(indexlake.__file__).parent
    named = {
        name
        for path in source.rglob("*.py")
        if path.name != "faults.py"
        for name in re.findall(r"faults\.step\(\"([a-z.]+)\"\)", path.read_text())
    }
    assert named - HISTORY_GOES - OF_THE_CACHE == set(STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_a_named_step_loses_nothing_and_leaves_nothing_half_done(
    lake: LakeUnderTest, step: str
) -> None:
    kill_at_step(lake, step, lake.random.choice((1, 2, 3, 4)))


def test_a_process_killed_while_it_expires_history_and_deletes_its_files_loses_nothing(nursery: Nursery) -> None:
    lake = new_lake(nursery, SEED)
    lake.kill_at_random()
    writes = {"one": 3, "block": 1, "update": 3, "delete": 2, "both": 2}
    weights = {**writes, "dump": 1, "compact": 2, "expire": 2, "vacuum": 2}
    for at in ("expire.commit:1", "expire.commit:2", "vacuum.deleted:1", "vacuum.deleted:2"):
        lake.kill_at(f"{at}=kill", weights=weights)
    lake.finish()
    remove(lake)


def test_forty_kills_at_random_times_lose_nothing() -> None:
    print(run(40, SEED, named=0.0, most_lines=24))


def test_the_environment_variable_kills_a_program_of_its_own(tmp_path: Path) -> None:
    script = "import indexlake as il, sys; il.connect(sys.argv[1]).create_table('t', [{'x': 1}]); print('not reached')"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "INDEXLAKE_FAULTS": "commit.applied:2=kill"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    with indexlake.connect(tmp_path) as lake:
        assert len(lake.table("t")) == 0, "the table was committed, its rows were not"
        assert lake.table("t").insert({"x": 2}).rows == 1


def test_the_ledger_takes_the_delete_of_a_lanes_only_row_for_done(nursery: Nursery) -> None:
    lake = new_lake(nursery, 1)
    try:
        told = [
            {"lane": 0, "n": 1, "kind": "one", "effect": {"b": {"16": 5}}}, {"lane": 0, "n": 1, "snapshot": 5},
            {"lane": 0, "n": 2, "kind": "delete", "effect": {"b": {"16": None}}},
        ]  # fmt: skip
        lake._settle({}, lake._follow(told))
        assert (lake.kept_in_flight, lake.expected[0]["b"]) == (1, {})
        again = lake._follow([{"lane": 0, "n": 3, "kind": "one", "effect": {"b": {"32": 5}}}])
        lake._settle({}, again)
        assert lake.kept_in_flight == 1
    finally:
        remove(lake)
