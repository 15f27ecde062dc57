"""Apache Iceberg by PyIceberg on a SQLite catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo

from benchmarks.orders import SCHEMA
from benchmarks.peers.contenders import Group


class Orders:
    name = "Iceberg"
    durability = "its SQLite catalog is synced at every commit, data and metadata files are not"

    def __init__(self, folder: Path) -> None:
        place = folder / "iceberg"
        place.mkdir(exist_ok=True)
        self._catalog = SqlCatalog(
            "default", uri=f"sqlite:///{place / 'catalog.sqlite'}", warehouse=f"file://{place / 'files'}"
        )
        self._catalog.create_namespace_if_not_exists("main")
        self._table = self._catalog.create_table_if_not_exists("main.orders", schema=SCHEMA)

    def create(self, rows: pa.RecordBatchReader) -> None:
        self._table.append(rows.read_all())

    def insert(self, rows: list[dict[str, Any]]) -> None:
        self._table.append(pa.Table.from_pylist(rows, SCHEMA))

    def get(self, key: int) -> dict[str, Any] | None:
        self._table.refresh()
        found = self._table.scan(row_filter=EqualTo("id", key)).to_arrow().to_pylist()
        return found[0] if found else None

    def update(self, key: int, total: float) -> None:
        """There is no update: the row is read and written again."""
        row = self.get(key)
        assert row is not None
        changed = pa.Table.from_pylist([row | {"total": total}], SCHEMA)
        self._table.overwrite(changed, overwrite_filter=EqualTo("id", key))

    def delete(self, key: int) -> None:
        self._table.delete(EqualTo("id", key))

    def upsert(self, rows: pa.Table) -> None:
        self._table.upsert(rows, join_cols=["id"])

    merge = upsert

    def by_city(self) -> list[Group]:
        self._table.refresh()
        rows = self._table.scan(selected_fields=("city", "quantity", "total")).to_arrow()
        found = rows.group_by("city").aggregate([("city", "count"), ("quantity", "sum"), ("total", "sum")])
        return [(r["city"], r["city_count"], r["quantity_sum"], r["total_sum"]) for r in found.to_pylist()]

    def close(self) -> None:
        self._catalog.engine.dispose()
