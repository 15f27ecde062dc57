"""Records the statements that a lake sends to its SQLite catalog, and asks the database how it runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import indexlake as il
from indexlake.catalog import sqlite_transaction


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL text of every statement, in order."""
    seen: list[str] = []
    kinds = [sqlite_transaction.SqliteRead, sqlite_transaction.SqliteTransaction]
    replaced: list[tuple[Any, str, Any]] = []
    for kind in kinds:
        for name in ("rows", "query", "execute", "execute_many", "row"):
            original = getattr(kind, name, None)
            if original is None:
                continue

            def logged(self: Any, sql: str, *rest: Any, _original: Any = original) -> Any:
                seen.append(sql)
                return _original(self, sql, *rest)

            replaced.append((kind, name, kind.__dict__.get(name)))
            setattr(kind, name, logged)
    try:
        yield seen
    finally:
        for kind, name, own in replaced:
            if own is None:
                delattr(kind, name)
            else:
                setattr(kind, name, own)


def query_plan(lake: il.Lake, sql: str) -> str:
    with lake.catalog.read() as r:
        rows = r.rows(f"explain query plan {sql}", [0] * sql.count("?"))
        return "\n".join(str(row[-1]) for row in rows)
