"""Inserts that several threads make at once are joined: one statement and one commit for all of them.

Each thread gets its own result or its own error, as if it had been alone. If the rows of one are refused, nothing was
committed, and each is inserted by itself. The main thread is left out: only there can an interrupt come at any moment,
and the others would not know what became of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indexlake.commit.group import for_another_thread
from indexlake.commit.relay import Relay, Ticket
from indexlake.commit.write_set import WriteResult
from indexlake.errors import CatalogError, CorruptionError, IndexLakeError, OwnershipError, StorageError
from indexlake.writes.insert import Insert

if TYPE_CHECKING:
    from indexlake.lake import Lake

MOST_TOGETHER = 256

_FOR_ALL = (CatalogError, StorageError, OwnershipError, CorruptionError)
"""What has nothing to do with the rows of one thread, and may not tell whether anything was committed."""


class _Row(Ticket):
    """The row of one thread."""

    result: WriteResult | None = None
    error: BaseException | None = None

    def __init__(self, row: Any) -> None:
        self.row = row


class JoinedInserts:
    """The inserts of single rows into one table."""

    def __init__(self, lake: Lake, table_id: int) -> None:
        self._lake = lake
        self._table_id = table_id
        self._relay: Relay[_Row] = Relay(self._work, self._together)

    def insert(self, row: Any) -> WriteResult:
        ticket = _Row(row)
        self._relay.submit(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None
        return ticket.result

    def _insert(self, rows: Any) -> WriteResult:
        return self._lake._autocommit("insert", Insert(self._table_id, rows, None), None)

    def _together(self, waiting: Sequence[_Row]) -> int:
        """Take no more rows than a write that stays in the hot store may have."""
        state = self._lake._readings.states.get(self._table_id)
        return 1 if state is None else max(1, min(MOST_TOGETHER, state.table.config.direct_write_row_count - 1))

    def _work(self, group: list[_Row], mine: _Row) -> None:
        try:
            if len(group) == 1:
                mine.result = self._insert(group[0].row)
            else:
                self._all(group, mine)
        except BaseException as error:
            for ticket in group:
                if ticket is mine:
                    ticket.error = error
                elif ticket.result is None and ticket.error is None:
                    ticket.error = for_another_thread(error) if isinstance(error, Exception) else _not_known()

    def _all(self, group: list[_Row], mine: _Row) -> None:
        try:
            found = self._insert([ticket.row for ticket in group])
        except _FOR_ALL:
            raise
        except IndexLakeError:
            for ticket in group:
                try:
                    ticket.result = self._insert(ticket.row)
                except IndexLakeError as error:
                    ticket.error = error
        else:
            own = WriteResult(1, found.snapshot_id, 1, 0, 0)
            for ticket in group:
                ticket.result = own


def _not_known() -> CatalogError:
    return CatalogError(
        "The thread that was inserting this row together with others was interrupted, so it is not known whether the "
        "row was inserted. Check the data, or repeat the write with the same token= to be sure."
    )

