"""What a result can be turned into, how it streams, and what type each column has."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.errors import CorruptionError, ExpressionError, OwnershipError
from indexlake.sql.run.engine import CLOSE_SECONDS
from indexlake.sql.run.result import SqlChange
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def three_rows(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, name varchar, v double)")
    lake.sql("insert into t values (1, 'a', 1.5), (2, '<b>', null), (3, null, -2)")


QUERIES = ["select * from t", "select id, upper(name) as name, v from t order by id"]


@pytest.mark.parametrize("text", QUERIES, ids=["by the scan", "by DuckDB"])
def test_a_result_becomes_whatever_speaks_arrow(lake: il.Lake, text: str) -> None:
    table = lake.sql(text).to_arrow()
    assert table.schema.names == ["id", "name", "v"]
    assert lake.sql(text).schema == table.schema
    assert lake.sql(text).columns == ["id", "name", "v"]
    assert lake.sql(text).to_pylist() == table.to_pylist()
    assert list(lake.sql(text)) == table.to_pylist()
    assert [row["id"] for row in lake.sql(text)] == [1, 2, 3]
    assert lake.sql(text).fetchall() == [tuple(row.values()) for row in table.to_pylist()]
    assert lake.sql(text).count() == 3
    assert isinstance(lake.sql(text).to_pandas(), pd.DataFrame)
    assert lake.sql(text).to_polars().equals(pl.from_arrow(table))
    assert pa.table(lake.sql(text)).equals(table)
    assert pl.DataFrame(lake.sql(text)).height == 3
    result = lake.sql(text)
    assert duckdb.connect().from_arrow(pa.RecordBatchReader.from_stream(result)).aggregate("sum(id)").fetchone() == (6,)
    assert sum(batch.num_rows for batch in lake.sql(text).to_batches()) == 3


def test_a_result_can_be_inserted_into_a_table(lake: il.Lake) -> None:
    copy = lake.create_table("copy", lake.table("t").schema)
    assert copy.insert(lake.sql("select * from t")).rows == 3
    assert lake.create_table("made", lake.sql("select id, v * 2 as w from t")).scan().count() == 3


@pytest.mark.parametrize("text", QUERIES, ids=["by the scan", "by DuckDB"])
def test_showing_a_result_reads_nothing_twice_and_escapes_html(lake: il.Lake, text: str) -> None:
    result = lake.sql(text)
    assert "id  name" in repr(result)
    assert "NULL" in repr(result)
    html = result._repr_html_()
    assert "&lt;b&gt;" in html or "&lt;B&gt;" in html
    assert "<b>" not in html.lower().replace("<b>main", "")
    assert result.fetchone()[0] == 1  # type: ignore[index]
    assert result.count() == 3
    assert result.count() == 3, "it is run again"
    assert "first 10 rows" in repr(lake.sql("select * from range(1000)"))


def test_an_empty_result_has_columns(lake: il.Lake) -> None:
    for text in ("select id, v from t where id = 99", "select sum(v) as v, id from t where id = 99 group by id"):
        result = lake.sql(text)
        assert result.to_arrow().num_rows == 0
        assert len(result.columns) == 2
        assert result.fetchone() is None
        assert result.scalar() is None
        assert "id" in repr(result)
        assert lake.sql(text).to_pandas().empty


def test_a_change_says_what_it_changed(lake: il.Lake) -> None:
    made = lake.sql("insert into t values (10, 'x', 0), (11, 'y', 0)")
    assert isinstance(made, SqlChange)
    assert (made.rows, made.inserted, made.updated, made.deleted) == (2, 2, 0, 0)
    assert made.snapshot_id == lake.snapshot_id
    assert made.to_pylist() == [{"rows": 2, "inserted": 2, "updated": 0, "deleted": 0}]
    assert repr(lake.sql("update t set v = 1 where id > 9")).startswith("<update: 2 updated, snapshot ")
    assert lake.sql("delete from t where id in (select 10)").deleted == 1
    merged = lake.sql(
        "merge into t using (values (11), (12)) s(id) on t.id = s.id when matched then delete"
        " when not matched then insert (id) values (s.id)"
    )
    assert (merged.inserted, merged.deleted) == (1, 1)


def test_plain_columns_keep_the_types_of_their_table(tmp_path: Path) -> None:
    schema = pa.schema(
        {
            "id": pa.int8(),
            "large": pa.large_string(),
            "view": pa.string_view(),
            "day": pa.date64(),
            "clock": pa.time32("ms"),
            "span": pa.duration("ms"),
            "zoned": pa.timestamp("ms", "Europe/Berlin"),
            "digits": pa.decimal256(50, 2),
            "half": pa.float16(),
            "word": pa.dictionary(pa.int32(), pa.string()),
            "fixed": pa.binary(3),
            "list": pa.large_list(pa.int16()),
        }
    )
    row = {
        "id": 1, "large": "l", "view": "v", "day": date(2024, 1, 1), "clock": None, "zoned": None,
        "span": timedelta(days=2, milliseconds=5), "digits": Decimal("12345678901234567890.25"),
        "half": np.float16(1.5), "word": "w", "fixed": b"abc", "list": [1, None],
    }  # fmt: skip
    with il.connect(str(tmp_path / "other"), automatic=False) as lake:
        table = lake.create_table("t", schema)
        table.insert(row)
        for dumped in (False, True):
            if dumped:
                lake.pipeline().dump("t")
            direct = lake.sql("select * from t").to_arrow()
            assert direct.schema.types == schema.types
            computed = lake.sql("select * from t where random() < 2").to_arrow()
            assert computed.schema.types == schema.types
            assert computed.to_pylist() == direct.to_pylist()
            joined = lake.sql("select a.span as x, b.word, a.digits + 1 as more from t a join t b on a.id = b.id")
            assert joined.schema.types[:2] == [pa.duration("ms"), schema.field("word").type]
            assert joined.to_pylist()[0]["more"] == Decimal("12345678901234567891.25")
        table.insert({"id": 2, "digits": Decimal(10) ** 45})
        assert lake.sql("select digits from t where id = 2").scalar() == Decimal(10) ** 45
        with pytest.raises(ExpressionError, match="digits"):
            lake.sql("select max(digits) from t").to_arrow()


def test_a_large_result_streams(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "other"), automatic=False) as lake:
        table = lake.create_table("t", pa.schema({"id": pa.int64()}), config=il.TableConfig(block_row_count=20_000))
        table.insert(pa.table({"id": np.arange(2_000_000)}))
        assert table.stats().blocks == 100
        for text in ("select id from t", "select id + 1 as id from t", "select a.id from t a join t b on a.id = b.id"):
            batches = lake.sql(text).to_batches()
            assert 0 < next(batches).num_rows <= 200_000
            del batches
        assert lake.sql("select id + 1 as id from t").count() == 2_000_000
        inserted = lake.sql("create table copy as select id, id * 2 as twice from t")
        assert inserted.rows == 2_000_000
        assert lake.table("copy").stats().hot_rows == 0, "many rows go straight to blocks"


def test_results_that_nobody_reads_to_the_end_leave_no_thread_behind(lake: il.Lake) -> None:
    lake.sql("create table big as select range as id, 'x' || range as s from range(300000)")
    before = threading.active_count()
    for _ in range(5):
        result = lake.sql("select id, s || 'y' from big")
        next(result.to_batches())
        lake.sql("select id, s from big")
        del result
    gc.collect()
    wait_until(lambda: threading.active_count() <= before, "threads are left")


def test_a_scan_that_is_opened_several_times_gives_its_rows_each_time(
    lake: il.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexlake.hot.rows.MEMORY_BYTES", 1000)  # hot rows lie in a temporary file
    lake.sql("create table hot (id int, s varchar)")
    lake.table("hot").insert([{"id": n, "s": "x" * 50} for n in range(5000)])
    twice = "with c as not materialized (select * from hot) select count(*), sum(x.id) from c x join c y on x.id = y.id"
    assert lake.sql(twice).fetchone() == (5000, 12_497_500)
    steps = (
        "with recursive r(i) as (select 0 union all select hot.id from hot join r on hot.id = r.i + 1 where r.i < 30)"
    )
    assert lake.sql(f"{steps} select count(*) from r").scalar() == 31
    both = "select count(*) from (select id from hot union all select id from hot) where id < 100"
    assert lake.sql(both).scalar() == 200


def test_many_threads_share_a_lake(lake: il.Lake) -> None:
    lake.sql("create table big as select range as id, range % 10 as g from range(50000)")
    failures: list[BaseException] = []

    def ask(n: int) -> None:
        try:
            for i in range(5):
                assert lake.sql("select count(*) from big where g = $g and id >= 0", {"g": n}).scalar() == 5000
                assert lake.sql("select id from big where id = $id", {"id": i}).scalar() == i
                assert lake.sql("select sum(b.id) from big a join big b using (id) where a.g = ?", [n]).scalar() > 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_damage_in_a_file_is_the_same_error_as_in_a_scan(lake: il.Lake, tmp_path: Path) -> None:
    lake.sql("create table big as select range as id, 'x' || range as s from range(100000)")
    (path,) = [p for p in (tmp_path / "lake").rglob("*.vortex") if p.stat().st_size > 10_000]
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with il.connect(str(tmp_path / "lake"), automatic=False) as other, pytest.raises(CorruptionError, match=path.name):
        other.sql("select sum(length(s)) from big").to_arrow()


def test_a_lake_whose_query_was_refused_closes_at_once(tmp_path: Path) -> None:
    lake = il.connect(tmp_path / "other", automatic=False)
    lake.create_table("t", pa.table({"id": range(10)}))
    with pytest.raises(ExpressionError, match="nosuch"):
        lake.sql("select nosuch from t").to_arrow()
    began = time.monotonic()
    lake.close()
    assert time.monotonic() - began < CLOSE_SECONDS / 2


def test_a_closed_lake_answers_nothing(lake: il.Lake) -> None:
    lake.sql("create table big as select range as id from range(500000)")
    batches = lake.sql("select id + 1 from big").to_batches()
    next(batches)
    lake.close()
    with pytest.raises(OwnershipError):
        list(batches)
    with pytest.raises(OwnershipError, match="closed"):
        lake.sql("select 1")


def test_the_interpreter_ends_with_results_half_read(tmp_path: Path) -> None:
    script = """
