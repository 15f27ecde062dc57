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
from typing import Any

import pyarrow as pa
import pytest

import indexlake
from indexlake.catalog import commits
from tests.crash.campaign import LOG_STEPS, STEPS, kill_at_log_step, kill_at_step, run
from tests.crash.ledger import LakeUnderTest, new_lake, remove
from tests.crash.nursery import Nursery
from tests.crash.worker import make_tables, row

SEED = int(os.environ.get("INDEXLAKE_SEED", "20261115"))
HISTORY_GOES = {"expire.commit", "vacuum.deleted"}
"""Where history expires, in a test of their own."""
OF_THE_CACHE = {"cache.write", "cache.publish", "cache.evicted"}
"""No row is lost with the cache of an object store; `tests/storage/test_cache.py` kills there."""

OF_CHECKS = {"validate.begun"}
"""A check that is added and not validated yet; there is a test of its own here."""

OF_TYPES = {"retype.beside", "retype.filled"}
"""A column that takes another type; `tests/evolution/test_change_type.py` kills there."""

OF_CONVERSION = {"convert.committed", "convert.removed"}
"""From one hot store to the other; `tests/hot/memory/test_convert.py` kills there."""

OF_BACKUPS = {"backup.pages", "backup.catalog", "backup.files", "backup.log", "backup.replaced"}
"""Copies in another folder; `tests/pipeline/test_backup.py` kills there."""

IN_RACES = {"dump.cut", "reshape.late"}
"""Only where two jobs meet; `test_partition_nth_call.py` has them meet, and kills there."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def survivor(nursery: Nursery) -> Iterator[LakeUnderTest]:
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
        for name in re.findall(r"faults\.step\(\"([a-z_.]+)\"\)", path.read_text())
    }
    elsewhere = HISTORY_GOES | OF_THE_CACHE | IN_RACES | OF_CHECKS | OF_TYPES | OF_CONVERSION | OF_BACKUPS
    assert named - elsewhere == {*STEPS, *LOG_STEPS}


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_a_named_step_loses_nothing_and_leaves_nothing_half_done(
    survivor: LakeUnderTest, step: str
) -> None:
    kill_at_step(survivor, step, survivor.random.choice((1, 2, 3, 4)))


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


@pytest.fixture(scope="module")
def with_log(nursery: Nursery) -> Iterator[LakeUnderTest]:
    """One lake with a redo log that lives through all its steps."""
    lake = new_lake(nursery, SEED, format="ipc", hot="memory")
    lake.light = True
    yield lake
    lake.finish(most=20)
    remove(lake)


@pytest.mark.parametrize("step", LOG_STEPS)
def test_a_process_killed_at_a_step_of_its_redo_log_loses_nothing(with_log: LakeUnderTest, step: str) -> None:
    for count in (1, 3):
        kill_at_log_step(with_log, step, count)


def test_kills_at_random_times_and_steps_of_the_redo_log_lose_nothing() -> None:
    print(run(40, SEED, hot="memory", light=True, named=0.5, most_lines=30))


def test_the_environment_variable_kills_a_program_of_its_own(tmp_path: Path) -> None:
    script = "import indexlake as il, sys; il.connect(sys.argv[1]).create_table('t', [{'x': 1}]).insert({'x': 2})"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "INDEXLAKE_FAULTS": "commit.applied:2=kill"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    with indexlake.connect(tmp_path) as lake:
        assert len(lake.table("t")) == 1, "the table was committed with its first row, the second row was not"
        assert lake.table("t").insert({"x": 2}).rows == 1


def test_a_check_whose_validation_was_killed_holds_for_new_rows_and_can_be_added_again(tmp_path: Path) -> None:
    with indexlake.connect(tmp_path) as lake:
        lake.create_table("t", [{"x": 1}, {"x": 2}])
    script = "import indexlake as il, sys; il.connect(sys.argv[1]).table('t').add_check('x > 0', name='positive')"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "INDEXLAKE_FAULTS": "validate.begun=kill"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    with indexlake.connect(tmp_path) as lake:
        t = lake.table("t")
        with pytest.raises(indexlake.ConstraintError, match="positive"):
            t.insert({"x": -1})
        t.add_check("x > 0", name="positive")
        assert sorted(r["x"] for r in t.scan()) == [1, 2]


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


# ---------------------------------------------------------------- the ledger notices


@pytest.fixture
def kept(nursery: Nursery) -> Iterator[LakeUnderTest]:
    """A lake with a row that a lane had in flight, and that was committed with its token."""
    lake = new_lake(nursery, 1)
    with lake.request.connect(automatic=False) as opened:
        make_tables(opened, lake.request)
        opened.table("a").insert(row(0, 16, 5), token="once")
    yield lake
    remove(lake)


def _in_flight(lane: int = 0, token: str | None = None, **effect: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"lane": lane, "n": 1, "kind": "", "effect": effect, "token": token}]


def test_the_ledger_repeats_what_was_in_flight_with_its_token(kept: LakeUnderTest) -> None:
    kept.check(_in_flight(token="once", a={"16": 5}))
    assert (kept.kept_in_flight, kept.repeated) == (1, 1)
    kept.check(_in_flight(lane=1, token="twice", a={"17": 6}, b={"17": 6}))
    assert (kept.kept_in_flight, kept.repeated) == (1, 2)
    assert kept.expected[1]["a"] == kept.expected[1]["b"] == {17: 6}


def test_the_ledger_notices_a_token_that_counts_for_nothing(
    kept: LakeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "token_result", lambda *_: None)
    monkeypatch.setattr(commits, "add_token", lambda *_: None)
    with pytest.raises(AssertionError, match=r"key 16 of a gives .*'value': 6"):
        kept.check(_in_flight(token="once", a={"16": 5}))


def test_the_ledger_notices_half_a_transaction(kept: LakeUnderTest) -> None:
    with pytest.raises(AssertionError, match=r"lane 0 differs(?s:.*)too much \{16: 5\}"):
        kept.check(_in_flight(a={"16": 5}, b={"16": 5}))


def test_the_ledger_notices_columns_that_nobody_asked_for_and_values_that_are_not_the_default(
    kept: LakeUnderTest,
) -> None:
    kept.check(_in_flight(a={"16": 5}))
    with kept.request.connect(automatic=False) as opened:
        opened.table("a").add_column("x0_7_p", pa.int8(), default=7)
    with pytest.raises(AssertionError, match=r"too much \{'a.x0_7_p': 'int8'\}"):
        kept.check([])
    kept.check(_in_flight(columns={"a.x0_7_p": "int8"}))
    with kept.request.connect(automatic=False) as opened:
        opened.table("a").update({"x0_7_p": 8}, "true")
    with pytest.raises(AssertionError, match="half a row"):
        kept.check([])
