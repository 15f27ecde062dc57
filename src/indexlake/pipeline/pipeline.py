"""``lake.pipeline()``: the jobs, by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake.catalog import definitions
from indexlake.pipeline.dump import DumpResult, dump
from indexlake.pipeline.expire import ExpireResult, expire

if TYPE_CHECKING:
    from indexlake.lake import Lake


class Pipeline:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def dump(self, table: str | None = None) -> dict[str, DumpResult]:
        """Move hot rows to blocks: of one table, or of all."""
        return {name: dump(self._lake, table_id) for name, table_id in self._tables(table)}

    def expire(self, table: str | None = None) -> dict[str, ExpireResult]:
        """Drop history that the retention no longer asks for."""
        found = self._tables(table)
        if table is None:
            with self._lake.catalog.read() as r:
                found += [(f"{t.full_name} (dropped)", t.table_id) for t in definitions.list_dropped_tables(r)]
        return {name: expire(self._lake, table_id) for name, table_id in found}

    def _tables(self, table: str | None) -> list[tuple[str, int]]:
        names = [table] if table is not None else self._lake.tables()
        return [(t.name, t._table_id) for t in map(self._lake.table, names)]
