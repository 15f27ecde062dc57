"""Loading into lakes of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.sources.test_load_files import written


@pytest.mark.parametrize(
    ("database", "storage"), [("memory", "memory"), ("sqlite", "s3"), ("postgres", "local"), ("postgres", "s3")]
)
def test_files_load_into_every_kind_of_lake(new_address: Any, tmp_path: Path, database: str, storage: str):
    rows = pa.table({"id": range(12_000), "code": [f"{n:05}" for n in range(12_000)]})
    with new_address(database, storage).connect(automatic=False) as lake:
        t = lake.create_table("large", written(tmp_path, rows, "csv"), primary_key="id")
        assert t.schema == pa.schema([pa.field("id", pa.int64(), False), pa.field("code", pa.string())])
        assert (t.stats().hot_rows, t.stats().blocks) == (0, 1)
        few = written(tmp_path, pa.table({"ID": [20_000, 20_001]}), "jsonl")
        assert t.insert(few).rows == 2
        assert t.get(11_999) == {"id": 11_999, "code": "11999"}
        assert len(t) == 12_002
        with pytest.raises(il.DuplicateKeyError):
            t.insert(few)
        assert len(t) == 12_002
