"""``t.changes(…).to_spark()``: the same changes as without Spark, however the feed is cut."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.feed import cut

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
