"""Limit the memory of a hot store: start checkpoints in time, and make writers wait for them if necessary.

Above half of the limit, a checkpoint is requested. Above three quarters, each commit of rows is delayed, longer and
longer as memory fills; at the limit it waits until a checkpoint has freed memory. Checkpoints themselves never wait
here. Rows are also checkpointed once they have been in memory for a while, and when the redo log has grown long.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from indexlake.errors import StorageError
from indexlake.hot.memory.rotation import numbers_of

if TYPE_CHECKING:
    from indexlake.hot.memory.store import MemoryStore

log = logging.getLogger("indexlake")

CHECKPOINT_AT = 0.5
SLOW_FROM = 0.75
LONGEST_DELAY = 0.05
"""Seconds that a commit waits just below the limit."""

LOOK_EVERY = 16
"""While there is room, memory is checked only once in this many commits, or when the log has grown by much."""

MUCH = 1 / 64
"""Of the limit."""

PAUSE = 0.01
OLD_SECONDS = 600.0
"""Rows that have been in memory for longer are due for a checkpoint."""

LOG_BYTES = 512 << 20
"""A log longer than this makes all rows due."""


class Pressure:
    """Holds writers back; ``ask`` requests a checkpoint in the background, and returns whether one is coming."""

    def __init__(self, store: MemoryStore, limit: int, timeout: float, ask: Callable[[], bool]) -> None:
        self._store = store
        self.limit = limit
        self._timeout = timeout
        self._ask = ask
        self._passed = 0
        self._written = 0, 0  # the number and size of the log's open file when memory was last checked
        self._much = int(limit * MUCH)
        self._marks: deque[tuple[float, int]] = deque()  # (time, newest commit at that time)
        self.since: float | None = None  # wall-clock time since which writers have been waiting
        self.failure: str | None = None  # the error of the last checkpoint

    def admit(self) -> None:
        """Delay or refuse a commit that is about to add rows, as memory requires."""
        self._passed += 1
        number, written = written_to = (0, 0) if (redo := self._store.log) is None else (redo.number, redo.size)
        grown = number != self._written[0] or written - self._written[1] > self._much
        if self.since is None and self._passed % LOOK_EVERY and not grown:
            return
        self._written = written_to
        used = self._store.size / self.limit
        if used >= CHECKPOINT_AT:
            coming = self._ask()
            if used >= 1:
                self._stop(coming)
            elif used >= SLOW_FROM:
                self._waiting()
                time.sleep(LONGEST_DELAY * ((used - SLOW_FROM) / (1 - SLOW_FROM)) ** 2)
        if used < SLOW_FROM:
            self.since = None

    def _waiting(self) -> None:
        if self.since is None:
            self.since = time.time()
            log.warning("writers wait: %s", self.reason())

    def _stop(self, coming: bool) -> None:
        self._waiting()
        ends = time.monotonic() + self._timeout
        while self._store.size >= self.limit:
            if time.monotonic() > ends:
                todo = "" if coming else " It was opened with automatic=False: call lake.pipeline().dump()."
                raise StorageError(
                    f"Nothing was written: {self.reason()}, and no memory was freed in {self._timeout:g} s.{todo} Pass "
                    "a larger hot_bytes= to make room."
                )
            time.sleep(PAUSE)

    def reason(self) -> str:
        """Return why writers wait, or would wait."""
        failed = f"; the last checkpoint failed: {self.failure}" if self.failure else ""
        return f"the newest rows take {self._store.size:,} bytes of memory, of hot_bytes={self.limit:,}{failed}"

    # ------------------------------------------------------------ what is due

    def due(self) -> list[int]:
        """Return the tables to checkpoint now, those with the most bytes first."""
        tables = sorted(self._store.tables.items(), key=lambda item: -item[1].bytes)
        if self._store.size >= CHECKPOINT_AT * self.limit or self._log_bytes() > LOG_BYTES:
            return [table_id for table_id, of in tables if of.count]
        old = self._old()
        return [i for i, of in tables if of.count and (oldest := of.oldest()) is not None and oldest <= old]

    def _old(self) -> int:
        """Return the newest commit made more than ``OLD_SECONDS`` ago, or -1."""
        moment, found = time.monotonic(), -1
        self._marks.append((moment, self._store.visible))
        while self._marks and self._marks[0][0] <= moment - OLD_SECONDS:
            found = self._marks[0][1]
            if len(self._marks) > 1 and self._marks[1][0] <= moment - OLD_SECONDS:
                self._marks.popleft()
            else:
                break
        return found

    def _log_bytes(self) -> int:
        redo = self._store.log
        if redo is None:
            return 0
        found = 0
        with os.scandir(redo.folder) as files:
            for file in files:
                if numbers_of(file.name) is not None:
                    with suppress(FileNotFoundError):  # a checkpoint may delete it at any moment
                        found += file.stat().st_size
        return found
