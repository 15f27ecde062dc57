"""``t.changes(…).to_spark()``: the same changes as without Spark, however the feed is cut."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.clock import now
from indexlake.feed import cut
from tests.support.lakes import clock_of

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.int32()), ("s", pa.string()), ("d", pa.dictionary(pa.int32(), pa.string()))]
)
CONFIG = il.TableConfig(block_row_count=400, direct_write_row_count=300)


def rows(first: int, count: int, v: int = 0) -> list[dict[str, Any]]:
    return [{"id": n, "v": v, "s": f"s{n}", "d": f"d{n % 3}"} for n in range(first, first + count)]


def in_order(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(changes, key=lambda c: (c["_snapshot_id"], c["_change_type"], c["_indexlake_row_id"]))


def by_spark(feed: Any, spark: Any) -> list[dict[str, Any]]:
    return in_order([row.asDict() for row in feed.to_spark(spark).collect()])


def portions(frame: Any) -> int:
    return int(frame.rdd.getNumPartitions())


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "LEAST_CHANGES", 100)
    monkeypatch.setattr(cut, "MOST_CHANGES", 150)


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("layout", ["heap", "clustered"])
@pytest.mark.parametrize("sent", ["inside", "in files"])
def test_a_feed_on_spark_is_the_feed(
    lake: il.Lake, spark: Any, layout: str, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large commits and small ones, hot rows and blocks, before and after jobs; many portions or few."""
    if sent == "in files":
        monkeypatch.setattr("indexlake.spark.portion.HOT_BYTES", 200)
    t = lake.create_table("feed.t", SCHEMA, primary_key="id", layout=layout, config=CONFIG)
    start = lake.snapshot_id
    chance = random.Random(layout)
    shuffled = rows(0, 1000)
    chance.shuffle(shuffled)
    t.insert(shuffled)
    t.update({"v": 1}, "id % 2 = 0")
    for n in range(30):
        t.insert(rows(2000 + 10 * n, 10))
    t.upsert(rows(900, 900, 7))
    t.delete("id % 7 = 0")
    for n in range(5):
        t.update({"v": 100 + n}, "id = 1")

    def compare() -> None:
        feed = t.changes(start, with_row_id=True)
        expected = in_order(feed.to_pylist())
        assert len(expected) > 3000
        frame = feed.to_spark(spark)
        assert portions(frame) > 10
        assert in_order([row.asDict() for row in frame.collect()]) == expected
        some = t.changes(
            start + 2, start + 25, with_row_id=True, columns=["s"], where="_change_type <> 'delete' and v < 5"
        )
        assert by_spark(some, spark) == in_order(some.to_pylist())

    compare()
    p = lake.pipeline(runner="threads")
    p.dump("feed.t")
    t.update({"v": 5}, "id % 3 = 0")
    t.delete("id > 1500")
    compare()
    p.dump("feed.t")
    p.compact("feed.t") if layout == "heap" else p.merge("feed.t")
    compare()


def test_a_small_feed_is_one_portion_and_an_empty_one_none(lake: il.Lake, spark: Any) -> None:
    t = lake.create_table("feed.t", SCHEMA, primary_key="id", config=CONFIG)
    start = lake.snapshot_id
    for n in range(20):
        t.insert(rows(100 * n, 50))
    frame = t.changes(start).to_spark(spark)
    assert frame.columns == [*SCHEMA.names, "_change_type", "_snapshot_id"]
    assert (portions(frame), frame.count()) == (1, 1000)
    nothing = t.changes(lake.snapshot_id, columns=["id"]).to_spark(spark)
    assert nothing.columns == ["id", "_change_type", "_snapshot_id"]
    assert nothing.collect() == []


def test_a_feed_stays_readable_while_the_lake_is_open(lake: il.Lake, spark: Any) -> None:
    t = lake.create_table("feed.t", SCHEMA, primary_key="id", config=CONFIG)
    start = lake.snapshot_id
    t.insert(rows(0, 400))
    t.update({"v": 3}, "id < 10")
    feed = t.changes(start, with_row_id=True)
    expected, frame = in_order(feed.to_pylist()), feed.to_spark(spark)
    t.set_config(retention=timedelta(0))
    t.delete("id > 5")
    p = lake.pipeline(runner="threads")
    with clock_of(lake).stopped(now() + 3600 * 1_000_000):
        p.run()
        p.vacuum(dry_run=False, grace=timedelta(0))
    assert in_order([row.asDict() for row in frame.collect()]) == expected
    assert by_spark(t.changes(start, with_row_id=True), spark)[: len(expected)] == expected


def test_what_spark_cannot_read_is_refused(lake: il.Lake, spark: Any) -> None:
    t = lake.create_table("feed.t", {"id": "int64", "many": "decimal256(50, 2)"})
    start = lake.snapshot_id
    t.insert({"id": 1})
    with pytest.raises(il.SchemaError, match=r"'many' of type .* has 50 digits"):
        t.changes(start).to_spark(spark)
    assert t.changes(start, columns=["id"]).to_spark(spark).count() == 1
    with lake.transaction() as tx, pytest.raises(il.OwnershipError, match="does not work inside a transaction"):
        tx.table("feed.t").changes(start).to_spark(spark)
    with il.connect(":memory:") as other:
        memory = other.create_table("t", {"id": "int64"})
        with pytest.raises(il.JobError, match="Files in memory cannot be reached by Spark"):
            memory.changes(0).to_spark(spark)
