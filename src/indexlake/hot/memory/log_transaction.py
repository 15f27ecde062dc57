"""The stand-in for a catalog transaction in a commit of the redo log: it collects what the commit does.

It cannot answer questions about the catalog: asking raises ``CatalogNeeded``, and the commit is retried in the catalog.
"""

from __future__ import annotations

from typing import Any, NoReturn

from indexlake.hot.memory.record import Change


class CatalogNeeded(Exception):
    """Raised when a commit of the redo log needs a catalog transaction after all."""


class LogTransaction:
    """Takes the place of a ``Transaction`` in a commit of the redo log."""

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}

    def change(self, table_id: int) -> Change:
        """Return the record of what the commit in progress does to a table."""
        found = self.changes.get(table_id)
        if found is None:
            found = self.changes[table_id] = Change()
        return found

    def _ask(self, *_: Any, **__: Any) -> NoReturn:
        raise CatalogNeeded

    rows = rows_again = row = query = execute = send = execute_many = execute_batch = insert_rows = savepoint = _ask
