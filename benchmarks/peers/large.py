"""Long operations: many small commits, an upsert, a merge.  Each contender has a process of its own and a cap of time.

A contender that is not done by then is reported as slower than the time it had; nothing is extrapolated.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.outcome import Outcome, shown
from benchmarks.peers.contenders import contender

_SECONDS_TO_PREPARE = 3600


@dataclass(frozen=True, slots=True)
class Ran:
    """``seconds`` is what it took, or the cap that it went beyond."""

    seconds: float
    capped: bool
    found: dict[str, Any]

    @property
    def time(self) -> str:
        return ("> " if self.capped else "") + shown(self.seconds, "s")


def small_commits(folder: Path, names: Sequence[str], batches: int, batch_rows: int, cap: float) -> Iterator[Outcome]:
    """The worker itself stops when its time is up, so that it can say how far it came."""
    ran: dict[str, Ran] = {}
    for name in names:
        done = _run(name, "batches", folder, cap * 3, batches=batches, batch_rows=batch_rows, cap=cap)
        ran[name] = Ran(done.seconds, done.capped or done.found["batches"] < batches, done.found)
    ours = ran.pop("indexlake")
    title = f"{batches * batch_rows:,} rows in {batches:,} commits, then an aggregate"
    for name, theirs in ran.items():
        detail = f"ours {_commits(ours)}; {contender(name).name} {_commits(theirs)}"
        yield _outcome(title, name, ours, theirs, 10 if name == "ducklake" else 1, detail)


def _commits(ran: Ran) -> str:
    if not ran.found:
        return "did not end"
    count, inserting = ran.found["batches"], ran.found["inserting"]
    aggregate = ran.found["seconds"] - inserting
    return f"{count:,} commits of {inserting / count * 1e3:.3g} ms, aggregate {aggregate:.3g} s"


def upsert(folder: Path, names: Sequence[str], rows: int, cap: float, rounds: int) -> Iterator[Outcome]:
    changed = max(1, rows // 100)
    ran = _rounds(folder, names, "upsert", rows, changed, cap, rounds)
    ours = ran.pop("indexlake")
    for name, theirs in ran.items():
        least = 10 if name in ("delta", "iceberg") else 1
        yield _outcome(
            f"upsert of {changed:,} random keys in {rows:,} rows", name, ours, theirs, least, _memory(ours, theirs)
        )


def merge(folder: Path, names: Sequence[str], rows: int, cap: float, rounds: int) -> Iterator[Outcome]:
    changed = min(1000, rows)
    ran = _rounds(folder, names, "merge", rows, changed, cap, rounds)
    ours = ran.pop("indexlake")
    title = f"merge of {changed:,} rows into {rows:,}"
    for name, theirs in ran.items():
        yield _outcome(title, name, ours, theirs, None, _memory(ours, theirs))
    for name, theirs in ran.items():
        if "peak" not in ours.found or "peak" not in theirs.found:
            continue
        mine, other = ours.found["peak"] / 2**20, theirs.found["peak"] / 2**20
        yield Outcome(
            f"  peak memory: {contender(name).name}",
            shown(mine, "MiB"),
            shown(other, "MiB"),
            round(other / mine, 2),
            "",
            None,
        )


def _rounds(
    folder: Path, names: Sequence[str], work: str, rows: int, changed: int, cap: float, rounds: int
) -> dict[str, Ran]:
    """Rounds of all contenders, each on a fresh table; the median of each."""
    ran: dict[str, list[Ran]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            if any(r.capped for r in ran[name]):
                continue
            place = folder / f"{work}-{number}-{name}"
            place.mkdir()
            _run(name, "build", place, 3600, rows=rows)
            ran[name].append(_run(name, work, place, cap, rows=rows, changed=changed))
    return {name: sorted(found, key=lambda r: r.seconds)[len(found) // 2] for name, found in ran.items()}


def _run(name: str, work: str, folder: Path, limit: float, **options: float) -> Ran:
    """The clock of the limit begins when the worker says that it is ready."""
    arguments = [text for key, value in options.items() for text in (f"--{key.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "benchmarks.peers.worker", work, name, str(folder), *arguments]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    end = time.monotonic() + _SECONDS_TO_PREPARE
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, end - time.monotonic())):
                worker.kill()
                worker.wait()
                return Ran(limit, True, {})
            line = worker.stdout.readline()
            if not line:
                raise RuntimeError(f"{name} failed at {work}; it ended with {worker.wait()}")
            said = json.loads(line)
            if said["event"] == "ready":
                end = time.monotonic() + limit
                continue
            worker.wait()
            return Ran(said.get("seconds", 0.0), False, said)


def _memory(ours: Ran, theirs: Ran) -> str:
    peaks = [f"{r.found['peak'] / 2**20:,.0f} MiB" if "peak" in r.found else "?" for r in (ours, theirs)]
    return f"peak memory ours {peaks[0]}, theirs {peaks[1]}"


def _outcome(title: str, name: str, ours: Ran, theirs: Ran, least: float | None, detail: str) -> Outcome:
    ratio = theirs.seconds / ours.seconds
    if theirs.capped:
        detail = f"stopped at the cap, so > {ratio:,.3g}×; {detail}"
    met = None if least is None or ours.capped or (theirs.capped and ratio < least) else ratio >= least
    goal = "" if least is None else f"≥ {least:g}×"
    return Outcome(f"{title}: {contender(name).name}", ours.time, theirs.time, round(ratio, 2), goal, met, detail)
