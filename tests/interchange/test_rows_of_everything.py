"""Tables, views of the past, transactions, scans, changes and SQL results give their rows under the same names."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il

ROWS = [{"id": n, "city": f"c{n % 3}", "tags": ["a"] * (n % 2)} for n in range(30)]


@pytest.fixture(autouse=True)
def filled_table(lake: il.Lake) -> None:
    schema = {"id": "int64", "city": "string", "tags": "list<string>"}
    t = lake.create_table("t", schema, primary_key="id", config=il.TableConfig(direct_write_row_count=1000))
    t.insert(ROWS)


def by_id(rows):
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(params=["table", "past", "transaction", "scan", "changes", "sql", "select by key"])
def rows(request, lake):
    t = lake.table("t")
    if request.param == "past":
        past = lake.snapshot_id
        t.delete("id < 20")
        yield t.at(past), ROWS
    elif request.param == "transaction":
        with lake.transaction() as tx:
            own = tx.table("t")
            own.insert({"id": 99, "city": "mine"})
            yield own, [*ROWS, {"id": 99, "city": "mine", "tags": None}]
    elif request.param == "scan":
        yield t.scan("id >= 10", order_by="id"), ROWS[10:]
    elif request.param == "changes":
        feed = t.changes(since=lake.snapshot_id - 1)
        yield feed, [row | {"_change_type": "insert", "_snapshot_id": lake.snapshot_id} for row in ROWS]
    elif request.param == "sql":
        yield lake.sql("select * from t order by id"), ROWS
    elif request.param == "select by key":
        yield lake.sql("select * from t where id = 3"), ROWS[3:4]
    else:
        yield t, ROWS


def test_the_same_names_everywhere(rows, tmp_path):
    found, expected = rows
    assert by_id(found) == expected
    assert by_id(found) == expected  # again
    assert found.count() == len(expected)
    assert by_id(found.to_pylist()) == expected
    assert by_id(found.to_arrow().to_pylist()) == expected
    assert by_id(pa.Table.from_batches(list(found.to_batches()), found.schema).to_pylist()) == expected
    assert by_id(pa.table(found).to_pylist()) == expected
    assert isinstance(found.to_pandas(), pd.DataFrame)
    assert len(found.to_pandas()) == len(expected)
    assert isinstance(found.to_polars(), pl.DataFrame)
    assert by_id(found.to_polars().to_dicts()) == expected
    head = found.head(2)
    assert head.schema == found.schema
    assert all(row in expected for row in head.to_pylist())
    assert [found.head(n).num_rows for n in (0, 2, 100)] == [0, min(2, len(expected)), len(expected)]
    assert found.head().num_rows == min(10, len(expected))
    assert found.to_parquet(tmp_path / "rows.parquet") == len(expected)
    written = pq.read_table(tmp_path / "rows.parquet")
    assert by_id(written.to_pylist()) == expected
    assert written.schema.types == found.schema.types
    with pytest.raises(il.ExpressionError, match="head takes a whole number, 0 or more; got -1"):
        found.head(-1)


def test_going_through_rows_takes_little_memory_and_stops_when_told(lake):
    big = lake.create_table("big", pa.table({"id": range(60_000), "text": ["x" * 50] * 60_000}))
    tracemalloc.start()
    count = sum(1 for row in big if row["text"])
    for row in big.scan(columns=["id"]):
        assert set(row) == {"id"}
        break
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 60_000
    assert peak < 5_000_000


def test_the_head_of_an_ordered_scan_and_of_a_locked_one(lake):
    t = lake.table("t")
    assert t.scan(order_by=[("id", "desc")]).head(2).column("id").to_pylist() == [29, 28]
    assert t.scan(order_by="id", limit=1).head(5).column("id").to_pylist() == [0]
    with lake.transaction() as tx:
        tx.table("t").scan(order_by="id", for_update=True).head(1)
        t.update({"city": "x"}, where="id = 0")
        with pytest.raises(il.ConflictError):
            tx.commit()


def test_a_parquet_file_appears_whole_or_not_at_all(lake, tmp_path: Path):
    t, path = lake.table("t"), tmp_path / "out.parquet"
    t.to_parquet(str(path))
    with pytest.raises(il.AlreadyExistsError, match=r"already exists\. Pass overwrite=True to replace it\."):
        t.scan("id = 1").to_parquet(path)
    assert pq.read_metadata(path).num_rows == 30
    assert t.scan("id = 1").to_parquet(path, overwrite=True) == 1
    assert pq.read_metadata(path).num_rows == 1
    with pytest.raises(il.ExpressionError):
        lake.sql("select 1 / (id - 7) x, error('no') from t").to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(il.ExpressionError):
        t.scan("cast(city as int) = 1").to_parquet(path, overwrite=True)
    assert pq.read_metadata(path).num_rows == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lake", "out.parquet"]
    with pytest.raises(
        il.NotFoundError, match=r"There is no folder .*missing'? to write 'x.parquet' to\. Create it first\."
    ):
        t.to_parquet(tmp_path / "missing" / "x.parquet")
    with pytest.raises(il.AlreadyExistsError, match="is a folder"):
        t.to_parquet(tmp_path)
    assert t.scan("false").to_parquet(tmp_path / "empty.parquet") == 0
    assert pq.read_schema(tmp_path / "empty.parquet").types == t.schema.types


def test_every_type_survives_a_parquet_file(lake, tmp_path):
    import datetime as dt
    from decimal import Decimal

    t = lake.create_table(
        "types",
        {
            "v": "string_view", "b": "binary_view", "d": "dictionary<values=string, indices=int8, ordered=0>",
            "t": "timestamp[s, tz=Europe/Berlin]", "h": "halffloat", "n": "decimal256(40, 2)",
            "m": "map<string, list<string_view>>", "l": "fixed_size_list<int8>[2]", "u": "duration[ms]",
        },
    )  # fmt: skip
    t.insert({"v": "x", "b": b"y", "d": "z", "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "h": 0.5, "n": Decimal("1.5"),
              "m": {"a": ["b"]}, "l": [1, 2], "u": dt.timedelta(seconds=1)})  # fmt: skip
    t.to_parquet(tmp_path / "types.parquet")
    lake.create_table("again", t.schema).insert(tmp_path / "types.parquet")
    assert lake.table("again").to_pylist() == t.to_pylist()
