"""Lakes with ``cache_dir``: what is refused, what ``stats`` and ``explain`` say, and jobs that delete and verify."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.support.flaky_proxy import FlakyProxy
from tests.support.folders import let_others_in
from tests.support.lakes import clock_of, connect
from tests.support.servers import S3Server

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
ROWS = pa.table({"id": range(60_000), "text": [f"{n * 7919 % 1_000_003} {n}" for n in range(60_000)]}, SCHEMA)


@pytest.fixture
def address(s3: S3Server, proxy: FlakyProxy, tmp_path: Path) -> dict[str, Any]:
    """How to connect to a lake on S3 with one table of some blocks."""
    found: dict[str, Any] = {
        "catalog": str(tmp_path / "lake"),
        "storage_options": {**s3.options, "endpoint": proxy.endpoint},
        "automatic": False,
    }
    with il.connect(storage=f"s3://{s3.bucket()}/p", **found) as lake:
        config = il.TableConfig(block_row_count=20_000, direct_write_row_count=10, retention=timedelta(0))
        lake.create_table("t", SCHEMA, primary_key="id", config=config).insert(ROWS)
    return found


def test_a_second_lake_reads_rows_keys_and_counts_without_a_request(
    address: dict[str, Any], proxy: FlakyProxy, tmp_path: Path
) -> None:
    def read(lake: il.Lake) -> tuple[Any, ...]:
        t = lake.table("t")
        found = t.scan("id % 1000 = 7").to_arrow(), t.get(41_234), t.scan(order_by="id").to_arrow()
        return *found, t.scan("text like '77%'").count(), t.get(-1)

    with il.connect(**address) as lake:
        expected = read(lake)
        assert lake.table("t").stats().cache is None
    assert expected[2] == ROWS
    cache = tmp_path / "cache"
    with il.connect(**address, cache_dir=cache) as lake:
        assert read(lake) == expected
    with il.connect(**address, cache_dir=str(cache)) as lake:
        before = len(proxy.requests)
        assert read(lake) == expected
        assert proxy.requests[before:] == []
        found = lake.table("t").stats()
        assert found.cache is not None
        assert found.cache.hits > 0
        assert (found.cache.misses, found.cache.damaged, found.cache.not_stored) == (0, 0, 0)
        assert found.bytes < found.cache.used_bytes < found.cache.limit_bytes == 10 << 30
        assert "local cache: " in str(found)
        assert " chunks found, 0 fetched; at most " in str(found)
        other = lake.create_table("other", SCHEMA).stats().cache
        assert other is not None
        assert (other.hits, other.misses) == (0, 0), "of another table"


def test_explain_says_what_is_here_before_it_is_read(address: dict[str, Any], tmp_path: Path) -> None:
    with il.connect(**address) as lake:
        assert lake.table("t").scan().explain().cache_hits is None
        assert "local cache" not in str(lake.table("t").scan().explain())
    with il.connect(**address, cache_dir=tmp_path / "cache") as lake:
        t = lake.table("t")
        before = t.scan().explain()
        assert (before.cache_hits, before.blocks_read) == (0, 3)
        assert before.cache_misses is not None
        assert before.cache_misses >= 3
        t.scan("id < 20000").to_arrow()
        half = t.scan().explain()
        assert half.cache_hits is not None
        assert half.cache_misses is not None
        assert half.cache_hits > 0
        assert half.cache_misses > 0
        t.scan().to_arrow()
        after = t.scan().explain()
        assert (after.cache_hits, after.cache_misses) == (before.cache_misses, 0)
        assert f"  local cache: {after.cache_hits} chunks of these blocks here, 0 not" in str(after)
        assert "chunks in the local cache" in after.tasks[0]


def test_vacuum_deletes_the_local_copies_too(address: dict[str, Any], tmp_path: Path) -> None:
    with connect(**address, cache_dir=tmp_path / "cache") as lake:
        t = lake.table("t")
        t.set_config(block_row_count=100_000)
        t.scan().to_arrow()
        t.get(30_000)
        old = {path.parent for path in (tmp_path / "cache").rglob("*.chunk")}
        assert old
        lake.pipeline(runner="threads").compact("t")
        assert t.scan(order_by="id").to_arrow() == ROWS
        clock_of(lake).stop()  # everything old has expired
        lake.pipeline(runner="threads").expire("t")
        done = lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
        assert done.files == 6
        left = {path.parent for path in (tmp_path / "cache").rglob("*.chunk")}
        assert left
        assert not left & old
        assert t.scan(order_by="id").to_arrow() == ROWS


def test_verify_sees_damage_in_the_store_that_the_cache_hides(address: dict[str, Any], tmp_path: Path) -> None:
    with il.connect(**address, cache_dir=tmp_path / "cache") as lake:
        t = lake.table("t")
        t.scan().to_arrow()
        path = t._state().blocks.records[0].path
        with lake.storage.open_file(path) as file:
            data = bytearray(file.read())
        data[len(data) // 2] ^= 1
        with lake.storage.create_file(path, overwrite=True) as out:
            out.write(data)
        lake._files.clear()
        assert t.scan(order_by="id").to_arrow() == ROWS, "what is here is right"
        found = lake.pipeline(runner="threads").verify()
        assert not found.ok
        assert [problem.path for problem in found.problems] == [path]


def test_files_that_are_local_or_in_memory_are_not_kept_twice(tmp_path: Path) -> None:
    for catalog in (str(tmp_path / "lake"), ":memory:"):
        with il.connect(catalog, automatic=False, cache_dir=tmp_path / "cache") as lake:
            t = lake.create_table("t", SCHEMA, config=il.TableConfig(direct_write_row_count=10))
            t.insert(ROWS)
            assert t.scan().to_arrow().num_rows == 60_000
            assert t.stats().cache is None
            assert t.scan().explain().cache_hits is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("wrong", [0, -1, 1000, 1.5, True, None, "10 GiB"])
def test_a_wrong_cache_bytes_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(il.StorageError, match="cache_bytes must be a number of bytes, 1,048,576 or more; got "):
        il.connect(tmp_path / "lake", cache_dir=tmp_path, cache_bytes=wrong)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("wrong", ["", 7, b"cache", "a\0b", "s3://bucket/cache"])
def test_a_wrong_cache_dir_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(il.StorageError, match="cache_dir is "):
        il.connect(tmp_path / "lake", cache_dir=wrong)
    assert not (tmp_path / "lake").exists()


def test_a_cache_dir_that_is_a_file_is_refused_before_the_lake_is_made(s3: S3Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(il.StorageError, match=r"cannot use cache_dir '.+': a part of the path is a file"):
            il.connect(tmp_path / "lake", storage=f"s3://{s3.bucket()}", storage_options=s3.options, cache_dir=cache)
    with pytest.raises(il.NotFoundError):
        il.connect(tmp_path / "lake", create=False).tables()


FORBIDDEN = """
import os, sys
import indexlake as il, indexlake.catalog.sqlite
il.storage.Storage.open("memory://")  # what root has imported an ordinary user need not be able to
if os.geteuid() == 0:
    os.setuid(65534)
try:
    il.connect(sys.argv[1], storage="s3://bucket", storage_options={"access_key_id": "k", "secret_access_key": "s"},
               cache_dir=sys.argv[2])
except il.StorageError as error:
    print(error)
"""


def test_a_cache_dir_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake").chmod(0o777)
    (tmp_path / "cache").chmod(0o555)
    let_others_in(tmp_path)
    command = [sys.executable, "-c", FORBIDDEN, str(tmp_path / "lake"), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert done.stdout.startswith(f"cannot use cache_dir '{tmp_path}/cache': permission denied; check"), done.stderr
