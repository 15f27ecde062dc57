"""The SQLite driver: its log, its lock among processes, its errors, and forking."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from indexlake.catalog.driver import DatabaseError
from indexlake.catalog.sqlite import SqliteCatalog
from indexlake.catalog.writer_lock import FairLock, WriterLock
from indexlake.errors import CatalogError, NotFoundError, OwnershipError
from indexlake.storage import faults
from tests.support.folders import let_others_in
from tests.support.forks import exit_code, fork
from tests.support.threads import is_heartbeat


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "catalog.db")


@pytest.fixture
def catalog(path: str) -> Iterator[SqliteCatalog]:
    opened = SqliteCatalog(path)
    with opened.transaction() as tx:
        tx.execute("create table t (k integer primary key, b blob)")
        tx.commit()
    yield opened
    opened.close()


def insert(catalog: SqliteCatalog, size: int = 10) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (b) values (?)", (b"x" * size,))
        tx.commit()


def count(catalog: SqliteCatalog) -> int:
    with catalog.read() as r:
        return int(r.rows("select count(*) from t")[0][0])


def test_nobody_asks_again_what_a_session_has_read_while_nobody_has_written(catalog: SqliteCatalog, path: str) -> None:
    passed: list[str] = []

    def asked(begin: Callable[[], Any]) -> int:
        passed.clear()
        faults.install(lambda name: None if is_heartbeat() else passed.append(name))
        try:
            with begin() as tx:
                assert tx.rows_again("select count(*) from t") == [(count_now,)]
        finally:
            faults.install(None)
        return passed.count("sql.execute") + passed.count("sql.query")

    reading, writing, count_now = catalog.read, catalog.transaction, 0
    assert [asked(reading), asked(reading), asked(writing), asked(writing)] == [1, 0, 0, 0]
    other = SqliteCatalog(path)
    insert(other)
    other.close()
    count_now = 1
    assert [asked(writing), asked(reading), asked(reading), asked(writing)] == [1, 1, 0, 0]


@contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has said its first line."""
    start = "import os, sys, time, signal\nfrom indexlake.catalog.sqlite import SqliteCatalog\n"
    with subprocess.Popen(
        [sys.executable, "-c", start + program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


# The log


def test_commits_are_durable_and_the_log_is_ours_to_move(catalog: SqliteCatalog) -> None:
    with catalog.read() as r:
        assert r.row("pragma journal_mode") == ("wal",)
        assert r.row("pragma synchronous") == (2,)
        assert r.row("pragma foreign_keys") == (0,)
        assert r.row("pragma mmap_size") in (None, (0,))
    assert apsw.sqlite_lib_version().split(".") >= ["3", "51", "3"]


def test_the_log_stays_short_under_many_commits(catalog: SqliteCatalog, path: str) -> None:
    for _ in range(200):
        insert(catalog, 100_000)
    assert os.path.getsize(path + "-wal") < 8 << 20
    assert count(catalog) == 200


def test_a_reader_makes_the_log_longer_but_no_commit_fails(catalog: SqliteCatalog, path: str) -> None:
    with catalog.read() as r:
        r.rows("select count(*) from t")
        for _ in range(120):
            insert(catalog, 100_000)
        assert os.path.getsize(path + "-wal") > 8 << 20
        assert r.row("select count(*) from t") == (0,)
    for _ in range(60):
        insert(catalog, 100_000)
    assert catalog.sessions.take().wal_frames[0] < 2048
    assert count(catalog) == 180


def test_a_very_long_log_is_begun_anew_in_spite_of_overlapping_readers(catalog: SqliteCatalog) -> None:
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with catalog.read() as r:
                r.rows("select count(*) from t")
                time.sleep(0.02)
                r.rows("select count(*) from t")

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    longest = 0
    for _ in range(110):
        with catalog.transaction() as tx:
            tx.execute("insert into t (b) values (zeroblob(1000000))")
            tx.execute("delete from t where k < (select max(k) from t) - 3")
            tx.commit()
        longest = max(longest, *(session.wal_frames[0] for session in catalog.sessions._idle), 0)
    stop.set()
    for thread in threads:
        thread.join()
    assert longest < 20_000


def test_a_failing_checkpoint_does_not_fail_the_commit(catalog: SqliteCatalog) -> None:
    session = catalog.sessions.take()
    catalog.sessions.give_back(session)
    original = session.connection

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            if name == "wal_checkpoint":
                raise apsw.IOError("injected")
            return getattr(original, name)

    session.connection = Refusing()
    for _ in range(60):
        insert(catalog, 100_000)
    session.connection = original
    assert count(catalog) == 60


def test_checkpoint_moves_the_log_at_once(catalog: SqliteCatalog, path: str) -> None:
    insert(catalog, 1_000_000)
    assert os.path.getsize(path) < 1_000_000
    catalog.checkpoint()
    assert os.path.getsize(path) > 1_000_000


def test_closing_the_last_catalog_leaves_one_whole_file(catalog: SqliteCatalog, path: str) -> None:
    other = SqliteCatalog(path)
    insert(catalog)
    catalog.close()
    assert count(other) == 1
    other.close()
    assert not os.path.exists(path + "-wal")
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as connection:
        assert connection.execute("select count(*) from t").fetchall() == [(1,)]
    connection.close()


def test_closing_while_another_process_writes_neither_waits_long_nor_hurts(catalog: SqliteCatalog, path: str) -> None:
    program = """
catalog = SqliteCatalog(sys.argv[1])
tx = catalog.transaction()
tx.execute("insert into t (k) values (7)")
print("ready", flush=True)
sys.stdin.readline()
tx.commit()
catalog.close()
print("done", flush=True)
"""
    insert(catalog)
    with process(program, path) as child:
        began = time.monotonic()
        catalog.close()
        assert time.monotonic() - began < 5
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
    again = SqliteCatalog(path)
    assert count(again) == 2
    again.close()


# The lock


def test_threads_get_the_lock_in_the_order_of_their_arrival() -> None:
    lock, order = FairLock(), []
    assert lock.acquire(1)
    threads = []
    for number in range(8):

        def work(number: int = number) -> None:
            assert lock.acquire(10)
            order.append(number)
            lock.release()

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        while len(lock._waiting) <= number:
            time.sleep(0.001)
    lock.release()
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    assert lock.try_acquire()


def test_a_thread_that_stops_waiting_leaves_the_queue() -> None:
    lock = FairLock()
    assert lock.acquire(1)
    assert not lock.acquire(0.02)
    assert not lock.acquire(0)
    lock.release()
    assert lock.acquire(0)


def test_the_fair_lock_excludes_under_load_and_with_time_outs() -> None:
    lock, inside, most, done = FairLock(), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for number in range(300):
            if lock.acquire(0.0002 if number % 3 else 5):
                inside += 1
                most = max(most, inside)
                done += 1
                inside -= 1
                lock.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)
    assert done >= 800
    assert lock.try_acquire()


FAIRNESS = """
catalog = SqliteCatalog(sys.argv[1])
with catalog.read() as r:
    r.rows("select count(*) from t")
print("ready", flush=True)
sys.stdin.readline()
end, made, longest = time.monotonic() + float(sys.argv[2]), 0, 0.0
while time.monotonic() < end:
    began = time.monotonic()
    with catalog.transaction() as tx:
        tx.execute("insert into t (b) values (?)", (b"x" * 100,))
        tx.commit()
    longest = max(longest, time.monotonic() - began)
    made += 1
print(made, longest, flush=True)
"""


def test_eight_processes_get_equal_shares(catalog: SqliteCatalog, path: str) -> None:
    """SQLite's own waiting gave one of them a single commit while another made thousands."""
    children = [process(FAIRNESS, path, "1") for _ in range(8)]
    running = [child.__enter__() for child in children]
    try:
        for child in running:
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [child.stdout.readline().split() for child in running]
    finally:
        for child in children:
            child.__exit__(None, None, None)
    made = sorted(int(answer[0]) for answer in answers)
    assert sum(made) == count(catalog)
    assert made[0] > 0.1 * made[-1], made  # on a busy machine the shares of its processors are not equal


HOLDER = """
catalog = SqliteCatalog(sys.argv[1])
tx = catalog.transaction()
print("ready", flush=True)
sys.stdin.readline()
tx.rollback()
print("released", flush=True)
time.sleep(60)
"""


def test_the_time_out_names_the_process_that_holds_the_lock(catalog: SqliteCatalog, path: str) -> None:
    impatient = SqliteCatalog(path, lock_timeout=0.2)
    with process(HOLDER, path) as child:
        with pytest.raises(DatabaseError, match=f"process {child.pid} holds it") as caught:
            impatient.transaction()
        assert caught.value.retryable
        impatient.close()


def test_one_that_stopped_waiting_does_not_keep_the_lock_it_gets_later(catalog: SqliteCatalog, path: str) -> None:
    impatient = SqliteCatalog(path, lock_timeout=0.2)
    with process(HOLDER, path) as child:
        for _ in range(2):
            with pytest.raises(DatabaseError):
                impatient.transaction()
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "released\n"
        insert(catalog)
        insert(impatient)
        insert(catalog)
        impatient.close()
    assert count(catalog) == 3


def test_closing_while_the_lock_is_awaited_in_vain_frees_it(catalog: SqliteCatalog, path: str) -> None:
    impatient = SqliteCatalog(path, lock_timeout=0.1)
    with process(HOLDER, path) as child:
        with pytest.raises(DatabaseError):
            impatient.transaction()
        impatient.close()
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "released\n"
        insert(catalog)
    assert count(catalog) == 1


def test_an_interrupted_wait_leaves_the_lock_in_order(path: str) -> None:
    one, two = WriterLock(path + ".lock", 10), WriterLock(path + ".lock", 10)
    one.acquire()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        two.acquire()
    one.release()
    two.acquire()
    two.release()
    assert one.try_acquire(1)
    one.retire()
    assert two.try_acquire(1)
    two.retire()


def test_a_program_other_than_indexlake_that_writes_makes_a_retryable_error(catalog: SqliteCatalog, path: str) -> None:
    impatient = SqliteCatalog(path, lock_timeout=0.2)
    program = """
import sqlite3
foreign = sqlite3.connect(sys.argv[1], isolation_level=None)
foreign.execute("begin immediate")
print("ready", flush=True)
time.sleep(60)
"""
    with process(program, path):
        with pytest.raises(DatabaseError, match="another program") as caught:
            impatient.transaction()
        assert caught.value.retryable
        assert caught.value.code & 0xFF == apsw.SQLITE_BUSY
    insert(impatient)
    impatient.close()


def test_many_threads_read_and_write_at_once(catalog: SqliteCatalog) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                if number % 4 == 0:
                    insert(catalog)
                with catalog.read() as r:
                    first = r.row("select count(*) from t")
                    assert r.row("select count(*) from t") == first
                assert len(list(catalog.query("select k from t"))) >= first[0]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert count(catalog) == 60
    assert len(catalog.sessions._idle) <= 8
    assert not catalog.sessions._busy


# Errors


def test_a_file_that_is_no_database_is_refused_and_unchanged(path: str) -> None:
    Path(path).write_bytes(b"this is not a database, it is a letter to a friend " * 100)
    before = Path(path).read_bytes()
    with pytest.raises(DatabaseError, match="not a SQLite database") as caught:
        SqliteCatalog(path)
    assert caught.value.code == apsw.SQLITE_NOTADB
    assert Path(path).read_bytes() == before


def test_a_damaged_file_is_reported_as_damaged(catalog: SqliteCatalog, path: str) -> None:
    for _ in range(50):
        insert(catalog, 1000)
    catalog.close()
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (os.path.getsize(path) - 4096))
    damaged = SqliteCatalog(path)
    with pytest.raises(DatabaseError, match="damaged") as caught, damaged.read() as r:
        r.rows("select sum(length(b)) from t")
    assert caught.value.code & 0xFF == apsw.SQLITE_CORRUPT
    assert not caught.value.retryable
    with pytest.raises(DatabaseError, match="damaged"):
        insert(damaged)
    damaged.close()


