"""A process killed while it publishes or restores leaves what the next one completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import indexlake as il
from indexlake.catalog.owner import check_owner
from tests.crash.failing import failing
from tests.partitions.clustered_tables import clustered, content, in_blocks, lose_catalog, metas, newest_meta, rows
from tests.support.lakes import connect

WRITES = """
import sys, indexlake as il
from tests.partitions.clustered_tables import clustered, rows
with il.connect(sys.argv[1], automatic=False) as lake:
    t = clustered(lake)
    t.insert(rows(0, 60))
    t.insert(rows(100, 5))
    lake.pipeline().dump()
    t.delete("id < 10")
    lake.pipeline().merge()
"""
RESTORES = """
import sys, indexlake as il
il.restore(sys.argv[1], sys.argv[2])
"""


def run(script: str, *arguments: Path, faults: str) -> bool:
    """Whether it came to the step, and was killed there."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "INDEXLAKE_FAULTS": faults}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


STEPS = ["storage.create", "storage.write", "storage.publish", "storage.published"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("step", STEPS[::2])
def test_killed_while_it_writes_and_publishes(tmp_path, step, count):
    killed = run(WRITES, tmp_path / "lake", faults=f"{step}:{count}=kill")
    with connect(tmp_path / "lake") as lake:
        if killed and "s.t" not in lake.tables():
            return
        t = lake.table("s.t")
        if metas(lake, t._table_id):
            then = content(t.at(newest_meta(lake, t).snapshot))
            il.restore(lose_catalog(lake, tmp_path / "at-once-files"), tmp_path / "at-once", verify=True)
            with connect(tmp_path / "at-once") as restored:
                found = content(restored.table("s.t"))
                assert [row for row in found if row not in then] == [], "never what was not committed"
        lake.pipeline().build_index()
        expected = in_blocks(t)
        files = lose_catalog(lake, tmp_path / "files")
    il.restore(files, tmp_path / "restored", verify=True)
    with connect(tmp_path / "restored") as lake:
        assert content(lake.table("s.t")) == expected
        assert lake.pipeline().verify().ok


@pytest.fixture
def lost(tmp_path: Path) -> tuple[Path, list]:
    """Files without a catalog, and without key segments, which restore has to build; the rows in them."""
    with connect(tmp_path / "lake") as lake:
        t = clustered(lake)
        t.insert(rows(0, 60))
        t.insert(rows(100, 60))
        lake.pipeline().build_index()
        expected, files = content(t), lose_catalog(lake, tmp_path / "files")
    for segment in (files / "tables").rglob("index/*"):
        segment.unlink()
    return files, expected


RESTORE_STEPS = [
    "storage.create", "storage.publish", "storage.published", "storage.publish:2", "storage.published:3",
    "sql.begin", "sql.execute", "sql.execute:20", "sql.commit.before", "sql.commit.after",
]  # fmt: skip


@pytest.mark.parametrize("step", RESTORE_STEPS)
def test_killed_while_it_restores(tmp_path, lost, step):
    files, expected = lost
    assert run(RESTORES, files, tmp_path / "new", faults=f"{step}=kill")
    if step == "sql.commit.after":
        with pytest.raises(il.AlreadyExistsError):
            il.restore(files, tmp_path / "new")
    else:
        il.restore(files, tmp_path / "new")
    with connect(tmp_path / "new") as lake:
        check_owner(lake)
        assert content(lake.table("s.t")) == expected
        lake.pipeline().run()
        assert lake.pipeline().verify().ok


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
def test_a_restore_that_fails_at_a_call_can_be_done_again(tmp_path, lost, prefix):
    files, expected = lost
    for nth in range(1, 1_000, 9 if prefix == "sql." else 3):
        into = tmp_path / f"new{nth}"
        with failing(prefix, nth=nth) as failure:
            try:
                il.restore(files, into)
                done = True
            except il.IndexLakeError:
                done = False
        if failure.fired is None:
            break
        if not done:
            il.restore(files, into)
        with connect(into) as lake:
            check_owner(lake)
            assert content(lake.table("s.t")) == expected, f"{prefix} {nth} at {failure.fired}"
            assert lake.pipeline().verify().ok
    assert 1 < nth < 990
