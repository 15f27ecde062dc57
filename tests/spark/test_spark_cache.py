"""The local cache on Spark: the workers of a host share it with each other and with the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.spark.request import Request
from tests.support.flaky_proxy import FlakyProxy
from tests.support.servers import S3Server

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
ROWS = pa.table({"id": range(4000), "text": [f"row {n}" for n in range(4000)]}, SCHEMA)


@pytest.fixture
def address(s3: S3Server, proxy: FlakyProxy, tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "catalog": str(tmp_path / "lake"),
        "storage_options": {**s3.options, "endpoint": proxy.endpoint},
    }
    with il.connect(storage=f"s3://{s3.bucket()}/p", automatic=False, **found) as lake:
        config = il.TableConfig(block_row_count=1000, direct_write_row_count=10)
        lake.create_table("t", SCHEMA, primary_key="id", config=config).insert(ROWS)
    return found


def test_workers_share_the_cache_with_each_other_and_with_the_driver(
    address: dict[str, Any], proxy: FlakyProxy, tmp_path: Path, spark: Any
) -> None:
    cache = tmp_path / "cache"
    with il.connect(**address, cache_dir=cache, automatic=False) as lake:
        t = lake.table("t")
        assert t.to_spark(spark).toArrow().sort_by("id").column("id").to_pylist() == list(range(4000))
        assert len(list(cache.rglob("*.chunk"))) == 4, "the workers fetched one chunk of each block"
        before = len(proxy.requests)
        assert t.to_spark(spark).count() == 4000
        assert t.scan(order_by="id").to_arrow() == ROWS
        assert proxy.requests[before:] == []
        found = t.stats().cache
        assert found is not None
        assert (found.hits, found.misses) == (4, 0), "the driver found what the workers had fetched"


def test_the_data_source_takes_the_cache_as_options(address: dict[str, Any], tmp_path: Path, spark: Any) -> None:
    options = {f"storage.{name}": value for name, value in address["storage_options"].items()}
    options |= {"table": "t", "cache_dir": str(tmp_path / "cache"), "cache_bytes": str(1 << 30)}
    assert spark.read.format("indexlake").options(**options).load(address["catalog"]).count() == 4000
    assert len(list((tmp_path / "cache").rglob("*.chunk"))) >= 4
    with pytest.raises(il.SchemaError, match="'cache_bytes' is a whole number of bytes, not '1 GB'"):
        Request.of({"path": "x", "table": "t", "cache_bytes": "1 GB"})
