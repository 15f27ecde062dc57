"""Lakes for the change feed: every catalog, tables of every block format."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64(), "s": pa.string()})


@pytest.fixture(scope="session")
def feed_lakes(new_address: Any) -> Iterator[Callable[[str], il.Lake]]:
    made: dict[str, il.Lake] = {}

    def lake(database: str) -> il.Lake:
        if database not in made:
            made[database] = new_address(database).connect(automatic=False)
        return made[database]

    yield lake
    for opened in made.values():
        opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, feed_lakes: Any) -> il.Lake:
    return feed_lakes(request.param)  # type: ignore[no-any-return]


@pytest.fixture
def local(feed_lakes: Any) -> il.Lake:
    """For what does not depend on the catalog."""
    return feed_lakes("sqlite")  # type: ignore[no-any-return]


@pytest.fixture
def new_table() -> Callable[..., il.Table]:
    def make(lake: il.Lake, schema: Any = SCHEMA, primary_key: Any = "id", **options: Any) -> il.Table:
        config = il.TableConfig(**{"block_row_count": 100, **options})  # five rows are no small block then
        return lake.create_table(f"feed.t{uuid.uuid4().hex[:12]}", schema, primary_key, config=config)

    return make
