"""Views at snapshots, inside transactions and on Spark; create or replace table leaves the past and failures alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import indexlake as il


@pytest.fixture
def lake(tmp_path: Path) -> il.Lake:
    lake = il.connect(str(tmp_path / "lake"), automatic=False)
    lake.sql("create table t (id int primary key, v int); insert into t values (1, 10), (2, 20)")
    return lake


def test_a_view_is_read_at_the_snapshot_of_the_query_with_its_text_of_then(lake: il.Lake) -> None:
    lake.sql("create view w as select id from t where v > 15")
    then = lake.snapshot_id
    lake.sql("insert into t values (3, 30)")
    lake.sql("create or replace view w as select id, v from t")
    assert lake.sql("select * from w", at=then).fetchall() == [(2,)]
    assert lake.at(then).sql("from w").fetchall() == [(2,)]
    assert lake.sql("select count(*) from w").scalar() == 3
    assert lake.sql("select * from w at (version => $then)", {"then": then}).fetchall() == [(2,)]
    mixed = "select count(*) from w join w at (version => $then) as old using (id)"
    assert lake.sql(mixed, {"then": then}).scalar() == 1
    with pytest.raises(il.NotFoundError):
        lake.sql("from w", at=then - 1)
    lake.sql("drop view w")
    assert lake.sql("select count(*) from w", at=then).scalar() == 1


def test_a_view_of_a_view_takes_the_snapshot_along(lake: il.Lake) -> None:
    lake.sql("create view a as select * from t; create view b as select sum(v) as s from a")
    then = lake.snapshot_id
    lake.sql("update t set v = 0")
    assert lake.sql("from b at (version => $n)", {"n": then}).scalar() == 30
    assert lake.sql("from b").scalar() == 0


def test_a_transaction_sees_its_own_rows_through_a_view(lake: il.Lake) -> None:
    lake.sql("create view w as select sum(v) as s from t")
    with lake.transaction() as tx:
        tx.sql("insert into t values (3, 100)")
        assert tx.sql("from w").scalar() == 130
    assert lake.sql("from w").scalar() == 130


def test_a_view_is_there_for_others_and_a_temporary_one_is_not(lake: il.Lake, tmp_path: Path) -> None:
    lake.sql("create view w as select id from t; create temp view own as select v from w join t using (id)")
    assert sorted(lake.sql("from own").fetchall()) == [(10,), (20,)]
    with pytest.raises(il.ExpressionError, match="temporary view, and a stored one cannot read it"):
        lake.sql("create view stored as select * from own")
    with il.connect(str(tmp_path / "lake"), automatic=False) as other:
        assert other.sql("select count(*) from w").scalar() == 2
        with pytest.raises(il.NotFoundError):
            other.sql("from own")


def test_names_in_a_view_mean_the_namespace_it_was_made_in(lake: il.Lake) -> None:
    lake.sql("create schema s; create table s.t (id int); insert into s.t values (77)")
    lake.sql("create view w as select id from t", namespace="s")
    assert lake.sql("from s.w").fetchall() == [(77,)]
    assert lake.sql("from w", namespace="s").fetchall() == [(77,)]
    assert sorted(lake.sql("select t.id from t, s.w").fetchall()) == [(1,), (2,)]


def test_conditions_pass_through_a_view_into_the_scan(lake: il.Lake) -> None:
    lake.sql("create view w as select id, v from t")
    assert "id = 2" in str(lake.sql("explain select v from w where id = 2"))


def test_an_error_in_a_query_of_a_view_shows_the_query(lake: il.Lake) -> None:
    lake.sql("create view w as select id from t")
    with pytest.raises(il.ExpressionError, match=r"line 1: select nosuch from w"):
        lake.sql("select nosuch from w").to_arrow()
    with pytest.raises(il.NotFoundError, match=r"'main.w' is a view: read it with lake.sql"):
        lake.table("w")
    with pytest.raises(il.ExpressionError, match="cannot have parameters"):
        lake.sql("create view x as select * from t where id = $id", {"id": 1})


def test_a_table_is_replaced_in_one_commit_and_the_past_keeps_the_old_one(lake: il.Lake) -> None:
    then = lake.snapshot_id
    lake.sql("create or replace table t (name varchar)")
    assert lake.snapshot_id == then + 1
    assert lake.sql("select * from t", at=then).count() == 2
    assert lake.tables() == ["main.t"]
    lake.create_table("t", [{"a": 1}, {"a": 2}], replace=True)
    assert lake.table("t").scan().to_pylist() == [{"a": 1}, {"a": 2}]
    with pytest.raises(il.SchemaError, match="contradict each other"):
        lake.create_table("t", {"a": "int64"}, replace=True, exist_ok=True)


def test_a_replacement_that_fails_leaves_the_table(lake: il.Lake) -> None:
    with pytest.raises(il.IndexLakeError):
        lake.sql("create or replace table t as select (1 / v)::int as i, error('no') as e from t")
    with pytest.raises(il.IndexLakeError):
        lake.create_table("t", iter([{"a": 1}, 5]), replace=True)
    assert lake.tables() == ["main.t"]
    assert lake.sql("select * from t").count() == 2


def test_readers_of_a_view_that_is_replaced_again_and_again_see_one_of_its_texts(lake: il.Lake) -> None:
    lake.sql("create view w as select 0 as n, 0 as m")
    done = threading.Event()

    def replacing() -> None:
        for n in range(1, 30):
            lake.sql(f"create or replace view w as select {n} as n, {n} as m")
        done.set()

    thread = threading.Thread(target=replacing)
    thread.start()
    seen = []
    while not done.is_set():
        ((n, m),) = lake.sql("from w").fetchall()
        assert n == m
        seen.append(n)
    thread.join()
    assert seen == sorted(seen)
