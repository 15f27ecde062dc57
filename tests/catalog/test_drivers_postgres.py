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
