"""Each contender keeps the same table of orders in its own way, and does the same operations with it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

Group = tuple[str, int, int, float]
"""City, count, sum of quantity, sum of total."""

NAMES = ("indexlake", "ducklake", "delta", "iceberg", "lance")


class Contender(Protocol):
    """A table of orders in a folder.  Every call is one commit, durable as far as the contender is when it returns."""

    name: str
    durability: str

    def __init__(self, folder: Path) -> None:
        """Open the table in the folder, if there is one."""

    def create(self, rows: pa.RecordBatchReader) -> None: ...
    def insert(self, rows: list[dict[str, Any]]) -> None: ...
    def get(self, key: int) -> dict[str, Any] | None: ...
    def update(self, key: int, total: float) -> None: ...
    def delete(self, key: int) -> None: ...
    def upsert(self, rows: pa.Table) -> None:
        """Replace the rows whose id is there, add the others, by the shortest way there is."""

    def merge(self, rows: pa.Table) -> None:
        """The same by the general merge statement."""

    def by_city(self) -> list[Group]:
        """The aggregate, by the contender's own way to compute one; in any order."""

    def close(self) -> None: ...


def contender(name: str) -> type[Contender]:
    """The class; its libraries are imported with it."""
    found: type[Contender] = import_module(f"benchmarks.peers.contenders.{name}").Orders
    return found