def test_a_directory_is_no_catalog(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot be opened"):
        SqliteCatalog(str(tmp_path))


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CatalogError, match="directory"):
        SqliteCatalog(str(tmp_path / "file" / "catalog.db"))


def test_a_full_disk_is_named_and_changes_nothing(catalog: SqliteCatalog) -> None:
    insert(catalog)
    with catalog.transaction() as tx:
        (pages,) = tx.row("pragma page_count")
        tx.rows(f"pragma max_page_count = {pages + 5}")
        with pytest.raises(DatabaseError, match="disk is full") as caught:
            tx.insert_rows("t", ["b"], [(b"x" * 1000,) for _ in range(1000)])
        assert caught.value.code == apsw.SQLITE_FULL
        if tx._is_open():
            tx.rollback()
        with pytest.raises(CatalogError, match="over"):
            tx.execute("insert into t (k) values (99)")
    assert count(catalog) == 1
    with catalog.transaction() as tx:
        tx.rows("pragma max_page_count = 1000000")
    insert(catalog)
    assert count(catalog) == 2


def test_when_sqlite_rolls_back_by_itself_no_later_statement_is_committed_alone(catalog: SqliteCatalog) -> None:
    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        with pytest.raises(DatabaseError) as caught, tx.savepoint():
            tx.execute("insert or rollback into t (k) values (1)")
        assert caught.value.unique_violation
        with pytest.raises(CatalogError, match="over"):
            tx.execute("insert into t (k) values (2)")
        with pytest.raises(CatalogError, match="over"):
            tx.commit()
    assert count(catalog) == 0
    insert(catalog)


