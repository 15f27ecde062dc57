"""The PostgreSQL driver: lost connections, unknown commits, the writers' lock, and what errors give away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from indexlake.catalog.driver import CommitUnknown, DatabaseError
from indexlake.catalog.postgres import PostgresCatalog
from indexlake.errors import CatalogError
from tests.support.servers import PostgresServer, free_port


@pytest.fixture(scope="module")
def dsn(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture
def schema() -> str:
    return f"lake_{uuid.uuid4().hex}"


@pytest.fixture
def catalog(dsn: str, schema: str) -> Iterator[PostgresCatalog]:
    opened = PostgresCatalog(dsn, catalog_schema=schema)
    with opened.transaction() as tx:
        tx.execute("create table t (k bigint primary key)")
        tx.commit()
    yield opened
    opened.close()


def keys(catalog: PostgresCatalog) -> list[int]:
    with catalog.read() as r:
        return [k for (k,) in r.rows("select k from t order by k")]


def end_sessions(dsn: str, state: str = "%") -> None:
    """End the server's side of this package's connections."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'indexlake' and datname = current_database() and state like %s",
            (state,),
        )


def test_reads_are_repeatable_and_writes_read_committed(catalog: PostgresCatalog) -> None:
    with catalog.read() as r:
        assert r.row("show transaction_isolation") == ("repeatable read",)
        assert r.row("show transaction_read_only") == ("on",)
    with catalog.transaction() as tx:
        assert tx.row("show transaction_isolation") == ("read committed",)
        assert tx.row("show idle_in_transaction_session_timeout") == ("1min",)
        assert tx.row("select count(*) from pg_locks where locktype = 'advisory' and granted") == (1,)
    with catalog.read() as r:
        assert r.row("select count(*) from pg_locks where locktype = 'advisory'") == (0,)
        assert r.row("show idle_in_transaction_session_timeout") == ("10min",)


def test_commits_are_durable_whatever_the_default_of_the_database(dsn: str, schema: str) -> None:
    quick = psycopg.conninfo.make_conninfo(dsn, options="-c synchronous_commit=off")
    catalog = PostgresCatalog(quick, catalog_schema=schema)
    with catalog.transaction() as tx:
        assert tx.row("show synchronous_commit") == ("on",)
    catalog.close()


def test_statements_that_repeat_are_prepared(catalog: PostgresCatalog) -> None:
    for number in range(5):
        with catalog.transaction() as tx:
            tx.execute("insert into t (k) values (?)", (number,))
            tx.commit()
    with catalog.read() as r:
        assert r.row("select count(*) from pg_prepared_statements where statement like 'insert into t%'") == (1,)


def test_a_statement_that_failed_or_met_nulls_is_still_prepared_once(catalog: PostgresCatalog) -> None:
    with catalog.transaction() as tx:
        tx.execute("create table u (k bigint primary key, b bytea, s text)")
        tx.commit()
    insert = "insert into u (k, b, s) values (?, ?, ?)"
    rows = [(1, None, None), (2, b"x", None), (3, None, "x"), (4, b"", ""), (5, None, None)]
    with catalog.transaction() as tx:
        for row in rows:
            with pytest.raises(DatabaseError), tx.savepoint():
                tx.execute("insert into u (k) values (?), (?)", (row[0], row[0]))
            tx.execute(insert, row)
        tx.commit()
    with catalog.read() as r:
        assert r.rows("select k, b, s from u order by k") == rows
        prepared = "select count(*) from pg_prepared_statements where statement like ?"
        assert r.row(prepared, ("insert into u (k, b, s)%",)) == (2,)  # once more when more types were known
        assert r.row(prepared, ("insert into u (k) %",)) == (1,)


def test_many_different_statements_do_not_pile_up_on_the_server(catalog: PostgresCatalog) -> None:
    with catalog.read() as r:
        for number in range(1100):
            for _ in range(2):
                assert r.row(f"select {number} + ?", (1,)) == (number + 1,)
        assert r.row("select count(*) <= 512 from pg_prepared_statements") == (True,)


