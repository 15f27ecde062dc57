"""What ``returning`` gives beyond what DuckDB can judge: in transactions, with parameters, in our own types."""

from __future__ import annotations

import pyarrow as pa
import pytest

import indexlake as il


def test_a_transaction_returns_what_it_has_written_itself(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, n int); insert into t values (1, 1), (2, 2)")
    with lake.transaction() as tx:
        tx.sql("insert into t values (3, 3)")
        assert tx.sql("update t set n = n * 10 where id > 1 returning *").fetchall() == [(2, 20), (3, 30)]
        assert tx.sql("delete from t where id = 3 returning n").fetchall() == [(30,)]
        assert lake.sql("select count(*) from t where n > 2").scalar() == 0
    assert lake.sql("select * from t order by id").fetchall() == [(1, 1), (2, 20)]


def test_counts_are_those_of_the_change(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, n int); insert into t values (1, 1), (2, 2)")
    found = lake.sql("update t set n = 0 where id = $id returning n + $more as n", {"id": 2, "more": 7})
    assert (found.rows, found.updated, found.fetchall()) == (1, 1, [(7,)])
    assert found.fetchall() == [(7,)]  # again
    assert found.snapshot_id == lake.snapshot_id
    assert "7" in repr(found)


def test_columns_keep_their_types(lake: il.Lake) -> None:
    table = lake.create_table("t", {"a": pa.float16(), "b": pa.dictionary(pa.int32(), pa.string()), "c": pa.date64()})
    table.insert(pa.table({"a": pa.array([1.5], pa.float16()), "b": ["x"], "c": pa.array([0], pa.date64())}))
    returned = lake.sql("delete from t returning a, b, c, a + 1 as more").to_arrow()
    assert returned.schema.types == [*lake.table("t").schema.types, pa.float32()]


def test_a_row_id_can_be_returned(lake: il.Lake) -> None:
    lake.sql("create table t (id int); insert into t values (1), (2)")
    ids = dict(lake.sql("select id, _indexlake_row_id from t").fetchall())
    assert lake.sql("update t set id = 5 where id = 2 returning _indexlake_row_id").scalar() == ids[2]
    assert lake.sql("select * from t where id = 5").columns == ["id"]


def test_a_failing_expression_changes_nothing_and_shows_its_place(lake: il.Lake) -> None:
    lake.sql("create table t (id int, s varchar)")
    before = lake.snapshot_id
    with pytest.raises(il.ExpressionError, match="abc") as error:
        lake.sql("insert into t values (1, 'abc') returning id, s::int")
    with pytest.raises(il.ExpressionError) as error:
        lake.sql("insert into main.t values (1, 'abc')\nreturning main.t.id,\nnosuch")
    assert "line 3: nosuch" in str(error.value)
    assert lake.snapshot_id == before


def test_a_token_and_returning_exclude_each_other(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    with pytest.raises(il.ExpressionError, match="token"):
        lake.sql("insert into t values (1) returning id", token="once")


def test_several_tables_are_truncated_in_one_commit(lake: il.Lake) -> None:
    lake.sql("create table t (id int); create table u (id int); insert into t values (1); insert into u values (1)")
    before = lake.snapshot_id
    lake.sql("truncate table t, u")
    assert lake.snapshot_id == before + 1
    assert lake.sql("select (select count(*) from t) + (select count(*) from u)").scalar() == 0