def test_a_directory_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("becomes another user")
    path = str(tmp_path / "catalog.db")
    made = SqliteCatalog(path)
    with made.transaction() as tx:
        tx.execute("create table t (k integer primary key)")
        tx.commit()
    made.close()
    let_others_in(tmp_path)
    os.chmod(path, 0o644)

    def child() -> None:
        os.setuid(65534)
        with pytest.raises(CatalogError, match="cannot be written to"):  # noqa: PT012
            catalog = SqliteCatalog(path)
            with catalog.transaction() as tx:
                tx.execute("insert into t (k) values (1)")
        with pytest.raises(CatalogError, match="may write to"):
            SqliteCatalog(path + ".d/new.db")

    assert exit_code(fork(child)) == 0


# Forking


def test_a_forked_child_that_connects_again_holds_locks_of_its_own(catalog: SqliteCatalog, path: str) -> None:
    """SQLite remembers locks per process; a child that inherits the memory would skip taking them."""
    insert(catalog)
    inode = os.stat(path).st_ino

    def child() -> None:
        mine = SqliteCatalog(path)
        with mine.read() as r:
            r.rows("select count(*) from t")
            locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            held = [lock for lock in locks if lock[4] == str(os.getpid()) and lock[5].endswith(f":{inode}")]
            assert [lock[1:4] for lock in held] == [["POSIX", "ADVISORY", "READ"]]
        mine.close()

    assert exit_code(fork(child)) == 0
    insert(catalog)


