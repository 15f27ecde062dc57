"""Expire: drop the history that no retained snapshot needs, and move the horizon.

The horizon is the newest snapshot committed at or before now − retention.  It never passes a pin, nor what
only a redo log holds, and never comes within a minute of now.  Everything of one table happens in one commit; hot
versions are purged afterwards.
"""

from __future__ import annotations

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
        blocks = folded = 0
        time, present = lake._now(), lake._clock()
        with Section(lake.catalog, lake._hot) as section:
            tx = section.tx
            job.fence(tx)
            table = definitions.read_table(tx, table_id)
            if table is None:
                return ExpireResult(0, 0, 0, 0)
            horizon = _horizon(section, table, time, present)
            if horizon > table.horizon:
                s = section.sequencer.next
                folded = delete_entries.fold_deletes(tx, table_id, horizon, s)
                blocks = data_files.drop_ended_blocks(tx, table_id, horizon, time, table.horizon)
                partitions.drop_ended_partitions(tx, table_id, horizon)
                table_heads.set_horizon(tx, table_id, horizon, s)
                definitions.forget_former_names(tx, table_id, horizon)
                released_columns.release(tx, section.hot, table, horizon, s)
                if table.end_snapshot is not None and table.end_snapshot <= horizon:
                    blocks += _forget_table(section, table_id, time)
                kept = [*definitions.list_tables(tx), *definitions.list_dropped_tables(tx)]
                lowest = min((t.horizon for t in kept), default=horizon)
                section.sequencer.forget(table_id, horizon, lowest, time - KEEP_TOKENS)
                activity.drop_jobs_before(tx, time - KEEP_JOBS)
                section.sequencer.record("expire", job=True)
                faults.step("expire.commit")
                section.commit()
            else:
                horizon = table.horizon
        purged = purge(lake, table_id, job)
        job.add(rows=purged)
    return ExpireResult(horizon, blocks, folded, purged)


def _horizon(section: Section, table: TableRecord, time: int, present: int) -> int:
    retention, last = int(table.config.retention.total_seconds() * 1e6), section.sequencer.last
    newest = section.sequencer.newest_at(present - max(retention, NEVER_WITHIN))
    if newest is None:
        return table.horizon
    pin, owner = activity.oldest_pin(section.tx, time), log_records.read_owner(section.tx)
    whole = last if owner is None else owner.bound
    return max(table.horizon, min(newest, last, whole, last if pin is None else pin))


def _forget_table(section: Section, table_id: int, time: int) -> int:
    """A dropped table that no retained snapshot shows any more; returns how many blocks it had."""
    tx = section.tx
    data_files.end_live_blocks(tx, table_id, 0)
    blocks = data_files.drop_ended_blocks(tx, table_id, 0, time)
    section.hot.drop(tx, table_id)
    definitions.remove_table(tx, table_id)
    return blocks
