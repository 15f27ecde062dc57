"""Threads that read block tasks ahead of whatever consumes their rows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, Full, Queue, SimpleQueue
from typing import Any

import pyarrow as pa

from indexlake.scan.plan import BlockTask

PREFETCH_BATCHES = 4


class _Stopped(Exception):
    """The consumer is gone."""


class Prefetch:
    """Reads a few blocks ahead, each into a short queue: memory is bounded by blocks in flight × queue length.

    Each scan has its own threads, so that a consumer that pauses holds up nobody else.  They are daemons, so that a
    consumer that never finishes does not keep the interpreter running; `stop_reading` ends them at exit.
    """

    def __init__(self, read: Callable[[BlockTask], Iterator[pa.RecordBatch]], workers: int) -> None:
        self._read = read
        self._workers = workers
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._stop = threading.Event()

    def __enter__(self) -> Prefetch:
        for n in range(self._workers):
            thread = threading.Thread(target=self._work, name=f"indexlake-scan-{n}", daemon=True)
            _reading[thread] = self
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for _n in range(self._workers):
            self._inbox.put(None)

    def in_order(self, tasks: Sequence[BlockTask]) -> Iterator[tuple[BlockTask, pa.RecordBatch]]:
        """Yield the rows of all tasks, one task after the other."""
        waiting = deque(tasks)
        running: deque[tuple[BlockTask, Queue[Any]]] = deque()
        while waiting or running:
            while waiting and len(running) <= self._workers:
                task = waiting.popleft()
                running.append((task, self.begin(task, PREFETCH_BATCHES)))
            task, queue = running.popleft()
            for batch in self.rows(queue):
                yield task, batch

    def begin(self, task: BlockTask, most: int = 0) -> Queue[Any]:
        """Have a thread read a task.  It pauses while ``most`` batches wait to be fetched; with 0 it never does."""
        queue: Queue[Any] = Queue(most)
        self._inbox.put((task, queue))
        return queue

    def rows(self, queue: Queue[Any]) -> Iterator[pa.RecordBatch]:
        """Yield what a thread puts into the queue, and raise its error if it failed."""
        while (item := self._next(queue)) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self, queue: Queue[Any]) -> Any:
        """Return the next item, or `_Stopped` if reading is stopped while waiting, even by another thread."""
        while True:
            try:
                return queue.get(timeout=0.1)
            except Empty:
                if self._stop.is_set():
                    return _Stopped("reading was stopped")

    def _work(self) -> None:
        try:
            while (job := self._inbox.get()) is not None and not self._stop.is_set():
                self._fill(*job)
        finally:
            _reading.pop(threading.current_thread(), None)

    def _fill(self, task: BlockTask, queue: Queue[Any]) -> None:
        try:
            for batch in self._read(task):
                self._put(queue, batch)
            self._put(queue, None)
        except _Stopped:
            pass
        except BaseException as error:
            with suppress(_Stopped):
                self._put(queue, error)

    def _put(self, queue: Queue[Any], item: Any) -> None:
        while not self._stop.is_set():
            try:
                queue.put(item, timeout=0.1)
                return
            except Full:
                continue
        raise _Stopped


_reading: dict[threading.Thread, Prefetch] = {}
"""The running scan threads of this process."""


def stop_reading(seconds: float) -> None:
    """Stop all scan threads before the interpreter exits: one still inside Arrow or Vortex would hang or crash it."""
    deadline = time.monotonic() + seconds
    found = list(_reading.items())
    for _, prefetch in found:
        prefetch.stop()
    for thread, _ in found:
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
