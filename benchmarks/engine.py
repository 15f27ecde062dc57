"""The engine against its floors: ``python -m benchmarks.engine [--json out.json] [--only name] [--rows N]``."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import commits, contention, first_call, hot_store, one_block, points, postgres, scans, sql_rows
from benchmarks.outcome import Outcome, report

Benchmark = Callable[[Path, int], Iterator[Outcome]]

BENCHMARKS: dict[str, Benchmark] = {
    "import": commits.import_time,
    "insert": commits.one_row_insert,
    "threads": commits.many_threads,
    "postgres": postgres.many_processes,
    "postgres-ten": postgres.ten_rows,
    "postgres-many": postgres.many_rows,
    "hot-row": contention.hot_row,
    "hot-row-postgres": contention.hot_row_on_postgres,
    "get-hot": points.hot_get,
    "get-vortex": points.warm_get,
    "get-parquet": points.parquet_get,
    "change": points.change_by_key,
    "sql-insert": sql_rows.inserts,
    "sql-select": sql_rows.selects,
    "first-call": first_call.first_calls,
    "hot-store": hot_store.through_the_hot_store,
    "scan": scans.full_scan,
    "deleted": one_block.deleted_rows,
    "readers": one_block.readers,
    "planning": scans.planning,
    "bytes": scans.catalog_bytes,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the outcomes there instead of printing them")
    parser.add_argument("--only", action="append", choices=sorted(BENCHMARKS), help="run this one; may be repeated")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the full scan (default 5,000,000)")
    parser.add_argument("--folder", type=Path, help="where to put the lakes (default: the temporary folder)")
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    before = os.getloadavg()
    for name in given.only or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="indexlake-bench-", dir=given.folder) as folder:
            for outcome in BENCHMARKS[name](Path(folder), given.rows):
                mark = {True: "met", False: "MISSED", None: ""}[outcome.met]
                print(f"{outcome.name}: {outcome.ours} / {outcome.floor} = {outcome.value:g} {mark}", flush=True)
                outcomes.append(outcome)
    facts = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load before": before,
        "load after": os.getloadavg(),
        "rows": given.rows,
    }
    report(outcomes, given.json, facts)


if __name__ == "__main__":
    main()
