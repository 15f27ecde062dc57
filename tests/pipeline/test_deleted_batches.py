"""Jobs on blocks in which whole batches of rows are deleted, few as they are among all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.formats import ipc, parquet
from indexlake.scan import execute

JOBS: dict[str, Callable[[il.Pipeline], Any]] = {
    "freeze": lambda p: p.freeze("t"),
    "thaw": lambda p: p.thaw("t"),
    "compact": lambda p: p.compact("t"),
    "cluster": lambda p: p.compact("t", cluster_by=["part"]),
}


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
@pytest.mark.parametrize("job", JOBS)
def test_a_job_reads_past_batches_that_are_deleted_whole(
    lake: il.Lake, monkeypatch: pytest.MonkeyPatch, job: str, format: str
) -> None:
    monkeypatch.setattr(execute, "BATCH_ROWS", 40)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 40)
    monkeypatch.setattr(ipc, "BATCH_ROWS", 20)
    config = il.TableConfig(direct_write_row_count=5, block_row_count=4_000, dump_format=format)
    t = lake.create_table("t", {"id": "int64", "part": "int64"}, config=config)
    for first, rows in ((0, 800), (800, 50)):
        numbers = range(first, first + rows)
        t.insert(pa.table({"id": pa.array(numbers), "part": pa.array([n % 7 for n in numbers])}))
    t.delete("id < 20 or id between 40 and 79")
    expected = [n for n in range(850) if n >= 80 or 20 <= n < 40]
    assert t.scan(columns=["id"]).to_arrow()["id"].to_pylist() == expected
    JOBS[job](lake.pipeline(runner="threads"))
    assert sorted(t.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == expected
    assert t.scan("part = 3").count() == sum(n % 7 == 3 for n in expected)
