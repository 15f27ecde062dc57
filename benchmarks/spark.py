"""Work on Spark against Spark's own way of doing it: ``python -m benchmarks.spark [--only NAME] [--rows N]``."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import indexlake as il
from benchmarks import spark_read, spark_stream, spark_write
from benchmarks.outcome import Outcome, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Benchmark = Callable[[Path, int, "SparkSession"], Iterator[Outcome]]

BENCHMARKS: dict[str, Benchmark] = {
    "read": spark_read.read,
    "load": spark_write.load,
    "compact": spark_write.compact,
    "stream": spark_stream.stream,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the outcomes there instead of printing them")
    parser.add_argument("--only", action="append", choices=sorted(BENCHMARKS), help="run this one; may be repeated")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the tables (default 10,000,000)")
    parser.add_argument("--folder", type=Path, help="where to put the lakes (default: the temporary folder)")
    parser.add_argument("--memory", default="4g", help="of the driver (default 4g)")
    given = parser.parse_args()
    spark = il.spark.session(spark_driver_memory=given.memory)
    outcomes: list[Outcome] = []
    before = os.getloadavg()
    for name in given.only or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="indexlake-bench-", dir=given.folder) as folder:
            for outcome in BENCHMARKS[name](Path(folder), given.rows, spark):
                mark = {True: "met", False: "MISSED", None: ""}[outcome.met]
                print(f"{outcome.name}: {outcome.ours} / {outcome.floor} = {outcome.value:g} {mark}", flush=True)
                outcomes.append(outcome)
    facts = {
        "python": platform.python_version(),
        "spark": spark.version,
        "master": spark.sparkContext.master,
        "cores": os.cpu_count(),
        "load before": before,
        "load after": os.getloadavg(),
        "rows": given.rows,
    }
    spark.stop()
    report(outcomes, given.json, facts)


if __name__ == "__main__":
    main()
