"""Readings beside the owner of a lake whose newest rows are in memory: they see what the catalog and files hold in
full.

Newer commits that the catalog may know of are ignored: the newest snapshot is the lake's bound, which each checkpoint
moves, and reading it is time travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake.catalog import commits, log_records
from indexlake.snapshots.reading import Readings

if TYPE_CHECKING:
    from indexlake.catalog.driver import ReadTransaction
    from indexlake.snapshots.state import TableState


class ReplicaReadings(Readings):
    def newest(self) -> int:
        with self.catalog.read() as r:
            return self._bound(r)

    def seen(self, r: ReadTransaction, snapshot: int | None) -> int | None:
        return self._bound(r) if snapshot is None else snapshot

    def state_in(self, transaction: ReadTransaction, table_id: int) -> TableState:
        return super().state_in(transaction, table_id)._replace(limit=self._bound(transaction))

    def _bound(self, r: ReadTransaction) -> int:
        owner = log_records.read_owner(r)
        if owner is None:
            return 0
        return owner.bound if owner.bound != log_records.EVERYTHING else commits.last_snapshot(r)[0]
