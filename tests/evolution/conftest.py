"""Lakes for the tests of altered tables, on both catalogs and without background work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("v", pa.int32()),
        pa.field("note", pa.string()),
        pa.field("address", pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])),
    ]
)


Fill = Callable[..., il.Table]


@pytest.fixture
def fill() -> Fill:
    """A table with rows in every place: history, blocks written by a dump and directly, and hot ones."""

    def make(lake: il.Lake, name: str = "t", *, format: str = "vortex", key: str | None = "id") -> il.Table:
        config = il.TableConfig(dump_format=format, direct_write_row_count=20, block_row_count=500)
        t = lake.create_table(name, SCHEMA, primary_key=key, config=config)
        t.insert([row(n) for n in range(10)])
        t.update({"note": "changed"}, where="id = 1")
        lake.pipeline().dump(name)
        t.insert(pa.Table.from_pylist([row(n) for n in range(10, 40)], SCHEMA))
        t.insert([row(n) for n in range(40, 50)])
        t.delete("id in (2, 12, 42)")
        return t

    return make


def row(n: int) -> dict[str, Any]:
    note = None if n % 4 == 0 else f"note {n}"
    address = None if n % 5 == 0 else {"city": f"city {n % 3}", "zip": 10_000 + n}
    return {"id": n, "v": None if n % 7 == 6 else n, "note": note, "address": address}


def rows(t: il.Table, **options: Any) -> list[dict[str, Any]]:
    return sorted(t.scan(**options).to_pylist(), key=lambda found: found["id"])
