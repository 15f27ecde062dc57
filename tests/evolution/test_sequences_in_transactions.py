"""A sequence that a transaction defines gives numbers in it, and leaves nothing behind if it is rolled back."""

from __future__ import annotations

from typing import Any

import pytest

import indexlake as il

Pair = tuple[il.Lake, il.Lake]


def rows(table: il.Table) -> list[dict[str, Any]]:
    return table.scan(order_by=["id"]).to_pylist()


def counters(lake: il.Lake) -> list[str]:
    with lake.catalog.read() as r:
        rows = r.rows("select name from indexlake_sequence where name like 'sequence %' order by name")
    return [name for (name,) in rows]


NUMBERED = "create sequence s; create table n (id bigint primary key default nextval('s'), a int)"


def test_a_sequence_gives_numbers_in_the_transaction_that_creates_it(any_two_handles: Pair) -> None:
    lake, other = any_two_handles
    with lake.transaction() as tx:
        tx.sql(NUMBERED)
        n = tx.table("n")
        n.insert([{"a": 1}, {"a": 2}])
        n.upsert({"id": 100, "a": 3})
        assert tx.sql("select nextval('s'), currval('s')").fetchall() == [(3, 3)]
        n.insert({"a": 4})
        with pytest.raises(il.NotFoundError, match="no sequence"):
            other.sql("select nextval('s')")
        asked = tx.sql("select nextval('s') as i from range(2)")
    assert asked.fetchall() == [(5,), (6,)], "they were taken when the statement ran"
    assert [(r["id"], r["a"]) for r in rows(other.table("n"))] == [(1, 1), (2, 2), (4, 4), (100, 3)]
    assert lake.sql("select currval('s'), nextval('s')").fetchall() == [(6, 7)]
    assert other.sql("insert into n (a) values (8); select max(id) from n where a = 8").scalar() == 8


def test_two_transactions_with_a_sequence_of_the_same_name_count_apart(any_two_handles: Pair) -> None:
    lake, other = any_two_handles
    mine, theirs = lake.transaction(), other.transaction()
    for tx in (mine, theirs):
        tx.sql(NUMBERED)
    for expected in (1, 2):
        for tx in (mine, theirs):
            assert tx.sql("select nextval('s')").scalar() == expected
            tx.sql("create view extra as select nextval('s') as i; drop view extra")  # another draft, the same sequence
    mine.sql("insert into n (a) values (1)")
    theirs.rollback()
    mine.commit()
    assert rows(other.table("n")) == [{"id": 3, "a": 1}]
    assert other.sql("select nextval('s')").scalar() == 4
    assert len(counters(lake)) == 1


def test_a_rolled_back_sequence_leaves_no_counter(any_two_handles: Pair) -> None:
    lake, _ = any_two_handles
    lake.sql(NUMBERED + "; insert into n (a) values (1)")
    before = counters(lake)
    with lake.transaction() as tx:
        tx.sql("create sequence q; select nextval('q'); create or replace sequence q; select nextval('q')")
        tx.sql("create or replace sequence s start 50; select nextval('s'); insert into n (a) values (2)")
        assert [r["id"] for r in rows(tx.table("n"))] == [1, 51]
        tx.sql("drop table n; drop sequence s; drop sequence q")
        assert len(counters(lake)) == len(before) + 3
        tx.rollback()
    assert counters(lake) == before
    assert lake.sql("select nextval('s')").scalar() == 2, "it counts on where it was"
    with pytest.raises(il.NotFoundError):
        lake.sql("select nextval('q')")


def test_a_dropped_sequence_gives_no_numbers_and_counts_on_after_a_rollback(any_two_handles: Pair) -> None:
    lake, other = any_two_handles
    lake.sql(NUMBERED)
    with lake.transaction() as tx:
        tx.sql("drop table n; drop sequence s")
        for asked in ("nextval", "currval"):
            with pytest.raises(il.NotFoundError, match="no sequence"):
                tx.sql(f"select {asked}('s')")
        assert other.sql("insert into n (a) values (1); select nextval('s')").scalar() == 2
        tx.rollback()
    assert lake.sql("select nextval('s')").scalar() == 3


def test_a_replaced_sequence_numbers_the_rows_of_tables_that_need_it(any_two_handles: Pair) -> None:
    lake, other = any_two_handles
    lake.sql(NUMBERED)
    with lake.transaction() as tx:
        tx.table("n").insert({"a": 1})
        tx.sql("create or replace sequence s start 50 increment 10")
        tx.table("n").insert({"a": 2})
        tx.sql("insert into n (a) select 3")
        other.table("n").insert({"a": 4})
        assert [(r["id"], r["a"]) for r in rows(tx.table("n"))] == [(1, 1), (50, 2), (60, 3)]
    assert [(r["id"], r["a"]) for r in rows(other.table("n"))] == [(1, 1), (2, 4), (50, 2), (60, 3)]
    other.table("n").insert({"a": 5})
    assert other.table("n").get(70) == {"id": 70, "a": 5}


def test_a_sequence_that_its_own_transaction_drops_leaves_no_counter(any_two_handles: Pair) -> None:
    lake, _ = any_two_handles
    tx = lake.transaction()
    tx.sql("create sequence q; select nextval('q'); drop sequence q")
    tx.rollback()
    assert counters(lake) == []
    with lake.transaction() as tx:
        tx.sql("create sequence q; select nextval('q'); drop sequence q; create table t (a int)")
    assert counters(lake) == []
