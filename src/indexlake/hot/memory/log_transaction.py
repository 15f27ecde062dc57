"""What a commit of the log has instead of a catalog transaction: it collects what the commit does.

It answers nothing that only the catalog knows: asking raises ``CatalogNeeded``, and the commit is retried as a commit
of the catalog.
"""

from __future__ import annotations

from typing import Any, NoReturn

from indexlake.hot.memory.record import Change


class CatalogNeeded(Exception):
    """Only a commit of the catalog can do this."""


class LogTransaction:
    """Stands where code expects a ``Transaction``."""

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}

    def change(self, table_id: int) -> Change:
        """What the commit in progress does to a table."""
        found = self.changes.get(table_id)
        if found is None:
            found = self.changes[table_id] = Change()
        return found

    def _ask(self, *_: Any, **__: Any) -> NoReturn:
        raise CatalogNeeded

    rows = rows_again = row = query = execute = send = execute_many = execute_batch = insert_rows = savepoint = _ask
