"""Making a lake: nothing is made before the storage has answered, and who dies on the way leaves what others mend."""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.storage import faults
from tests.processes.scripts import run_script
from tests.support.servers import S3Server

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string())])


def wrong_places(s3: S3Server) -> dict[str, tuple[str, dict[str, str], str]]:
    bucket = s3.bucket()
    return {
        "bucket": (f"s3://{bucket}-mistyped/lake", s3.options, "NoSuchBucket"),
        "secret": (f"s3://{bucket}/lake", {**s3.options, "secret_access_key": "wrong"}, "access denied"),
    }


@pytest.mark.parametrize("what", ["bucket", "secret"])
def test_a_storage_that_refuses_leaves_no_lake_behind(s3: S3Server, tmp_path: Path, what: str) -> None:
    storage, options, said = wrong_places(s3)[what]
    with pytest.raises(il.StorageError, match=said) as caught:
        il.connect(tmp_path / "deep" / "lake", storage=storage, storage_options=options)
    assert str(caught.value).startswith(f"No lake was made: cannot write to its storage {storage}.")
    assert os.listdir(tmp_path) == []

    there = tmp_path / "there"
    there.mkdir()
    (there / "mine.txt").write_text("mine")
    with pytest.raises(il.StorageError, match=said):
        il.connect(there, storage=storage, storage_options=options)
    assert os.listdir(there) == ["mine.txt"]

    right = f"s3://{s3.bucket()}/lake"  # the second attempt is as good as a first one
    with il.connect(there, storage=right, storage_options=s3.options) as lake:
        assert lake.create_table("t", SCHEMA).insert({"id": 1, "name": "a"}).rows == 1


@pytest.mark.parametrize("what", ["bucket", "secret"])
def test_a_storage_that_refuses_leaves_nothing_in_postgres(s3: S3Server, postgres_dsn: str, what: str) -> None:
    import psycopg

    storage, options, said = wrong_places(s3)[what]
    schema = f"wrong_{uuid.uuid4().hex[:8]}"
    with pytest.raises(il.StorageError, match=said):
        il.connect(postgres_dsn, catalog_schema=schema, storage=storage, storage_options=options)
    for options_ in ({"create": False}, {"read_only": True}):
        with pytest.raises(il.NotFoundError):
            il.connect(postgres_dsn, catalog_schema=schema, **options_)  # type: ignore[arg-type]
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute("select count(*) from pg_namespace where nspname = %s", (schema,)).fetchone()
    assert found == (0,)


def test_a_folder_that_cannot_be_made_leaves_no_lake_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(il.StorageError, match="No lake was made"):
        il.connect(tmp_path / "lake", storage=tmp_path / "file" / "files")
    with pytest.raises(il.StorageError, match="cache_dir"):
        il.connect(
            tmp_path / "lake", storage="s3://bucket/x", storage_options={"access_key_id": "k"},
            cache_dir=tmp_path / "file" / "cache",
        )  # fmt: skip
    with pytest.raises(il.IndexLakeError):
        il.connect(tmp_path / "file" / "lake", storage=tmp_path / "elsewhere")
    assert os.listdir(tmp_path) == ["file"]


STEPS = [
    "storage.delete",  # of the file that tries the storage
    "sql.commit.before",
    "sql.commit.after",
    "storage.publish:2",  # of the mark
]


@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_while_making_a_lake_leaves_what_the_next_one_mends(tmp_path: Path, step: str) -> None:
    child = os.fork()
    if not child:
        faults.install(faults.from_text(f"{step}=kill"))
        il.connect(tmp_path / "lake")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with il.connect(tmp_path / "lake") as lake:
        lake.create_table("t", SCHEMA).insert([{"id": n, "name": "a"} for n in range(3)])
        lake.pipeline(runner="threads").dump()
        lake.pipeline(runner="threads").vacuum(dry_run=False)  # which only the owner of the files may
        assert len(lake.table("t")) == 3
    assert not (tmp_path / "lake" / "files" / "indexlake.probe").exists()


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"])
def test_many_that_make_the_same_lake_at_once_get_the_same_one(
    tmp_path: Path, catalog: str, request: pytest.FixtureRequest
) -> None:
    schema = f"same_{uuid.uuid4().hex[:8]}"
    if catalog == "sqlite":
        arguments = [str(tmp_path / "lake"), "", ""]
    else:
        arguments = [request.getfixturevalue("postgres_dsn"), str(tmp_path / "files"), schema]
    text = """
        import time
        time.sleep(max(0.0, float(sys.argv[4]) - time.time()))
        lake = il.connect(sys.argv[1], storage=sys.argv[2] or None, catalog_schema=sys.argv[3] or None)
        lake.create_table("t", pa.schema({"id": pa.int64()}), exist_ok=True).insert({"id": 1})
        print(repr(lake).rpartition(", ")[2])
        """
    begin = time.time() + 1.5
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda _: run_script(text, *arguments, begin), range(3)))
    assert [e.err for e in ended if e.code] == []
    assert sorted(e.out.strip() for e in ended) == ["new>", "open>", "open>"]
    with il.connect(arguments[0], catalog_schema=arguments[2] or None) as lake:
        assert len(lake.table("t")) == 3


