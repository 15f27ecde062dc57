"""Expire: drop the history that no retained snapshot needs, and move the horizon.

The horizon is the newest snapshot committed at or before now − retention. It never passes a pin or anything that only a
redo log holds, and never comes within a minute of now. One commit moves it and removes some of what lies below; further
short commits remove the rest. An expire that was killed in between leaves records that nobody reads, and the next one
removes them. Hot versions are purged afterwards.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from indexlake.catalog import (
    activity,
    data_files,
    definitions,
    delete_entries,
    log_records,
    partitions,
    released_columns,
    segments,
    table_heads,
)
from indexlake.catalog.definitions import TableRecord
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.pipeline.dump import purge
from indexlake.pipeline.job import Job, Watched
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.lake import Lake

NEVER_WITHIN = 60_000_000
"""Microseconds: running jobs need the touched sets of the last minute, unknown outcomes its tokens."""

STEP = 250
"""How many blocks one commit removes at most, and how many others it looks at."""
LONG = 0.02
"""A commit that takes so many seconds is followed by one of half as many blocks: others wait meanwhile."""
STEP_RECORDS = 20 * STEP
"""The same for small records, such as snapshots."""

KEEP_TOKENS = 7 * 24 * 3600 * 1_000_000
KEEP_JOBS = 7 * 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What expire did to one table."""

    horizon: int
    blocks_dropped: int
    deletes_folded: int
    rows_purged: int

    @property
    def did_something(self) -> bool:
        return bool(self.blocks_dropped or self.deletes_folded or self.rows_purged)

    def __str__(self) -> str:
        return (
            f"history from snapshot {self.horizon:,} on; {counted(self.blocks_dropped, 'block')} and "
            f"{counted(self.rows_purged, 'superseded row')} dropped"
        )


def expire(lake: Lake, table_id: int, **watched: Unpack[Watched]) -> ExpireResult:
    """Apply the table's retention now."""
    with Job(lake, "expire", table_id, **watched) as job:
        sweep = _Sweep(lake, job, table_id)
        while sweep.step():
            job.check()
        purged = 0 if sweep.horizon is None else purge(lake, table_id, job)
        job.add(rows=purged)
    return ExpireResult(sweep.horizon or 0, sweep.blocks, sweep.folded, purged)


class _Sweep:
    """The commits of one run; ``horizon`` is None if there is no such table."""

    def __init__(self, lake: Lake, job: Job, table_id: int) -> None:
        self._lake, self._job, self._table_id = lake, job, table_id
        self._time, self._present = lake._now(), lake._clock()
        with lake.catalog.read() as r:  # there are too many deletes to look through in a critical section
            self._unfolded = delete_entries.unfolded(r, table_id)
        self.horizon: int | None = None
        self.blocks = self.folded = self._links = 0
        self._most = STEP  # blocks of the next commit

    def step(self) -> bool:
        """Make one commit if there is something to do; return whether there may be more."""
        with Section(self._lake.catalog, self._lake._hot) as section:
            begun = time.monotonic()
            tx, table_id = section.tx, self._table_id
            self._job.fence(tx)
            table = definitions.read_table(tx, table_id)
            if table is None:
                return False
            self.horizon = horizon = _horizon(section, table, self._time, self._present)
            moved, s = horizon > table.horizon, section.sequencer.next
            if moved:
                table_heads.set_horizon(tx, table_id, horizon, s)
                definitions.forget_former_names(tx, table_id, horizon)
                released_columns.release(tx, section.hot, table, horizon, s)
            gone = table.end_snapshot is not None and table.end_snapshot <= horizon
            more = self._remove(section, horizon, s, gone=gone)
            if not more:
                partitions.drop_ended_partitions(tx, table_id, horizon)
                segments.drop_ended_indexes(tx, table_id, horizon)
                if gone:
                    section.hot.drop(tx, table_id)
                    definitions.remove_table(tx, table_id)
                elif not moved:
                    if not (self.blocks or self.folded or self._links):
                        return False
                    table_heads.set_horizon(tx, table_id, horizon, s)
            if moved or not more:  # nobody needs to know what is removed in between
                section.sequencer.record("expire", job=True)
            faults.step("expire.commit")
            section.commit()
            took = time.monotonic() - begun
            self._most = max(1, STEP // 10, self._most // 2) if took > LONG else min(STEP, 2 * self._most)
            return more

    def _remove(self, section: Section, horizon: int, s: int, *, gone: bool) -> bool:
        """Remove some of what no retained snapshot needs (``gone``: everything); return whether there may be more."""
        tx, table_id = section.tx, self._table_id
        due: list[int] = []
        while len(due) < self._most and self._unfolded and self._unfolded[-1][0] <= horizon:
            due.append(self._unfolded.pop()[1])
        self.folded += delete_entries.fold_deletes(tx, table_id, horizon, s, due)
        if gone:
            blocks = data_files.drop_any_blocks(tx, table_id, self._time, self._most)
        else:
            blocks = data_files.drop_ended_blocks(tx, table_id, horizon, self._time, self._most)
        links = segments.drop_ended_links(tx, table_id, horizon, self._time, self._most)
        self.blocks, self._links = self.blocks + blocks, self._links + links
        kept = [*definitions.list_tables(tx), *definitions.list_dropped_tables(tx)]
        lowest = min((t.horizon for t in kept), default=horizon)
        forgotten = section.sequencer.forget(table_id, horizon, lowest, self._time - KEEP_TOKENS, STEP_RECORDS)
        activity.drop_jobs_before(tx, self._time - KEEP_JOBS)
        return forgotten or max(len(due), blocks, links) == self._most


def _horizon(section: Section, table: TableRecord, time: int, present: int) -> int:
    retention, last = int(table.config.retention.total_seconds() * 1e6), section.sequencer.last
    newest = section.sequencer.newest_at(present - max(retention, NEVER_WITHIN))
    if newest is None:
        return table.horizon
    pin, owner = activity.oldest_pin(section.tx, time), log_records.read_owner(section.tx)
    whole = last if owner is None else owner.bound
    return max(table.horizon, min(newest, last, whole, last if pin is None else pin))
