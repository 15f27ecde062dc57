"""The frame of a job: a lease so that work is not done twice, a heartbeat, progress, and fencing at the commit.

Leases save work; correctness comes from what each job checks inside its own commit. A lease whose owner has died is
taken over: at once if the owner was a process of this host, otherwise after a few missed beats.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from indexlake.catalog import activity
from indexlake.catalog.activity import JobRecord
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.display import counted
from indexlake.errors import JobError

if TYPE_CHECKING:
    from indexlake.display.progress import ProgressBar
    from indexlake.lake import Lake
    from indexlake.table import Table

log = logging.getLogger("indexlake")

_in_this_process: set[str] = set()
"""Jobs that run here: any other lease in this process's name was left by a run that failed."""

BEAT_SECONDS = 10
DEAD_AFTER = 6 * BEAT_SECONDS * 1_000_000


class JobBusy(JobError):
    """A living process is doing this job."""

    retryable = True


class JobStopped(JobError):
    """The job was cancelled, or its lake is closing."""


class LeaseLost(JobError):
    """Another process took the job over."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Progress:
    tasks_done: int = 0
    tasks: int = 0
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"{self.tasks_done:,} of {counted(self.tasks, 'task')}, {counted(self.rows, 'row')}"


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One line of ``lake.jobs()``."""

    job_id: str
    kind: str
    table: str | None
    state: str
    owner: str
    started_at: datetime
    finished_at: datetime | None
    progress: Progress
    error: str | None


def job_info(record: JobRecord, names: dict[int, str]) -> JobInfo:
    def moment(time: int | None) -> datetime | None:
        return None if time is None else datetime.fromtimestamp(time / 1e6, UTC)

    started = moment(record.started_at)
    assert started is not None
    table = names.get(record.table_id, f"#{record.table_id}") if record.table_id else None  # 0: the whole lake
    return JobInfo(
        record.job_id, record.kind, table, record.state, record.owner, started, moment(record.finished_at),
        Progress(**json.loads(record.progress)), record.error,
    )  # fmt: skip


def waiting_writers(since: float, reason: str) -> JobInfo:
    """Return the line in ``lake.jobs()`` for writers that wait for a checkpoint."""
    started = datetime.fromtimestamp(since, UTC)
    return JobInfo("", "writers wait", None, "running", this_process(), started, None, Progress(), reason)


class Watched(TypedDict, total=False):
    """Parameters of every job: ``stop`` ends it at its next step; ``bar`` shows its progress."""

    stop: threading.Event | None
    bar: ProgressBar | None


