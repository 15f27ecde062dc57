"""Lakes for the change feed: every catalog, tables of every block format."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64(), "s": pa.string()})


@pytest.fixture
def new_table() -> Callable[..., il.Table]:
    def make(lake: il.Lake, schema: Any = SCHEMA, primary_key: Any = "id", **options: Any) -> il.Table:
        config = il.TableConfig(**{"block_row_count": 100, **options})  # five rows are no small block then
        return lake.create_table(f"feed.t{uuid.uuid4().hex[:12]}", schema, primary_key, config=config)

    return make