def test_a_fork_waits_for_the_transactions_of_other_threads(catalog: SqliteCatalog, path: str) -> None:
    begun = threading.Event()

    def slow_commit() -> None:
        with catalog.transaction() as tx:
            tx.execute("insert into t (k) values (1)")
            begun.set()
            time.sleep(0.3)
            tx.commit()

    thread = threading.Thread(target=slow_commit)
    thread.start()
    begun.wait()

    def child() -> None:
        mine = SqliteCatalog(path)
        insert(mine)
        mine.close()

    assert exit_code(fork(child)) == 0
    thread.join()
    assert count(catalog) == 2


def test_a_child_forked_inside_a_transaction_may_not_open_that_file(catalog: SqliteCatalog, path: str) -> None:
    def child() -> None:
        with pytest.raises(OwnershipError, match="spawn"):
            SqliteCatalog(path)
        other = SqliteCatalog(path + "2")
        other.close()

    with catalog.transaction() as tx:
        tx.execute("insert into t (k) values (1)")
        pid = fork(child)
        assert exit_code(pid) == 0
        tx.commit()
    assert count(catalog) == 1


def test_children_and_parent_write_at_once_after_a_fork(catalog: SqliteCatalog, path: str) -> None:
    def child() -> None:
        mine = SqliteCatalog(path)
        for _ in range(20):
            insert(mine)
        mine.close()

    insert(catalog)
    pids = [fork(child) for _ in range(3)]
    for _ in range(20):
        insert(catalog)
    catalog.close()  # must not take the log away from the children
    assert [exit_code(pid) for pid in pids] == [0, 0, 0]
    again = SqliteCatalog(path)
    assert count(again) == 81
    again.close()


