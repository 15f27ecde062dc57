"""What the system refuses or destroys: typed errors that name the file and say what to do, and nothing changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

import indexlake as il
from tests.processes.scripts import run_script

CONFIG = il.TableConfig(direct_write_row_count=100)
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string())])


def make(path: Path, format: str = "vortex") -> None:
    """A lake with a block in the format and a hot row."""
    with il.connect(path, automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=100, block_row_count=10_000, dump_format=format)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        t.insert(pa.table({"id": range(500), "name": [f"name {i}" for i in range(500)]}))
        t.insert({"id": 1000, "name": "hot"})


# ---------------------------------------------------------------- directories and disks


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may read."""
    path = Path(tempfile.mkdtemp(prefix="indexlake-public-"))
    path.chmod(0o755)
    yield path
    for folder in [path, *path.rglob("*")]:
        if folder.is_dir():
            folder.chmod(0o755)
    shutil.rmtree(path)


def test_a_read_only_directory_can_be_read_and_nothing_else(public: Path) -> None:
    make(public / "lake")
    il.connect(public / "lake", automatic=False).close()
    for path in [public, *public.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    ended = run_script(
        """
        import os, tempfile

        def attempt(name, act):
            try:
                print(name, "->", act())
            except il.IndexLakeError as error:
                print(name, "->", type(error).__name__, error)

        def three(root):
            attempt("new", lambda: il.connect(root + "/new").create_table("t", [{"id": 1, "name": ""}]).name)
            attempt("write", lambda: il.connect(root + "/lake").table("t").insert({"id": 5000, "name": "x"}).rows)
            attempt("read", lambda: len(il.connect(root + "/lake", read_only=True).table("t").scan().to_arrow()))

        if os.geteuid() == 0:  # root may write everywhere: become somebody else, once everything is imported
            with tempfile.TemporaryDirectory() as own:
                il.connect(own + "/lake").create_table("t", [{"id": 1, "name": ""}])
                three(own)
            import vortex
            os.seteuid(65534)
        print("end")
        three(sys.argv[1])
        """,
        public,
    )
    assert ended.code == 0, ended.err
    new, write, read = ended.out.partition("end\n")[2].splitlines()
    assert new.startswith("new -> StorageError No lake was made: cannot write to its storage ")
    assert "permission denied" in new
    assert write.startswith("write -> CatalogError ")
    assert "is in a folder that cannot be written to. To read the lake, connect with read_only=True" in write
    assert read == "read -> 501"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_named_and_nothing_is_changed(small_disk: Path) -> None:
    with il.connect(small_disk / "lake", automatic=False) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
        t.insert({"id": -1, "name": "first"})
        big = pa.table({"id": range(60_000), "name": [os.urandom(40).hex() for _ in range(60_000)]})
        with pytest.raises(il.StorageError, match="disk is full"):
            t.insert(big)
        assert len(t) == 1
        assert t.insert({"id": -2, "name": "there is room for a row"}).rows == 1
        written = [-1, -2]
        with pytest.raises(il.CatalogError, match="disk is full"):  # noqa: PT012
            for n in range(1000):
                t.insert([{"id": 1000 * n + i, "name": "y" * 500} for i in range(50)])
                written += range(1000 * n, 1000 * n + 50)
        assert sorted(t.scan().to_arrow().column("id").to_pylist()) == sorted(written)
        with pytest.raises(il.IndexLakeError, match="disk is full"):
            lake.pipeline().dump()
        subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
        assert t.insert({"id": -3, "name": "again"}).rows == 1
        assert lake.pipeline().dump()["main.t"].rows == len(written) + 1
    with il.connect(small_disk / "lake") as lake:
        assert sorted(lake.table("t").scan().to_arrow().column("id").to_pylist()) == sorted([*written, -3])


def test_a_file_size_limit_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    ended = run_script(
        """
        import resource, signal, os
        lake = il.connect(sys.argv[1], automatic=False)
        config = il.TableConfig(direct_write_row_count=100)
        t = lake.create_table("t", pa.schema([("id", pa.int64()), ("name", pa.string())]), config=config)
        t.insert({"id": 1, "name": "x"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        try:
            t.insert(pa.table({"id": range(60_000), "name": [os.urandom(20).hex() for _ in range(60_000)]}))
        except il.StorageError as error:
            print(error)
        print(len(t))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(t.insert({"id": 2, "name": "x"}).rows, len(t))
        """,
        tmp_path,
    )
    assert ended.code == 0, ended.err
    error, *rest = ended.out.splitlines()
    assert "ulimit -f" in error or "size limit" in error
    assert rest == ["1", "1 2"]


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "a flipped bit", "empty"])
@pytest.mark.parametrize("folder", ["data", "index"])
def test_a_damaged_or_missing_file_is_named_and_no_row_of_it_is_returned(
    tmp_path: Path, format: str, damage: str, folder: str
) -> None:
    make(tmp_path, format)
    (path,) = [p for p in (tmp_path / "files").rglob(f"{folder}/*") if p.is_file()]
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut short":
        path.write_bytes(content[:-7])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "a flipped bit":
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    with il.connect(tmp_path, automatic=False) as lake:
        t = lake.table("t")
        reads = [lambda: t.get(3), lambda: t.insert({"id": 17, "name": "twice"})]
        if folder == "data":
            reads = [lambda: t.scan().to_arrow(), lambda: t.get(3), lambda: t.update({"name": "x"}, "id = 4")]
        advice = "backup" if folder == "data" else "rebuild=True"
        for read in reads:
            with pytest.raises(il.CorruptionError, match=advice) as raised:
                read()
            assert raised.value.path is not None
            assert (tmp_path / "files" / raised.value.path) == path
        assert t.get(1000) == {"id": 1000, "name": "hot"}
        assert lake.create_table("other", [{"x": 1}]).insert({"x": 2}).rows == 1


def test_a_catalog_of_a_newer_version_says_to_upgrade(tmp_path: Path) -> None:
    make(tmp_path)
    catalog = apsw.Connection(str(tmp_path / "catalog.sqlite"))
    catalog.execute("update indexlake_lake set schema_version = 99")
    catalog.close()
    for options in ({}, {"read_only": True}):
        with pytest.raises(il.CatalogError, match=r"version 99.*pip install -U indexlake"):
            il.connect(tmp_path, **options)


@pytest.mark.parametrize("content", [b"this is no database, though it is long enough to be one" * 100, b"\x00" * 8192])
def test_a_catalog_file_of_garbage_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "catalog.sqlite"
    path.write_bytes(content)
    for options in ({}, {"read_only": True}):
        with pytest.raises(il.CatalogError, match=r"not a SQLite database|damaged") as raised:
            il.connect(tmp_path, **options)
        assert str(path) in str(raised.value)
    assert path.read_bytes() == content


def test_a_database_that_holds_something_else_is_not_taken_for_a_lake(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "catalog.sqlite"))
    other.execute("create table mine (x)")
    other.close()
    with pytest.raises(il.NotFoundError, match="no lake"):
        il.connect(tmp_path, create=False)


def test_a_lake_that_is_not_there_is_not_made_by_a_reader(tmp_path: Path) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(il.NotFoundError, match="no lake"):
            il.connect(tmp_path / "nowhere", **options)
    assert not (tmp_path / "nowhere").exists()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(il.CatalogError, match="directory"):
        il.connect(tmp_path / "file")
