"""Clustering: blocks cover narrow ranges of the columns, and nothing else changes."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.partitions import runs
from indexlake.pipeline import cluster as cluster_module
from indexlake.pipeline.curve import Curve, comparable, cuts
from indexlake.schema import Field
from indexlake.storage import faults
from tests.pipeline.job_tables import blocks, content, files, in_blocks, sizes, table

WIDE = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("s", pa.string()), ("f", pa.float64())])


def wide(lake, count=4000, block=200):
    chance = random.Random(7)
    config = il.TableConfig(block_row_count=block, direct_write_row_count=10)
    t = lake.create_table("w", WIDE, primary_key="id", config=config)
    made = [
        {
            "id": n,
            "a": chance.choice((None, chance.randrange(1000))),
            "s": None if n % 97 == 0 else f"customer-{chance.randrange(500):04d}",
            "f": chance.choice((float("nan"), -0.0, float("inf"), chance.gauss(0, 1))),
        }
        for n in range(count)
    ]
    for start in range(0, count, block):
        t.insert(pa.Table.from_pylist(made[start : start + block], WIDE))
    return t


def read_blocks(t, where):
    return sum(line.startswith("    ") for line in str(t.scan(where).explain()).splitlines())


def same(t, before):
    return repr(content(t)) == repr(before)  # NaN is not equal to itself


def test_sorted_by_a_column_each_block_covers_a_narrow_range_of_it(lake):
    t = wide(lake)
    before = content(t)
    assert read_blocks(t, "a = 500") == 20
    done = lake.pipeline().compact("w", cluster_by=["A"])["main.w"]
    assert (done.blocks_before, done.rows) == (20, 4000)
    assert 18 <= done.blocks_after <= 22
    assert same(t, before)
    assert read_blocks(t, "a = 500") <= 2
    assert read_blocks(t, "a is null") <= 12, "half of the rows have none"
    assert min(sizes(t)) >= 100, "blocks are about full"
    for block in blocks(t):
        assert block.row_order == "row_id"
    assert lake.pipeline().verify().ok


def test_interleaved_columns_prune_by_each_of_them(lake):
    t = wide(lake, 3200, block=100)
    before = content(t)
    lake.pipeline().compact("w", cluster_by=["s", "f"], order="zorder")
    assert same(t, before)
    assert read_blocks(t, "s = 'customer-0250'") <= 12 < len(blocks(t)) / 2
    assert read_blocks(t, "f between 0.1 and 0.11") <= 12
    assert read_blocks(t, "s = 'customer-0250' and f between 0.1 and 0.11") <= 3
    lake.pipeline().compact("w", cluster_by=["s", "f"])
    assert read_blocks(t, "s = 'customer-0250'") <= 2
    assert read_blocks(t, "f between 0.1 and 0.11") > 16, "the second column counts where the first is equal"


def test_many_equal_values_are_cut_by_row_id_into_full_blocks(lake):
    t = in_blocks(table(lake), *[50] * 12)
    t.update({"v": 5}, "id >= 0")
    lake.pipeline().dump("t")
    before = content(t)
    lake.pipeline().compact("t", cluster_by=["v"])
    assert sizes(t) == [100] * 6
    bounds = sorted((b.min_row_id, b.max_row_id) for b in blocks(t))
    assert all(high < low for (_, high), (low, _) in pairwise(bounds))
    assert content(t) == before


def test_changes_that_land_while_rows_are_re_distributed_are_carried_over(lake):
    t = in_blocks(table(lake), *[50] * 10)
    t.delete("id < 20")

    def meddle(step):
        if step == "rewrite.written":
            faults.install(None)
            t.update({"text": "meanwhile"}, "id % 10 = 3")
            t.delete("id % 10 = 4")
            lake.pipeline().dump("t")
            t.insert({"id": 4, "v": 1, "text": "new"})

    faults.install(meddle)
    try:
        lake.pipeline().compact("t", cluster_by=["v"])
    finally:
        faults.install(None)
    found = {r["id"]: r["text"] for r in content(t)}
    assert found[4] == "new"
    assert sorted(found) == [4, *(n for n in range(20, 500) if n % 10 != 4)]
    assert {n for n, text in found.items() if text == "meanwhile"} == {n for n in range(20, 500) if n % 10 == 3}
    assert t.get(23)["text"] == "meanwhile"
    assert lake.pipeline().verify().ok


def test_inputs_that_another_job_replaced_are_planned_again(lake):
    t = in_blocks(table(lake), *[50] * 6)
    before = content(t)

    def meddle(step):
        if step == "rewrite.written":
            faults.install(None)
            lake.pipeline().freeze("t")

    faults.install(meddle)
    try:
        done = lake.pipeline().compact("t", cluster_by=["v"])["main.t"]
    finally:
        faults.install(None)
    assert done.blocks_before == 6
    assert t.stats().by_format == {"parquet": 300}
    assert content(t) == before


def test_a_truncate_meanwhile_wins(lake):
    t = in_blocks(table(lake), *[50] * 4)

    def meddle(step):
        if step == "rewrite.written":
            faults.install(None)
            t.truncate()

    faults.install(meddle)
    try:
        assert lake.pipeline().compact("t", cluster_by=["v"])["main.t"].rows == 0
    finally:
        faults.install(None)
    assert len(t) == 0


def test_large_tables_go_through_in_groups_of_neighbours_and_in_runs(lake, monkeypatch):
    monkeypatch.setattr(cluster_module, "MOST_TOGETHER", 4)
    monkeypatch.setattr(runs, "RUN_BYTES", 1000)
    t = in_blocks(table(lake), *[100] * 12)
    before = content(t)
    done = lake.pipeline().compact("t", cluster_by=["id"])["main.t"]
    assert done.blocks_before == 12
    assert content(t) == before
    assert read_blocks(t, "id = 777") == 1
    assert len({b.begin_snapshot for b in blocks(t)}) == 3


def test_nothing_staged_is_left_behind(lake):
    in_blocks(table(lake), *[50] * 4)
    lake.pipeline().compact("t", cluster_by=["v"])
    assert not [f for f in files(lake) if "/stage/" in f]
    assert lake.pipeline().vacuum().files == 0


def test_what_cannot_be_clustered_by_is_refused_and_nothing_changes(lake):
    t = in_blocks(table(lake), 50, 50)
    lake.create_table("n", pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int64()))]))
    p = lake.pipeline()
    last = lake.snapshot_id
    for match, call in {
        "There is no column 'w'. Did you mean 'v'|There is no column": lambda: p.compact("t", cluster_by=["w"]),
        "a list of one to 8 columns": lambda: p.compact("t", cluster_by=[]),
        "a list of one to 8 columns, not 'v'": lambda: p.compact("t", cluster_by="v"),
        "names column 'v' twice": lambda: p.compact("t", cluster_by=["v", "V"]),
        "order='hilbert' is not known": lambda: p.compact("t", cluster_by=["v"], order="hilbert"),
        "give cluster_by": lambda: p.compact("t", order="zorder"),
        "give its name too": lambda: p.compact(cluster_by=["v"]),
        "has no order": lambda: p.compact("n", cluster_by=["l"]),
    }.items():
        with pytest.raises(il.SchemaError, match=match):
            call()
    assert lake.snapshot_id == last
    assert sizes(t) == [50, 50]


def test_ranks_give_columns_the_same_weight_whatever_their_values():
    """One column has two values, the other a thousand: both decide."""
    fields = (Field(0, "few", pa.string(), True, None, None), Field(1, "many", pa.int64(), True, None, None))
    chance = np.random.default_rng(3)
    few = pa.array(np.where(chance.random(5000) < 0.5, "a", "b"))
    many = pa.array(chance.integers(0, 10**15, 5000))
    columns = [comparable(f, c) for f, c in zip(fields, (few, many), strict=True)]
    curve = Curve.through(fields, "zorder", columns)
    codes = curve.codes(columns)
    buckets = np.searchsorted(cuts(codes, 16), codes, side="right")
    assert min(np.bincount(buckets)) > 200
    assert max(np.bincount(buckets)) < 450
    mixed = sum(len(set(np.asarray(few)[buckets == n])) == 2 for n in range(16))
    assert mixed <= 1, "a bucket has one value of the first column"
    spread = [np.ptp(np.asarray(many)[buckets == n]) for n in range(16)]
    assert np.median(spread) < 0.2 * 10**15
