"""What every database driver promises: the same tests on a SQLite file, a temporary catalog and PostgreSQL."""

from __future__ import annotations

import functools
import gc
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexlake.catalog.dialect import quote
from indexlake.catalog.driver import Catalog, CommitUnknown, DatabaseError
from indexlake.catalog.postgres import PostgresCatalog
from indexlake.catalog.sqlite import SqliteCatalog
from indexlake.errors import CatalogError, NotFoundError, OwnershipError
from indexlake.storage import faults
from tests.support.forks import exit_code, fork
from tests.support.servers import PostgresServer
from tests.support.threads import is_heartbeat

Opener = Callable[..., Any]


@pytest.fixture(scope="module")
def dsn(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture
def open_postgres(dsn: str) -> Opener:
    """Opens a schema of the test's own; several times, it is the same one."""
    schema = f"lake_{uuid.uuid4().hex}"
    return lambda **options: PostgresCatalog(dsn, catalog_schema=schema, **options)


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens the test's database; several times, it is the same one."""
    opened: list[Any] = []
    if request.param == "postgres":
        opener = request.getfixturevalue("open_postgres")
    else:
        opener = functools.partial(SqliteCatalog, str(tmp_path / "catalog.db"))

    def connect(**options: Any) -> Any:
        opened.append(opener(**options))
        return opened[-1]

    yield connect
    for catalog in opened:
        catalog.close()


@pytest.fixture(params=["file", "memory", "postgres"])
def catalog(request: Any, tmp_path: Path) -> Iterator[Any]:
    if request.param == "postgres":
        opened = request.getfixturevalue("open_postgres")()
    else:
        opened = SqliteCatalog(":memory:" if request.param == "memory" else str(tmp_path / "catalog.db"))
    make_table(opened)
    yield opened
    opened.close()


def make_table(catalog: Catalog) -> None:
    d = catalog.dialect
    with catalog.transaction() as tx:
        tx.execute(f"create table t (k {d.key_type} primary key, i {d.int_type}, b {d.bytes_type}, s {d.text_type})")
        tx.commit()


def count(catalog: Catalog) -> int:
    with catalog.read() as r:
        return int(r.rows("select count(*) from t")[0][0])


def keys(catalog: Catalog) -> list[int]:
    with catalog.read() as r:
        return [k for (k,) in r.rows("select k from t order by k")]


def test_a_committed_transaction_is_seen(catalog: Any) -> None:
    with catalog.transaction() as tx:
        assert tx.execute("insert into t (k) values (?)", (1,)) == 1
        tx.commit()
    assert keys(catalog) == [1]
    assert list(catalog.query("select k from t")) == [(1,)]


def test_a_query_that_is_asked_again_gives_what_is_there_now(connect: Opener) -> None:
    one, other = connect(), connect()
    make_table(one)
    again = "select count(*) from t where k > ?", (0,)

    def add(catalog: Catalog, key: int) -> None:
        with catalog.transaction() as tx:
            tx.execute("insert into t (k) values (?)", (key,))
            tx.commit()

    with one.read() as r:
        assert r.rows_again(*again) == [(0,)]
    add(other, 1)
    with one.transaction() as tx:
        assert tx.rows_again(*again) == [(1,)], "somebody else has committed"
        tx.execute("insert into t (k) values (2)")
        assert tx.rows_again(*again) == [(2,)], "the transaction itself has written"
        tx.rollback()
    with one.transaction() as tx:
        assert tx.rows_again(*again) == [(1,)], "what was written is rolled back"
        assert tx.rows_again(again[0], (1,)) == [(0,)], "other parameters"
    with one.read() as r:
        assert r.rows_again(*again) == [(1,)]
    add(one, 3)
    with one.transaction() as tx:
        assert tx.rows_again(*again) == [(2,)], "the same session has committed"
    add(other, 4)
    with one.read() as r:
        assert r.rows_again(*again) == [(3,)]
        add(other, 5)
        assert r.rows_again(*again) == [(3,)], "the state that the transaction reads"
    with one.read() as r:
        assert r.rows_again(*again) == [(4,)]
    with one.transaction() as tx:
        tx.execute("insert into t (k) values (6)")
        tx.rollback()
    add(other, 7)
    with one.read() as r:
        add(other, 8)
        assert r.rows_again(*again) == r.rows(*again), "one state, whenever the transaction began to read it"


def test_a_transaction_that_is_not_committed_leaves_nothing(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (2)")
        tx.rollback()
    with pytest.raises(ZeroDivisionError), catalog.transaction() as tx:  # noqa: PT012
        tx.execute("insert into t (k) values (3)")
        raise ZeroDivisionError
    assert keys(catalog) == []


def test_definitions_are_rolled_back_too(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.execute_batch(["create table u (a integer)", "create index u_a on u (a)"])
        assert catalog.dialect.table_exists(tx, "u")
    with catalog.read() as r:
        assert not catalog.dialect.table_exists(r, "u")
        assert catalog.dialect.table_exists(r, "t")


def test_an_abandoned_transaction_is_rolled_back_with_a_warning_and_frees_the_lock(catalog: Any) -> None:
    tx = catalog.transaction()
    tx.execute("insert into t (k) values (1)")
    with pytest.warns(ResourceWarning, match="write transaction was dropped"):  # noqa: PT031
        del tx
        gc.collect()
    with catalog.transaction() as tx:
        assert tx.rows("select k from t") == []


def test_an_abandoned_read_transaction_gives_its_connection_back_with_a_warning(catalog: Any) -> None:
    r = catalog.read()
    r.rows("select 1")
    with pytest.warns(ResourceWarning, match="read transaction was dropped"):  # noqa: PT031
        del r
        gc.collect()
    assert not catalog.sessions._busy


def test_a_read_transaction_sees_one_state(catalog: Any) -> None:
    with catalog.read() as r:
        assert r.row("select count(*) from t") == (0,)
        with catalog.transaction() as tx:
            tx.execute("insert into t (k) values (1)")
            tx.commit()
        assert r.row("select count(*) from t") == (0,)
        assert list(r.query("select k from t")) == []
    assert count(catalog) == 1


def test_a_read_transaction_cannot_write_into_the_next_user_of_its_connection(catalog: Any) -> None:
    with catalog.read() as r, pytest.raises(CatalogError):
        r.rows("select * from missing")
    with catalog.read() as r:
        assert r.row("select k from t") is None


def test_a_writer_sees_every_commit_before_it(connect: Opener) -> None:
    """The state of the later statements is taken after the lock was granted, not before the wait."""
    one, two = connect(), connect()
    make_table(one)
    first = one.transaction()
    first.execute("insert into t (k) values (1)")
    seen: list[Any] = []

    def wait_and_look() -> None:
        with two.transaction() as tx:
            seen.extend(tx.rows("select k from t"))

    thread = threading.Thread(target=wait_and_look)
    thread.start()
    time.sleep(0.2)
    assert seen == []
    first.commit()
    thread.join()
    assert seen == [(1,)]


def test_increments_by_threads_of_two_catalogs_are_not_lost(connect: Opener) -> None:
    catalogs = [connect(), connect()]
    make_table(catalogs[0])
    with catalogs[0].transaction() as tx:
        tx.execute("insert into t (k, i) values (1, 0)")
        tx.commit()

    def increment(catalog: Any) -> None:
        for _ in range(25):
            with catalog.transaction() as tx:
                value = tx.row("select i from t where k = 1")[0]
                tx.execute("update t set i = ? where k = 1", (value + 1,))
                tx.commit()

    threads = [threading.Thread(target=increment, args=(catalogs[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with catalogs[1].read() as r:
        assert r.row("select i from t") == (200,)


def test_waiting_for_another_writer_ends_with_a_retryable_error(connect: Opener) -> None:
    one, two = connect(), connect(lock_timeout=0.3)
    make_table(one)
    with one.transaction() as tx:
        began = time.monotonic()
        with pytest.raises(CatalogError) as caught:
            two.transaction()
        assert caught.value.retryable
        assert 0.25 < time.monotonic() - began < 5
        tx.execute("insert into t (k) values (1)")
        tx.commit()
    with two.transaction() as tx:
        tx.execute("insert into t (k) values (2)")
        tx.commit()
    assert keys(one) == [1, 2]


def test_a_thread_that_waits_too_long_gets_a_retryable_error(connect: Opener) -> None:
    catalog = connect(lock_timeout=0.2)
    errors: list[DatabaseError] = []

    def write() -> None:
        try:
            catalog.transaction()
        except DatabaseError as error:
            errors.append(error)

    with catalog.transaction():
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert [error.retryable for error in errors] == [True]
    with catalog.transaction() as tx:
        tx.commit()


def test_values_come_back_as_they_were(catalog: Any) -> None:
    rows = [
        (1, -(2**63), b"", ""),
        (2, 2**63 - 1, bytes(range(256)), "ü 漢 \U0001f600 %s $1 ?"),
        (3, None, None, None),
        (4, 0, b"\0", "'quoted\" \\ text"),
        (5, 1, b"x" * 100_000, "y" * 100_000),
        (6, 40_000, b"\xff", "\n"),
    ]
    with catalog.transaction() as tx:
        for row in rows[:3]:
            tx.execute("insert into t values (?, ?, ?, ?)", row)
        tx.insert_rows("t", ["k", "i", "b", "s"], rows[3:])
        tx.commit()
    expected = rows
    with catalog.read() as r:
        assert r.rows("select k, i, b, s from t order by k") == expected
        assert list(r.query("select k, i, b, s from t order by k")) == expected
        assert r.rows("select k from t where i = ?", (-(2**63),)) == [(1,)]
        assert r.rows("select k from t where b = ?", (b"\0",)) == [(4,)]
    assert list(catalog.query("select k, i, b, s from t order by k")) == expected


def test_a_question_mark_inside_quotes_is_not_a_parameter(catalog: Any) -> None:
    with catalog.read() as r:
        assert r.rows("select '?', 'it''s ?', ? as \"?\"", (7,)) == [("?", "it's ?", 7)]
        assert r.rows("select count(*) from t where s like '%?%' and k > ?", (0,)) == [(0,)]


def test_sums_of_integers_are_integers(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.execute_many("insert into t (k, i) values (?, ?)", [(1, 2**40), (2, 2**41)])
        (total,) = tx.row("select sum(i) from t")
        assert (type(total), total) == (int, 2**40 + 2**41)


def test_text_sorts_by_its_bytes(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.execute_many("insert into t (k, s) values (?, ?)", list(enumerate(["a", "B", "ä", "Z", "_"])))
        assert [s for (s,) in tx.rows("select s from t order by s")] == ["B", "Z", "_", "a", "ä"]


def test_statements_say_how_many_rows_they_changed(catalog: Any) -> None:
    with catalog.transaction() as tx:
        assert tx.execute_many("insert into t (k) values (?)", [(n,) for n in range(10)]) == 10
        assert tx.execute("update t set i = 1 where k < ?", (4,)) == 4
        assert tx.execute("delete from t where k > ?", (100,)) == 0
        assert tx.execute_many("delete from t where k = ?", [(1,), (1,), (2,)]) == 2
        assert tx.execute_many("delete from t where k = ?", []) == 0


@pytest.mark.parametrize("number", [0, 1, 3, 10, 63, 64, 5000])
def test_rows_are_inserted_in_bulk(catalog: Any, number: int) -> None:
    with catalog.transaction() as tx:
        rows = ((n, n * 2, None if n % 3 else b"x", "text") for n in range(number))
        tx.insert_rows("t", ["k", "i", "b", "s"], rows)
        assert tx.row("select count(*), count(b) from t") == (number, (number + 2) // 3)
        tx.commit()
    assert count(catalog) == number


@pytest.mark.parametrize("number", [2, 100])
def test_a_duplicate_key_is_known_as_such_and_undone_by_its_savepoint(catalog: Any, number: int) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        for insert in (
            lambda: tx.execute("insert into t (k) values (?)", (1,)),
            lambda: tx.insert_rows("t", ["k"], [(n,) for n in range(number, 0, -1)]),
        ):
            with pytest.raises(DatabaseError) as caught, tx.savepoint():  # noqa: PT012
                tx.execute("insert into t (k) values (1000)")
                insert()
            assert caught.value.unique_violation
            assert not caught.value.retryable
        tx.execute("insert into t (k) values (2000)")
        tx.commit()
    assert keys(catalog) == [1, 2000]


def test_a_savepoint_keeps_or_undoes_what_is_inside(catalog: Any) -> None:
    with catalog.transaction() as tx:
        with tx.savepoint():
            tx.execute("insert into t (k) values (1)")
            with pytest.raises(KeyError), tx.savepoint():  # noqa: PT012
                tx.execute("insert into t (k) values (2)")
                raise KeyError
            tx.execute("insert into t (k) values (3)")
        with pytest.raises(KeyError), tx.savepoint():  # noqa: PT012
            tx.execute("insert into t (k) values (4)")
            with tx.savepoint():
                tx.execute("insert into t (k) values (5)")
            raise KeyError
        tx.commit()
    assert keys(catalog) == [1, 3]


def test_a_wrong_statement_is_refused_with_its_text(catalog: Any) -> None:
    with catalog.transaction() as tx:
        for sql in ("select nothing from t", "selec", "insert into missing values (1)"):
            with pytest.raises(CatalogError) as caught, tx.savepoint():
                tx.execute(sql)
            assert sql in str(caught.value)
            assert not caught.value.retryable
            assert not caught.value.unique_violation
    with pytest.raises(CatalogError, match="select nothing"):
        list(catalog.query("select nothing from t"))
    assert not catalog.sessions._busy


def test_a_query_streams_and_gives_its_connection_back_when_it_ends(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.insert_rows("t", ["k"], [(n,) for n in range(5000)])
        tx.commit()
    rows = catalog.query("select k from t order by k")
    assert next(rows) == (0,)
    assert len(catalog.sessions._busy) == 1
    assert sum(1 for _ in rows) == 4999
    assert not catalog.sessions._busy

    rows = catalog.query("select k from t order by k")
    assert next(rows) == (0,)
    rows.close()
    assert not catalog.sessions._busy

    rows = catalog.query("select k from t order by k")
    assert next(rows) == (0,)
    del rows
    gc.collect()
    assert not catalog.sessions._busy
    assert count(catalog) == 5000


def test_a_query_sees_the_state_of_its_start(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.insert_rows("t", ["k"], [(n,) for n in range(3000)])
        tx.commit()
    rows = catalog.query("select k from t order by k")
    next(rows)
    with catalog.transaction() as tx:
        tx.execute("delete from t")
        tx.commit()
    assert sum(1 for _ in rows) == 2999


def test_queries_inside_a_transaction_mix_with_other_statements(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.insert_rows("t", ["k", "i"], [(n, n) for n in range(3000)])
        seen = 0
        for left, right in zip(
            tx.query("select k from t order by k"),
            tx.query("select i from t where i >= ? order by i", (0,)),
            strict=True,
        ):
            assert left == right
            if seen % 500 == 0:
                tx.execute("update t set s = 'x' where k = ?", left)
            seen += 1
        assert seen == 3000
        assert tx.row("select count(*) from t where s = 'x'") == (6,)
        tx.commit()


def test_a_query_inside_a_transaction_ends_with_it(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.insert_rows("t", ["k"], [(n,) for n in range(5000)])
        rows = tx.query("select k from t")
        next(rows)
        tx.commit()
    with pytest.raises(CatalogError, match="over"):
        list(rows)
    with catalog.read() as r:
        rows = r.query("select k from t")
        next(rows)
    with pytest.raises(CatalogError, match="over"):
        list(rows)
    assert count(catalog) == 5000


def test_a_transaction_that_is_over_refuses_statements(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.commit()
        tx.rollback()  # harmless
        for use in (
            lambda: tx.execute("insert into t (k) values (1)"),
            lambda: tx.rows("select 1"),
            lambda: tx.insert_rows("t", ["k"], [(n,) for n in range(9)]),
            lambda: list(tx.query("select 1")),
            tx.commit,
        ):
            with pytest.raises(CatalogError, match="over"):
                use()
    with catalog.read() as r:
        pass
    with pytest.raises(CatalogError, match="over"):
        r.rows("select 1")
    assert count(catalog) == 0


def test_a_closed_catalog_refuses_everything(catalog: Any) -> None:
    catalog.close()
    catalog.close()
    for use in (catalog.transaction, catalog.read, catalog.checkpoint, lambda: list(catalog.query("select 1"))):
        with pytest.raises(CatalogError, match="closed"):
            use()


def test_a_transaction_outlives_the_close_of_its_catalog(connect: Opener) -> None:
    catalog = connect()
    make_table(catalog)
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        catalog.close()
        tx.commit()
    assert keys(connect()) == [1]


def test_a_read_only_catalog_refuses_to_write(connect: Opener) -> None:
    make_table(connect())
    catalog = connect(read_only=True)
    assert count(catalog) == 0
    with pytest.raises(CatalogError, match="read-only"):
        catalog.transaction()
    with catalog.read() as r, pytest.raises(CatalogError):
        r.rows("insert into t (k) values (1)")
    assert count(catalog) == 0


def test_catalogs_are_not_pickled(catalog: Any) -> None:
    with pytest.raises(OwnershipError, match="Connect again"):
        pickle.dumps(catalog)


def test_identifiers_are_quoted(catalog: Any) -> None:
    name = 'odd "name"; drop table t --'
    with catalog.transaction() as tx:
        tx.execute(f"create table {quote(name)} ({quote('a b')} {catalog.dialect.int_type})")
        tx.insert_rows(name, ["a b"], [(n,) for n in range(20)])
        assert catalog.dialect.table_exists(tx, name)
        assert not catalog.dialect.table_exists(tx, "odd")
    for wrong in ("", "a\0b"):
        with pytest.raises(ValueError, match="identifier"):
            quote(wrong)


STEPS = ["sql.begin", *["sql.execute"] * 5, "sql.commit.before"]


def change(catalog: Any) -> None:
    with catalog.transaction() as tx:
        tx.execute_batch(["create table u (a integer)", "create table v (a integer)"])
        tx.execute_many("insert into u values (?)", [(1,)])
        tx.insert_rows("t", ["k"], [(n,) for n in range(10)])
        tx.execute("delete from t where k = 5")
        tx.commit()


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_failure_at_any_statement_leaves_nothing(catalog: Any, number: int) -> None:
    passed: list[str] = []

    def fail(name: str) -> None:
        if is_heartbeat():
            return
        passed.append(name)
        if len(passed) == number + 1:
            raise OSError("injected")

    faults.install(fail)
    try:
        with pytest.raises(CatalogError):
            change(catalog)
    finally:
        faults.install(None)
    assert passed == STEPS[: number + 1]
    with catalog.read() as r:
        assert not catalog.dialect.table_exists(r, "u")
        assert not catalog.dialect.table_exists(r, "v")
    assert count(catalog) == 0
    assert not catalog.sessions._busy
    change(catalog)
    assert count(catalog) == 9


def test_a_failure_after_the_commit_is_an_unknown_outcome(catalog: Any) -> None:
    def fail(name: str) -> None:
        if name == "sql.commit.after" and not is_heartbeat():
            raise OSError("injected")

    faults.install(fail)
    try:
        with pytest.raises(CommitUnknown):
            change(catalog)
    finally:
        faults.install(None)
    assert count(catalog) == 9


def test_a_missing_catalog_is_not_made_unless_asked(dsn: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="create=True"):
        SqliteCatalog(str(tmp_path / "no" / "catalog.db"), create=False)
    assert not (tmp_path / "no").exists()
    with pytest.raises(NotFoundError, match="create=True"):
        PostgresCatalog(dsn, catalog_schema="missing", create=False)


def test_after_a_fork_the_child_must_connect_again(connect: Opener) -> None:
    catalog = connect()
    make_table(catalog)

    def child() -> None:
        for use in (catalog.transaction, catalog.read, catalog.checkpoint, lambda: next(catalog.query("select 1"))):
            with pytest.raises(OwnershipError, match="Connect again in this process"):
                use()
        again = connect()
        with again.transaction() as tx:
            tx.execute("insert into t (k) values (1)")
            tx.commit()
        again.close()

    assert exit_code(fork(child)) == 0
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (2)")
        tx.commit()
    assert keys(catalog) == [1, 2]


def test_what_is_open_during_a_fork_stays_with_the_parent(connect: Opener) -> None:
    catalog = connect()
    make_table(catalog)
    with catalog.transaction() as tx:
        tx.insert_rows("t", ["k"], [(n,) for n in range(5000)])
        tx.commit()
    rows = catalog.query("select k from t order by k")
    next(rows)
    tx = catalog.transaction()
    tx.execute("insert into t (k) values (6000)")
    inner = tx.query("select k from t order by k")
    next(inner)

    def child() -> None:
        nonlocal rows, inner, tx
        for use in (
            lambda: tx.execute("insert into t (k) values (7000)"),
            lambda: tx.rows("select 1"),
            tx.commit,
            tx.rollback,
            lambda: list(rows),
            lambda: list(inner),
        ):
            with pytest.raises(OwnershipError):
                use()
        rows = inner = tx = None
        gc.collect()

    assert exit_code(fork(child)) == 0
    assert sum(1 for _ in inner) == 5000
    assert sum(1 for _ in rows) == 4999
    tx.commit()
    assert count(catalog) == 5001


def test_a_child_that_ends_like_a_program_does_not_disturb_the_parent(connect: Opener) -> None:
    """Finalizers and exit handlers run in the child: they must not close or roll back what is the parent's."""
    catalog = connect()
    make_table(catalog)
    program = (
        reopening(catalog)
        + """
tx = catalog.transaction()
tx.execute("insert into t (k) values (2)")
rows = catalog.query("select 1 from t"); next(rows, None)
if os.fork() == 0:
    del tx, rows
    sys.exit(0)
os.wait()
tx.commit()
catalog.close()
"""
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert keys(catalog) == [2]


def reopening(catalog: Any) -> str:
    """The program text that opens the same catalog in another process."""
    session = catalog.sessions._factory()
    start = "import os, sys, time, warnings\n"
    if catalog.database() == "sqlite":
        return start + (
            f"from indexlake.catalog.sqlite import SqliteCatalog\ncatalog = SqliteCatalog({session._path!r})\n"
        )
    import psycopg

    dsn = psycopg.conninfo.make_conninfo(**session._params)
    return start + (
        f"from indexlake.catalog.postgres import PostgresCatalog\n"
        f"catalog = PostgresCatalog({dsn!r}, catalog_schema={session._schema!r})\n"
    )


def test_a_killed_writer_frees_the_lock_and_leaves_nothing(connect: Opener) -> None:
    catalog = connect(lock_timeout=20)
    make_table(catalog)
    program = (
        reopening(catalog)
        + """
tx = catalog.transaction()
tx.execute("insert into t (k) values (1)")
print("holding", flush=True)
time.sleep(60)
"""
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        waiting = threading.Timer(0.3, lambda: holder.send_signal(signal.SIGKILL))
        waiting.start()
        began = time.monotonic()
        with catalog.transaction() as tx:
            tx.execute("insert into t (k) values (2)")
            tx.commit()
        assert 0.2 < time.monotonic() - began < 5
    assert keys(catalog) == [2]
