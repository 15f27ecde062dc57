"""Jobs that write blocks anew keep the rows of a clustered table where they belong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.support.partitions import range_problems

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


@pytest.fixture
def t(lake: il.Lake) -> il.Table:
    """Two partitions with data, deltas and hot rows."""
    config = il.TableConfig(direct_write_row_count=10, block_row_count=100)
    t = lake.create_table("t", SCHEMA, primary_key="id", layout="clustered", config=config)
    t.insert(pa.table({"id": range(39, -1, -1), "v": range(40)}, SCHEMA))
    lake.pipeline(runner="threads").merge("t")
    lake.pipeline(runner="threads").split("t", at=20)
    t.insert(pa.table({"id": range(69, 9, -1)[:30], "v": range(30)}, SCHEMA))
    t.update({"v": -1}, "id in (3, 33)")
    return t


def sound(t: il.Table, rows: Any) -> None:
    lake = t._lake
    assert sorted(t.scan().to_pylist(), key=lambda r: r["id"]) == rows
    assert [t.get(r["id"]) for r in rows] == rows
    assert not list(range_problems(lake, t._table_id, [lake.snapshot_id]))
    assert lake.pipeline().verify("t").ok


@pytest.mark.parametrize("jobs", [["dump"], ["compact"], ["merge"], ["dump", "freeze"], ["merge", "freeze", "thaw"]])
def test_a_job_leaves_rows_sorted_and_in_their_partitions(t: il.Table, jobs: list[str]) -> None:
    rows = t.scan(order_by="id").to_pylist()
    for job in jobs:
        getattr(t._lake.pipeline(runner="threads"), job)("t")
        sound(t, rows)


def test_rows_of_a_clustered_table_are_not_ordered_by_other_columns(t: il.Table) -> None:
    rows = t.scan(order_by="id").to_pylist()
    with pytest.raises(il.SchemaError, match="primary key"):
        t._lake.pipeline(runner="threads").compact("t", cluster_by=["v"])
    sound(t, rows)


def test_a_bound_at_the_smallest_of_all_keys_divides_nothing(lake: il.Lake) -> None:
    schema = pa.schema([pa.field("k", pa.string(), False), pa.field("v", pa.int64())])
    t = lake.create_table("t", schema, primary_key="k", layout="clustered")
    p = lake.pipeline(runner="threads")
    for key in ("", "b", "", "a\0", "a"):
        p.split("t", at=key)
    t.insert([{"k": k, "v": n} for n, k in enumerate(["b", "a\0b", "", "a", "zz", "a\0"])])
    p.dump("t")
    sound_keys = sorted(r["k"] for r in t.scan().to_pylist())
    assert sound_keys == ["", "a", "a\0", "a\0b", "b", "zz"]
    assert not list(range_problems(lake, t._table_id, [lake.snapshot_id]))
    p.merge("t")
    assert not list(range_problems(lake, t._table_id, [lake.snapshot_id]))
    assert [t.get(k)["v"] for k in ("", "zz", "a\0")] == [2, 4, 5]  # type: ignore[index]
