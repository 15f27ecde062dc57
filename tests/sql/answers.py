"""What a query gives, in our SQL or in DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

import indexlake as il


def answer(run: Callable[[str], Any], text: str) -> list[tuple[object, ...]] | None:
    """The rows in an order of their own; None where the query is refused."""
    try:
        return sorted(run(text).fetchall(), key=repr)
    except (duckdb.Error, il.IndexLakeError):
        return None
