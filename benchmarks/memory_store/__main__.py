"""The memory hot store: ``python -m benchmarks.memory_store [--only NAME] [--rows N] [--json FILE] [--folder DIR]``

``--rows`` is how many hot rows are scanned, checkpointed and recovered.  Put ``--folder`` on the disk that is meant.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.memory_store import bulk, commits, points
from benchmarks.outcome import Outcome, report

BENCHMARKS: dict[str, Callable[[Path, int], Iterator[Outcome]]] = {
    "commit": commits.one_thread,
    "threads": commits.many_threads,
    "commit-peers": commits.peers,
    "get": points.hot_get,
    "get-peers": points.peers,
    "update": points.hot_update,
    "scan": bulk.scan,
    "checkpoint": bulk.checkpoint,
    "recovery": bulk.recovery,
    "bytes": bulk.bytes_per_row,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_store", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the outcomes there instead of printing them")
    parser.add_argument("--only", action="append", choices=sorted(BENCHMARKS), help="run this one; may be repeated")
    parser.add_argument("--rows", type=int, default=1_000_000, help="hot rows (default 1,000,000)")
    parser.add_argument("--folder", type=Path, help="where to put the lakes (default: the temporary folder)")
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    before = os.getloadavg()
    for name in given.only or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="indexlake-memory-store-", dir=given.folder) as folder:
            for outcome in BENCHMARKS[name](Path(folder), given.rows):
                mark = {True: "met", False: "MISSED", None: ""}[outcome.met]
                print(f"{outcome.name}: {outcome.ours} / {outcome.floor} = {outcome.value:g} {mark}", flush=True)
                outcomes.append(outcome)
    facts = {
        "python": platform.python_version(), "cores": os.cpu_count(), "load before": before,
        "load after": os.getloadavg(), "rows": given.rows,
        "versions": {name: version(name) for name in ("indexlake", "duckdb", "pyarrow", "apsw")},
    }  # fmt: skip
    report(outcomes, given.json, facts, title="The memory hot store", other="other")


if __name__ == "__main__":
    main()
