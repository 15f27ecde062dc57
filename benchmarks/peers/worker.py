"""One contender doing one long operation, in a process of its own: ``python -m benchmarks.peers.worker``.

Prints one line of JSON when it is ready, and one when it is done.  The parent measures nothing and ends it when it
takes too long.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.memory import Peak
from benchmarks.orders import SCHEMA, row, stream
from benchmarks.peers.contenders import Contender, contender
from benchmarks.peers.expected import Expected

Work = Callable[[Contender, argparse.Namespace], dict[str, Any]]


def build(table: Contender, given: argparse.Namespace) -> dict[str, Any]:
    table.create(stream(given.rows))
    return {}


def batches(table: Contender, given: argparse.Namespace) -> dict[str, Any]:
    """Many small commits, until all are done or the time is up, then the aggregate."""
    _warm_up(given, lambda warm: warm.by_city())
    print(json.dumps({"event": "ready"}), flush=True)
    size, start = given.batch_rows, time.perf_counter()
    done = 0
    while done < given.batches and time.perf_counter() - start < given.cap:
        table.insert([row(n) for n in range(done * size, (done + 1) * size)])
        done += 1
    inserting = time.perf_counter() - start
    groups = table.by_city()
    total = time.perf_counter() - start
    assert sum(group[1] for group in groups) == done * size
    Expected(done * size).check(table)
    return {"batches": done, "inserting": inserting, "seconds": total}


def upsert(table: Contender, given: argparse.Namespace) -> dict[str, Any]:
    return _changed(table, given, "upsert", random.Random(7).sample(range(given.rows), given.changed))


def merge(table: Contender, given: argparse.Namespace) -> dict[str, Any]:
    """Half of the rows are there already."""
    known = random.Random(7).sample(range(given.rows), given.changed // 2)
    new = range(given.rows, given.rows + given.changed - len(known))
    return _changed(table, given, "merge", [*known, *new])


def _changed(table: Contender, given: argparse.Namespace, operation: str, keys: list[int]) -> dict[str, Any]:
    rows = [row(key) | {"total": 7.5, "quantity": 3} for key in keys]
    source = pa.Table.from_pylist(rows, SCHEMA)
    few = pa.Table.from_pylist([row(n) for n in range(990, 1010)], SCHEMA)
    _warm_up(given, lambda warm: getattr(warm, operation)(few))
    table.get(keys[0])  # opens what there is to open
    print(json.dumps({"event": "ready"}), flush=True)
    peak, start = Peak(), time.perf_counter()
    getattr(table, operation)(source)
    seconds = time.perf_counter() - start
    highest = peak.stop()
    expected = Expected(given.rows)
    for changed in rows:
        expected.put(changed)
    expected.check(table)
    return {"seconds": seconds, "peak": highest}


def _warm_up(given: argparse.Namespace, operation: Callable[[Contender], object]) -> None:
    """The same on a small table of its own, so that nobody's imports are measured."""
    place = given.folder / f"warm-up-{given.contender}"
    place.mkdir()
    table = contender(given.contender)(place)
    table.create(stream(1000))
    table.insert([row(1000)])
    operation(table)
    table.close()


WORK: dict[str, Work] = {"build": build, "batches": batches, "upsert": upsert, "merge": merge}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.worker", description=__doc__)
    parser.add_argument("work", choices=sorted(WORK))
    parser.add_argument("contender")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--batch-rows", type=int, default=10)
    parser.add_argument("--changed", type=int, default=0)
    parser.add_argument("--cap", type=float, default=600.0)
    given = parser.parse_args()
    table = contender(given.contender)(given.folder)
    found = WORK[given.work](table, given)
    table.close()
    print(json.dumps({"event": "done", **found}), flush=True)


if __name__ == "__main__":
    main()
