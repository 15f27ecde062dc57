"""Files of SQL texts on an object store, who may use which, and how much memory they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.sql.run.result import SqlChange
from tests.support.servers import S3Server


def test_files_of_an_object_store(s3: S3Server, tmp_path: Path) -> None:
    bucket, other = s3.bucket(), s3.bucket()
    own, out = f"s3://{bucket}/lake", f"s3://{other}/out"
    options = s3.options
    spill = tmp_path / "spill"
    with il.connect(
        tmp_path / "lake", storage=own, storage_options=options, files={out: options}, spill_dir=spill, automatic=False
    ) as lake:
        lake.sql("create table t (k int, v varchar); insert into t values (1, 'a'), (2, 'b'), (1, 'c')")
        for place in (f"{own}/exchange", out):
            for name in ("t.parquet", "t.csv", "t.json", "t.csv.gz"):
                assert lake.sql(f"copy t to '{place}/{name}'").scalar() == 3
                found = lake.sql(f"select k, v from '{place}/{name}' order by v").fetchall()
                assert found == [(1, "a"), (2, "b"), (1, "c")]
            files = lake.sql(
                f"copy t to '{place}/parts' (format parquet, partition_by (k), return_files true)"
            ).to_pylist()[0]["Files"]
            assert sorted(files) == [f"{place}/parts/k={k}/data_0.parquet" for k in (1, 2)]
            sums = lake.sql(f"select k, count(*) from read_parquet('{place}/parts/**/*.parquet') group by k order by k")
            assert sums.fetchall() == [(1, 2), (2, 1)]
            assert sums.fetchall() == [(1, 2), (2, 1)], "a result can be read again"
            with pytest.raises(il.StorageError, match="contains files already"):
                lake.sql(f"copy t to '{place}/parts' (format parquet, partition_by (k))")
            lake.sql(f"copy (from t where k = 2) to '{place}/parts' (format parquet, partition_by (k), overwrite)")
            assert lake.sql(f"select count(*) from '{place}/parts/*/*.parquet'").scalar() == 1
        lake.sql("create table u (k int primary key, v varchar)")
        with pytest.raises(il.DuplicateKeyError):
            lake.sql(f"copy u from '{out}/t.csv'")
        assert lake.sql("select count(*) from u").scalar() == 0
        assert lake.sql(f"copy t from '{out}/t.json'").scalar() == 3
        assert (
            lake.sql("select sum(k) from read_csv($files)", {"files": [f"{out}/t.csv", f"{out}/t.csv"]}).scalar() == 8
        )
        lake.sql(f"create view seen as from '{out}/t.csv'")
        assert lake.sql("select count(*) from seen where k = 1").scalar() == 2
        lake.sql("create temp table mine (k int, v varchar)")
        assert lake.sql(f"copy mine from '{out}/t.csv'").scalar() == 3
        for refused in (
            f"from 's3://{other}/elsewhere.csv'",
            f"from '{out}/../elsewhere.csv'",
            f"from '{out}side/t.csv'",
            f"copy t to '{own}/tables/1/x.parquet'",
            f"copy t from 's3://{bucket}/x.csv'",
        ):
            with pytest.raises(il.StorageError, match="SQL may not read or write"):
                lake.sql(refused)
        with pytest.raises(il.NotFoundError):
            lake.sql(f"from '{out}/nosuch.csv'")
        with pytest.raises(il.ExpressionError, match="names of files"):
            lake.sql(f"select filename from read_csv('{out}/t.csv', filename = true)")
    assert not any(spill.iterdir()), "copies go with their queries"


def test_only_what_the_owner_allows(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "x.csv").write_text("a\n1\n")
    (inside / "link").symlink_to(outside)
    (tmp_path / "also").symlink_to(inside)

    def may(lake: il.Lake, path: Path | str) -> bool:
        try:
            return bool(lake.sql(f"from read_csv('{path}')").fetchall() == [(1,)])
        except il.StorageError as error:
            return "il.connect(…, files=[…])" not in str(error)

    with il.connect(tmp_path / "lake", automatic=False) as lake:
        lake.sql("create table t (a int); insert into t values (1)")
        own = Path(lake.storage.root) / "exchange" / "x.csv"
        lake.sql(f"copy t to '{own}'")
        assert may(lake, own)
        assert not may(lake, inside / "x.csv")
        with pytest.raises(il.StorageError, match="SQL may not"):
            lake.sql(f"copy t to '{own.parent.parent}/tables/x.csv'")
        with pytest.raises(il.StorageError, match="SQL may not"):
            lake.sql(f"copy t to '{lake.storage.spill.folder()}/duckdb_temp_storage_DEFAULT-0.tmp' (format csv)")
        lake.pipeline("threads").vacuum()
        assert own.exists(), "files of users are left alone"
        with pytest.raises(il.ExpressionError, match="cannot be changed"):
            lake.sql("set allowed_directories = ['/']")
        lake.sql(f"create view v as from '{own}'")
    with il.connect(tmp_path / "lake", files=inside, automatic=False) as lake:
        assert may(lake, inside / "x.csv")
        assert may(lake, f"{inside}/../in/x.csv")
        assert may(lake, own)
        for path in (outside / "x.csv", f"{inside}/../out/x.csv", inside / "link" / "x.csv", f"{inside}side/x.csv"):
            assert not may(lake, path), path
        assert lake.sql("select table_name from information_schema.tables where table_type = 'VIEW'").scalar() == "v"
    with il.connect(tmp_path / "lake", files=[str(tmp_path / "also")], automatic=False) as lake:
        assert may(lake, tmp_path / "also" / "x.csv")
        assert may(lake, inside / "x.csv")
    with il.connect(":memory:", files="/") as lake:
        assert may(lake, outside / "x.csv")
        with pytest.raises(il.IndexLakeError):
            lake.sql("from 's3://bucket/x.csv'")
    wrong: Any
    for wrong in (3, [3], "", {"gs://bucket": None}):
        with pytest.raises(il.SchemaError, match="files"):
            il.connect(":memory:", files=wrong)


def test_a_view_over_a_file_shows_nothing_of_it_where_it_is_not_allowed(tmp_path: Path) -> None:
    """Names of columns are content of a file, too."""
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nx\n")
    with il.connect(tmp_path / "lake", files=tmp_path, automatic=False) as lake:
        lake.sql(f"create view v as from '{secret}'")
        assert "password" in str(lake.sql("from information_schema.columns").to_pylist())
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        assert "password" not in str(lake.sql("from information_schema.columns").to_pylist())
        with pytest.raises(il.StorageError):
            lake.sql("from v").to_arrow()


def test_copy_is_one_commit(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", files=tmp_path, automatic=False) as lake:
        lake.sql("create table t (id int primary key, v varchar check (v <> 'bad'))")
        path = tmp_path / "rows.csv"
        lake.sql(f"copy (select i as id, 'v' || i as v from range(300000) r(i)) to '{path}'")
        before = lake.snapshot_id
        done = lake.sql(f"copy t from '{path}'", token="once")
        assert isinstance(done, SqlChange)
        assert (done.rows, done.inserted, done.snapshot_id) == (300_000, 300_000, before + 1)
        assert lake.sql(f"copy t from '{path}'", token="once").scalar() == 300_000
        assert lake.sql("select count(*), max(v) from t").fetchall() == [(300_000, "v99999")]
        path.write_text("id,v\n400000,fine\n400001,bad\n")
        with pytest.raises(il.ConstraintError):
            lake.sql(f"copy t from '{path}'")
        path.write_text("id,v\n400000,fine\n5,again\n")
        with pytest.raises(il.DuplicateKeyError):
            lake.sql(f"copy t from '{path}'")
        assert lake.sql("select count(*) from t").scalar() == 300_000
        with lake.transaction() as tx:
            tx.sql("delete from t where id > 1")
            assert tx.sql(f"copy t to '{tmp_path}/two.csv'").scalar() == 2
            path.write_text("id,v\n7,seven\n")
            assert tx.sql(f"copy t from '{path}'").scalar() == 1
        assert lake.sql("select id from t order by id").fetchall() == [(0,), (1,), (7,)]
        assert lake.sql(f"copy t to '{tmp_path}/past.csv'", at=before + 1).scalar() == 300_000
        with pytest.raises(il.OwnershipError, match="read-only"):
            lake.sql(f"copy t from '{path}'", at=before + 1)


def test_nothing_is_written_through_links_that_lead_elsewhere(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "parts" / "k=1").mkdir(parents=True)
    outside.mkdir()
    (inside / "dangling.csv").symlink_to(outside / "new.csv")
    (inside / "folder").symlink_to(outside)
    (inside / "parts" / "k=1" / "data_0.csv").symlink_to(outside / "part.csv")
    (inside / "there.csv").write_text("")
    (inside / "tmp_there.csv").symlink_to(outside / "tmp.csv")
    (inside / "own.csv").symlink_to(inside / "behind.csv")
    with il.connect(":memory:", files=inside) as lake:
        lake.sql("create table t (k int); insert into t values (1)")
        for name in ("dangling.csv", "folder/x.csv", "folder/../x.csv", "there.csv"):
            with pytest.raises(il.StorageError, match="SQL may not read or write"):
                lake.sql(f"copy t to '{inside}/{name}'")
        with pytest.raises(il.StorageError, match="SQL may not read or write"):
            lake.sql(f"copy t to '{inside}/parts' (format csv, partition_by (k), overwrite_or_ignore)")
        for option in ("filename_pattern '../../x'", "file_extension '/../../x'"):
            with pytest.raises(il.ExpressionError, match="cannot contain a slash"):
                lake.sql(f"copy t to '{inside}/more' (format csv, per_thread_output, {option})")
        for name in ("own.csv", "fine.csv", "fine.csv"):
            assert lake.sql(f"copy t to '{inside}/{name}'").scalar() == 1
        for text in ("copy t to $1", "copy t from $1"):
            with pytest.raises(il.ExpressionError, match="NUL"):
                lake.sql(text, [f"{inside}/a\0b.csv"])
    assert not list(outside.iterdir())
    assert (inside / "behind.csv").read_text() == "k\n1\n"


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_nothing_is_written_over_the_lake_itself(tmp_path: Path, hot: Any) -> None:
    folder, log = tmp_path / "lake", tmp_path / "log"
    with il.connect(folder, files=tmp_path, hot=hot, log_dir=log if hot == "memory" else None, automatic=False) as lake:
        lake.sql("create table t (k int, v int); insert into t values (1, 2)")
        log = log if hot == "memory" else folder / "redo"
        for path in (
            folder / "catalog.sqlite",
            folder / "catalog.sqlite-wal",
            folder / "catalog.sqlite.lock",
            folder / "files" / "x.csv",
            folder / "files" / "tables" / "1" / "x.csv",
            log / "x.csv",
        ):
            with pytest.raises(il.StorageError, match="the lake keeps its own files there"):
                lake.sql(f"copy t to '{path}'")
        for path in (tmp_path, folder, folder / "files", log):
            with pytest.raises(il.StorageError, match="the lake keeps its own files there"):
                lake.sql(f"copy t to '{path}' (format csv, partition_by (k), overwrite)")
        lake.sql(f"copy t to '{folder}/files/exchange/x.csv'; copy t to '{folder}/beside.csv'")
        lake.sql(f"copy t to '{folder}/files/exchange' (format csv, partition_by (k), overwrite_or_ignore)")
        assert lake.sql("select count(*) from t").scalar() == 1
