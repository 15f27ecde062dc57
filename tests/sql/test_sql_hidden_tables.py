"""Nothing is written to a stored table by a name that means a temporary view or table."""

from __future__ import annotations

import pytest

import indexlake as il

CHANGES = [
    "truncate t",
    "truncate t, u",
    "truncate temp.t",
    "insert into t values (3, 4)",
    "insert into t values (1, 4) on conflict do nothing",
    "insert or replace into t values (1, 4)",
    "update T set b = 4",
    "delete from t where a = 1 returning *",
    "merge into t using u on t.a = u.a when matched then delete",
    "copy t from 'rows.csv'",
    "alter table t add column c int",
    "alter table if exists t rename to w",
    "drop table t",
    "drop table if exists t",
    "create index i on t (b)",
    "comment on table t is 'x'",
    "comment on column t.a is 'x'",
    "execute gone",
]


def test_what_a_temporary_view_hides_is_not_changed(lake: il.Lake) -> None:
    lake.sql("create table t (a int primary key, b int); create table u (a int); prepare gone as delete from t")
    lake.sql("insert into t values (1, 2); insert into u values (1); create temp view t as select 7 as a")
    before = lake.snapshot_id
    for text in CHANGES:
        with pytest.raises(il.SchemaError, match=r"'[tT]' is a temporary view.*drop view.*main\.[tT]"):
            lake.sql(text)
    with lake.transaction() as tx, pytest.raises(il.SchemaError, match="temporary view"):
        tx.sql("delete from t")
    assert lake.snapshot_id == before
    assert lake.sql("from t").fetchall() == [(7,)]
    lake.sql("insert into main.t values (3, 4); update main.t set b = 5 where a = 3; delete from main.t where a = 1")
    lake.sql("merge into main.t using u on main.t.a = u.a when not matched then insert values (9, 9)")
    assert lake.sql("from main.t order by a").fetchall() == [(3, 5), (9, 9)]
    lake.sql("drop view t; delete from t")
    assert lake.sql("select count(*) from t").scalar() == 0


def test_what_a_temporary_table_hides_is_not_changed(lake: il.Lake) -> None:
    lake.sql("create table t (a int); insert into t values (1); create table u (a int); insert into u values (1)")
    lake.sql("create temp table t as select 7 as a")
    before = lake.snapshot_id
    for text in ("truncate t, u", "truncate u, t"):
        with pytest.raises(il.SchemaError, match=r"'t' is a temporary table.*main\.t"):
            lake.sql(text)
    lake.sql("update t set a = 8; alter table t add column b int; comment on table t is 'x'")
    assert lake.snapshot_id == before
    assert lake.sql("from t").fetchall() == [(8, None)]
    assert lake.sql("from main.t").fetchall() == [(1,)]


def test_a_stored_view_is_not_changed(lake: il.Lake) -> None:
    lake.sql("create table t (a int); create view v as from t")
    for text in (
        "truncate v",
        "insert into v values (1)",
        "update v set a = 1",
        "delete from v",
        "merge into v using t on v.a = t.a when matched then delete",
        "alter table v add column b int",
        "drop table v",
    ):
        with pytest.raises(il.NotFoundError, match=r"'main\.v' is a view"):
            lake.sql(text)
