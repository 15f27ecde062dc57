"""What does not fit into memory: private, beside the lake, gone with it, and swept after a kill."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.hot import rows as hot_rows
from indexlake.scan import sorted_runs, spool
from indexlake.storage.spill import PREFIX, Spill
from tests.processes.scripts import in_forked_child
from tests.support.servers import S3Server

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string())])


def files_of_this_process(folder: Path) -> set[str]:
    """Files below a folder that are open here, with a name or without."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith(f"{folder}/") and "owner" not in target:
            found.add(target)
    return found


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")] if path.is_dir()}


def test_spills_of_sql_are_private_and_beside_the_lake(tmp_path: Path) -> None:
    before = os.umask(0)  # whatever the user's umask is
    try:
        with il.connect(tmp_path / "lake", automatic=False) as lake:
            lake.create_table("t", SCHEMA)
            lake.sql("select 1").to_pylist()
            engine = lake._sql_engine
            assert engine is not None
            engine._database.execute("set memory_limit = '60MB'; set threads = 1")
            result = lake.sql("select r, hash(r) h from range(6_000_000) x(r) order by h")
            rows = iter(result.tuples())
            assert len(next(rows)) == 2
            spill = tmp_path / "lake" / "spill"
            (folder,) = spill.iterdir()
            assert any(path.name.startswith("duckdb_temp") for path in folder.iterdir())
            assert modes(spill) == {0o700}
        assert sorted(os.listdir(tmp_path / "lake")) == [
            "catalog.sqlite", "catalog.sqlite.lock", "catalog.sqlite.queue", "files",
        ]  # fmt: skip
    finally:
        os.umask(before)


@pytest.mark.parametrize("given", [False, True])
def test_scans_sorts_merges_and_feeds_spill_there_too(
    tmp_path: Path, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_rows, "MEMORY_BYTES", 0)
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", 0)
    monkeypatch.setattr(spool, "MEMORY_BYTES", 0)
    place = tmp_path / "given" if given else tmp_path / "lake" / "spill"
    with il.connect(tmp_path / "lake", automatic=False, spill_dir=tmp_path / "given" if given else None) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id")
        t.insert([{"id": n, "name": "hot"} for n in range(50)])
        since = lake.snapshot_id - 1
        scan = iter(t.scan().to_batches())
        assert next(scan).num_rows == 50
        assert len(files_of_this_process(place)) == 1
        assert [r["id"] for r in t.scan(order_by=[("id", "desc")]).to_pylist()][:2] == [49, 48]
        assert len(t.changes(since).to_pylist()) == 50
        assert t.upsert(pa.table({"id": range(40, 60), "name": ["x"] * 20})).rows == 20
        assert t.upsert({"id": n, "name": "y"} for n in range(60, 2000)).rows == 1940
        assert modes(place) == {0o700}
        assert not list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*{os.getpid()}*"))
        lake.pipeline(runner="threads").vacuum(dry_run=False)  # has nothing to do with it
        scan.close()
    if given:
        assert os.listdir(place) == []
    else:
        assert not place.exists()


HOLDER = """
    import sys, time
    import indexlake as il
    lake = il.connect(sys.argv[1])
    lake.sql("select 1").to_pylist()
    print("ready", flush=True)
    sys.stdin.readline()
    """


def holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_leftovers_of_the_dead_go_at_the_next_open_and_those_of_the_living_stay(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    il.connect(folder).close()
    dead, living = holder(folder), holder(folder)
    assert len(list((folder / "spill").iterdir())) == 2
    dead.kill()
    dead.communicate()
    with il.connect(folder):
        (left,) = (folder / "spill").iterdir()
        assert living.poll() is None
    assert left.exists()
    living.communicate("\n")
    assert living.returncode == 0
    assert not (folder / "spill").exists()


def test_uploads_wait_where_the_lake_spills(tmp_path: Path, s3: S3Server) -> None:
    storage = f"s3://{s3.bucket()}/x"
    with il.connect(tmp_path / "lake", storage=storage, storage_options=s3.options) as lake:
        with lake.storage.create_file("big") as out:
            out.write(b"x" * (9 << 20))
            out.write(b"y" * (9 << 20))
            assert len(files_of_this_process(tmp_path / "lake" / "spill")) == 1
        with lake.storage.open_file("big") as found:
            assert found.read() == b"x" * (9 << 20) + b"y" * (9 << 20)
        assert files_of_this_process(tmp_path / "lake" / "spill") == set()


def test_folders_of_the_cache_are_private(tmp_path: Path, s3: S3Server) -> None:
    before = os.umask(0)
    try:
        options = {"storage": f"s3://{s3.bucket()}/x", "storage_options": s3.options, "cache_dir": tmp_path / "cache"}
        with il.connect(tmp_path / "lake", automatic=False, **options) as lake:  # type: ignore[arg-type]
            t = lake.create_table("t", SCHEMA, config=il.TableConfig(direct_write_row_count=10))
            t.insert(pa.table({"id": range(100), "name": ["a"] * 100}))
            assert len(t.scan().to_arrow()) == 100
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert any(path.suffix == ".chunk" for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert modes(tmp_path / "cache") == {0o700}


def test_spill_dir_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (7, "", "s3://bucket/x", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(il.StorageError, match="spill_dir"):
            il.connect(tmp_path / "lake", spill_dir=wrong)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["file"]


def test_a_forked_child_has_a_folder_of_its_own(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path))
    mine = spill.folder()
    theirs = in_forked_child(spill.folder)
    assert theirs != mine
    assert os.path.exists(mine)
    spill.remove()
    assert not os.path.exists(mine)


def test_a_spill_dir_that_goes_away_is_a_typed_error(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with il.connect(tmp_path / "lake", spill_dir=place) as lake:
        place.rmdir()
        place.write_text("in the way")
        with pytest.raises(il.IndexLakeError, match=str(place)):
            lake.sql("select 1").to_pylist()


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The system refuses to let a file grow beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("order", [[], ["name"]], ids=["scan", "sort"])
def test_a_spill_that_cannot_be_written_is_a_typed_error(
    tmp_path: Path, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", 0)
    rows = pa.table({"id": range(3_000), "name": [f"a name of row {n}" for n in range(3_000)]})
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = lake.create_table("t", SCHEMA)
        t.insert(rows)
        if not order:
            monkeypatch.setattr(hot_rows, "MEMORY_BYTES", 0)
        with files_up_to(20_000), pytest.raises(il.StorageError, match=r"does not fit into memory .*spill_dir="):
            t.scan(order_by=order).to_arrow()
        assert t.scan(order_by=order).to_arrow().num_rows == 3_000
