"""Spark for a command: started only if there is something to run on it, and without its log lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from indexlake.pipeline.runner import Check, Result, Runner, Task, Work
from indexlake.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from indexlake.lake import Lake
    from indexlake.pipeline.pipeline import Pipeline

STARTING = "Starting Spark, which takes a few seconds{}."


def pipeline(lake: Lake, runner: str) -> Pipeline:
    """Return the jobs of a lake, on the runner that the command names."""
    if runner != "spark":
        return lake.pipeline(runner)
    from indexlake.pipeline.pipeline import Pipeline

    return Pipeline(lake, SparkWhenNeeded(lake.storage))


class SparkWhenNeeded:
    """Runs tasks on a local Spark session, which is started by the first of them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._runner: Runner | None = None

    @property
    def width(self) -> int:
        if self._runner is not None:
            return self._runner.width
        from indexlake.spark.runner import ROUND

        return ROUND * (os.cpu_count() or 1)  # as in a local session

    def map(self, run: Work[Task, Result], tasks: Sequence[Task], check: Check) -> Generator[Result, None, None]:
        if tasks:
            yield from self._started().map(run, tasks, check)

    def _started(self) -> Runner:
        if self._runner is None:
            from indexlake.spark.runner import SparkRunner

            self._runner = SparkRunner(start(self._storage, "; --runner threads avoids it"), self._storage)
        return self._runner


def start(storage: Storage, otherwise: str = "") -> SparkSession:
    """Return the session of this process; if one has to be started, print that, and what to do instead."""
    from indexlake.spark.session import active, session

    found = active()
    if found is not None:
        return found
    print(STARTING.format(otherwise), file=sys.stderr, flush=True)
    with _quiet(storage):
        return session()


@contextmanager
def _quiet(storage: Storage) -> Iterator[None]:
    """Show what this process and its Java print on standard error only if the block fails."""
    sys.stderr.flush()
    before = os.dup(2)
    with storage.spill.file() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(before, 2)
            said.seek(0)
            sys.stderr.write(said.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
