"""Lakes in folders that nobody can write to: read as they are, with what their logs hold, or refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.driver import DatabaseError
from indexlake.catalog.sqlite import SqliteCatalog
from tests.processes.scripts import run_script

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string())])
ReadOnly = Callable[[Path], None]


@pytest.fixture
def read_only() -> Iterator[ReadOnly]:
    """Makes the file system of a folder read-only, for root too."""
    mounted: list[Path] = []

    def mount(folder: Path) -> None:
        for command in (["mount", "--bind"], ["mount", "-o", "remount,bind,ro"]):
            try:
                done = subprocess.run([*command, str(folder), str(folder)], capture_output=True, check=False)
            except FileNotFoundError:
                pytest.skip("there is no mount command")
            if done.returncode:
                pytest.skip("no right to mount a file system")
            if folder not in mounted:
                mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def make(folder: Path) -> None:
    with il.connect(folder, automatic=False) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=100))
        t.insert(pa.table({"id": range(500), "name": [f"name {i}" for i in range(500)]}))
        t.insert({"id": 1000, "name": "hot"})


def test_a_closed_lake_is_read_where_nobody_can_write(tmp_path: Path, read_only: ReadOnly) -> None:
    folder = tmp_path / "a lake?with #odd%20name"
    make(folder)
    assert not list(folder.glob("*-wal"))
    read_only(folder)
    with il.connect(folder, read_only=True) as lake:
        t = lake.table("t")
        assert len(t.scan().to_arrow()) == 501
        assert t.get(1000) == {"id": 1000, "name": "hot"}
        assert lake.sql("select count(*) n, max(name) m from t").to_pylist() == [{"n": 501, "m": "name 99"}]
        assert len(t.at(lake.snapshot_id - 1).scan().to_arrow()) == 500
        assert [c["id"] for c in t.changes(lake.snapshot_id - 1).to_pylist()] == [1000]
        with pytest.raises(il.OwnershipError, match="read_only=True"):
            t.insert({"id": 2, "name": ""})
    with pytest.raises(il.CatalogError, match=r"cannot be written to\. To read the lake, connect with read_only=True"):
        il.connect(folder)
    assert sorted(os.listdir(folder)) == ["catalog.sqlite", "catalog.sqlite.lock", "catalog.sqlite.queue", "files"]


def unclosed(folder: Path) -> None:
    """A lake whose process was killed: its last commits are in the log."""
    ended = run_script(
        """
        import os, signal
        lake = il.connect(sys.argv[1], automatic=False)
        t = lake.create_table("t", pa.schema({"id": pa.int64()}))
        t.insert([{"id": n} for n in range(3)])
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        folder,
    )
    assert ended.code == -9
    assert (folder / "catalog.sqlite-wal").stat().st_size


def test_commits_in_the_log_are_read_too(tmp_path: Path, read_only: ReadOnly) -> None:
    unclosed(tmp_path / "lake")
    read_only(tmp_path / "lake")
    with il.connect(tmp_path / "lake", read_only=True) as lake:
        assert lake.table("t").scan().to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_commits_in_a_log_that_cannot_be_read_are_not_left_out(tmp_path: Path, read_only: ReadOnly) -> None:
    unclosed(tmp_path / "lake")
    (tmp_path / "lake" / "catalog.sqlite-shm").unlink()  # as in a copy without it
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    read_only(tmp_path / "lake")
    with pytest.raises(
        il.CatalogError, match=r"holds commits that are not in the file yet\..*copy the lake, with its log"
    ):
        il.connect(tmp_path / "lake", read_only=True)
    with il.connect(tmp_path / "copy", read_only=True) as lake:  # what the error advises
        assert len(lake.table("t")) == 3


def test_a_file_that_was_taken_for_one_that_stays_and_is_written_to_is_read_again(
    tmp_path: Path, read_only: ReadOnly
) -> None:
    """A folder may be read-only here and writable elsewhere."""
    original, here = tmp_path / "original", tmp_path / "here"
    make(original)
    here.mkdir()
    done = subprocess.run(["mount", "--bind", str(original), str(here)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no right to mount a file system")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(original), str(here)], check=True)
        reader = SqliteCatalog(str(here / "catalog.sqlite"), read_only=True)
        with il.connect(here, read_only=True) as lake:
            t = lake.table("t")
            assert len(t.scan().to_arrow()) == 501
            changed = pytest.raises(DatabaseError, match="was changed while this process was reading it")
            with changed as caught, reader.read() as r:
                assert r.rows("select count(*) from indexlake_table") == [(1,)]
                with il.connect(original) as writer:
                    writer.table("t").insert({"id": 2000, "name": "later"})
            assert caught.value.retryable
            with reader.read() as r:
                assert r.rows("select max(snapshot_id) from indexlake_snapshot") == [(lake.snapshot_id,)]
            assert t.get(2000) == {"id": 2000, "name": "later"}
            assert len(t.scan().to_arrow()) == 502
        reader.close()
    finally:
        subprocess.run(["umount", "-l", str(here)], check=True)


def test_sqlite_would_leave_the_log_out(tmp_path: Path) -> None:
    """What makes the care above necessary."""
    unclosed(tmp_path / "lake")
    address = f"file:{tmp_path}/lake/catalog.sqlite?immutable=1"
    connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    with pytest.raises(apsw.SQLError, match="no such table"):
        connection.execute("select * from indexlake_snapshot").fetchall()
