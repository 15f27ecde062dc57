"""IndexLake and its peers in one run: DuckLake, Delta, Iceberg, Lance, and DuckDB on Parquet.

``python -m benchmarks.peers [--only NAME] [--peer NAME] [--rows N] [--json FILE] …``

The command makes a virtual environment of its own for the versions in ``requirements.txt`` (in ``--environment``) and
runs there.  Every operation ends in the same rows for every contender, which is checked.  Sizes default to those of
the goals; a smaller run is reported as what it was.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import environment

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome

BENCHMARKS = ("one-row", "commits", "upsert", "merge", "query")
PEERS = ("ducklake", "delta", "iceberg", "lance")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the outcomes there instead of printing them")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one; may be repeated")
    parser.add_argument("--peer", action="append", choices=PEERS, help="compare with this one; may be repeated")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of one-row and upsert")
    parser.add_argument("--large-rows", type=int, default=5_000_000, help="rows of merge and query")
    parser.add_argument("--batches", type=int, default=30_000, help="commits of ten rows each")
    parser.add_argument("--cap", type=float, default=600, help="seconds that a contender has for a long operation")
    parser.add_argument("--rounds", type=int, default=3, help="of upsert and merge; the median counts")
    parser.add_argument("--folder", type=Path, help="where to put the tables (default: the temporary folder)")
    parser.add_argument(
        "--environment", type=Path, default=environment.REPOSITORY / "build" / "peers", help="the environment to use"
    )
    given = parser.parse_args()
    if not environment.is_inside():
        environment.enter(given.environment)
    run(given)


def run(given: argparse.Namespace) -> None:
    from benchmarks.outcome import report
    from benchmarks.peers.contenders import contender

    names = ["indexlake", *(given.peer or PEERS)]
    before = os.getloadavg()
    outcomes: list[Outcome] = []
    for name in given.only or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="indexlake-peers-", dir=given.folder) as folder:
            for outcome in _benchmark(name, Path(folder), names, given):
                mark = {True: "met", False: "MISSED", None: ""}[outcome.met]
                figures = f"{outcome.ours} / {outcome.floor}, {outcome.value:g}×"
                print(f"{outcome.name}: {figures} {mark}", file=sys.stderr, flush=True)
                outcomes.append(outcome)
    durability = {contender(name).name: contender(name).durability for name in names}
    facts = {
        "python": platform.python_version(), "cores": os.cpu_count(), "load before": before,
        "load after": os.getloadavg(), "versions": _versions(), "durability": durability,
        "rows": given.rows, "large rows": given.large_rows, "batches": given.batches, "cap": given.cap,
        "rounds": given.rounds,
    }  # fmt: skip
    report(outcomes, given.json, facts, title="IndexLake and its peers", other="peer")
    for name, text in durability.items():
        print(f"{name}: {text}")


def _benchmark(name: str, folder: Path, names: list[str], given: argparse.Namespace) -> Iterator[Outcome]:
    from benchmarks.peers import large, query, small

    if name == "one-row":
        return small.one_row(folder, names, given.rows)
    if name == "commits":
        return large.small_commits(folder, names, given.batches, 10, given.cap)
    if name == "upsert":
        return large.upsert(folder, names, given.rows, given.cap, given.rounds)
    if name == "merge":
        return large.merge(folder, names, given.large_rows, given.cap, given.rounds)
    return query.aggregate(folder, given.large_rows)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    wanted = ("indexlake", "duckdb", "duckdb-extension-ducklake", "deltalake", "pyiceberg", "pylance", "pyarrow")
    return {name: version(name) for name in wanted}


if __name__ == "__main__":
    main()
