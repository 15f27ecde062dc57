"""Where the tasks of a pipeline run: in threads of this process or on Spark.

Spark when it is asked for, when a session is given or active, or when the tasks of a job read more than
``local_limit`` bytes; threads otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from indexlake.errors import JobError
from indexlake.pipeline.runner import Result, Runner, Task, ThreadRunner
from indexlake.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_LIMIT = 1 << 30
RUNNERS = ("threads", "spark")
MOST_THREADS = 4
"""Each works on a block at a time: more would cost memory before they save time."""


def choose_runner(
    storage: Storage, runner: str | None = None, spark: SparkSession | None = None, local_limit: int = LOCAL_LIMIT
) -> Runner:
    """The runner that was asked for; None: whatever suits."""
    if runner not in (None, *RUNNERS):
        raise JobError(f"runner={runner!r} is not known. Use 'threads' or 'spark', or leave it out.")
    if runner == "threads":
        if spark is not None:
            raise JobError("runner='threads' runs nothing on Spark: leave spark= out, or ask for runner='spark'.")
        return _in_threads(storage)
    if runner == "spark" or spark is not None:
        return _on_spark(storage, spark)
    return ChosenRunner(storage, local_limit)


class ChosenRunner:
    """Threads, or Spark where a session is active or the work is large."""

    def __init__(self, storage: Storage, local_limit: int = LOCAL_LIMIT) -> None:
        self._storage = storage
        self._local_limit = local_limit

    def __repr__(self) -> str:
        return f"ChosenRunner(local_limit={self._local_limit:,})"

    @property
    def width(self) -> int:
        return self._runner(0).width

    def map(
        self,
        run: Callable[[Storage, Task, Callable[[], None]], Result],
        tasks: Sequence[Task],
        check: Callable[[], None],
    ) -> Generator[Result, None, None]:
        size = sum(getattr(task, "size", 0) for task in tasks)
        yield from self._runner(size).map(run, tasks, check)

    def _runner(self, size: int) -> Runner:
        if self._storage.root.startswith("memory:"):
            return _in_threads(self._storage)  # nobody else reaches it
        from indexlake.spark.session import active

        spark = active()
        if spark is None and size <= self._local_limit:
            return _in_threads(self._storage)
        return _on_spark(self._storage, spark)


def _in_threads(storage: Storage) -> Runner:
    return ThreadRunner(storage, max(2, min(MOST_THREADS, os.cpu_count() or 2)))


def _on_spark(storage: Storage, spark: Any) -> Runner:
    from indexlake.spark.runner import SparkRunner
    from indexlake.spark.session import session

    return SparkRunner(spark if spark is not None else session(), storage)
