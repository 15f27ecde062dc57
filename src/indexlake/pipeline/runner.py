"""Runners: where the tasks of a job run.

A task is a plain value that carries all it needs but the storage; its code reads and writes files and never talks
to the catalog.  So the same code runs in threads here and anywhere else that can open the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Protocol, TypeVar

from indexlake.storage import Storage

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    @property
    def width(self) -> int:
        """How many tasks it works on at a time."""
        ...

    def map(
        self,
        run: Callable[[Storage, Task, Callable[[], None]], Result],
        tasks: Sequence[Task],
        check: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Run every task; results come in the order of the tasks.  ``check`` raises when the job has to stop.

        Whoever stops early closes the generator, which ends the tasks that still run.
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
        return f"ThreadRunner({self.width})"

    def map(
        self,
        run: Callable[[Storage, Task, Callable[[], None]], Result],
        tasks: Sequence[Task],
        check: Callable[[], None],
    ) -> Generator[Result, None, None]:
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
