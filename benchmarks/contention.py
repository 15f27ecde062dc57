"""One hot row: increments by many threads, against the same increments under one lock of the program's own.

Every increment has to arrive, once and without an error; a round that loses one fails the benchmark.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
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
Add = Callable[[il.Lake, str], object]


def hot_row(folder: Path, rows: int) -> Iterator[Outcome]:
    with il.connect(folder / "lake", automatic=False) as lake:
        for threads in (1, 8, 32, 100):
            yield _compare(f"hot row, {threads} threads", lake, threads, _statement)
        yield _compare("hot row, lake.run in 16 threads", lake, 16, _function)


def hot_row_on_postgres(folder: Path, rows: int) -> Iterator[Outcome]:
    with server(folder) as uri, il.connect(uri, storage=str(folder / "files"), automatic=False) as lake:
        for threads in (1, 8, 32):
            yield _compare(f"hot row on PostgreSQL, {threads} threads", lake, threads, _statement)


def _statement(lake: il.Lake, name: str) -> object:
    return lake.table(name).update({"n": il.expr("n + 1")}, "id = 1")


def _function(lake: il.Lake, name: str) -> object:
    def add(tx: il.Transaction) -> None:
        table = tx.table(name)
        table.update({"n": table.get(1)["n"] + 1}, "id = 1")

    return lake.run(add)


def _compare(name: str, lake: il.Lake, threads: int, add: Add) -> Outcome:
    rates: dict[str, list[tuple[float, float]]] = {"ours": [], "one lock": []}
    for _ in range(ROUNDS):
        for kind, turn in (("ours", nullcontext()), ("one lock", threading.Lock())):
            rates[kind].append(_rate(lake, threads, add, turn))
    ours, floor = (statistics.median(rate for rate, _ in found) for found in rates.values())
    detail = ", ".join(
        f"{kind} {min(found)[0]:,.0f}–{max(found)[0]:,.0f} and {min(cpu for _, cpu in found):.2g} ms of processor each"
        for kind, found in rates.items()
    )
    return at_least(name, ours, floor, 0.5, "increments/s", detail)


def _rate(lake: il.Lake, threads: int, add: Add, turn: Any) -> tuple[float, float]:
    """Increments per second of all threads together, and milliseconds of processor time for each."""
    name = f"counter_{uuid.uuid4().hex}"  # another row each time: its past is part of what reading it costs
    table = lake.create_table(name, SCHEMA, primary_key="id")
    table.insert({"id": 1, "n": 0})
    times = max(2, INCREMENTS // threads)
    errors: list[BaseException] = []
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        try:
            for _ in range(times):
                with turn:
                    add(lake, name)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    start.wait()
    began, processor = time.perf_counter(), time.process_time()
    for thread in running:
        thread.join()
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    assert not errors, errors[0]
    arrived = table.get(1)["n"]
    assert arrived == threads * times, f"{arrived} of {threads * times} increments arrived"
    return arrived / seconds, processor / arrived * 1000
