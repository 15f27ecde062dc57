"""Tables to load into, and a way to see that a load which failed changed nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("code", pa.string()),
        pa.field("size", pa.int8()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.fixture
def t(lake: il.Lake) -> il.Table:
    return lake.create_table("parts", SCHEMA, primary_key="id", defaults={"size": 5})


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Text is read in blocks of so many bytes, so that a short file has several."""
    size = 64 << 10
    monkeypatch.setattr("indexlake.sources.csv.BLOCK_BYTES", size)
    monkeypatch.setattr("indexlake.sources.json.BLOCK_BYTES", size)
    return size


@pytest.fixture
def refused(lake: il.Lake, t: il.Table) -> Callable[..., Any]:
    """Inserting the source raises that error, and the lake is as it was."""

    def refused(source: Any, kind: type[il.IndexLakeError], *texts: str) -> Any:
        before, rows, tables = lake.snapshot_id, t.scan().to_pylist(), lake.tables()
        with pytest.raises(kind) as caught:
            t.insert(source)
        for text in texts:
            assert text in str(caught.value)
        assert (lake.snapshot_id, t.scan().to_pylist(), lake.tables()) == (before, rows, tables)
        return caught.value

    return refused
