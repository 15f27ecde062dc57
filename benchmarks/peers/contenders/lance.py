"""Lance, with a B-tree index on the key once there are rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from benchmarks.orders import SCHEMA
from benchmarks.peers.contenders import Group


class Orders:
    name = "Lance"
    durability = "nothing is synced: files survive a crash of the process, not of the machine"

    def __init__(self, folder: Path) -> None:
        place = folder / "orders.lance"
        known = place.exists()
        self._data = lance.dataset(place) if known else lance.write_dataset(SCHEMA.empty_table(), place)

    def create(self, rows: pa.RecordBatchReader) -> None:
        self._data.insert(rows)
        self._data.create_scalar_index("id", "BTREE")

    def insert(self, rows: list[dict[str, Any]]) -> None:
        self._data.insert(pa.Table.from_pylist(rows, SCHEMA))

    def get(self, key: int) -> dict[str, Any] | None:
        self._data.checkout_latest()
        found = self._data.to_table(filter=f"id = {key}").to_pylist()
        return found[0] if found else None

    def update(self, key: int, total: float) -> None:
        self._data.update({"total": repr(total)}, where=f"id = {key}")

    def delete(self, key: int) -> None:
        self._data.delete(f"id = {key}")

    def upsert(self, rows: pa.Table) -> None:
        self._data.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

    merge = upsert

    def by_city(self) -> list[Group]:
        self._data.checkout_latest()
        text = "select city, count(*) n, sum(quantity) q, sum(total) t from dataset group by city"
        rows = pa.Table.from_batches(self._data.sql(text).build().to_batch_records()).to_pylist()
        return [(r["city"], r["n"], r["q"], r["t"]) for r in rows]

    def close(self) -> None:
        pass
