"""Durable one-row inserts: one thread, threads that share commits, eight processes on PostgreSQL."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from benchmarks.orders import INSERT, bare_sqlite, open_lake, row
from benchmarks.outcome import Outcome, at_least, at_most, below, in_turn, spread

THREADS, SECONDS, ROUNDS = (8, 32), 1.0, 5


def one_row_insert(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = open_lake(folder, "insert")
    cursor = bare_sqlite(folder / "insert.db").cursor()

    def bare(n: int) -> None:
        cursor.execute(INSERT, tuple(row(n).values()))

    times = in_turn({"ours": lambda n: table.insert(row(n)), "bare": bare}, 3000, warm_up=200)
    lake.close()
    ours, floor = (statistics.median(times[name]) for name in ("ours", "bare"))
    detail = f"ours {spread(times['ours'])}; bare {spread(times['bare'])}"
    yield at_most("one-row durable insert, p50", ours, floor, 2, detail=detail)
    with_code = [a - b for a, b in zip(times["ours"], times["bare"], strict=True)]
    yield Outcome(
        "  of which not the disk", f"{statistics.median(with_code):,.0f} µs", "", 0, "", None,
        "median of the differences of neighbouring calls",
    )  # fmt: skip


class _Waiter:
    __slots__ = ("done", "lock", "values")

    def __init__(self, values: tuple[object, ...]) -> None:
        self.values, self.done = values, False
        self.lock = threading.Lock()
        self.lock.acquire()


class BareGroupCommit:
    """The first arriver commits; those who wait meanwhile are taken together by the next leader."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._run = connection.cursor().execute
        self._mutex = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._busy = False

    def commit(self, values: tuple[object, ...]) -> None:
        mine = _Waiter(values)
        with self._mutex:
            leads = not self._busy
            self._busy = True
            self._waiting.append(mine)
        if not leads:
            mine.lock.acquire()
            if mine.done:
                return
        with self._mutex:
            group = list(self._waiting)
            self._waiting.clear()
        self._write(group)
        with self._mutex:
            heir = self._waiting[0] if self._waiting else None
            self._busy = heir is not None
        if heir is not None:
            heir.lock.release()
        for waiter in group:
            waiter.done = True
            if waiter is not mine:
                waiter.lock.release()

    def _write(self, group: list[_Waiter]) -> None:
        run = self._run
        run("begin immediate")
        for waiter in group:
            run("savepoint one")
            run(INSERT, waiter.values)
            run("release one")
        run("commit")


def many_threads(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = open_lake(folder, "threads")
    bare = BareGroupCommit(bare_sqlite(folder / "threads.db"))
    numbers = iter(range(1_000_000_000))
    contenders: dict[str, Callable[[int], object]] = {
        "bare": lambda n: bare.commit(tuple(row(n).values())), "ours": lambda n: table.insert(row(n)),
    }  # fmt: skip
    _run_threads(8, contenders["ours"], numbers, 0.3)
    for count in THREADS:
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        groups = lake._committer.groups
        for _ in range(ROUNDS):
            for name, call in contenders.items():
                rates[name].append(_run_threads(count, call, numbers, SECONDS))
        share = (lake._committer.groups - groups) / (sum(rates["ours"]) * SECONDS)
        ours, floor = statistics.median(rates["ours"]), statistics.median(rates["bare"])
        detail = ", ".join(f"{name} {min(found):,.0f}–{max(found):,.0f}" for name, found in rates.items())
        yield at_least(f"inserts by {count} threads", ours, floor, 0.6, "commits/s", detail)
        yield below("  database commits per insert", share, 0.4, "")
    lake.close()


def _run_threads(count: int, call: Callable[[int], object], numbers: Iterator[int], seconds: float) -> float:
    """Calls per second of all threads together."""
    counts = [0] * count
    stop = time.perf_counter() + seconds

    def work(place: int) -> None:
        while time.perf_counter() < stop:
            call(next(numbers))
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def import_time(folder: Path, rows: int) -> Iterator[Outcome]:
    """With compiled files, as an installed package has them: a checkout may be kept from writing its own."""
    import os
    import subprocess
    import sys

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    code = "import time; a = time.perf_counter(); import {}; print(time.perf_counter() - a)"
    times: dict[str, list[float]] = {"indexlake": [], "pyarrow, numpy": []}
    for turn in range(8):
        for name, module in (("indexlake", "indexlake"), ("pyarrow, numpy", "numpy, pyarrow")):
            done = subprocess.run(
                [sys.executable, "-c", code.format(module)], capture_output=True, text=True, check=True, env=environment
            )
            if turn:  # the first one compiles
                times[name].append(float(done.stdout) * 1000)
    ours, floor = (statistics.median(times[name]) for name in times)
    detail = f"numpy and pyarrow alone: {floor:.0f} ms; best of ours {min(times['indexlake']):.0f} ms"
    yield below("import indexlake", ours, 300, "ms", detail)
