"""stdlib sqlite3 against apsw, and how fairly 8 writer processes share one SQLite file.

Durable means WAL with synchronous=FULL. Fairness compares SQLite's own busy handler with an exclusive
`flock` on a lock file around BEGIN IMMEDIATE … COMMIT.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from measure import percentile, print_table

PRAGMAS = ("pragma journal_mode=wal", "pragma synchronous=full", "pragma wal_autocheckpoint=0")
TABLE = "create table t (id integer primary key, a integer, b blob)"
INSERT = "insert into t (a, b) values (?, ?)"
SELECT = "select id, a, b from t where id = ?"
PROCESSES, SECONDS = 8, 3.0


def open_stdlib(path: str) -> Callable[[str, tuple[object, ...]], object]:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    for pragma in PRAGMAS:
        connection.execute(pragma)
    return lambda sql, values: connection.execute(sql, values).fetchall()


def open_apsw(path: str) -> Callable[[str, tuple[object, ...]], object]:
    connection = apsw.Connection(path, statementcachesize=256)
    connection.set_busy_timeout(60_000)
    for pragma in PRAGMAS:
        connection.execute(pragma)
    cursor = connection.cursor()
    return lambda sql, values: cursor.execute(sql, values).fetchall()


DRIVERS = {"sqlite3": open_stdlib, "apsw": open_apsw}


def one_commit(run: Callable[[str, tuple[object, ...]], object], value: int) -> None:
    run("begin immediate", ())
    run(INSERT, (value, b"x" * 60))
    run("commit", ())


def latencies(folder: Path) -> None:
    runs = {}
    for name, opener in DRIVERS.items():
        runs[name] = opener(str(folder / f"{name}.db"))
        runs[name](TABLE, ())
        for value in range(200):
            one_commit(runs[name], value)
    commits: dict[str, list[float]] = {name: [] for name in runs}
    for value in range(1500):
        for name, run in runs.items():
            start = time.perf_counter()
            one_commit(run, value)
            commits[name].append(time.perf_counter() - start)
    selects: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(20):
        for name, run in runs.items():
            start = time.perf_counter()
            for key in range(1, 1001):
                run(SELECT, (key,))
            selects[name].append((time.perf_counter() - start) / 1000)
    file = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY)
    syncs = []
    for _ in range(1000):
        start = time.perf_counter()
        os.write(file, b"x" * 4096)
        os.fdatasync(file)
        syncs.append(time.perf_counter() - start)
    rows: list[tuple[object, ...]] = [
        (
            name,
            sqlite3.sqlite_version if name == "sqlite3" else apsw.sqlite_lib_version(),
            f"{statistics.median(commits[name]) * 1e6:.0f}",
            f"{percentile(commits[name], 0.99) * 1e6:.0f}",
            f"{statistics.median(selects[name]) * 1e6:.1f}",
        )
        for name in runs
    ]
    rows.append(
        (
            "append 4 KiB + fdatasync",
            "",
            f"{statistics.median(syncs) * 1e6:.0f}",
            f"{percentile(syncs, 0.99) * 1e6:.0f}",
            "",
        )
    )
    print_table("One durable insert, one point select (µs)", ["driver", "SQLite", "p50", "p99", "select"], rows)


def writer(path: str, lock_path: str | None, start: float, results: multiprocessing.Queue[tuple[int, float]]) -> None:
    run = open_apsw(path)
    lock = None if lock_path is None else os.open(lock_path, os.O_RDWR | os.O_CREAT)
    commits, longest = 0, 0.0
    time.sleep(max(0.0, start - time.time()))
    end = time.time() + SECONDS
    while time.time() < end:
        begin = time.perf_counter()
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        one_commit(run, commits)
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)
        longest = max(longest, time.perf_counter() - begin)
        commits += 1
    results.put((commits, longest))


def fairness(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    rows = []
    for attempt in range(2):
        for name in ("busy handler", "flock"):
            path = str(folder / f"{name[0]}{attempt}.db")
            open_apsw(path)(TABLE, ())
            results = context.Queue()
            lock = path + ".lock" if name == "flock" else None
            start = time.time() + 2.5
            arguments = (path, lock, start, results)
            workers = [context.Process(target=writer, args=arguments) for _ in range(PROCESSES)]
            for worker in workers:
                worker.start()
            outcomes = [results.get() for _ in workers]
            for worker in workers:
                worker.join()
            counts = sorted(count for count, _ in outcomes)
            longest = max(wait for _, wait in outcomes)
            rows.append((name, int(sum(counts) / SECONDS), counts[0], counts[-1], f"{longest * 1e3:.0f}"))
    header = ["lock", "commits/s", "fewest by one", "most by one", "longest wait ms"]
    print_table(f"{PROCESSES} writer processes, {SECONDS:.0f} s", header, rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        latencies(Path(name))
        fairness(Path(name))


if __name__ == "__main__":
    main()