def test_a_child_keeps_no_lock_of_a_parent_that_died(path: str) -> None:
    program = """
catalog = SqliteCatalog(sys.argv[1])
with catalog.transaction() as tx:
    tx.execute("create table t (k integer primary key, b blob)")
    tx.commit()
tx = catalog.transaction()
tx.execute("insert into t (k) values (1)")
if os.fork() == 0:
    print("ready", flush=True)
    time.sleep(30)
    os._exit(0)
time.sleep(60)
"""
    with process(program, path) as parent:
        child = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
        waiting = SqliteCatalog(path, lock_timeout=0.2)
        with pytest.raises(DatabaseError, match="holds it"):
            waiting.transaction()
        parent.kill()
        parent.wait()
        os.kill(child, 0)  # it lives
        insert(waiting)
        assert count(waiting) == 1
        waiting.close()
        os.kill(child, signal.SIGKILL)


def test_a_child_that_ends_does_not_release_the_lock_of_its_parent(catalog: SqliteCatalog, path: str) -> None:
    impatient = SqliteCatalog(path, lock_timeout=0.2)
    with catalog.transaction() as tx:
        assert exit_code(fork(lambda: None)) == 0
        with pytest.raises(DatabaseError):
            impatient.transaction()
        tx.commit()
    insert(impatient)
    impatient.close()


def test_two_threads_may_fork_at_once(catalog: SqliteCatalog) -> None:
    codes: list[int] = []

    def work() -> None:
        for _ in range(5):
            insert(catalog)
            codes.append(exit_code(fork(lambda: None)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert codes == [0] * 15
    assert count(catalog) == 15


def test_lock_files_are_closed_with_their_catalog(path: str) -> None:
    def open_files() -> list[str]:
        links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        return [target for link in links if os.path.lexists(link) and (target := os.readlink(link)).startswith(path)]

    closed, dropped, late = SqliteCatalog(path), SqliteCatalog(path), SqliteCatalog(path)
    with closed.transaction() as tx:
        tx.execute("create table t (k integer primary key, b blob)")
        tx.commit()
    insert(dropped)
    with late.transaction() as tx:
        late.close()
        tx.commit()
    assert open_files()
    closed.close()
    del dropped
    gc.collect()
    assert open_files() == []


# In memory


def test_a_temporary_catalog_goes_with_its_owner(tmp_path: Path) -> None:
    catalog = SqliteCatalog(":memory:")
    folder = catalog._folder.path("")
    assert os.path.exists(folder)
    catalog.close()
    assert not os.path.exists(folder)
    catalog = SqliteCatalog(":memory:")
    folder = catalog._folder.path("")
    del catalog
    gc.collect()
    assert not os.path.exists(folder)


def test_two_temporary_catalogs_are_two() -> None:
    one, two = SqliteCatalog(":memory:"), SqliteCatalog(":memory:")
    with one.transaction() as tx:
        tx.execute("create table t (k integer)")
        tx.commit()
    with two.read() as r:
        assert not two.dialect.table_exists(r, "t")
    one.close()
    two.close()


def test_what_a_killed_process_left_in_memory_is_removed_by_the_next() -> None:
    program = """
catalog = SqliteCatalog(":memory:")
os.utime(catalog._folder.path(""), (0, 0))
print("ready", flush=True)
print(catalog._folder.path(""), flush=True)
time.sleep(60)
"""
    with process(program) as child:
        folder = child.stdout.readline().strip()
        SqliteCatalog(":memory:").close()
        assert os.path.exists(folder)
        child.kill()
        child.wait()
        SqliteCatalog(":memory:").close()
        assert not os.path.exists(folder)


def test_a_child_does_not_remove_the_temporary_catalog_of_its_parent() -> None:
    catalog = SqliteCatalog(":memory:")

    def child() -> None:
        nonlocal catalog
        with pytest.raises(OwnershipError):
            catalog.read()
        catalog.close()
        del catalog
        gc.collect()

    assert exit_code(fork(child)) == 0
    with catalog.read() as r:
        assert r.row("select 1") == (1,)
    catalog.close()


def test_a_missing_file_is_not_made_for_reading(path: str) -> None:
    with pytest.raises(NotFoundError):
        SqliteCatalog(path, read_only=True)
    assert not os.path.exists(path)
