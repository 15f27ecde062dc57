"""Several statements in one text, prepared statements with parameters, and settings: what is remembered, and where."""

from __future__ import annotations

import threading

import pytest

import indexlake as il


def test_every_statement_of_a_text_has_its_result(lake: il.Lake) -> None:
    last = lake.sql("""
        create table t (id int);
        insert into t values (1), (2);
        select id from t order by id;
        delete from t where id = 1 returning id;
        select count(*) from t
    """)
    created, inserted, selected, deleted, counted = last.results
    assert counted is last
    assert (created.rows, inserted.rows, last.scalar()) == (0, 2, 1)
    assert selected.fetchall() == [(1,), (2,)]  # as it was then
    assert deleted.fetchall() == [(1,)]
    assert lake.sql("select 1").results[0].scalar() == 1


def test_results_inside_a_transaction_show_what_it_had_written_by_then(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    last = lake.sql("begin; insert into t values (1); select count(*) from t; insert into t values (2); commit")
    assert last.results[2].scalar() == 1
    with lake.transaction() as tx:
        assert tx.sql("insert into t values (3); select count(*) from t").scalar() == 3


def test_a_prepared_statement_takes_the_parameters_of_the_call(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, v varchar); prepare ins as insert into t values ($1, $2)")
    for n in range(3):
        assert lake.sql("execute ins($1, $2)", [n, f"v{n}"]).inserted == 1
    lake.sql("execute ins(?, 'x')", [7])
    lake.sql("prepare one as select v from t where id = $id")
    assert lake.sql("execute one(id := $key)", {"key": 2}).scalar() == "v2"
    before = lake.snapshot_id
    lake.sql("execute ins(8, 'later')")
    assert lake.sql("execute one(id := 8)", at=before).fetchall() == []
    with lake.transaction() as tx:
        tx.sql("execute ins(9, 'own')")
        assert tx.sql("execute one(id := 9)").scalar() == "own"
        tx.rollback()
    assert lake.sql("execute one(id := 9)").fetchall() == []


def test_a_text_may_prepare_and_execute(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    last = lake.sql("prepare p as insert into t values (?), (?); execute p(1, 2); execute p(?, ?)", [3, 4])
    assert [r.rows for r in last.results] == [0, 2, 2]
    assert lake.sql("prepare q as select id from t where id > ?; execute q(3)").fetchall() == [(4,)]


def test_a_prepared_change_is_a_change(lake: il.Lake) -> None:
    lake.sql("create table t (id int); prepare p as insert into t values ($1)")
    snapshot = lake.snapshot_id
    with pytest.raises(il.OwnershipError, match="read-only"):
        lake.sql("execute p(1)", at=snapshot)
    lake.sql("execute p(1)", token="once")
    lake.sql("execute p(1)", token="once")
    assert lake.sql("select count(*) from t").scalar() == 1


def test_a_prepared_statement_sees_a_table_that_has_changed(lake: il.Lake) -> None:
    lake.sql("create table t (id int); insert into t values (1); prepare p as select * from t")
    lake.sql("alter table t add column v varchar default 'new'")
    assert lake.sql("execute p").fetchall() == [(1, "new")]
    lake.sql("drop table t")
    with pytest.raises(il.NotFoundError):
        lake.sql("execute p")


def test_errors_show_where_they_are_in_the_prepared_text(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    lake.sql("prepare p as select id,\n nosuch from t where id = $1")
    with pytest.raises(il.ExpressionError) as error:
        lake.sql("execute p(1)")
    assert "line 2:  nosuch from t" in str(error.value)
    with pytest.raises(il.ExpressionError, match=r"has the parameters \$1; 2 given"):
        lake.sql("execute p(1, 2)")


def test_threads_share_prepared_statements(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key); prepare p as insert into t values ($1)")
    workers = [threading.Thread(target=lake.sql, args=("execute p($1)", [n])) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert lake.sql("select sum(id) from t").scalar() == 15


def test_a_setting_holds_for_the_queries_of_this_lake(lake: il.Lake) -> None:
    before = lake.sql("select current_setting('threads'), current_setting('memory_limit')").fetchone()
    lake.sql("select 1 as begun").fetchall()
    lake.sql("set threads = 1; set explain_output = 'optimized_only'; set memory_limit = '300MB'")
    assert lake.sql("select current_setting('threads'), current_setting('explain_output')").fetchone() == (
        1,
        "optimized_only",
    )
    lake.sql("reset threads; reset memory_limit; reset explain_output")
    after = lake.sql("select current_setting('threads'), current_setting('memory_limit')").fetchone()
    assert after == before
    assert lake.sql("select current_setting('explain_output')").scalar() == "PHYSICAL_ONLY"


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("attach 'x.db' as x", "il.connect"),
        ("install httpfs", "extension"),
        ("load httpfs", "extension"),
        ("use other", "namespace="),
        ("vacuum", "pipeline"),
        ("set timezone = 'UTC'", "AT TIME ZONE"),
        ("set nosuch = 1", "'nosuch'"),
    ],
)
def test_a_refusal_says_what_to_do_instead_and_where(lake: il.Lake, text: str, instead: str) -> None:
    with pytest.raises(il.ExpressionError, match=instead) as error:
        lake.sql(f"select 1;\n{text}")
    assert "line 2: " in str(error.value)
