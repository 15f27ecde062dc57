"""Write rows that only the owner holds in memory to the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from indexlake.catalog.fields import held_columns
from indexlake.catalog.inline import inline_table
from indexlake.hot.memory.page import LIVE

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import Transaction
    from indexlake.hot.memory.store import MemoryStore
    from indexlake.hot.memory.versions import Versions


def write_inline(tx: Transaction, store: MemoryStore, table: TableRecord) -> None:
    """Write all versions that no block holds and some retained snapshot shows; the catalog knows the deletes."""
    name = inline_table(table.table_id)
    tx.execute(f"delete from {name}")
    columns = held_columns(tx, table.table_id)
    names = ("_begin", "_indexlake_row_id", "_end", *columns)
    tx.insert_rows(name, names, _rows(store.versions(table.table_id), columns, table.horizon))


def _rows(of: Versions, columns: tuple[str, ...], horizon: int) -> Iterator[tuple[Any, ...]]:
    for page, here in of.masked("here", LIVE - 1):
        row_ids, begins, ends = page.numbers(len(here))
        mask = here & (ends > horizon)
        ended = [None if end == LIVE else end for end in ends[mask].tolist()]
        values = [page.column(name, mask) for name in columns]
        yield from zip(begins[mask].tolist(), row_ids[mask].tolist(), ended, *values, strict=True)
