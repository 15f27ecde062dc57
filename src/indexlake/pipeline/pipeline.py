"""``lake.pipeline()``: the jobs, by call.  Each is safe to kill, to repeat and to run beside every other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from indexlake.catalog import definitions
from indexlake.pipeline.compact import compact
from indexlake.pipeline.dump import DumpResult, dump
from indexlake.pipeline.expire import ExpireResult, expire
from indexlake.pipeline.freeze import freeze, thaw
from indexlake.pipeline.job import Job
from indexlake.pipeline.rewrite import RewriteResult
from indexlake.pipeline.runner import Runner, ThreadRunner
from indexlake.pipeline.vacuum import GRACE, VacuumResult, vacuum
from indexlake.pipeline.verify import VerifyResult, verify

if TYPE_CHECKING:
    from indexlake.lake import Lake

R = TypeVar("R")

WHOLE_LAKE = 0
"""Stands for a table id in the leases of jobs that are about all tables."""


class Pipeline:
    """Made by ``lake.pipeline()``.  ``table=None`` means every table."""

    def __init__(self, lake: Lake, runner: Runner | None = None) -> None:
        self._lake = lake
        self._runner = runner or ThreadRunner(lake.storage)
        self._stop = threading.Event()

    def __repr__(self) -> str:
        return f"<Pipeline of {self._lake.catalog.location} on {self._runner!r}>"

    def cancel(self) -> None:
        """Stop what runs, from another thread: at its next step, with nothing lost."""
        self._stop.set()

    def dump(self, table: str | None = None) -> dict[str, DumpResult]:
        """Move hot rows to blocks."""
        return self._each(table, lambda t: dump(self._lake, t, runner=self._runner, stop=self._stop))

    def compact(self, table: str | None = None) -> dict[str, RewriteResult]:
        """Make full blocks of small and delete-heavy ones."""
        return self._each(table, lambda t: compact(self._lake, t, self._runner, stop=self._stop))

    def freeze(self, table: str | None = None, *, older_than: timedelta = timedelta(0)) -> dict[str, RewriteResult]:
        """Turn warm blocks whose rows are all older than that into Parquet, which every engine reads."""
        return self._each(table, lambda t: freeze(self._lake, t, self._runner, older_than=older_than, stop=self._stop))

    def thaw(self, table: str | None = None) -> dict[str, RewriteResult]:
        """Turn Parquet blocks into warm ones again."""
        return self._each(table, lambda t: thaw(self._lake, t, self._runner, stop=self._stop))

    def expire(self, table: str | None = None) -> dict[str, ExpireResult]:
        """Drop history that the retention no longer asks for."""
        self._stop.clear()
        found = self._tables(table)
        if table is None:
            with self._lake.catalog.read() as r:
                found += [(f"{t.full_name} (dropped)", t.table_id) for t in definitions.list_dropped_tables(r)]
        return {name: expire(self._lake, table_id, stop=self._stop) for name, table_id in found}

    def vacuum(self, *, dry_run: bool = True, grace: timedelta = GRACE) -> VacuumResult:
        """Delete the files that nothing reaches; unless ``dry_run=False`` only say which."""
        self._stop.clear()
        with Job(self._lake, "vacuum", WHOLE_LAKE, stop=self._stop) as job:
            return vacuum(self._lake, job, dry_run=dry_run, grace=grace)

    def verify(self, table: str | None = None) -> VerifyResult:
        """Read every byte and compare it with its checksum, and the catalog with the storage."""
        self._stop.clear()
        tables = [table_id for _, table_id in self._tables(table)]
        with Job(self._lake, "verify", tables[0] if table is not None else WHOLE_LAKE, stop=self._stop) as job:
            return verify(self._lake, job, tables, self._runner)

    def _each(self, table: str | None, job: Callable[[int], R]) -> dict[str, R]:
        self._stop.clear()
        return {name: job(table_id) for name, table_id in self._tables(table)}

    def _tables(self, table: str | None) -> list[tuple[str, int]]:
        names = [table] if table is not None else self._lake.tables()
        return [(t.name, t._table_id) for t in map(self._lake.table, names)]
