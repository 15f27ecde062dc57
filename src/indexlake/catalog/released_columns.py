"""Columns of the hot store that are no longer needed: how expire treats dropped and altered columns.

A column is removed in two steps. First its field is *released*: from that commit on, no reader needs it. It is removed
once the horizon has passed that commit, at least a minute later: PostgreSQL shows a changed table at once even to
readers of an older state, who might still need the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake.catalog.definitions import TableRecord
from indexlake.catalog.driver import Transaction
from indexlake.catalog.fields import read_schema
from indexlake.schema import Field

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore

GONE = 0
"""The value of ``released_in`` for a column that has been removed."""


def release(tx: Transaction, hot: HotStore, table: TableRecord, horizon: int, snapshot: int) -> None:
    """Release and remove columns inside the critical section, in the commit ``snapshot`` that moves the horizon."""
    for field_id in _unneeded(tx, hot, table, horizon):
        tx.execute("update indexlake_field set released_in = ? where field_id = ?", (snapshot, field_id))
    released = tx.rows(
        "select distinct field_id from indexlake_field where table_id = ? and released_in > ? and released_in <= ?",
        (table.table_id, GONE, horizon),
    )
    for (field_id,) in released:
        hot.drop_column(tx, table.table_id, field_id)
        tx.execute("update indexlake_field set released_in = ? where field_id = ?", (GONE, field_id))


def _unneeded(tx: Transaction, hot: HotStore, table: TableRecord, horizon: int) -> list[int]:
    """Return fields that no retained snapshot shows and no hot row needs to compute a newer field."""
    fields = read_schema(tx, table).fields
    newest: dict[int, Field] = {f.field_id: f for f in sorted(fields, key=lambda f: f.begin_snapshot)}
    if all(f.end_snapshot is None or f.released for f in newest.values()):
        return []
    oldest = hot.oldest(tx, table.table_id)
    needed = {
        f.source.field_id for f in newest.values() if f.source is not None and oldest is not None and oldest < f.since
    }
    return [
        f.field_id
        for f in newest.values()
        if f.end_snapshot is not None and f.end_snapshot <= horizon and not f.released and f.field_id not in needed
    ]
