"""Background work of one open lake: heartbeats, pins of long readers, the automatic dump, and meta files.

Two daemon threads, started when there is something to do.  A dump that fails is logged, shown in ``lake.jobs()``
and tried again later; it never blocks or fails a write.  ``stop`` ends both: after the running dump and the meta files
that are due, or at its next step.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from indexlake.catalog import activity, definitions, table_heads
from indexlake.pipeline.job import BEAT_SECONDS, Job, JobBusy, this_process
from indexlake.storage.names import new_writer_id

if TYPE_CHECKING:
    from indexlake.commit.write_set import TableWrites
    from indexlake.lake import Lake

log = logging.getLogger("indexlake")

PIN_AFTER = 30.0
ALIVE = 6 * BEAT_SECONDS * 1_000_000
RETRY_SECONDS = 5.0
RETRY_MOST_SECONDS = 300.0
"""A dump that fails again and again is tried less and less often, up to this pace."""

ENOUGH_DELETES = 10_000
"""Of rows in blocks of a clustered table, after which its partitions are looked at, if a quarter of one is not less."""

EXPIRE_SECONDS = 600.0
NO_TABLE = 0
"""In the queue: look what else is due."""

META_PACE = 20.0
"""After a table's meta file was written, so many times as long passes before the next one is."""


