"""One snapshot for the whole query, in transactions, in the past, and while others write."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

import indexlake as il
from indexlake.errors import ExpressionError, NotFoundError, OwnershipError, SnapshotExpiredError


@pytest.fixture
def accounts(any_lake: il.Lake) -> il.Lake:
    any_lake.sql(
        "create table a (id int primary key, v int); create table b (id int primary key, v int);"
        "insert into a select range, 10 from range(10); insert into b select range, 10 from range(10)"
    )
    return any_lake


def test_a_query_of_several_tables_never_sees_half_of_a_transaction(accounts: il.Lake) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def move() -> None:
        n = 0
        try:
            while not stop.is_set():
                n += 1
                with accounts.transaction() as tx:
                    tx.sql("update a set v = v - 1 where id = $id", {"id": n % 10})
                    tx.sql("update b set v = v + 1 where id = $id", {"id": n % 10})
                if n % 7 == 0:
                    accounts.pipeline().dump("a")
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=move)
    writer.start()
    try:
        for _ in range(25):
            total = accounts.sql("select (select sum(v) from a) + (select sum(v) from b)").scalar()
            assert total == 200
            joined = accounts.sql("select sum(a.v + b.v) from a join b using (id) where a.v + b.v = 20").scalar()
            assert joined == 200
    finally:
        stop.set()
        writer.join()
    assert not failures


def test_a_transaction_sees_its_own_writes_and_nobody_elses(accounts: il.Lake) -> None:
    with accounts.transaction() as tx:
        assert tx.sql("select count(*) from a").scalar() == 10
        accounts.sql("insert into a values (100, 1)")
        tx.sql("insert into a values (50, 7); update a set v = 0 where id = 1; delete from a where id in (2, 3)")
        tx.sql("insert into b select id + 1000, v from a")
        assert tx.sql("select count(*), min(id), max(id) from a").fetchone() == (9, 0, 50)
        assert tx.sql("select v from a where id = 1").scalar() == 0
        assert tx.sql("select v from a where id = 50").scalar() == 7
        assert tx.sql("select count(*) from b").scalar() == 19
        assert tx.sql("select count(*) from a semi join b on a.id + 1000 = b.id").scalar() == 9
        assert accounts.sql("select count(*) from a").scalar() == 11
    assert accounts.sql("select count(*) from a").scalar() == 10
    assert accounts.sql("select count(*) from b").scalar() == 19


def test_a_failed_statement_leaves_the_transaction_as_it_was(accounts: il.Lake) -> None:
    with accounts.transaction() as tx:
        tx.sql("update a set v = 11 where id = 1")
        for wrong in (
            "insert into a select id, nosuch from b",
            "update a set v = cast('x' || id as int)",
            "insert into a values (70, 1), (null, 2)",
            "delete from a where id in (select cast('x' as int) from b)",
        ):
            with pytest.raises(il.errors.IndexLakeError):
                tx.sql(wrong)
        assert tx.sql("select sum(v), count(*) from a").fetchone() == (101, 10)
    assert accounts.sql("select sum(v), count(*) from a").fetchone() == (101, 10)


def test_the_past_is_read_by_number_and_by_time_for_all_tables_or_for_one(accounts: il.Lake) -> None:
    before, moment = accounts.snapshot_id, datetime.now(UTC)
    accounts.sql("delete from a where id >= 5; alter table a add column extra int default 1")
    accounts.pipeline().dump("a")
    now = "select count(*) from a"
    assert accounts.sql(now).scalar() == 5
    assert accounts.sql(now, at=before).scalar() == 10
    assert accounts.sql(now, at=moment).scalar() == 10
    assert accounts.at(before).sql(now).scalar() == 10
    assert accounts.sql("select * from a", at=before).columns == ["id", "v"]
    assert accounts.sql("select * from a").columns == ["id", "v", "extra"]
    pair = accounts.sql(
        "select count(*), count(a.id) from a at (version => $n) o left join a on a.id = o.id", {"n": before}
    )
    assert pair.fetchone() == (10, 5)
    assert accounts.sql(f"select count(*) from a at (version => {before} - 0) as x where x.id > 7").scalar() == 2
    assert accounts.sql("select count(*) from a at (timestamp => $t)", {"t": moment}).scalar() == 10
    text = moment.isoformat(sep=" ")
    assert accounts.sql(f"select count(*) from a at (timestamp => timestamptz '{text}')").scalar() == 10
    assert accounts.sql("select count(*) from a at (timestamp => now())").scalar() == 5
    with accounts.transaction() as tx:
        tx.sql("delete from a")
        assert tx.sql(f"select count(*) from a at (version => {before})").scalar() == 10


def test_the_past_is_read_only_and_ends_somewhere(accounts: il.Lake) -> None:
    newest = accounts.snapshot_id
    with pytest.raises(OwnershipError, match="read-only"):
        accounts.sql("delete from a", at=newest)
    with pytest.raises(OwnershipError, match="read-only"):
        accounts.at(newest).sql("create table x (a int)")
    with pytest.raises(NotFoundError, match="newest"):
        accounts.sql("select * from a", at=newest + 5)
    with pytest.raises(NotFoundError):
        accounts.sql(f"select * from a at (version => {newest + 5})")
    accounts.sql("create table later (x int)")
    with pytest.raises(NotFoundError, match=r"main\.later"):
        accounts.sql("select * from later", at=newest)
    with pytest.raises(SnapshotExpiredError):
        accounts.sql("select * from a at (timestamp => '1999-01-01')")
    with pytest.raises(ExpressionError):
        accounts.sql("select * from a at (version => 'x')")
    with pytest.raises(ExpressionError, match="needs a value"):
        accounts.sql("select * from a at (version => null)")


def test_a_result_keeps_its_snapshot_and_can_be_read_again(accounts: il.Lake) -> None:
    through_duckdb = accounts.sql("select sum(v), count(*) from a")
    by_scan = accounts.sql("select id from a where v = 10")
    accounts.sql("update a set v = 0; delete from a where id = 1")
    accounts.pipeline().dump("a")
    for _ in range(2):
        assert through_duckdb.fetchone() == (100, 10)
        assert through_duckdb.fetchall() == [(100, 10)]
        assert by_scan.count() == 10
    assert through_duckdb.snapshot_id == by_scan.snapshot_id


def test_a_text_of_several_statements_is_parsed_before_any_runs(accounts: il.Lake) -> None:
    for text in ("delete from a; selec 1", "begin; delete from a", "delete from a; begin; begin; commit"):
        with pytest.raises(ExpressionError):
            accounts.sql(text)
    assert accounts.sql("select count(*) from a").scalar() == 10


def test_an_error_in_begin_to_commit_rolls_back_and_says_which_statement(accounts: il.Lake) -> None:
    with pytest.raises(ExpressionError, match=r"Statement 3 of 4[\s\S]*Nothing of its transaction"):
        accounts.sql("begin; delete from a; select nosuch from a; commit")
    assert accounts.sql("select count(*) from a").scalar() == 10
    with pytest.raises(ExpressionError, match=r"Statement 2 of 2[\s\S]*before it were applied"):
        accounts.sql("delete from a where id = 1; select nosuch from a")
    assert accounts.sql("select count(*) from a").scalar() == 9


def test_transactions_end_where_they_began(accounts: il.Lake) -> None:
    with accounts.transaction() as tx:
        for text in ("commit", "rollback", "begin; select 1; commit"):
            with pytest.raises(ExpressionError):
                tx.sql(text)
        tx.sql("select 1")


def test_a_token_makes_a_repeated_statement_harmless(accounts: il.Lake) -> None:
    for _ in range(2):
        result = accounts.sql("insert into a values (77, 1)", token="once")
        assert (result.rows, result.inserted) == (1, 1)
        accounts.sql("begin; insert into b values (77, 1); update b set v = 2 where id = 77; commit", token="both")
    assert accounts.sql("select count(*) from a where id = 77").scalar() == 1
    with pytest.raises(ExpressionError, match="token"):
        accounts.sql("insert into a values (78, 1); insert into a values (79, 1)", token="two")
    with pytest.raises(ExpressionError, match="token"):
        accounts.sql("select 1", token="none")


def test_statements_that_read_and_write_are_run_again_when_they_lose(accounts: il.Lake) -> None:
    """Each adds one to a counter that it reads by a subquery; none is lost."""
    errors: list[BaseException] = []

    def add() -> None:
        try:
            for _ in range(5):
                accounts.sql("update a set v = (select v + 1 from a where id = 0) where id = 0")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert accounts.sql("select v from a where id = 0").scalar() == 25
