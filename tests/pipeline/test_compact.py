"""Compact, freeze and thaw: which blocks they take, and that no answer changes."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.storage import faults
from tests.pipeline.job_tables import SCHEMA, blocks, content, expire_everything, in_blocks, rows, sizes, table


def compact(lake, **options):
    return lake.pipeline().compact("t", **options)["main.t"]


def test_small_blocks_become_full_ones_and_the_last_group_too(lake):
    t = in_blocks(table(lake), *[30] * 8)
    before = content(t)
    done = compact(lake)
    assert (done.blocks_before, done.blocks_after, done.rows) == (8, 3, 240)
    assert sizes(t) == [60, 90, 90]
    assert content(t) == before
    assert compact(lake).blocks_before == 0, "there is nothing left to do"


def test_full_blocks_and_a_lone_small_one_are_left_alone(lake):
    t = in_blocks(table(lake), 100, 60, 20)
    paths = {b.path for b in blocks(t)}
    assert compact(lake).blocks_before == 0
    assert {b.path for b in blocks(t)} == paths


def test_a_block_full_of_deleted_rows_is_written_anew(lake):
    t = in_blocks(table(lake), 100)
    t.delete("id < 19")
    assert compact(lake).blocks_before == 0, "few deleted rows are not worth it"
    t.delete("id = 19")
    before, then = content(t), lake.snapshot_id
    done = compact(lake)
    assert (done.blocks_before, done.blocks_after, done.rows) == (1, 1, 80)
    assert content(t) == before == content(t.at(then))
    assert t.stats().deleted_in_blocks == 0


def test_a_block_without_a_live_row_is_dropped(lake):
    t = in_blocks(table(lake), 50, 100)
    t.delete("id < 50")
    done = compact(lake)
    assert (done.blocks_before, done.blocks_after) == (1, 0)
    assert sizes(t) == [100]
    assert len(t) == 100


def test_the_block_of_a_dump_that_a_truncate_overtook_is_dropped(lake):
    t = table(lake)
    t.insert(rows(0, 9).to_pylist())

    def overtake(step):
        if step == "dump.written" and len(t):
            t.truncate()

    previous = faults.install(overtake)
    try:
        lake.pipeline().dump("t")
    finally:
        faults.install(previous)
    assert len(t) == 0
    assert sizes(t) == [9], "a live block whose rows are all dead"
    t.insert(rows(0, 5).to_pylist())
    done = compact(lake)
    assert (done.blocks_before, done.blocks_after, done.rows) == (1, 0, 0)
    assert sizes(t) == []
    assert [r["id"] for r in content(t)] == [0, 1, 2, 3, 4]


def test_blocks_of_one_format_stay_together(lake):
    t = in_blocks(table(lake), 20, 20)
    lake.pipeline().freeze("t")
    in_blocks(t, 20, 20, start=40)
    done = compact(lake)
    assert (done.blocks_before, done.blocks_after) == (4, 2)
    assert t.stats().by_format == {"parquet": 40, "vortex": 40}


def test_freeze_takes_what_is_old_enough_and_thaw_brings_parquet_back(lake):
    t = in_blocks(table(lake, dump_format="ipc"), 50, 50)
    before = content(t)
    p = lake.pipeline()
    assert p.freeze("t", older_than=timedelta(hours=1))["main.t"].blocks_before == 0
    assert p.freeze("t")["main.t"].blocks_after == 2
    assert t.stats().by_format == {"parquet": 100}
    in_blocks(t, 50, start=100)
    assert p.thaw("t")["main.t"].blocks_before == 2, "only what is Parquet"
    assert t.stats().by_format == {"vortex": 100, "ipc": 50}
    assert content(t)[:100] == before
    with pytest.raises(il.SchemaError, match="older_than must be a timedelta"):
        p.freeze("t", older_than=3600)


def test_rows_of_blocks_that_overlap_in_row_ids_are_merged_in_order(lake):
    """What a dump of updated rows leaves: versions of old rows among new ones."""
    t = in_blocks(table(lake, block=1000), 50, 50)
    t.update({"text": "new"}, "id % 3 = 0")
    t.insert(rows(100, 9).to_pylist())
    lake.pipeline().dump("t")
    t.update({"text": "newer"}, "id % 7 = 0")
    lake.pipeline().dump("t")
    before, then = content(t), lake.snapshot_id
    compact(lake)
    (block,) = blocks(t)
    assert block.record_count == 109
    assert content(t) == before == content(t.at(then))
    assert t.get(21)["text"] == "newer"
    expire_everything(lake)
    assert content(t) == before
    assert lake.pipeline().verify().ok


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_columns_with_small_dictionaries_and_views_and_nested_values_survive(lake, format):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.dictionary(pa.int8(), pa.string())),
            ("view", pa.string_view()),
            ("nested", pa.list_(pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]))),
        ]
    )
    config = il.TableConfig(block_row_count=2000, direct_write_row_count=10, dump_format=format)
    t = lake.create_table("t", schema, primary_key="id", config=config)
    for n in range(4):  # 400 values together: more than an int8 can number
        made = [
            {"id": 10 * i + n, "d": f"v{n}-{i}", "view": "x" * i, "nested": [{"a": f"w{n}-{i}"}, None]}
            for i in range(100)
        ]
        t.insert(pa.Table.from_pylist(made, schema))
    before = content(t)
    done = compact(lake)
    assert (done.blocks_before, done.blocks_after) == (4, 1)
    assert content(t) == before
    compact(lake, cluster_by=["d", "view"])
    t.delete("id = 0")
    compact(lake, cluster_by=["view"], order="zorder")
    assert content(t) == before[1:]
    assert t.scan().to_arrow().schema.types == schema.types


def test_keys_the_change_feed_and_row_ids_do_not_notice(lake):
    t = in_blocks(table(lake), *[30] * 4)
    t.update({"text": "new"}, "id < 10")
    t.delete("id = 50")
    first = 1
    feed = t.changes(first).to_arrow().to_pylist()
    located = {r["id"]: r["_indexlake_row_id"] for r in content(t)}
    compact(lake)
    lake.pipeline().freeze("t")
    compact(lake, cluster_by=["v"])
    assert t.changes(first, until=feed[-1]["_snapshot_id"]).to_arrow().to_pylist() == feed
    assert t.changes(feed[-1]["_snapshot_id"]).to_arrow().num_rows == 0, "jobs change nothing"
    assert {r["id"]: r["_indexlake_row_id"] for r in content(t)} == located
    with pytest.raises(il.DuplicateKeyError):
        t.insert({"id": 77, "v": 0, "text": ""})
    t.insert({"id": 50, "v": 0, "text": "again"})
    assert t.get(50)["text"] == "again"
    assert [s.operation for s in t.history()][-1] == "insert"


def test_a_table_without_a_key_is_compacted_too(lake):
    config = il.TableConfig(block_row_count=100, direct_write_row_count=10)
    t = lake.create_table("t", SCHEMA, config=config)
    in_blocks(t, 20, 20, 20)
    t.delete("v % 2 = 0")
    before = content(t)
    assert compact(lake).blocks_after == 1
    assert content(t) == before


def test_a_block_size_that_was_made_smaller_splits_what_is_rewritten(lake):
    t = in_blocks(table(lake, block=1000), 250)
    t.set_config(block_row_count=100)
    t.delete("id % 4 = 0")
    before = content(t)
    assert compact(lake).blocks_after == 2
    assert sizes(t) == [87, 100]
    assert content(t) == before
