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
    """The consumer went away."""


class Prefetch:
    """Reads a few blocks ahead, each into a short queue: memory is bounded by blocks in flight × queue length.

    The threads are this scan's own, so that a consumer that pauses holds up nobody else, and daemons, so that one
    that never comes back does not keep the interpreter from ending: `stop_reading` ends them then.
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
        """The rows of all tasks, one after the other."""
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
        """Have a thread read a task.  It waits while ``most`` batches are not fetched yet; 0: it never does."""
        queue: Queue[Any] = Queue(most)
        self._inbox.put((task, queue))
        return queue

    def rows(self, queue: Queue[Any]) -> Iterator[pa.RecordBatch]:
        """What a thread reads into the queue."""
        while (item := self._next(queue)) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self, queue: Queue[Any]) -> Any:
        """What comes next; nothing when reading was stopped, also while another thread waits here."""
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
"""The threads of all scans of this process that have not ended."""


def stop_reading(seconds: float) -> None:
    """Before the interpreter ends: no thread may be inside Arrow or Vortex then, which would wait for it, or crash."""
    deadline = time.monotonic() + seconds
    found = list(_reading.items())
    for _, prefetch in found:
        prefetch.stop()
    for thread, _ in found:
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
