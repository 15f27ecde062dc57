"""Delta Lake by its Rust implementation; the log is read on before each read, as another process's commits need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks.orders import SCHEMA
from benchmarks.peers.contenders import Group


class Orders:
    name = "Delta"
    durability = "nothing is synced: files and log survive a crash of the process, not of the machine"

    def __init__(self, folder: Path) -> None:
        place = str(folder / "delta")
        if not DeltaTable.is_deltatable(place):
            DeltaTable.create(place, SCHEMA)
        self._table = DeltaTable(place)

    def create(self, rows: pa.RecordBatchReader) -> None:
        write_deltalake(self._table, rows, mode="append")

    def insert(self, rows: list[dict[str, Any]]) -> None:
        write_deltalake(self._table, pa.Table.from_pylist(rows, SCHEMA), mode="append")

    def get(self, key: int) -> dict[str, Any] | None:
        self._table.update_incremental()
        found = _rows(self._query(f"select * from orders where id = {key}"))
        return found[0] if found else None

    def update(self, key: int, total: float) -> None:
        self._table.update(predicate=f"id = {key}", new_values={"total": total})

    def delete(self, key: int) -> None:
        self._table.delete(f"id = {key}")

    def upsert(self, rows: pa.Table) -> None:
        merge = self._table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    merge = upsert

    def _query(self, text: str) -> Any:
        return QueryBuilder().register("orders", self._table).execute(text)

    def by_city(self) -> list[Group]:
        self._table.update_incremental()
        text = "select city, count(*) n, sum(quantity) q, sum(total) t from orders group by city"
        return [(r["city"], r["n"], r["q"], r["t"]) for r in _rows(self._query(text))]

    def close(self) -> None:
        pass


def _rows(result: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(result.read_all()).to_pylist()
    return rows
