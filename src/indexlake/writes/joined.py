"""Inserts of single rows that several threads make at once are joined: one statement and one commit for all of them.

If a row is refused, nothing was committed, and each thread inserts its own row by itself, so that it gets its own
result or its own error. The main thread stays out of this: only there can an interrupt come at any moment, and the
others would not know what became of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from indexlake.commit.group import for_another_thread
from indexlake.commit.relay import Relay, Ticket
from indexlake.commit.write_set import WriteResult
from indexlake.errors import CatalogError, IndexLakeError, StorageError
from indexlake.writes.insert import Insert

if TYPE_CHECKING:
    from indexlake.lake import Lake

MOST_TOGETHER = 256


class _Row(Ticket):
    """The row of one thread. Neither a result nor an error: it was not committed."""

    result: WriteResult | None = None
    error: BaseException | None = None

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row


class JoinedInserts:
    """The inserts of single rows into one table."""

    def __init__(self, lake: Lake, table_id: int) -> None:
        self._lake = lake
        self._table_id = table_id
        self._relay: Relay[_Row] = Relay(self._work, self._fits)
        self._working: int | None = None  # the thread that inserts for all
        self._most = 1  # rows in one statement: no more than one write may leave in the hot store

    def insert(self, row: dict[str, Any]) -> WriteResult:
        if self._working == get_ident():  # called by what it is doing, for example by a handler of its log messages
            return self._insert(row)
        ticket = _Row(row)
        self._relay.submit(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result or self._insert(row)

    def _insert(self, row: dict[str, Any]) -> WriteResult:
        return self._lake._autocommit("insert", Insert(self._table_id, row, None), None)

    def _fits(self, group: Sequence[_Row], _: _Row) -> bool:
        return len(group) < self._most

    def _work(self, group: list[_Row], mine: _Row) -> None:
        self._working = get_ident()
        try:
            state = self._lake._readings.states.get(self._table_id)
            if state is not None:
                self._most = min(MOST_TOGETHER, state.table.config.direct_write_row_count - 1)
            if group == [mine]:
                mine.result = self._insert(mine.row)
            else:
                self._insert_all(group, mine)
        finally:
            self._working = None

    def _insert_all(self, group: list[_Row], mine: _Row) -> None:
        insert = Insert(self._table_id, [ticket.row for ticket in group], None)
        try:
            found = self._lake._autocommit("insert", insert, None)
        except (CatalogError, StorageError) as error:  # not about the rows, and perhaps they were committed
            for ticket in group:
                ticket.error = error if ticket is mine else for_another_thread(error)
        except IndexLakeError:
            pass
        except BaseException as error:
            if insert.is_prepared:
                for ticket in group:
                    ticket.error = _not_known(error)
                raise
            if not isinstance(error, Exception):
                raise
        else:
            own = WriteResult(1, found.snapshot_id, 1, 0, 0)
            for ticket in group:
                ticket.result = own


def _not_known(error: BaseException) -> CatalogError:
    return CatalogError(
        f"A thread that was inserting this row together with its own was stopped by {type(error).__name__}, so it is "
        "not known whether the row was inserted. Check the data."
    )
