"""Freezing clustered tables: data blocks become Parquet, sorted by key and in their partitions, and back."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.pipeline import rewrite
from tests.pipeline.test_cluster_table import calling

CONFIG = il.TableConfig(partition_row_count=1_000, direct_write_row_count=500)


@pytest.fixture
def t(lake):
    t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", layout="clustered", config=CONFIG)
    ids = np.random.default_rng(1).permutation(5_000)
    t.insert(pa.table({"id": ids, "v": ids}))
    lake.pipeline().merge("t")
    t.delete("id between 100 and 199")
    return t


def live(lake, t, role):
    state = lake._readings.latest(t._table_id)
    found = [b for b in state.blocks.records if b.end_snapshot is None and b.role == role]
    return sorted(found, key=lambda b: b.first_key)


def contents(t):
    return sorted(tuple(row.values()) for row in t.scan().to_arrow().to_pylist())


def test_data_blocks_become_parquet_sorted_by_key_and_back(lake, t):
    t.insert(pa.table({"id": range(10_000, 11_000), "v": range(1_000)}))  # a delta stays as it is
    before, ranges = contents(t), lake._readings.latest(t._table_id).ranges
    warm = live(lake, t, "data")
    assert len(warm) > 2
    lake.pipeline().freeze("t")
    cold = live(lake, t, "data")
    assert [(b.partition_id, b.format) for b in cold] == [(b.partition_id, "parquet") for b in warm]
    assert [b.format for b in live(lake, t, "delta")] == ["ipc"]
    for block in cold:
        assert block.path.endswith(".data.parquet")
        keys = pq.read_table(f"{lake.storage.root}/{block.path}").column(0).to_numpy()
        assert (np.diff(keys) > 0).all()
        assert ranges.by_id[block.partition_id].holds(block.first_key, block.last_key)
    assert contents(t) == before
    assert t.get(150) is None
    assert t.get(250) == {"id": 250, "v": 250}
    t.update({"v": -5}, "id = 250")
    assert t.get(250)["v"] == -5
    assert not lake.pipeline().verify("t").problems
    lake.pipeline().thaw("t")
    assert [(b.partition_id, b.format) for b in live(lake, t, "data")] == [(b.partition_id, "ipc") for b in warm]
    assert len(contents(t)) == len(before)
    assert not lake.pipeline().verify("t").problems


def test_a_merge_reads_frozen_blocks(lake, t):
    lake.pipeline().freeze("t")
    before = contents(t)
    t.insert(pa.table({"id": range(100, 200), "v": range(100)}))
    lake.pipeline().dump("t")
    lake.pipeline().merge("t")
    assert len(contents(t)) == len(before) + 100
    assert not lake.pipeline().verify("t").problems


def test_a_block_with_young_rows_is_not_frozen(lake, t):
    assert lake.pipeline().freeze("t", older_than=timedelta(hours=1))["main.t"].blocks_before == 0


def test_a_block_of_which_no_row_is_left_goes(lake, t):
    t.delete("true")
    lake.pipeline().freeze("t")
    assert live(lake, t, "data") == []
    assert contents(t) == []


def test_a_block_that_was_relabelled_meanwhile_keeps_its_new_partition(lake, t):
    """As when a cut gives the partition of a block another number."""
    from tests.pipeline.test_clustered_load import divide

    lake.pipeline().freeze("t")
    lake.pipeline().thaw("t")
    before = contents(t)
    bounds = [b.first_key for b in live(lake, t, "data")[1:]]
    done = []

    def meanwhile(step):
        if step == "rewrite.written" and not done:
            done.append(step)
            divide(lake, t, bounds)

    with calling(meanwhile):
        lake.pipeline().freeze("t")
    assert done
    ranges = lake._readings.latest(t._table_id).ranges
    frozen = live(lake, t, "data")
    assert {b.format for b in frozen} == {"parquet"}
    assert [b.partition_id for b in frozen] == [p.partition_id for p in ranges.live]
    assert contents(t) == before
    assert not lake.pipeline().verify("t").problems


def test_a_job_of_the_heap_does_not_commit_to_a_clustered_table(lake):
    """Its plan was made for the other layout."""
    t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", config=CONFIG)
    t.insert(pa.table({"id": range(2_000), "v": range(2_000)}))
    plan = rewrite.plan(lake, t._table_id, lambda state, at: [([b], "parquet") for b in state.blocks.records])
    lake.cluster_table("t")
    with rewrite.Job(lake, "freeze", t._table_id) as job:
        done = [(task, rewrite.run_task(lake.storage, task, job.check)) for task in plan]
        assert rewrite.commit(job, done) == []
    assert len(contents(t)) == 2_000