def test_an_unused_lake_on_the_wrong_storage_says_how_to_begin_again(s3: S3Server, tmp_path: Path) -> None:
    """Such lakes were left behind by versions that made the lake first and asked the storage later."""
    from indexlake.catalog import tables
    from indexlake.catalog.sqlite import SqliteCatalog

    folder, wrong, right = tmp_path / "lake", f"s3://{s3.bucket()}-mistyped/x", f"s3://{s3.bucket()}/x"
    catalog = SqliteCatalog(str(folder / "catalog.sqlite"))
    tables.create_lake(catalog, {"hot": "inline", "storage": wrong}, 0)
    catalog.close()
    advice = "No table was ever created in this lake.*delete .*catalog.sqlite and the files beside it"
    with pytest.raises(il.StorageError, match=f"NoSuchBucket.*{advice}"):
        il.connect(folder, storage_options=s3.options)
    with pytest.raises(il.SchemaError, match=f"leave storage= out.*{advice}"):
        il.connect(folder, storage=right, storage_options=s3.options)
    for path in folder.glob("catalog.sqlite*"):
        path.unlink()
    with il.connect(folder, storage=right, storage_options=s3.options) as lake:
        lake.create_table("t", SCHEMA)
    with pytest.raises(il.SchemaError) as caught:
        il.connect(folder, storage=wrong, storage_options=s3.options)
    assert "delete" not in str(caught.value)


def test_a_new_lake_says_that_it_is_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "indexlake"):
        with il.connect(tmp_path / "shop") as lake:
            files = tmp_path / "shop" / "files"
            assert repr(lake) == f"<Lake {tmp_path}/shop/catalog.sqlite, files in {files}, new>"
        assert [r.getMessage() for r in caplog.records] == [
            f"made a new lake: {tmp_path}/shop/catalog.sqlite, files in {files}"
        ]
        with il.connect(tmp_path / "shop") as lake:
            assert repr(lake).endswith(", open>")
        with il.connect(":memory:") as lake:
            assert repr(lake).endswith(", open>")
        assert len(caplog.records) == 1


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir(), here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    (home / "rows.csv").write_text("id,name\n1,a\n")
    options = {"storage": "~/files", "cache_dir": "~/cache", "spill_dir": "~/spill"}
    with il.connect("~/lake", **options) as lake:  # type: ignore[arg-type]
        t = lake.create_table("t", SCHEMA)
        assert t.insert(il.files("~/rows.csv")).rows == 1
        assert t.insert(il.files([Path("~/*.csv")])).rows == 1
        assert lake.pipeline(runner="threads").load("~/rows.csv", "t").inserted == 1
        assert lake.sql("select count(*) n from t").to_pylist() == [{"n": 3}]
    with il.connect(Path("~") / "lake") as lake:
        assert len(lake.table("t")) == 3
    assert sorted(os.listdir(home)) == ["files", "lake", "rows.csv", "spill"]
    assert os.listdir(here) == []


def test_storage_is_an_address(tmp_path: Path) -> None:
    for wrong in (7, "", b"files"):
        with pytest.raises(il.SchemaError, match="storage is a directory or s3://bucket/prefix"):
            il.connect(tmp_path / "lake", storage=wrong)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"])
def test_the_files_of_another_lake_are_refused(tmp_path: Path, postgres_dsn: str, catalog: str) -> None:
    """Its vacuum would delete them."""
    files = tmp_path / "files"
    with il.connect(tmp_path / "a", storage=files) as lake:
        lake.create_table("t", SCHEMA).insert({"id": 1, "name": "a"})
        schema = f"second_{uuid.uuid4().hex[:8]}"
        second = (tmp_path / "b", {}) if catalog == "sqlite" else (postgres_dsn, {"catalog_schema": schema})
        with pytest.raises(il.StorageError, match=r"No lake was made: the files at .* belong to another lake"):
            il.connect(second[0], storage=files, **second[1])
        assert sorted(os.listdir(tmp_path)) == ["a", "files"]
        with il.connect(second[0], storage=tmp_path / "others", **second[1]) as other:
            assert other.tables() == []
    with il.connect(tmp_path / "a") as lake:
        assert lake.table("t").count() == 1


@pytest.mark.parametrize(
    ("address", "storage", "said"),
    [
        ("lake", "s3:bucket/x", "looks like an address, which has two slashes"),
        ("lake", "S3:/bucket/x", "looks like an address, which has two slashes"),
        ("la\0ke", None, "is not a path"),
        ("lake", "fi\0les", "is not a path"),
        ("la\udcffke", None, "is not a path"),
    ],
)
def test_addresses_that_cannot_be_meant_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, storage: str | None, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((il.SchemaError, il.CatalogError), match=said):
        il.connect(address, storage=storage)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("timeout", [None, -1, True, "5", float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: object) -> None:
    with pytest.raises(il.SchemaError, match="retry_timeout must be a number of seconds"):
        il.connect(":memory:", retry_timeout=timeout)  # type: ignore[arg-type]


def test_writers_may_wait_for_ever() -> None:
    with il.connect(":memory:", retry_timeout=float("inf")) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id")
        t.insert({"id": 1, "name": ""})
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: t.update({"name": il.expr("name || 'x'")}, "id = 1"), range(48)))
        assert t.get(1)["name"] == "x" * 48
        with pytest.raises(il.SchemaError, match="retries must be a whole number"):
            lake.run(lambda tx: None, retries=1.5)