def test_a_statement_that_must_affect_rows_fails_with_its_commit(catalog: PostgresCatalog) -> None:
    for rows in (0, 2):
        with catalog.transaction() as tx, pytest.raises(DatabaseError, match="division by zero"):  # noqa: PT012
            tx.execute("insert into t (k) values (1)")
            tx.send("update t set k = ? where k = 1", (7,), rows=rows)
            tx.commit()
    assert keys(catalog) == []


def test_queries_foreseen_travel_with_the_lock_and_are_answered_from_the_locked_state(
    catalog: PostgresCatalog, dsn: str, schema: str
) -> None:
    count = ("select count(*) from t where k > ?", (0,))
    other = PostgresCatalog(dsn, catalog_schema=schema)
    first = other.transaction()
    first.execute("insert into t (k) values (1)")
    waiting: list[int] = []

    def write() -> None:
        with catalog.transaction(lambda: [count]) as tx:  # waits here
            waiting.append(tx.rows(*count)[0][0])
            tx.execute("insert into t (k) values (2)")
            waiting.append(tx.rows(*count)[0][0])
            tx.commit()

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.2)
    first.commit()
    thread.join()
    other.close()
    assert waiting == [1, 2]


def test_a_foreseen_answer_is_given_once_and_forgotten_when_something_is_written(catalog: PostgresCatalog) -> None:
    count = ("select count(*) from t", ())
    writes = (
        lambda tx: tx.execute("insert into t (k) values (1)"),
        lambda tx: tx.send("insert into t (k) values (1)"),
        lambda tx: tx.insert_rows("t", ["k"], [(1,)]),
        lambda tx: tx.insert_rows("t", ["k"], [(n,) for n in range(100)]),
        lambda tx: tx.execute_many("insert into t (k) values (?)", [(1,)]),
    )
    for write in writes:
        with catalog.transaction(lambda: [count]) as tx:
            write(tx)
            assert tx.rows(*count)[0][0] > 0
    with catalog.transaction(lambda: [count]) as tx:
        assert tx.rows(*count) == tx.rows(*count) == [(0,)]


def test_a_foreseen_query_that_fails_only_costs_time(catalog: PostgresCatalog) -> None:
    missing = ("select k from missing where k = ?", (1,))
    with catalog.transaction(lambda: [("select 1", ()), missing]) as tx:
        assert tx.row("select count(*) from pg_locks where locktype = 'advisory' and granted") == (1,)
        assert tx.row("select 1") == (1,)
        tx.execute("insert into t (k) values (1)")
        tx.commit()
    with catalog.transaction(lambda: [missing]) as tx, pytest.raises(DatabaseError, match="missing"):
        tx.rows(*missing)
    assert keys(catalog) == [1]


def test_a_savepoint_undoes_statements_that_fail_when_it_ends(catalog: PostgresCatalog) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        with pytest.raises(DatabaseError) as caught, tx.savepoint():  # noqa: PT012
            tx.send("insert into t (k) values (2)")
            tx.send("insert into t (k) values (1)")
        assert caught.value.unique_violation
        tx.commit()
    assert keys(catalog) == [1]


def test_an_interrupted_statement_is_cancelled_and_its_connection_closed(
    dsn: str, schema: str, catalog: PostgresCatalog
) -> None:
    program = """
import signal, sys, threading, time
from indexlake.catalog.postgres import PostgresCatalog
catalog = PostgresCatalog(sys.argv[1], catalog_schema=sys.argv[2])
threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
began = time.monotonic()
try:
    with catalog.transaction() as tx:
        tx.rows("select pg_sleep(30)")
except KeyboardInterrupt:
    pass
with catalog.transaction() as tx:  # the lock is free
    assert not tx.rows("select 1 from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'")
    tx.execute("insert into t (k) values (1)")
    tx.commit()
assert time.monotonic() - began < 10
"""
    subprocess.run([sys.executable, "-c", program, dsn, schema], check=True)
    assert keys(catalog) == [1]


