"""Background work of one open lake: heartbeats, pins of long readers, the automatic dump, and meta files.

Two daemon threads are started when there is something to do. A dump that fails is logged, shown in ``lake.jobs()`` and
tried again later; it never blocks or fails a write. ``stop`` ends both threads: after the running dump and the meta
files that are due, or at the dump's next step.
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
"""A dump that keeps failing is tried less and less often, down to once in this many seconds."""

ENOUGH_DELETES = 10_000
"""After this many deletes of rows in blocks, or a quarter of a partition if that is less, partitions are checked."""

EXPIRE_SECONDS = 600.0
NO_TABLE = 0
"""Put into the queue to have the worker look for other work."""

META_PACE = 20.0
"""After writing a table's meta file, the next one waits this many times as long as that took."""


class Maintenance:
    def __init__(self, lake: Lake, *, automatic: bool) -> None:
        self._lake = lake
        self._automatic = automatic
        self._lock = threading.Lock()
        self._estimates: dict[int, int] = {}
        self._deletes: dict[int, int] = {}  # of rows of clustered tables, since they were last checked
        self._queued: set[int] = set()
        self._due: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._retry: dict[int, float] = {}
        self._failures: dict[int, int] = {}  # consecutive failures of a table's dumps
        self._unpublished: set[int] = set()  # tables whose meta file must be written
        self._publish_at: dict[int, float] = {}  # not before
        self._expire_at = time.monotonic() + EXPIRE_SECONDS
        self._jobs: set[Job] = set()
        self._stop = threading.Event()
        self._quit = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pin_id: str | None = None
        self._kept: set[int] = set()
        self._pinned: int | None = None  # the snapshot of the pin in the catalog
        self._beating = threading.Lock()
        self._gate = threading.Condition()
        self._running: list[int] = []  # the threads of running jobs
        self._quiet = False  # no job may begin
        self._checkpoint_requested = False  # whether a checkpoint was requested
        self.writer_id: str | None = None

    # ------------------------------------------------------------ what the lake tells it

    def committed(self, table_id: int, writes: TableWrites) -> None:
        """Note a commit: the table may be due for a dump, or have blocks to be merged or indexed."""
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
            due = bool(writes.blocks and state.live_indexes)  # small segments to be folded, or slow ones to be built
        else:
            due = bool(writes.blocks) or writes.truncate or self._has_enough_deletes(table_id, writes)
        if due:
            self.added_blocks(table_id)

    def _has_enough_deletes(self, table_id: int, writes: TableWrites) -> bool:
        """Return whether enough rows of blocks were deleted since the last check that partitions may be due."""
        gone = sum(map(len, writes.block_closes.values())) + self._deletes.get(table_id, 0)
        enough = gone >= min(ENOUGH_DELETES, writes.state.table.config.partition_row_count // 4)
        self._deletes[table_id] = 0 if enough else gone
        return enough and gone > 0

    def added_blocks(self, table_id: int) -> None:
        """Note a commit of blocks that may have to be indexed or merged, or whose segments may have to be folded."""
        if self._automatic:
            with self._lock:
                self._unpublished.add(table_id)
            self._queue(table_id)

    def unpublished(self, table_id: int) -> None:
        """Note a commit that changed the contents of a table's meta file."""
        if self._automatic and not self._stop.is_set():
            with self._lock:
                self._unpublished.add(table_id)
            self._start("indexlake-dump", self._work)
            self._due.put(NO_TABLE)

    def ask_for_checkpoint(self) -> bool:
        """Check soon whether the hot store needs a checkpoint; return False if there is no background work."""
        if not self._automatic:
            return False
        if not self._checkpoint_requested:
            self._checkpoint_requested = True
            self._start("indexlake-dump", self._work)
            self._due.put(NO_TABLE)
        return True

    def _queue(self, table_id: int) -> None:
        with self._lock:
            if table_id in self._queued or table_id in self._retry or self._stop.is_set():
                return  # failed work is retried at its own pace, not with every commit
            self._queued.add(table_id)
        self._start("indexlake-dump", self._work)
        self._due.put(table_id)

    def register_writer(self) -> str:
        """Return this process's writer id: as long as it beats, its uncommitted files are safe from vacuum."""
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
        """Register a job, waiting while the lake is converted, so that it begins and ends with the same hot store."""
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
        """Keep jobs of this process from running inside the ``with`` block; new ones wait for its end."""
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
        """Start pinning readers that stay, so that expire keeps their snapshots."""
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
        """Remove this process's writer and pin from the catalog."""
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
            except Exception as error:  # whatever it is: without beats, running jobs would be considered dead
                log.warning("a heartbeat failed and will be tried again: %s", error)

    def _beat_once(self) -> None:
        with self._beating:  # otherwise an older list of snapshots could overwrite a newer one
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
                self.writer_id = None  # considered dead: its files are lost, and the next file gets another writer
            horizon = table_heads.lowest_horizon(tx) if held else 0
            oldest = min((s for s in held if s >= horizon), default=None)  # below it, snapshots are already lost
            if oldest is not None:
                self._pin_id = self._pin_id or f"{this_process()}:{uuid.uuid4().hex[:8]}"
                activity.set_pin(tx, self._pin_id, oldest, this_process(), time_now + ALIVE)
            elif self._pin_id is not None:
                activity.remove_pins(tx, [self._pin_id])
                self._pin_id = None
            tx.commit()
        self._pinned = oldest

    def _held_snapshots(self) -> list[int]:
        """Return the snapshots of readers that have been open for a while, and those that are kept."""
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
                    self._retry[due] = at  # it failed while it was being requested again
                    continue
                self._maintain(due)
                if self._stop.is_set():
                    return
            self._publish(time.monotonic())

    def _relieve(self) -> None:
        """Checkpoint what has been in memory for too long, or takes too much."""
        from indexlake.pipeline.dump import dump

        pressure = self._lake._pressure
        self._checkpoint_requested = False
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
        """Do whatever is due for a table; failures are logged and retried."""
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
            keep(self._lake, table_id, stop=self._quit)  # an index can be built later: closing does not wait for it
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
        """Expire every table now and then, even dropped ones: idle tables must not hold the history of busy ones."""
        from indexlake.pipeline.expire import expire

        if time.monotonic() < self._expire_at:
            return
        self._expire_at = time.monotonic() + EXPIRE_SECONDS
        with self._lake.catalog.read() as r:
            found = [*definitions.list_tables(r), *definitions.list_dropped_tables(r)]
        for table in found:
            with suppress(JobBusy):
                expire(self._lake, table.table_id, stop=self._stop)