class Maintenance:
    def __init__(self, lake: Lake, *, automatic: bool) -> None:
        self._lake = lake
        self._automatic = automatic
        self._lock = threading.Lock()
        self._estimates: dict[int, int] = {}
        self._deletes: dict[int, int] = {}  # of rows of clustered tables, since that was last looked at
        self._queued: set[int] = set()
        self._due: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._retry: dict[int, float] = {}
        self._failures: dict[int, int] = {}  # of a table's dumps in a row
        self._unpublished: set[int] = set()  # tables whose meta file is to be written
        self._publish_at: dict[int, float] = {}  # not before
        self._expire_at = time.monotonic() + EXPIRE_SECONDS
        self._jobs: set[Job] = set()
        self._stop = threading.Event()
        self._quit = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pin_id: str | None = None
        self._kept: set[int] = set()
        self._pinned: int | None = None  # the snapshot that the pin in the catalog says
        self._beating = threading.Lock()
        self._gate = threading.Condition()
        self._running: list[int] = []  # the threads of running jobs
        self._quiet = False  # none may begin
        self._asked = False  # for a checkpoint
        self.writer_id: str | None = None

    # ------------------------------------------------------------ what the lake tells it

    def committed(self, table_id: int, writes: TableWrites) -> None:
        """After a commit: the table may be due for a dump, or have blocks to be merged or indexed."""
        if not self._automatic:
            return
        if changed := len(writes.rows):
            known = self._estimates.get(table_id)
            if known is not None:
                self._estimates[table_id] = known + changed
            if known is None or known + changed >= writes.state.table.config.inline_row_count_limit:
                self._queue(table_id)
        state = writes.state
        if state.ranges is None:
            due = bool(writes.blocks) and any(index.slow for index in state.live_indexes)
        else:
            due = bool(writes.blocks) or writes.truncate or self._has_enough_deletes(table_id, writes)
        if due:
            self.added_blocks(table_id)

    def _has_enough_deletes(self, table_id: int, writes: TableWrites) -> bool:
        """Whether so many rows of blocks were deleted since it was last asked that partitions may be due."""
        gone = sum(map(len, writes.block_closes.values())) + self._deletes.get(table_id, 0)
        enough = gone >= min(ENOUGH_DELETES, writes.state.table.config.partition_row_count // 4)
        self._deletes[table_id] = 0 if enough else gone
        return enough and gone > 0

    def added_blocks(self, table_id: int) -> None:
        """After a commit of blocks that an index does not cover yet, or that may have to be merged."""
        if self._automatic:
            with self._lock:
                self._unpublished.add(table_id)
            self._queue(table_id)

    def unpublished(self, table_id: int) -> None:
        """After a commit that changed what the meta file of a table tells."""
        if self._automatic and not self._stop.is_set():
            with self._lock:
                self._unpublished.add(table_id)
            self._start("indexlake-dump", self._work)
            self._due.put(NO_TABLE)

    def ask_for_checkpoint(self) -> bool:
        """Look soon what the memory of the hot store needs; False: there is no background work."""
        if not self._automatic:
            return False
        if not self._asked:
            self._asked = True
            self._start("indexlake-dump", self._work)
            self._due.put(NO_TABLE)
        return True

    def _queue(self, table_id: int) -> None:
        with self._lock:
            if table_id in self._queued or table_id in self._retry or self._stop.is_set():
                return  # what failed is tried again at its own pace, not at that of the commits
            self._queued.add(table_id)
        self._start("indexlake-dump", self._work)
        self._due.put(table_id)

    def register_writer(self) -> str:
        """Files that are written but not committed are ours as long as this writer beats."""
        with self._lock:
            if self.writer_id is None:
                writer = new_writer_id()
                time_now = self._lake._now()
                with self._lake.catalog.transaction() as tx:
                    activity.add_writer(tx, writer, this_process(), time_now, time_now + ALIVE)
                    tx.commit()
                self.writer_id = writer
        self._start("indexlake-heartbeat", self._beat)
        return self.writer_id

    def job_begins(self) -> None:
        """Waits while the lake is converted: a job begins and ends with the same hot store."""
        me = threading.get_ident()
        with self._gate:
            self._gate.wait_for(lambda: not self._quiet or me in self._running)
            self._running.append(me)

    def job_ended(self) -> None:
        with self._gate:
            self._running.remove(threading.get_ident())
            self._gate.notify_all()

    @contextmanager
    def quiet(self, patience: float) -> Iterator[None]:
        """No job of this process runs within; those that begin meanwhile wait for its end."""
        with self._gate:
            self._gate.wait_for(lambda: not self._quiet)
            self._quiet = True
        try:
            with self._gate:
                if not self._gate.wait_for(lambda: not self._running, patience):
                    raise JobBusy(f"Jobs of this process are still running after {patience:g} s. Try again later.")
            yield
        finally:
            with self._gate:
                self._quiet = False
                self._gate.notify_all()

    def watch(self, job: Job) -> None:
        with self._lock:
            self._jobs.add(job)
        self._start("indexlake-heartbeat", self._beat)

    def unwatch(self, job: Job) -> None:
        with self._lock:
            self._jobs.discard(job)

    def reader_began(self) -> None:
        """Readers that stay are pinned, so that expire leaves them their snapshot."""
        if not self._lake.read_only:
            self._start("indexlake-heartbeat", self._beat)

    def keep(self, snapshot: int) -> None:
        """Pin a snapshot now and for as long as the lake is open, for those who may read it at any time."""
        if self._lake.read_only:
            return
        with self._lock:
            self._kept.add(snapshot)
        self._start("indexlake-heartbeat", self._beat)
        with self._beating:
            if self._pinned is None or self._pinned > snapshot:
                self._beat_now()

    def stop(self, *, wait: bool) -> None:
        """End both threads; with ``wait`` the running dump is finished first."""
        self._quit.set()
        if not wait:
            self._stop.set()
        self._due.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if wait else 5.0)
        self._stop.set()

    def forget(self) -> None:
        """Leave no trace of this process: no writer, no pin."""
        if self.writer_id is None and self._pin_id is None:
            return
        with self._lake.catalog.transaction() as tx:
            if self.writer_id is not None:
                activity.remove_writer(tx, self.writer_id)
            if self._pin_id is not None:
                activity.remove_pins(tx, [self._pin_id])
            tx.commit()
        self.writer_id = self._pin_id = None

    def _start(self, name: str, target: object) -> None:
        if any(t.name == name for t in self._threads):
            return
        with self._lock:
            if self._quit.is_set() or any(t.name == name for t in self._threads):
                return
            thread = threading.Thread(target=target, name=name, daemon=True)  # type: ignore[arg-type]
            self._threads.append(thread)
        thread.start()

    # ------------------------------------------------------------ heartbeats and pins

    def _beat(self) -> None:
        while not self._quit.wait(BEAT_SECONDS):
            try:
                self._beat_once()
            except Exception as error:  # whatever it is: without beats, running jobs would be taken for dead
                log.warning("a heartbeat failed and will be tried again: %s", error)

    def _beat_once(self) -> None:
        with self._beating:  # or an older list of what is held would be written after a newer one
            self._beat_now()

    def _beat_now(self) -> None:
        with self._lock:
            jobs = list(self._jobs)
        held = self._held_snapshots()
        if not jobs and self.writer_id is None and not held and self._pin_id is None:
            return
        time_now = self._lake._now()
        with self._lake.catalog.transaction() as tx:
            for job in jobs:
                job.beat(tx, time_now)
            writer = self.writer_id
            if writer is not None and not activity.beat_writer(tx, writer, time_now + ALIVE):
                self.writer_id = None  # taken for dead: what it wrote is lost, the next file has another writer
            horizon = table_heads.lowest_horizon(tx) if held else 0
            oldest = min((s for s in held if s >= horizon), default=None)  # below it is too late
            if oldest is not None:
                self._pin_id = self._pin_id or f"{this_process()}:{uuid.uuid4().hex[:8]}"
                activity.set_pin(tx, self._pin_id, oldest, this_process(), time_now + ALIVE)
            elif self._pin_id is not None:
                activity.remove_pins(tx, [self._pin_id])
                self._pin_id = None
            tx.commit()
        self._pinned = oldest

    def _held_snapshots(self) -> list[int]:
        """The snapshots of readers that have been open for a while, and those that are kept."""
        before = time.monotonic() - PIN_AFTER
        with self._lock:
            return [*self._lake._pins.held_before(before), *self._kept]

    # ------------------------------------------------------------ the automatic dump

    def _work(self) -> None:
        while True:
            try:
                looks = self._retry or self._unpublished or self._lake._pressure is not None
                table_id = self._due.get(timeout=RETRY_SECONDS if looks else None)
            except queue.Empty:
                table_id = NO_TABLE
            if self._quit.is_set():
                if not self._stop.is_set():
                    self._publish(float("inf"))
                return
            self._relieve()
            time_now = time.monotonic()
            ready = [t for t, at in self._retry.items() if at <= time_now]
            for due in {*ready, *([table_id] if table_id else [])}:
                with self._lock:
                    self._queued.discard(due)
                if (at := self._retry.pop(due, 0.0)) > time_now:
                    self._retry[due] = at  # it failed while it was asked for again
                    continue
                self._maintain(due)
                if self._stop.is_set():
                    return
            self._publish(time.monotonic())

    def _relieve(self) -> None:
        """Checkpoint what has been in memory for too long, or is too much."""
        from indexlake.pipeline.dump import dump

        pressure = self._lake._pressure
        self._asked = False
        if pressure is None:
            return
        try:
            tables = pressure.due()
        except OSError as error:
            log.warning("the folder of the redo log cannot be read; trying again: %s", error)
            return
        for table_id in tables:
            if self._quit.is_set():
                return
            if self._retry.get(table_id, 0.0) > time.monotonic():
                continue
            try:
                dump(self._lake, table_id, stop=self._stop)
                pressure.failure = None
                self._failures.pop(table_id, None)
                self._estimates.pop(table_id, None)
                with self._lock:
                    self._unpublished.add(table_id)
            except Exception as error:
                pressure.failure = str(error)
                self._failed(table_id, error)

    def _publish(self, moment: float) -> None:
        """Write the meta files that are due."""
        from indexlake.pipeline.meta import publish_meta

        with self._lock:
            due = {t for t in self._unpublished if self._publish_at.get(t, 0.0) <= moment}
            self._unpublished -= due
        for table_id in due:
            begun = time.monotonic()
            try:
                publish_meta(self._lake, table_id)
            except Exception as error:
                log.warning("the meta file of table %s was not written; the next job does it: %s", table_id, error)
            ended = time.monotonic()
            self._publish_at[table_id] = ended + META_PACE * (ended - begun)

    def _maintain(self, table_id: int) -> None:
        """Dump what is due; whatever goes wrong is logged and tried again."""
        from indexlake.pipeline.due import HotStoreFill
        from indexlake.pipeline.dump import dump
        from indexlake.pipeline.expire import expire
        from indexlake.pipeline.keep_indexes import keep
        from indexlake.pipeline.reshape import keep_shape
        from indexlake.pipeline.runner import ThreadRunner

        try:
            hot = HotStoreFill(self._lake, table_id)
            if hot.due:
                expire(self._lake, table_id, stop=self._stop)
                hot = HotStoreFill(self._lake, table_id)
            if hot.due:
                dump(self._lake, table_id, live=hot.live_due, history=hot.history_due, stop=self._stop)
                hot = HotStoreFill(self._lake, table_id)
            keep_shape(self._lake, table_id, ThreadRunner(self._lake.storage), stop=self._quit)
            keep(self._lake, table_id, stop=self._quit)  # an index is built later: closing does not wait for it
            with self._lock:
                self._unpublished.add(table_id)
            self._estimates[table_id] = hot.count
            self._failures.pop(table_id, None)
            self._expire_all()
        except Exception as error:
            self._failed(table_id, error)

    def _failed(self, table_id: int, error: Exception) -> None:
        if isinstance(error, JobBusy):
            self._estimates.pop(table_id, None)
            self._retry[table_id] = time.monotonic() + RETRY_SECONDS
        else:
            if not self._quit.is_set():
                failures = self._failures[table_id] = self._failures.get(table_id, 0) + 1
                wait = min(RETRY_SECONDS * 2 ** min(failures - 1, 10), RETRY_MOST_SECONDS)
                log.warning(
                    "the automatic dump of table %s failed and will be tried again in %g s: %s", table_id, wait, error
                )
                self._retry[table_id] = time.monotonic() + wait

    def _expire_all(self) -> None:
        """Now and then every table, the dropped ones too: idle tables must not hold the history of busy ones."""
        from indexlake.pipeline.expire import expire

        if time.monotonic() < self._expire_at:
            return
        self._expire_at = time.monotonic() + EXPIRE_SECONDS
        with self._lake.catalog.read() as r:
            found = [*definitions.list_tables(r), *definitions.list_dropped_tables(r)]
        for table in found:
            with suppress(JobBusy):
                expire(self._lake, table.table_id, stop=self._stop)
