"""Who is working on the lake: jobs with their leases, writers with uncommitted files, pinned readers.

Each counts as alive until a recorded time, which its holder keeps extending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexlake.catalog.driver import ReadTransaction, Transaction


@dataclass(frozen=True, slots=True)
class JobRecord:
    job_id: str
    kind: str
    table_id: int | None
    scope: str
    state: str  # running | done | failed | cancelled | lost
    owner: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    finished_at: int | None
    progress: str
    error: str | None


_JOB = ", ".join(JobRecord.__slots__)


LAST_ROUNDS = ("cluster", "last rounds")
"""Kind and scope of the job that switches a table to its other layout; new blocks wait until it has finished."""


def running_job(tx: ReadTransaction | Transaction, table_id: int, kind: str, scope: str) -> JobRecord | None:
    rows = tx.rows(
        f"""select {_JOB} from indexlake_job
        where table_id = ? and kind = ? and scope = ? and state = 'running'""",
        (table_id, kind, scope),
    )
    return JobRecord(*rows[0]) if rows else None


def add_job(tx: Transaction, job: JobRecord) -> None:
    values = [getattr(job, name) for name in JobRecord.__slots__]
    tx.execute(f"insert into indexlake_job ({_JOB}) values ({', '.join('?' * len(values))})", values)


def end_job(tx: Transaction, job_id: str, state: str, now: int, progress: str, error: str | None = None) -> bool:
    return bool(
        tx.execute(
            """update indexlake_job set state = ?, finished_at = ?, progress = ?, error = ?
            where job_id = ? and state = 'running'""",
            (state, now, progress, error, job_id),
        )
    )


def beat_job(tx: Transaction, job_id: str, now: int, progress: str) -> bool:
    return bool(
        tx.execute(
            "update indexlake_job set heartbeat_at = ?, progress = ? where job_id = ? and state = 'running'",
            (now, progress, job_id),
        )
    )


def is_running(tx: Transaction, job_id: str) -> bool:
    return bool(tx.rows("select 1 from indexlake_job where job_id = ? and state = 'running'", (job_id,)))


def list_jobs(r: ReadTransaction | Transaction) -> list[JobRecord]:
    rows = r.rows(f"select {_JOB} from indexlake_job order by started_at desc, job_id limit 1000")
    return [JobRecord(*row) for row in rows]


def drop_jobs_before(tx: Transaction, time: int) -> int:
    return tx.execute("delete from indexlake_job where state <> 'running' and finished_at < ?", (time,))


def forget_processes(tx: Transaction) -> None:
    """Remove, from a copy of a catalog, those who are working on the original."""
    tx.execute("delete from indexlake_job where state = 'running'")
    for table in ("writer", "pin"):
        tx.execute(f"delete from indexlake_{table}")


# ---------------------------------------------------------------- writers


def add_writer(tx: Transaction, writer_id: str, owner: str, now: int, expires_at: int) -> None:
    tx.execute("insert into indexlake_writer values (?, ?, ?, ?, 0)", (writer_id, owner, now, expires_at))


def beat_writer(tx: Transaction, writer_id: str, expires_at: int) -> bool:
    """Extend a writer's lease; return False if it was declared dead."""
    return bool(
        tx.execute(
            "update indexlake_writer set expires_at = ? where writer_id = ? and reaped = 0", (expires_at, writer_id)
        )
    )


def writer_is_alive(tx: Transaction, writer_id: str) -> bool:
    return bool(tx.rows("select 1 from indexlake_writer where writer_id = ? and reaped = 0", (writer_id,)))


def remove_writer(tx: Transaction, writer_id: str) -> None:
    tx.execute("delete from indexlake_writer where writer_id = ? and reaped = 0", (writer_id,))


# ---------------------------------------------------------------- pins


def set_pin(tx: Transaction, pin_id: str, snapshot: int, owner: str, expires_at: int) -> None:
    tx.execute(
        """insert into indexlake_pin (pin_id, snapshot_id, owner, expires_at) values (?, ?, ?, ?)
        on conflict (pin_id) do update set snapshot_id = excluded.snapshot_id, expires_at = excluded.expires_at""",
        (pin_id, snapshot, owner, expires_at),
    )


def remove_pins(tx: Transaction, pin_ids: Sequence[str]) -> None:
    tx.execute_many("delete from indexlake_pin where pin_id = ?", [(p,) for p in pin_ids])


def oldest_pin(tx: Transaction, now: int) -> int | None:
    """Return the lowest snapshot that a living process holds, and remove expired pins."""
    tx.execute("delete from indexlake_pin where expires_at < ?", (now,))
    rows = tx.rows("select min(snapshot_id) from indexlake_pin")
    return rows[0][0] if rows else None
