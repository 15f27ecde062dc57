"""The catalog as a statement sees it: the definitions of one snapshot, and the tables that they name."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from indexlake.snapshots.reading import Reading, Readings

if TYPE_CHECKING:
    from indexlake.catalog.driver import ReadTransaction, Transaction
    from indexlake.commit.write_set import TableWrites
    from indexlake.snapshots.state import TableState


class Seen:
    """A context manager: ``r`` is a catalog transaction, ``at`` the snapshot to look definitions up at; None: now."""

    def __init__(self, readings: Readings, snapshot: int | None) -> None:
        self.readings = readings
        self.at = snapshot
        self.r: ReadTransaction | Transaction

    def __enter__(self) -> Seen:
        self.r = r = self.readings.catalog.read()
        try:
            self.at = self.readings.seen(r, self.at)
        except BaseException:
            r.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.r.__exit__(kind, error, trace)

    def state(self, table_id: int) -> TableState:
        """Return the table's state; raise ``Stale`` if a newer transaction is needed."""
        r: Any = self.r
        return self.readings.state_in(r, table_id)

    def reading(self, state: TableState, snapshot: int, writes: TableWrites | None) -> Reading:
        """Return the table at a snapshot."""
        return Reading(self.r, state, snapshot, self.readings.store, writes)
