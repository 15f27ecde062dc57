"""Runners: where the tasks of a job run, in threads of this process or on Spark.

A task is a plain value that carries everything it needs except the storage; its code reads and writes files and never
talks to the catalog. So the same code runs in threads here and anywhere else that can open the storage. Spark is used
if it is requested, if a session is given or active, or if the tasks of a job read more than ``local_limit`` bytes;
otherwise threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from indexlake.errors import JobError
from indexlake.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_LIMIT = 1 << 30
RUNNERS = ("threads", "spark")
MOST_THREADS = 4
"""Each works on a block at a time: more threads would cost memory before they save time."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Check: TypeAlias = Callable[[], None]
Work: TypeAlias = Callable[[Storage, Task, Check], Result]


class Runner(Protocol):
    @property
    def width(self) -> int:
        """How many tasks it works on at a time."""
        ...

    def map(self, run: Work[Task, Result], tasks: Sequence[Task], check: Check) -> Generator[Result, None, None]:
        """Run every task and yield results in the order of the tasks. ``check`` raises when the job has to stop.

        A caller that stops early closes the generator, which ends the tasks that are still running.
        """
        ...


class ThreadRunner:
    """Runs tasks in threads of this process.

    The threads are daemons and are joined before ``map`` ends: a job that has to stop ends them at their next check,
    and none of them keeps the interpreter from ending.
    """

    def __init__(self, storage: Storage, width: int = 2) -> None:
        self.width = width
        self._storage = storage

    def __repr__(self) -> str:
        return f"{self.width} threads"

    def map(self, run: Work[Task, Result], tasks: Sequence[Task], check: Check) -> Generator[Result, None, None]:
        if len(tasks) == 1:
            yield run(self._storage, tasks[0], check)
            return
        futures: list[Future[Result]] = [Future() for _ in tasks]
        waiting: SimpleQueue[tuple[Task, Future[Result]] | None] = SimpleQueue()
        for item in zip(tasks, futures, strict=True):
            waiting.put(item)

        def work() -> None:
            while (item := waiting.get()) is not None:
                task, future = item
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(run(self._storage, task, check))
                    except BaseException as error:
                        future.set_exception(error)

        threads = [Thread(target=work, name=f"indexlake-task-{n}", daemon=True) for n in range(self.width)]
        for thread in threads:
            waiting.put(None)
            thread.start()
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
            for thread in threads:
                thread.join()


def choose_runner(
    storage: Storage, runner: str | None = None, spark: SparkSession | None = None, local_limit: int = LOCAL_LIMIT
) -> Runner:
    """Return the requested runner; None: whatever suits."""
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
    """Threads, or Spark if a session is active or the work is large."""

    def __init__(self, storage: Storage, local_limit: int = LOCAL_LIMIT) -> None:
        self._storage = storage
        self._local_limit = local_limit

    def __repr__(self) -> str:
        return f"threads, or on Spark for more than {self._local_limit:,} bytes"

    @property
    def width(self) -> int:
        return self._runner(0).width

    def map(self, run: Work[Task, Result], tasks: Sequence[Task], check: Check) -> Generator[Result, None, None]:
        size = sum(getattr(task, "size", 0) for task in tasks)
        yield from self._runner(size).map(run, tasks, check)

    def _runner(self, size: int) -> Runner:
        if self._storage.root.startswith("memory:"):
            return _in_threads(self._storage)  # nobody else can reach it
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
