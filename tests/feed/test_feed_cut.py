"""Portions of a feed: together they are the feed, each has both halves of an update, and they are of similar size."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.commits import row_changes
from indexlake.feed import cut
from indexlake.feed.plan import FeedPlan, plan_feed
from indexlake.feed.windows import Feed
from indexlake.schema import ROW_ID
from tests.feed.conftest import SCHEMA


def planned(t: il.Table, since: int, until: int, parallelism: int) -> tuple[list[FeedPlan], pa.Schema]:
    lake = t._lake
    with t._reading() as reading:
        fields = reading.schema.fields
        plan = plan_feed(reading, since, until, lake._files, fields)
        commits = list(row_changes(reading.transaction, t._table_id, since, until))
    return list(cut.cut(plan, commits, parallelism)), pa.schema([f.arrow() for f in fields])


def read(part: FeedPlan, schema: pa.Schema) -> list[dict[str, Any]]:
    return [row for batch in Feed(part, schema).batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("layout", ["heap", "clustered"])
def test_portions_are_of_similar_size_and_together_the_feed(
    lake: il.Lake, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "LEAST_CHANGES", 10)
    monkeypatch.setattr(cut, "MOST_CHANGES", 1_500)
    config = il.TableConfig(block_row_count=2_000, direct_write_row_count=1_000)
    t = lake.create_table("feed.cut", SCHEMA, "id", layout=layout, config=config)
    start = lake.snapshot_id
    ids = list(range(9_000))
    random.Random(4).shuffle(ids)
    t.insert(pa.table({"id": ids, "v": ids, "s": list(map(str, ids))}))
    t.update({"v": -1}, "id % 3 = 0")
    for n in range(40):
        t.insert([{"id": 10_000 + 100 * n + i, "v": 0, "s": "x"} for i in range(30)])
    until = lake.snapshot_id
    t.delete("true")
    expected = t.changes(start, until, with_row_id=True).to_pylist()
    parts, schema = planned(t, start, until, 1)
    found = [read(part, schema) for part in parts]
    key = repr
    assert sorted((c for part in found for c in part), key=key) == sorted(expected, key=key)
    assert len(found) >= len(expected) // 1_500
    assert max(map(len, found)) <= 2 * 1_500
    assert min(map(len, found[:-1])) > 100
    for part in found:
        kinds: dict[tuple[int, int], Counter[str]] = {}
        for change in part:
            kinds.setdefault((change["_snapshot_id"], change[ROW_ID]), Counter())[change["_change_type"]] += 1
        for each in kinds.values():
            assert each["update_preimage"] == each["update_postimage"]


def test_a_small_feed_is_one_portion_and_a_feed_without_changes_none(
    lake: il.Lake, new_table: Callable[..., il.Table]
) -> None:
    t = new_table(lake)
    start = lake.snapshot_id
    for n in range(30):
        t.insert({"id": n, "v": n, "s": "x"})
    t.delete("id < 10")
    assert len(planned(t, start, lake.snapshot_id, 16)[0]) == 1
    now = lake.snapshot_id
    lake.create_table("other", {"id": "int64"}).insert({"id": 1})
    assert planned(t, now, lake.snapshot_id, 16)[0] == []


def test_commits_report_how_many_rows_of_a_table_they_changed(
    lake: il.Lake, new_table: Callable[..., il.Table]
) -> None:
    t, other = new_table(lake), new_table(lake)
    start = lake.snapshot_id
    t.insert([{"id": n} for n in range(5)])
    other.insert({"id": 1})
    t.update({"v": 1}, "id < 2")
    t.add_column("more", "int64")
    with lake.transaction() as tx:
        tx.table(other.name).insert({"id": 2})
        tx.table(t.name).delete("id > 2")
        tx.table(t.name).insert({"id": 9})
    lake.pipeline(runner="threads").dump(t.name)
    t.truncate()
    with lake.catalog.read() as r:
        found = [commit[1:] for commit in row_changes(r, t._table_id, start, lake.snapshot_id)]
    assert found == [(5, 0, 0), (0, 2, 0), (1, 0, 2), (0, 0, 4)]
