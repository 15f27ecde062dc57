"""The scene of ``indexlake demo`` with a lake that keeps its newest rows in memory: latencies, a checkpoint, a kill."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import indexlake as il

_ROWS = 50_000
_ACKNOWLEDGED = 100
_WRITER = """
import itertools, sys
import indexlake as il
with il.connect(sys.argv[1], automatic=False) as lake:
    events = lake.table("events")
    for n in itertools.count(1_000_000):
        events.insert({"id": n, "what": "written by a process that will be killed", "size": n})
        print(n, flush=True)
"""


def scene(console: Console, folder: Path) -> None:
    with il.connect(folder, hot="memory", automatic=False) as lake:
        lake.drop_table("events", missing_ok=True)
        events = lake.create_table("events", {"id": "int64", "what": "string", "size": "int64"}, primary_key="id")
        _latencies(console, events)
        for first in range(5_000, _ROWS, 5_000):
            events.insert([{"id": n, "what": "one of many", "size": n} for n in range(first, first + 5_000)])
        row_id = events.scan("id = 7", with_row_id=True).to_pylist()[0]["_indexlake_row_id"]
        console.print(f"row {row_id} is at {events.locate(row_id)}", highlight=False, soft_wrap=True)
        seconds, done = _timed(lambda: lake.pipeline(runner="threads").dump("events")["main.events"])
        said = f"checkpoint: {done}, in {seconds:,.2f} s; the redo log starts over"
        console.print(said, highlight=False, soft_wrap=True)
        console.print(f"row {row_id} is at {events.locate(row_id)}", highlight=False, soft_wrap=True)
    _kill(console, folder)


def _latencies(console: Console, events: il.Table) -> None:
    events.insert({"id": -1, "what": "first", "size": 0})
    events.get(-1)
    shown = Table("each a commit of its own", "median", "99 of 100 within", box=None, padding=(0, 2, 0, 0))
    for what, many, do in (
        ("insert, durable in the redo log", 200, lambda n: events.insert({"id": n, "what": "one row", "size": n})),
        ("get by key", 200, events.get),
        ("update by key, durable too", 100, lambda n: events.update({"size": -n}, f"id = {n}")),
    ):
        times = sorted(_timed(lambda n=n, do=do: do(n))[0] for n in range(many))  # type: ignore[misc]
        shown.add_row(what, f"{statistics.median(times) * 1e6:,.0f} µs", f"{times[many * 99 // 100] * 1e6:,.0f} µs")
    console.print(shown)


def _kill(console: Console, folder: Path) -> None:
    """Kill a process while it writes, and show that everything acknowledged survived."""
    told = 0
    command = [sys.executable, "-c", _WRITER, os.fspath(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            told += line.endswith("\n")
            if told == _ACKNOWLEDGED:
                writer.send_signal(signal.SIGKILL)
    if told < _ACKNOWLEDGED:
        raise il.OwnershipError(f"The process that should write to {folder} ended on its own.")
    seconds, lake = _timed(lambda: il.connect(folder, automatic=False))
    with lake:
        found = lake.table("events").scan("id >= 1000000").count()
        assert found >= told, "what was acknowledged is there"
        console.print(f"kill -9 after {told:,} acknowledged inserts; reopened in {seconds * 1e3:,.0f} ms")
        console.print(f"{lake.recovery()}", highlight=False)
        console.print(f"{found:,} of its rows are there, every acknowledged one among them", highlight=False)


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result
