"""``pipeline.run``: whatever is due, in the right order.

Expire comes first, since it makes blocks and rows unreachable; then dump, compact (merge and split for a clustered
table), and freeze if configured; then the meta file of a clustered table; vacuum comes last, and really deletes. A job
that another process is already running is left to it. A table whose job fails does not hold up the others: the first
error is raised at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from indexlake.errors import IndexLakeError, NotFoundError
from indexlake.pipeline.compact import compact
from indexlake.pipeline.due import HotStoreFill, compaction_is_due
from indexlake.pipeline.dump import dump
from indexlake.pipeline.expire import expire
from indexlake.pipeline.freeze import freeze
from indexlake.pipeline.job import JobBusy, JobStopped
from indexlake.pipeline.keep_indexes import keep
from indexlake.pipeline.meta import publish_meta
from indexlake.pipeline.reshape import keep_shape
from indexlake.pipeline.runner import Runner
from indexlake.pipeline.vacuum import vacuum

if TYPE_CHECKING:
    from indexlake.display.progress import ProgressBar
    from indexlake.lake import Lake


@dataclass(frozen=True, slots=True)
class Step:
    """One job that was due."""

    job: str
    table: str | None  # None: the whole lake
    seconds: float
    result: Any  # the result of the job, or who is doing it already

    def __str__(self) -> str:
        where = f" {self.table}" if self.table else ""
        return f"{self.job}{where}: {self.result} ({self.seconds:.1f} s)"


@dataclass(frozen=True, slots=True)
class RunResult:
    """What was due, with the results."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "nothing was due"


@dataclass(frozen=True, slots=True)
class Due:
    """A table of this run; dropped ones are only expired."""

    name: str
    table_id: int
    dropped: bool


def run(
    lake: Lake, tables: Sequence[Due], runner: Runner, stop: threading.Event, bar: Callable[[str], ProgressBar]
) -> RunResult:
    """Do what is due for the tables, then vacuum the lake."""
    steps: list[Step] = []
    errors: list[IndexLakeError] = []

    def step(job: str, table: str | None, work: Callable[[], Any]) -> None:
        begun = time.monotonic()
        try:
            result = work()
        except JobStopped:
            raise
        except JobBusy as busy:
            result = str(busy)
        except NotFoundError:
            return  # the table was dropped meanwhile
        except IndexLakeError as error:
            error.add_note(f"in the {job} of {table or 'the lake'}; the other jobs that were due have been done")
            errors.append(error)
            return
        if result is not None:
            steps.append(Step(job, table, time.monotonic() - begun, result))

    for table in tables:
        for job, work in _jobs(lake, table, runner, stop, bar):
            step(job, table.name, work)
    step("vacuum", None, lambda: vacuum(lake, runner, dry_run=False, stop=stop, bar=bar("vacuum")))
    if errors:
        raise errors[0]
    return RunResult(tuple(steps))


def _jobs(
    lake: Lake, table: Due, runner: Runner, stop: threading.Event, bar: Callable[[str], ProgressBar]
) -> list[tuple[str, Callable[[], Any]]]:
    """Return the jobs in order; each returns None if there was nothing to do."""
    number = table.table_id

    def dump_if_due() -> Any:
        hot = HotStoreFill(lake, number)
        if not hot.due:
            return None
        shown = bar(f"dump {table.name}")
        return dump(lake, number, live=hot.live_due, history=hot.history_due, runner=runner, stop=stop, bar=shown)

    def compact_if_due() -> Any:
        if not compaction_is_due(lake, number):
            return None
        return compact(lake, number, runner, stop=stop, bar=bar(f"compact {table.name}"))

    def reshape_if_due() -> Any:
        return keep_shape(lake, number, runner, stop=stop, bar=bar(f"merge {table.name}"))

    def freeze_if_configured() -> Any:
        after = lake._readings.latest(number).table.config.freeze_after
        if after is None:
            return None
        done = freeze(lake, number, runner, older_than=after, stop=stop, bar=bar(f"freeze {table.name}"))
        return done if done.blocks_before else None

    def keep_indexes() -> Any:
        done = keep(lake, number, runner, stop=stop)
        return done or None

    def expire_some() -> Any:
        done = expire(lake, number, stop=stop)
        return done if done.did_something else None

    jobs: list[tuple[str, Callable[[], Any]]] = [("expire", expire_some)]
    if not table.dropped:
        jobs += [("dump", dump_if_due), ("compact", compact_if_due), ("merge", reshape_if_due)]
        jobs += [("freeze", freeze_if_configured), ("indexes", keep_indexes)]
    return [*jobs, ("meta", partial(publish_meta, lake, number))]