def test_large_batches_pass_in_both_directions(catalog: PostgresCatalog) -> None:
    text = "x" * 100_000
    with catalog.transaction() as tx:
        insert = "insert into t (k) values (? + length(?) * 0) returning ?"
        assert tx.execute_many(insert, ((n, text, text) for n in range(600))) == 600
        tx.commit()
    assert len(keys(catalog)) == 600


def test_catalogs_in_two_schemas_do_not_wait_for_each_other(catalog: PostgresCatalog, dsn: str, schema: str) -> None:
    other = PostgresCatalog(dsn, catalog_schema=schema + "_other", lock_timeout=1)
    with catalog.transaction(), other.transaction() as tx:
        tx.execute("create table t (k bigint)")
        tx.commit()
    with other.read() as r:
        assert other.dialect.table_exists(r, "t")
        assert r.row("select count(*) from t") == (0,)
    other.close()


def test_a_lock_time_out_says_so(catalog: PostgresCatalog, dsn: str, schema: str) -> None:
    impatient = PostgresCatalog(dsn, catalog_schema=schema, lock_timeout=0.2)
    with catalog.transaction(), pytest.raises(DatabaseError, match="lock time-out") as caught:
        impatient.transaction()
    assert (caught.value.sqlstate, caught.value.retryable) == ("55P03", True)
    impatient.close()


@pytest.mark.parametrize(("state", "retryable"), [("40001", True), ("40P01", True), ("53100", False), ("22003", False)])
def test_errors_are_judged_by_their_state(catalog: PostgresCatalog, state: str, retryable: bool) -> None:
    with catalog.transaction() as tx, pytest.raises(DatabaseError) as caught:
        tx.execute(f"do $$ begin raise exception 'text says nothing' using errcode = '{state}'; end $$")
    assert (caught.value.sqlstate, caught.value.retryable) == (state, retryable)


def test_a_commit_after_a_failed_statement_does_not_pretend(catalog: PostgresCatalog) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        with pytest.raises(DatabaseError):
            tx.execute("insert into t (k) values (1)")
        with pytest.raises(DatabaseError, match="rolled back"):
            tx.commit()
    assert keys(catalog) == []


def test_connections_that_died_while_idle_are_replaced(catalog: PostgresCatalog, dsn: str) -> None:
    with catalog.read(), catalog.read(), catalog.read():
        pass
    for use in (
        lambda: keys(catalog),
        lambda: list(catalog.query("select k from t")),
        lambda: catalog.transaction().rollback(),
    ):
        end_sessions(dsn)
        use()
    assert not catalog.sessions._busy


def test_a_connection_lost_inside_a_transaction_is_a_retryable_error(catalog: PostgresCatalog, dsn: str) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        end_sessions(dsn)
        with pytest.raises(DatabaseError) as caught:
            tx.execute("insert into t (k) values (2)")
        assert caught.value.retryable
        assert not isinstance(caught.value, CommitUnknown)
    with pytest.raises(DatabaseError) as caught, catalog.read() as r:  # noqa: PT012
        r.rows("select 1")
        end_sessions(dsn)
        r.rows("select 1")
    assert caught.value.retryable
    assert keys(catalog) == []


