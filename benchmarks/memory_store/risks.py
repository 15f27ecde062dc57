"""What the memory store rests on: ``python -m benchmarks.memory_store.risks [--only NAME] [--folder DIR]``

Pages held in several ways, sorted maps, appends with and without a thread of their own, and what the interpreter lock
leaves.  Processor time where the processor decides, the clock where the disk does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from array import array
from bisect import insort
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedDict, SortedList

from benchmarks.memory_store import data
from benchmarks.memory_store.commits import BareGroupCommit, BareLog, Prepared, run_threads

ROWS = 1_000_000
CALLS = 200_000


def per_call(call: Callable[[int], object], calls: int = CALLS) -> float:
    """Microseconds of processor time, the best of five."""
    keys = [Random(1).randrange(ROWS) for _ in range(calls)]
    found = []
    for _ in range(5):
        start = time.process_time()
        for key in keys:
            call(key)
        found.append((time.process_time() - start) / calls * 1e6)
    return min(found)


def whole(call: Callable[[], object]) -> float:
    """Milliseconds of processor time, the best of three."""
    found = []
    for _ in range(3):
        start = time.process_time()
        call()
        found.append((time.process_time() - start) * 1000)
    return min(found)


def pages(folder: Path) -> None:
    """A row of four columns: read, changed in place, with another version instead, turned into Arrow."""
    columns = data.lists(ROWS)
    for name, make in (("list per column", as_lists), ("tuple per row", as_tuples), ("array per column", as_arrays)):
        read, change, add, arrow, size = make(columns)
        print(
            f"{name:17} read {per_call(read):.2f} µs, in place {per_call(change):.2f} µs, new version "
            f"{per_call(add):.2f} µs, {ROWS:,} rows to Arrow {whole(arrow):,.0f} ms, {size:,.0f} bytes a row"
        )
        del read, change, add, arrow
    lock, held = threading.Lock(), [list(column) for column in columns]

    def guarded(n: int) -> tuple[Any, ...]:
        with lock:
            return tuple([column[n] for column in held])

    stamps = array("q", bytes(8 * ROWS))

    def stamped(n: int) -> tuple[Any, ...]:
        while True:
            stamp = stamps[n]
            row = tuple([column[n] for column in held])
            if stamps[n] == stamp and not stamp & 1:
                return row

    print(f"a read that cannot be torn: under a lock {per_call(guarded):.2f} µs, by a stamp {per_call(stamped):.2f} µs")
    begins, ends = array("q", bytes(8 * ROWS)), array("q", [1 << 62]) * ROWS

    def versioned(n: int) -> tuple[Any, ...] | None:
        return tuple([column[n] for column in held]) if begins[n] <= 7 < ends[n] else None

    print(f"a read of a version that is written once: {per_call(versioned):.2f} µs")
    first, last = np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64)
    print(f"which of {ROWS:,} versions a snapshot shows: {whole(lambda: (first <= 7) & (last > 7)):.1f} ms")


Page = tuple[Callable[[int], object], Callable[[int], object], Callable[[int], object], Callable[[], object], float]
"""How to read a row, change it in place, add a version and make Arrow; bytes a row with the objects of its values."""


def size_of(held: list[Any], objects: list[list[Any]]) -> float:
    return sum(map(sys.getsizeof, [*held, *(value for column in objects for value in column)])) / ROWS


def as_lists(columns: list[list[Any]]) -> Page:
    held = [list(column) for column in columns]

    def change(n: int) -> None:
        held[3][n] = 1.5

    def add(n: int) -> None:
        for column, value in zip(held, (n, "x", 1, 1.5), strict=True):
            column.append(value)

    def arrow() -> object:
        return [pa.array(column[:ROWS], kind) for column, kind in zip(held, data.SCHEMA.types, strict=True)]

    size = size_of(held, columns)
    return lambda n: tuple([column[n] for column in held]), change, add, arrow, size


def as_tuples(columns: list[list[Any]]) -> Page:
    held = list(zip(*columns, strict=True))

    def change(n: int) -> None:
        row = held[n]
        held[n] = (*row[:3], 1.5)

    def add(n: int) -> None:
        held.append((n, "x", 1, 1.5))

    def arrow() -> object:
        by_column = zip(*held[:ROWS], strict=True)
        return [pa.array(column, kind) for column, kind in zip(by_column, data.SCHEMA.types, strict=True)]

    size = size_of([held, *held], columns)
    return lambda n: held[n], change, add, arrow, size


def as_arrays(columns: list[list[Any]]) -> Page:
    ids, names, quantities, totals = columns
    held: list[Any] = [array("q", ids), list(names), array("q", quantities), array("d", totals)]

    def change(n: int) -> None:
        held[3][n] = 1.5

    def add(n: int) -> None:
        for column, value in zip(held, (n, "x", 1, 1.5), strict=True):
            column.append(value)

    def arrow() -> object:
        numbers = [pa.array(np.frombuffer(held[n][:ROWS], kind)) for n, kind in ((0, "q"), (2, "q"), (3, "d"))]
        return [*numbers, pa.array(held[1][:ROWS], pa.string())]

    size = size_of(held, [names])
    return lambda n: tuple([column[n] for column in held]), change, add, arrow, size


def maps(folder: Path) -> None:
    """A million keys in random order: added, looked up, a range of a hundred read."""
    keys = list(range(0, 2 * ROWS, 2))
    Random(2).shuffle(keys)
    sought = [Random(3).randrange(2 * ROWS) for _ in range(CALLS)]

    def sorted_dict() -> Any:
        made = SortedDict()
        for key in keys:
            made[key] = key
        return made

    def plain_dict() -> Any:
        made = {}
        for key in keys:
            made[key] = key
        return made

    def bisected() -> Any:
        made: list[int] = []
        for key in keys[:100_000]:
            insort(made, key)
        return made

    for name, make in (("SortedDict", sorted_dict), ("dict", plain_dict)):
        start = time.process_time()
        made = make()
        added = (time.process_time() - start) / ROWS * 1e6
        start = time.process_time()
        for key in sought:
            made.get(key)
        print(f"{name:10} add {added:.2f} µs, get {(time.process_time() - start) / CALLS * 1e6:.2f} µs")
    start = time.process_time()
    ordered = SortedList(made)
    print(f"its keys sorted when the first range asks: {(time.process_time() - start) * 1000:,.0f} ms for {ROWS:,}")
    start = time.process_time()
    for key in sought[:10_000]:
        list(ordered.irange(key, key + 200))
    print(f"a range of a hundred keys: {(time.process_time() - start) / 10_000 * 1e6:.1f} µs")
    start = time.process_time()
    for key in range(1, 20_001, 2):
        ordered.add(key)
    print(f"and kept up: {(time.process_time() - start) / 10_000 * 1e6:.1f} µs a key")
    start = time.process_time()
    bisected()
    print(f"a list and bisect: {(time.process_time() - start) / 100_000 * 1e6:.1f} µs a key for only 100,000")


class CommitterThread:
    """Appends what all threads have brought, in a thread of its own."""

    def __init__(self, log: BareLog) -> None:
        self._log = log
        self._mutex = threading.Lock()
        self._work = threading.Semaphore(0)
        self._waiting: list[tuple[bytes, threading.Lock]] = []
        threading.Thread(target=self._run, daemon=True).start()

    def commit(self, content: bytes) -> None:
        ready = threading.Lock()
        ready.acquire()
        with self._mutex:
            self._waiting.append((content, ready))
        self._work.release()
        ready.acquire()

    def _run(self) -> None:
        while True:
            self._work.acquire()
            with self._mutex:
                group, self._waiting = self._waiting, []
            if group:
                self._log.commit(b"".join([each for each, _ in group]))
                for _, ready in group:
                    ready.release()


def appends(folder: Path) -> None:
    """Commits of 130 bytes by 1, 8 and 32 threads, in turn; medians of five rounds of half a second."""
    content, numbers = os.urandom(130), data.numbers()
    contenders: dict[str, Any] = {
        "whoever comes first leads": BareGroupCommit(BareLog(folder / "leader.log")),
        "a thread of its own": CommitterThread(BareLog(folder / "thread.log")),
        "whoever leads, zeros written before": BareGroupCommit(Prepared(folder / "prepared.log")),
    }
    for count in (1, 8, 32):
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(5):
            for name, each in contenders.items():
                rates[name].append(run_threads(count, lambda _, each=each: each.commit(content), numbers, 0.5))
        for name, found in rates.items():
            print(f"{count:2} threads, {name}: {statistics.median(found):,.0f} commits/s")


def interpreter(folder: Path) -> None:
    """Work of one and of two threads, with and without somebody who waits for the disk."""
    row = data.row(7)

    def work(count: int, calls: int = 100_000) -> float:
        def run() -> None:
            for _ in range(calls):
                tuple(row.values())

        threads = [threading.Thread(target=run) for _ in range(count)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return count * calls / (time.perf_counter() - start)

    one, two = (max(work(count) for _ in range(5)) for count in (1, 2))
    print(f"rows taken apart by one thread {one:,.0f}/s, by two {two:,.0f}/s together")
    log, stop = BareLog(folder / "beside.log"), threading.Event()

    def sync() -> None:
        while not stop.is_set():
            log.commit(b"x" * 130)

    thread = threading.Thread(target=sync)
    thread.start()
    print(f"by one thread while another one syncs: {max(work(1) for _ in range(5)):,.0f}/s")
    stop.set()
    thread.join()


RISKS: dict[str, Callable[[Path], None]] = {
    "pages": pages, "maps": maps, "appends": appends, "interpreter": interpreter
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_store.risks", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(RISKS))
    parser.add_argument("--folder", type=Path, help="on the disk that is meant")
    given = parser.parse_args()
    for name in given.only or RISKS:
        with tempfile.TemporaryDirectory(prefix="indexlake-risks-", dir=given.folder) as folder:
            RISKS[name](Path(folder))


if __name__ == "__main__":
    main()
