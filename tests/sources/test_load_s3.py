"""Files on an object store: rows from them and rows to them, with the lake's own options where its bucket is meant."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.storage import Storage

ROWS = [{"id": n, "code": f"c{n}"} for n in range(5)]


@pytest.fixture(scope="module")
def bucket(s3: Any) -> Any:
    name = s3.bucket()
    storage = Storage.open(f"s3://{name}", s3.options)

    def put(path: str, content: bytes) -> str:
        with storage.create_file(path, overwrite=True) as file:
            file.write(content)
        return f"s3://{name}/{path}"

    put.name = name  # type: ignore[attr-defined]
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), table, row_group_size=2)
    put("in/a.parquet", table.getvalue().to_pybytes())
    arrow = pa.BufferOutputStream()
    with pa.ipc.new_stream(arrow, pa.Table.from_pylist(ROWS).schema) as writer:
        writer.write(pa.Table.from_pylist(ROWS))
    put("in/deep/a.arrows", arrow.getvalue().to_pybytes())
    put("in/deep/b.csv", b"id,code\n10,x\n11,y\n")
    put("in/deep/c.jsonl", b'{"id": 20, "code": "z"}\n')
    put("in/deep/_SUCCESS", b"")
    return put


@pytest.fixture
def s3_lake(tmp_path, s3, bucket):
    with il.connect(
        tmp_path / "lake", storage=f"s3://{bucket.name}/{tmp_path.name}", storage_options=s3.options, automatic=False
    ) as opened:
        yield opened


@pytest.fixture
def t(s3_lake):
    name = f"t{len(s3_lake.tables())}"
    return s3_lake.create_table(name, {"id": "int64", "code": "string"}, primary_key="id")


def test_files_in_the_lake_s_own_bucket(s3_lake, t, bucket):
    where = f"s3://{bucket.name}/in"
    assert t.insert(f"{where}/a.parquet").rows == 5
    assert t.get(3) == {"id": 3, "code": "c3"}
    assert t.upsert(f"{where}/deep/a.arrows").updated == 5
    assert t.insert([f"{where}/deep/b.csv", f"{where}/deep/c.jsonl"]).rows == 3
    assert sorted(row["id"] for row in t) == [*range(5), 10, 11, 20]
    assert t.merge(f"{where}/deep/?.csv", on="id").when_matched_delete().execute().deleted == 2
    made = s3_lake.create_table("made", f"{where}/**/*.parquet", primary_key="id")
    assert made.to_pylist() == ROWS
    made.truncate()
    assert s3_lake.pipeline("threads").load(f"{where}/*.parquet", "made").rows == 5


def test_a_folder_and_what_is_not_there(t, bucket):
    where = f"s3://{bucket.name}/in"
    bucket("only/a.csv", b"id,code\n1,x\n")
    bucket("only/b.csv", b"id,code\n2,x\n")
    assert t.insert(f"s3://{bucket.name}/only/").rows == 2
    with pytest.raises(il.SchemaError, match=r"holds folders \('deep'\)"):
        t.insert(where)
    with pytest.raises(il.NotFoundError, match=r"No file matches 's3://.*/in/\*\.nope'"):
        t.insert(f"{where}/*.nope")
    with pytest.raises(il.NotFoundError, match=r"There is no file 's3://.*/in/none\.csv'"):
        t.insert(f"{where}/none.csv")
    bad = bucket("bad/x.parquet", b"PAR1 this is not one")
    with pytest.raises(il.CorruptionError, match=r"s3://.*/bad/x\.parquet"):
        t.insert(bad)
    assert len(t) == 2


def test_another_bucket_needs_options(tmp_path, s3, bucket):
    address = f"s3://{bucket.name}/in/a.parquet"
    with il.connect(tmp_path / "local") as lake:
        t = lake.create_table("t", {"id": "int64", "code": "string"})
        with pytest.raises(il.StorageError, match=r"is not in the bucket of the lake\. Pass il\.files"):
            t.insert(address)
        source = il.files(address, storage_options=s3.options)
        assert s3.secret not in repr(source)
        assert t.insert(source).rows == 5
        out = f"s3://{bucket.name}/out/t.parquet"
        with pytest.raises(il.StorageError, match=r"to_parquet\(…, storage_options=\{…\}\)"):
            t.to_parquet(out)
        assert t.to_parquet(out, storage_options=s3.options) == 5
        with pytest.raises(il.StorageError, match="Use s3://bucket/file or a local path"):
            t.insert("http://example.com/a.parquet")


def test_rows_to_the_lake_s_own_bucket(s3_lake, t, bucket):
    t.insert(ROWS)
    for n, rows in enumerate((t, t.scan("id < 3"), s3_lake.sql(f"select * from {t.name}"), t.changes(since=0))):
        path = f"s3://{bucket.name}/out/{t.name}-{n}.parquet"
        count = rows.to_parquet(path)
        with pytest.raises(il.AlreadyExistsError, match="overwrite=True"):
            rows.to_parquet(path)
        assert rows.to_parquet(path, overwrite=True) == count == rows.count()
    back = s3_lake.create_table(f"{t.name}_back", f"s3://{bucket.name}/out/{t.name}-0.parquet")
    assert back.to_pylist() == ROWS