class Job:
    """One run of a job. A context manager: leaving it records how it ended."""

    def __init__(self, lake: Lake, kind: str, table_id: int, scope: str = "", **watched: Unpack[Watched]) -> None:
        self.lake = lake
        self.kind = kind
        self.table_id = table_id
        self.scope = scope
        self.job_id = uuid.uuid4().hex
        self.progress = Progress()
        self._stop = watched.get("stop")
        self._bar = watched.get("bar")
        self._lost = False

    def __enter__(self) -> Job:
        self.lake._maintenance.job_begins()
        _in_this_process.add(self.job_id)
        try:
            self._take_lease()
        except BaseException:
            _in_this_process.discard(self.job_id)
            self.lake._maintenance.job_ended()
            raise
        self.lake._maintenance.watch(self)
        return self

    def _take_lease(self) -> None:
        started = self.lake._now()
        with self.lake.catalog.transaction() as tx:
            holder = check_free(tx, self.table_id, self.kind, self.scope, started)
            if holder is not None:
                activity.end_job(tx, holder.job_id, "lost", started, holder.progress, "its owner is gone")
            record = JobRecord(
                self.job_id, self.kind, self.table_id, self.scope, "running", this_process(), socket.gethostname(),
                os.getpid(), started, started, None, self._text(), None,
            )  # fmt: skip
            activity.add_job(tx, record)
            tx.commit()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.lake._maintenance.unwatch(self)
        if self._bar is not None:
            self._bar.close()
        state, text = "done", None
        if isinstance(error, JobStopped):
            state, text = "cancelled", str(error)
        elif error is not None:
            state, text = "failed", f"{type(error).__name__}: {error}"
            log.info("%s of table %s failed: %s", self.kind, self.table_id, text)
        try:
            ended = self.lake._now()
            with self.lake.catalog.transaction() as tx:
                activity.end_job(tx, self.job_id, state, ended, self._text(), text)
                tx.commit()
        except Exception as later:  # the job's own outcome matters more; the lease expires by itself
            log.warning("the end of %s could not be recorded: %s", self.kind, later)
        finally:
            _in_this_process.discard(self.job_id)
            self.lake._maintenance.job_ended()

    def expect(self, *, tasks: int) -> None:
        """Add to the number of tasks that are to be done."""
        self.progress = replace(self.progress, tasks=self.progress.tasks + tasks)
        self._show()

    def add(self, *, rows: int = 0, size: int = 0, tasks: int = 1) -> None:
        done = self.progress.tasks_done + tasks
        self.progress = replace(
            self.progress,
            tasks_done=done,
            tasks=max(done, self.progress.tasks),
            rows=self.progress.rows + rows,
            bytes=self.progress.bytes + size,
        )
        self._show()

    def _show(self) -> None:
        if self._bar is not None:
            p = self.progress
            self._bar.show(p.tasks_done, p.tasks, rows=p.rows, size=p.bytes)

    def beat(self, tx: Transaction, time: int) -> None:
        """Record that this run is alive, and learn whether it has been taken over meanwhile."""
        self._lost = not activity.beat_job(tx, self.job_id, time, self._text())

    def fence(self, tx: Transaction) -> None:
        """Raise, inside the commit, unless this run still holds the lease."""
        if not activity.is_running(tx, self.job_id):
            raise self._taken_over()

    def _taken_over(self) -> LeaseLost:
        return LeaseLost(f"{self.kind} was taken over by another process; its work is dropped.", job=self.job_id)

    def check(self) -> None:
        """Raise between steps if the job was asked to stop, or if another process has taken it over."""
        if self._lost:
            raise self._taken_over()
        if self._stop is not None and self._stop.is_set():
            raise JobStopped(f"{self.kind} was stopped before its next step; nothing is lost.", job=self.job_id)

    def _text(self) -> str:
        p = self.progress
        return json.dumps({"tasks_done": p.tasks_done, "tasks": p.tasks, "rows": p.rows, "bytes": p.bytes})


def check_free(r: ReadTransaction | Transaction, table_id: int, kind: str, scope: str, time: int) -> JobRecord | None:
    """Raise if a living process runs such a job; return the record of one that a dead process has left."""
    holder = activity.running_job(r, table_id, kind, scope)
    if holder is not None and _alive(holder, time):
        what = "this table" if table_id else "this lake"
        raise JobBusy(f"{kind} of {what} is running already, by {holder.owner}. Wait for it.", job=holder.job_id)
    return holder


def this_process() -> str:
    """Return the name by which leases, pins and writers in the catalog identify their process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _alive(job: JobRecord, time: int) -> bool:
    if time - job.heartbeat_at > DEAD_AFTER:
        return False
    if job.host != socket.gethostname():
        return True
    if job.pid == os.getpid():
        return job.job_id in _in_this_process
    try:
        os.kill(job.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _InTransaction:
    """Takes the place of a job in a transaction: nobody else sees what it does, so nothing has to be leased."""

    def check(self) -> None: ...

    def __enter__(self) -> _InTransaction:
        return self

    def __exit__(self, *how: object) -> None: ...


def all_or_nothing(table: Table) -> AbstractContextManager[None]:
    """In a transaction, steps that fail leave it as it was; by itself, each step is a commit, undone by another one."""
    return nullcontext() if table._tx is None else table._tx.all_or_nothing()


def job_on(table: Table, kind: str, scope: str) -> Job | _InTransaction:
    """Return the frame for work on all rows of a table; a transaction conflicts with whoever changes them meanwhile."""
    if table._tx is None:
        return Job(table._lake, kind, table._table_id, scope)
    table._tx.depend_on(table._table_id)
    return _InTransaction()
