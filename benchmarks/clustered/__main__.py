"""Clustered tables: ``python -m benchmarks.clustered [--only NAME] [--rows N] [--json FILE] …``

The command makes a virtual environment of its own for the versions in ``requirements.txt`` (in ``--environment``) and
runs there.  ``--rows`` is the size of the tables that are read; steady loads write twice as many.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import environment

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome

BENCHMARKS = ("look-ups", "ranges", "order", "load", "merge")
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clustered", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the outcomes there instead of printing them")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one; may be repeated")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of a table (default 10,000,000)")
    parser.add_argument("--folder", type=Path, help="where to put the tables (default: the temporary folder)")
    parser.add_argument(
        "--environment",
        type=Path,
        default=environment.REPOSITORY / "build" / "clustered",
        help="the environment to use",
    )
    given = parser.parse_args()
    if not environment.is_inside():
        environment.enter(given.environment, "benchmarks.clustered", REQUIREMENTS, extra="all")
    run(given)


def run(given: argparse.Namespace) -> None:
    from benchmarks.outcome import report

    before = os.getloadavg()
    outcomes: list[Outcome] = []
    for name in given.only or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="indexlake-clustered-", dir=given.folder) as folder:
            for outcome in _benchmark(name)(Path(folder), given.rows):
                mark = {True: "met", False: "MISSED", None: ""}[outcome.met]
                figures = f"{outcome.ours} / {outcome.floor} = {outcome.value:g}" if outcome.floor else outcome.ours
                print(f"{outcome.name}: {figures} {mark} {outcome.detail}", file=sys.stderr, flush=True)
                outcomes.append(outcome)
    facts = {
        "python": platform.python_version(), "cores": os.cpu_count(), "load before": before,
        "load after": os.getloadavg(), "rows": given.rows,
        "versions": {name: version(name) for name in ("indexlake", "pylance", "duckdb", "pyarrow", "pyspark")},
    }  # fmt: skip
    report(outcomes, given.json, facts, title="Clustered tables", other="other")


def _benchmark(name: str) -> Callable[[Path, int], Iterator[Outcome]]:
    from benchmarks.clustered import load, merge, reads

    found: dict[str, Callable[[Path, int], Iterator[Outcome]]] = {
        "look-ups": reads.look_ups, "ranges": reads.ranges, "order": reads.order, "load": load.steady,
        "merge": merge.on_spark,
    }  # fmt: skip
    return found[name]


if __name__ == "__main__":
    main()
