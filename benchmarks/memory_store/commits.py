"""Durable one-row commits: one thread and many, beside bare appends of the same bytes, inline, SQLite and DuckDB."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import duckdb

from benchmarks.memory_store import data
from benchmarks.outcome import Outcome, at_least, at_most, in_turn, shown, spread
from indexlake.hot.memory import record

THREADS, SECONDS, ROUNDS = (8, 32), 1.0, 5


def log_file(folder: Path, name: str) -> Path:
    return max((folder / name).glob("redo/redo.*.log"), key=lambda path: path.stat().st_mtime_ns)


def last_record(path: Path) -> bytes:
    """What the last commit has written."""
    content = memoryview(path.read_bytes())
    ends = [end for _, end in record.parts(content)]
    return bytes(content[ends[-2] : ends[-1]])


class BareLog:
    """A file that is appended to: what no log can do without."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def commit(self, content: bytes) -> None:
        os.write(self._file, content)
        os.fdatasync(self._file)


class Prepared(BareLog):
    """Overwrites zeros that were written before, as the redo log does: the size of the file seldom changes."""

    STEP = 1 << 20

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY)
        self._place = self._end = 0

    def commit(self, content: bytes) -> None:
        if self._place + len(content) > self._end:
            os.pwrite(self._file, bytes(self.STEP), self._end)
            self._end += self.STEP
        os.pwrite(self._file, content, self._place)
        self._place += len(content)
        os.fdatasync(self._file)


def one_thread(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = data.open_lake(folder, "one")
    table.insert(data.row(1 << 40))
    content = last_record(log_file(folder, "one"))
    log, prepared = BareLog(folder / "bare.log"), Prepared(folder / "zeros.log")
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda n: table.insert(data.row(n)), "bare": lambda n: log.commit(content),
        "over zeros": lambda n: prepared.commit(content),
    }  # fmt: skip
    times = in_turn(contenders, 3000, warm_up=200)
    lake.close()
    ours, floor = (statistics.median(times[name]) for name in ("ours", "bare"))
    detail = f"{len(content)} bytes; ours {spread(times['ours'])}; bare {spread(times['bare'])}"
    yield at_most("one-row commit, one thread, p50", ours, floor, 1.3, detail=detail)
    yield _no_goal("  beside a bare write over zeros", ours, statistics.median(times["over zeros"]), "µs")
    lake, table = data.open_lake(folder, "unsynced", durability="none")
    alone = in_turn({"ours": lambda n: table.insert(data.row(n))}, 5000, warm_up=500)["ours"]
    lake.close()
    yield Outcome(
        "  of which not the disk", f"{statistics.median(alone):,.0f} µs", "", round(statistics.median(alone)), "", None,
        f"durability='none': {spread(alone)}",
    )  # fmt: skip


class BareGroupCommit:
    """The first arriver appends what all have brought that wait, and syncs once."""

    def __init__(self, log: BareLog) -> None:
        self._log = log
        self._mutex = threading.Lock()
        self._waiting: list[tuple[bytes, threading.Lock]] = []
        self._busy = False

    def commit(self, content: bytes) -> None:
        ready = threading.Lock()
        ready.acquire()
        mine = content, ready
        with self._mutex:
            leads = not self._busy
            self._busy = True
            self._waiting.append(mine)
        if not leads:
            ready.acquire()
            with self._mutex:
                if mine not in self._waiting:
                    return
        with self._mutex:
            group, self._waiting = self._waiting, []
        self._log.commit(b"".join([each for each, _ in group]))
        with self._mutex:
            heir = self._waiting[0] if self._waiting else None
            self._busy = heir is not None
        if heir is not None:
            heir[1].release()
        for _, waits in group:
            if waits is not ready:
                waits.release()


def many_threads(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = data.open_lake(folder, "threads")
    inline_lake, inline = data.open_lake(folder, "inline", hot="inline")
    table.insert(data.row(1 << 40))
    content = last_record(log_file(folder, "threads"))
    bare, zeros = (BareGroupCommit(kind(folder / f"{kind.__name__}.log")) for kind in (BareLog, Prepared))
    numbers = data.numbers()
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda n: table.insert(data.row(n)), "bare": lambda n: bare.commit(content),
        "inline": lambda n: inline.insert(data.row(n)), "over zeros": lambda n: zeros.commit(content),
    }  # fmt: skip
    for call in contenders.values():
        run_threads(8, call, numbers, 0.3)
    for count in THREADS:
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        commits, groups = lake._committer.commits, lake._committer.groups
        for _ in range(ROUNDS):
            for name, call in contenders.items():
                rates[name].append(run_threads(count, call, numbers, SECONDS))
        each = (lake._committer.commits - commits) / (lake._committer.groups - groups)
        found = {name: statistics.median(rate) for name, rate in rates.items()}
        shown = ", ".join(f"{name} {min(rate):,.0f}–{max(rate):,.0f}" for name, rate in rates.items())
        detail = f"{each:.1f} commits a sync; {shown}"
        yield at_least(
            f"commits by {count} threads, and a bare group commit",
            found["ours"],
            found["bare"],
            0.7,
            "commits/s",
            detail,
        )
        yield at_least(f"commits by {count} threads, and inline", found["ours"], found["inline"], 1.5, "commits/s")
        yield _no_goal("  and a bare group commit over zeros", found["ours"], found["over zeros"], "commits/s")
    lake.close()
    inline_lake.close()


def _no_goal(name: str, ours: float, floor: float, unit: str) -> Outcome:
    return Outcome(name, shown(ours, unit), shown(floor, unit), round(ours / floor, 3), "", None)


def run_threads(count: int, call: Callable[[int], object], numbers: Iterator[int], seconds: float) -> float:
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


def sqlite(path: Path, synchronous: str) -> Any:
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal")
    connection.execute(f"pragma synchronous = {synchronous}")
    connection.execute(data.CREATE)
    return connection.cursor()


def peers(folder: Path, rows: int) -> Iterator[Outcome]:
    """Each durable as far as it says: SQLite with synchronous=NORMAL syncs at checkpoints only."""
    lake, table = data.open_lake(folder, "peers")
    inline_lake, inline = data.open_lake(folder, "inline", hot="inline")
    full, normal = sqlite(folder / "full.db", "full"), sqlite(folder / "normal.db", "normal")
    duck = duckdb.connect(str(folder / "duck.db"))
    duck.execute(data.CREATE)
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda n: table.insert(data.row(n)),
        "inline": lambda n: inline.insert(data.row(n)),
        "SQLite, WAL, synchronous=FULL": lambda n: full.execute(data.INSERT, data.values(n)),
        "SQLite, WAL, synchronous=NORMAL": lambda n: normal.execute(data.INSERT, data.values(n)),
        "DuckDB": lambda n: duck.execute(data.INSERT, data.values(n)),
    }
    times = in_turn(contenders, 1500, warm_up=100)
    for each in (lake, inline_lake, duck):
        each.close()
    ours = statistics.median(times["ours"])
    for name, found in times.items():
        if name != "ours":
            other = statistics.median(found)
            yield Outcome(
                f"one-row commit, and {name}", f"{ours:,.0f} µs", f"{other:,.0f} µs", round(ours / other, 3), "", None,
                f"ours {spread(times['ours'])}; {name} {spread(found)}",
            )  # fmt: skip
