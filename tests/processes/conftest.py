from __future__ import annotations

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string())])


@pytest.fixture
def filled_lake(lake: il.Lake) -> il.Lake:
    """A lake with one table: a block, another block, and hot rows."""
    config = il.TableConfig(direct_write_row_count=1000, block_row_count=50_000)
    t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
    for first in (0, 2000):
        ids = range(first, first + 2000)
        t.insert(pa.table({"id": ids, "name": [f"n{i}" for i in ids]}))
    t.insert([{"id": 10_000 + i, "name": "hot"} for i in range(10)])
    return lake
