"""Clustered tables on Spark: loads are sorted across tasks, reads follow the partitions, jobs run there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import indexlake as il
from indexlake.spark import portion

CONFIG = il.TableConfig(partition_row_count=1_000, direct_write_row_count=500)


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    return lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", layout="clustered", config=CONFIG)


def frame(spark: Any, rows: int) -> Any:
    """Keys in no order, over all partitions of the frame."""
    return spark.range(0, rows, 1, 4).selectExpr("(id * 7919) % 100003 id", "id v")


def live(lake: il.Lake, table: il.Table) -> list[Any]:
    state = lake._readings.latest(table._table_id)
    return sorted((b for b in state.blocks.records if b.end_snapshot is None), key=lambda b: b.first_key)


def test_a_frame_is_sorted_by_key_across_its_tasks(lake: il.Lake, table: il.Table, spark: Any) -> None:
    assert lake.pipeline(spark=spark).load(frame(spark, 10_000), "t").inserted == 10_000
    blocks = live(lake, table)
    assert all(a.last_key < b.first_key for a, b in pairwise(blocks))
    sizes = sorted(b.record_count for b in blocks)
    assert len(sizes) in range(8, 13)
    assert sizes[-1] <= 2 * sizes[len(sizes) // 2]
    assert {b.row_order for b in blocks} == {"row_id"}
    assert {(r["id"], r["v"]) for r in table.scan().to_pylist()} == {(n * 7919 % 100_003, n) for n in range(10_000)}
    assert not list(lake.storage.list(f"tables/{table._table_id}/stage"))
    assert lake.pipeline(spark=spark).verify().ok


def test_a_key_that_a_frame_has_twice_is_refused_and_named(lake: il.Lake, table: il.Table, spark: Any) -> None:
    twice = frame(spark, 3_000).union(spark.range(1).selectExpr("7919 id", "-1 v"))
    with pytest.raises(il.ConstraintError, match="7919"):
        lake.pipeline(spark=spark).load(twice, "t")
    assert len(table) == 0


@pytest.mark.inline_only("another process reads, and sees the last checkpoint")
def test_reads_follow_the_partitions(
    lake: il.Lake, table: il.Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portion, "LEAST_BYTES", 1 << 20)
    pipeline = lake.pipeline(spark=spark)
    pipeline.load(frame(spark, 10_000), "t")
    pipeline.run("t")
    table.insert([{"id": 200_000 + n, "v": n} for n in range(600)])  # a delta
    table.insert({"id": 300_000, "v": 0})  # a hot row, which comes last
    table.delete("id < 1000")
    expected = sorted(table.scan().to_arrow()["id"].to_pylist())
    found = table.to_spark(spark=spark, columns=["id"])
    parts = [sorted(row.id for row in part) for part in found.rdd.glom().collect() if part]
    assert sorted(n for part in parts for n in part) == expected
    assert len(parts) > 1
    assert all(a[-1] < b[0] for a, b in pairwise(parts)), "tasks are in key order, a partition in one of them"
    read = spark.read.format("indexlake").option("table", "t").load(str(lake.catalog.location).rsplit("/", 1)[0])
    assert sorted(row.id for row in read.collect()) == expected


def test_a_table_is_clustered_and_frozen_on_spark(lake: il.Lake, spark: Any) -> None:
    table = lake.create_table("heap", {"id": "int64", "v": "int64"}, primary_key="id", config=CONFIG)
    pipeline = lake.pipeline(spark=spark)
    pipeline.load(frame(spark, 5_000), "heap")
    before = sorted(table.to_spark(spark=spark).collect())
    lake.cluster_table("heap")  # on the session that is active
    assert lake._readings.latest(table._table_id).table.layout == "clustered"
    assert sorted(table.to_spark(spark=spark).collect()) == before
    pipeline.freeze("heap")
    assert {b.format for b in live(lake, table)} == {"parquet"}
    assert sorted(table.to_spark(spark=spark).collect()) == before


def test_units_stay_whole_and_in_order() -> None:
    units = [[(40, f"{n}a"), (2, f"{n}b")] for n in range(20)]
    found = portion.groups_in_order([[(c << 20, p) for c, p in unit] for unit in units], 4)
    assert [p for group in found for p in group] == [p for unit in units for _, p in unit]
    assert len(found) == 8
    assert {len(group) for group in found} <= {4, 6}
