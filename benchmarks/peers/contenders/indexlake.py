"""IndexLake on a SQLite catalog and local files, as ``il.connect`` gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from benchmarks.orders import SCHEMA
from benchmarks.peers.contenders import Group


class Orders:
    name = "IndexLake"
    durability = "every commit is synced, the SQLite catalog and files alike"

    def __init__(self, folder: Path) -> None:
        self._lake = il.connect(folder / "indexlake")
        self._table = self._lake.create_table("orders", SCHEMA, primary_key="id", exist_ok=True)

    def create(self, rows: pa.RecordBatchReader) -> None:
        self._table.insert(rows)

    def insert(self, rows: list[dict[str, Any]]) -> None:
        self._table.insert(rows)

    def get(self, key: int) -> dict[str, Any] | None:
        return self._table.get(key)

    def update(self, key: int, total: float) -> None:
        self._table.update({"total": total}, "id = $id", params={"id": key})

    def delete(self, key: int) -> None:
        self._table.delete("id = $id", params={"id": key})

    def upsert(self, rows: pa.Table) -> None:
        self._table.upsert(rows)

    def merge(self, rows: pa.Table) -> None:
        merge = self._table.merge(rows, on="id")
        merge.when_matched_update().when_not_matched_insert().execute()

    def by_city(self) -> list[Group]:
        found = self._lake.sql("select city, count(*) n, sum(quantity) q, sum(total) t from orders group by city")
        return [(r["city"], int(r["n"]), int(r["q"]), r["t"]) for r in found.to_pylist()]

    def close(self) -> None:
        self._lake.close()