import sys
import indexlake as il
lake = il.connect(sys.argv[1], automatic=False)
lake.sql("create table if not exists big as select range as id, 'x' || range as s from range(400000)")
kept = [lake.sql(text).to_batches() for text in ("select id, s || 'y' from big", "select * from big")]
print(sum(next(k).num_rows > 0 for k in kept))
"""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "other")], capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_columns_of_one_name_are_no_dict(lake: il.Lake) -> None:
    result = lake.sql("select 1 as a, 2 as a")
    assert result.fetchall() == [(1, 2)]
    for read in (result.to_pylist, lambda: list(result)):
        with pytest.raises(il.SchemaError, match="Two columns are named 'a'"):
            read()


def test_a_truncate_in_a_transaction_says_how_many_rows_it_removes(lake: il.Lake) -> None:
    lake.pipeline().dump("t")
    lake.sql("insert into t values (4, 'hot', 4)")
    with lake.transaction() as tx:
        tx.sql("insert into t values (5, 'own', 5)")
        assert tx.sql("truncate t").rows == 5
        tx.sql("insert into t values (6, 'after', 6)")
        result = tx.table("t").truncate()
        assert (result.rows, result.inserted, result.updated, result.deleted) == (1, 0, 0, 1)
    assert lake.sql("select count(*) from t").scalar() == 0
    assert lake.sql("begin; insert into t values (7, 'new', 7); truncate t; commit").results[2].rows == 1
