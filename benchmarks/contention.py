"""One hot row: increments by many threads, against the same increments under one lock of the program's own.

Every increment has to arrive, once and without an error; a round that loses one fails the benchmark.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from benchmarks.outcome import Outcome, at_least
from benchmarks.postgres import server

INCREMENTS, ROUNDS = 200, 3
SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64()})
Add = Callable[[], object]


def hot_row(folder: Path, rows: int) -> Iterator[Outcome]:
    with il.connect(folder / "lake", automatic=False) as lake:
        table = _counter(lake)
        for threads in (1, 8, 32, 100):
            yield _compare(f"hot row, {threads} threads", table, threads, lambda: _statement(table))
        yield _compare("hot row, lake.run in 16 threads", table, 16, lambda: lake.run(_function))


def hot_row_on_postgres(folder: Path, rows: int) -> Iterator[Outcome]:
    with server(folder) as uri, il.connect(uri, storage=str(folder / "files"), automatic=False) as lake:
        table = _counter(lake)
        for threads in (1, 8, 32):
            yield _compare(f"hot row on PostgreSQL, {threads} threads", table, threads, lambda: _statement(table))


def _counter(lake: il.Lake) -> il.Table:
    table = lake.create_table("counters", SCHEMA, primary_key="id")
    table.insert({"id": 1, "n": 0})
    return table


def _statement(table: il.Table) -> object:
    return table.update({"n": il.expr("n + 1")}, "id = 1")


def _function(tx: il.Transaction) -> None:
    table = tx.table("counters")
    table.update({"n": table.get(1)["n"] + 1}, "id = 1")


def _compare(name: str, table: il.Table, threads: int, add: Add) -> Outcome:
    lock: Any = threading.Lock()
    rates: dict[str, list[float]] = {"ours": [], "one lock": []}
    for _ in range(ROUNDS):
        for kind, turn in (("ours", nullcontext()), ("one lock", lock)):
            rates[kind].append(_rate(table, threads, add, turn))
    ours, floor = (statistics.median(found) for found in rates.values())
    detail = ", ".join(f"{kind} {min(found):,.0f}–{max(found):,.0f}" for kind, found in rates.items())
    return at_least(name, ours, floor, 0.5, "increments/s", detail)


def _rate(table: il.Table, threads: int, add: Add, turn: Any) -> float:
    """Increments per second of all threads together."""
    times = max(2, INCREMENTS // threads)
    errors: list[BaseException] = []
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        try:
            for _ in range(times):
                with turn:
                    add()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    before = table.get(1)["n"]
    start.wait()
    began = time.perf_counter()
    for thread in running:
        thread.join()
    seconds = time.perf_counter() - began
    arrived = table.get(1)["n"] - before
    assert not errors, errors[0]
    assert arrived == threads * times, f"{arrived} of {threads * times} increments arrived"
    return arrived / seconds
