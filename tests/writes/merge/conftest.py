"""Tables for the tests of merge and upsert."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.writes.merge.merging import SCHEMA, spread


@pytest.fixture
def make(module_lake: il.Lake) -> Callable[..., il.Table]:
    """Make a table; rows that are given lie in a Vortex block, a Parquet block and the hot store, in equal parts."""

    def table(schema: pa.Schema, key: Any = None, rows: Any = (), **options: Any) -> il.Table:
        defaults = options.pop("defaults", None)
        config = il.TableConfig(**{"dump_format": "vortex", **options})
        name = f"m.t{uuid.uuid4().hex[:12]}"
        t = module_lake.create_table(name, schema, primary_key=key, config=config, defaults=defaults)
        spread(module_lake, t, list(rows))
        return t

    return table


@pytest.fixture
def orders(make: Callable[..., il.Table]) -> il.Table:
    """Nine rows: 0 to 2 in a Vortex block, 3 to 5 in a Parquet block, 6 to 8 hot."""
    return make(SCHEMA, "id", [{"id": n, "v": n * 10, "s": "a"} for n in range(9)])
