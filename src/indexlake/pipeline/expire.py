"""Expire: drop the history that no retained snapshot needs, and move the horizon.

The horizon is the newest snapshot committed at or before now − retention.  It never passes a pin and never comes
within a minute of now.  Everything of one table happens in one commit; inline versions are purged afterwards.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexlake import faults
from indexlake.catalog import activity, commits, definitions, inline, layout, released_columns
from indexlake.catalog.definitions import TableRecord
from indexlake.catalog.driver import Transaction
from indexlake.commit.section import Section
from indexlake.display import counted
from indexlake.pipeline.dump import purge
from indexlake.pipeline.job import Job

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


def expire(lake: Lake, table_id: int, *, stop: threading.Event | None = None) -> ExpireResult:
    """Apply the table's retention now."""
    with Job(lake, "expire", table_id, stop=stop) as job:
        blocks = folded = 0
        time, present = lake._now(), lake._clock()
        with lake.catalog.transaction() as tx:
            section = Section(lake.catalog, tx)
            job.fence(tx)
            table = definitions.read_table(tx, table_id)
            if table is None:
                return ExpireResult(0, 0, 0, 0)
            horizon = _horizon(tx, table, section.last, time, present)
            if horizon > table.horizon:
                s = section.last + 1
                folded = layout.fold_deletes(tx, table_id, horizon, s)
                blocks = layout.drop_ended_blocks(tx, table_id, horizon, time, table.horizon)
                commits.drop_touched_up_to(tx, table_id, horizon)
                layout.set_horizon(tx, table_id, horizon, s)
                definitions.forget_former_names(tx, table_id, horizon)
                released_columns.release(tx, table, horizon, s)
                if table.end_snapshot is not None and table.end_snapshot <= horizon:
                    blocks += _forget_table(tx, table_id, time)
                kept = [*definitions.list_tables(tx), *definitions.list_dropped_tables(tx)]
                lowest = min((t.horizon for t in kept), default=horizon)
                commits.drop_snapshots_below(tx, lowest)
                commits.drop_tokens_before(tx, time - KEEP_TOKENS)
                activity.drop_jobs_before(tx, time - KEEP_JOBS)
                section.next_snapshot("expire", None, None)
                faults.step("expire.commit")
                tx.commit()
            else:
                horizon = table.horizon
        purged = purge(lake, table_id, job) if _exists(lake, table_id) else 0
        job.add(rows=purged)
    return ExpireResult(horizon, blocks, folded, purged)


def _horizon(tx: Transaction, table: TableRecord, last: int, time: int, present: int) -> int:
    retention = int(table.config.retention.total_seconds() * 1e6)
    newest = commits.snapshot_at_time(tx, present - max(retention, NEVER_WITHIN))
    if newest is None:
        return table.horizon
    pin = activity.oldest_pin(tx, time)
    return max(table.horizon, min(newest, last, last if pin is None else pin))


def _forget_table(tx: Transaction, table_id: int, time: int) -> int:
    """A dropped table that no retained snapshot shows any more; returns how many blocks it had."""
    layout.end_live_blocks(tx, table_id, 0)
    blocks = layout.drop_ended_blocks(tx, table_id, 0, time)
    inline.drop(tx, table_id)
    definitions.remove_table(tx, table_id)
    return blocks


def _exists(lake: Lake, table_id: int) -> bool:
    with lake.catalog.read() as r:
        return definitions.read_table(r, table_id) is not None