class Wire:
    """A TCP relay to the server that cuts the connection around the next COMMIT."""

    def __init__(self, dsn: str, *, deliver: bool) -> None:
        self._deliver = deliver
        self.armed = False
        folder = psycopg.conninfo.conninfo_to_dict(dsn)["host"]
        self._target = next(str(path) for path in Path(folder).glob(".s.PGSQL.*") if path.suffix != ".lock")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = psycopg.conninfo.make_conninfo(
            dsn, host="127.0.0.1", port=self._listener.getsockname()[1], sslmode="disable", gssencmode="disable"
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, source is client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        try:
            while data := source.recv(65536):
                if self.armed and from_client and b"commit" in data:
                    self.armed = False
                    if self._deliver:
                        source.shutdown(socket.SHUT_RDWR)  # nothing gets back
                        sink.sendall(data)
                        time.sleep(0.3)
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("deliver", [True, False])
def test_a_connection_lost_during_commit_is_an_unknown_outcome(
    catalog: PostgresCatalog, dsn: str, schema: str, deliver: bool
) -> None:
    wire = Wire(dsn, deliver=deliver)
    through = PostgresCatalog(wire.dsn, catalog_schema=schema)
    with through.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        wire.armed = True
        with pytest.raises(CommitUnknown, match="not known"):
            tx.commit()
    # The token is looked up inside the critical section: there the answer is final.
    with through.transaction() as tx:
        assert tx.rows("select k from t") == ([(1,)] if deliver else [])
    through.close()
    wire.close()


SECRET = "pass-word-42"


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def test_an_unreachable_database_is_reported_soon_and_without_the_password() -> None:
    began = time.monotonic()
    with pytest.raises(DatabaseError, match="Check that the server runs") as caught:
        PostgresCatalog(f"postgresql://user:{SECRET}@127.0.0.1:{free_port()}/db")
    assert time.monotonic() - began < 5
    assert SECRET not in shown(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_server_that_does_not_answer_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(DatabaseError, match="cannot be reached"):
            PostgresCatalog(f"postgresql://u:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=2")
        assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    "text", [f"postgresql://user:{SECRET}@host:port/db", f"password={SECRET} oops", f"postgresql://u:{SECRET}@[::1/d"]
)
def test_a_connection_string_that_cannot_be_read_is_not_shown(text: str) -> None:
    with pytest.raises(CatalogError) as caught:
        PostgresCatalog(text)
    assert SECRET not in shown(caught.value)


def test_a_missing_database_is_named(dsn: str) -> None:
    with pytest.raises(DatabaseError, match="nowhere"):
        PostgresCatalog(psycopg.conninfo.make_conninfo(dsn, dbname="nowhere"))


def test_neither_repr_nor_location_show_the_password(dsn: str, schema: str) -> None:
    catalog = PostgresCatalog(psycopg.conninfo.make_conninfo(dsn, password=SECRET), catalog_schema=schema)
    assert SECRET not in repr(catalog) + catalog.location + repr(vars(catalog))
    catalog.close()


def test_without_psycopg_the_extra_is_named() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from indexlake.catalog.postgres import PostgresCatalog
from indexlake.errors import MissingExtraError
try:
    PostgresCatalog("postgresql://h/d")
except MissingExtraError as error:
    print(error, error.extra)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'indexlake[postgres]'" in done.stdout


def test_psycopg_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, indexlake.catalog.postgres; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_more_threads_than_connections_wait_their_turn(catalog: PostgresCatalog) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                with catalog.read() as r:
                    r.rows("select pg_sleep(0.005)")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(catalog.sessions._idle) <= 8


def test_a_child_of_a_dead_parent_holds_no_transaction_open(catalog: PostgresCatalog, dsn: str, schema: str) -> None:
    program = """
import os, sys, time
from indexlake.catalog.postgres import PostgresCatalog
catalog = PostgresCatalog(sys.argv[1], catalog_schema=sys.argv[2])
tx = catalog.transaction()
tx.execute("insert into t (k) values (1)")
pid = os.fork()
if pid == 0:
    print(os.getpid(), flush=True)
    time.sleep(30)
    os._exit(0)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program, dsn, schema], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        began = time.monotonic()
        with catalog.transaction() as tx:
            tx.execute("insert into t (k) values (2)")
            tx.commit()
        assert time.monotonic() - began < 10
        os.kill(child, signal.SIGKILL)
    assert keys(catalog) == [2]
