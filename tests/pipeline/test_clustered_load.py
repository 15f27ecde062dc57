"""Bulk loads of clustered tables: sorted by key, in blocks that do not overlap, each about as large as a partition."""

from __future__ import annotations

import uuid
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.partitions import runs
from indexlake.pipeline import file_tasks, load

ROWS = 40_000
PARTITION = 4_000


@pytest.fixture(autouse=True)
def small_runs(monkeypatch):
    """Everything that takes many bytes takes few."""
    monkeypatch.setattr(runs, "RUN_BYTES", 100_000)
    monkeypatch.setattr(runs, "PIECE_BYTES", 2_000)
    monkeypatch.setattr(file_tasks, "TASK_BYTES", 40_000)
    monkeypatch.setattr(load, "FEW_BYTES", 0)


def make(lake, name="t", key="int64", **config):
    settings = {"partition_row_count": PARTITION, "direct_write_row_count": 100} | config
    return lake.create_table(
        name, {"id": key, "v": "int64"}, primary_key="id", layout="clustered", config=il.TableConfig(**settings)
    )


def live(lake, t):
    state = lake._readings.latest(t._table_id)
    return sorted((b for b in state.blocks.records if b.end_snapshot is None), key=lambda b: b.first_key)


def check_blocks(lake, t, rows):
    """Sorted, inside their bounds, without overlap, and of about one size."""
    blocks = live(lake, t)
    assert sum(b.record_count for b in blocks) == rows
    assert all(a.last_key < b.first_key for a, b in pairwise(blocks)), "they overlap"
    sizes = sorted(b.record_count for b in blocks)
    assert sizes[-1] <= 3 * sizes[len(sizes) // 2]
    assert sizes[-1] <= 2 * PARTITION
    return blocks


def keys_of(kind, rows=ROWS):
    chance = np.random.default_rng(7)
    if kind == "random":
        return chance.permutation(rows * 5)[:rows]
    if kind == "sorted":
        return np.arange(rows) * 3
    if kind == "falling":
        return np.arange(rows)[::-1] * 3
    if kind == "shards":  # each of them sorted, all of them over the same range
        return np.concatenate([np.arange(n, rows, 5) for n in range(5)])
    if kind == "skewed":  # nearly all keys lie close together
        return chance.permutation(np.unique((chance.pareto(0.3, rows) * 1_000).clip(max=1e15).astype(np.int64)))
    raise ValueError(kind)


KINDS = ("random", "sorted", "falling", "shards", "skewed")


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_insert_leaves_blocks_that_do_not_overlap(lake, kind):
    t = make(lake)
    keys = keys_of(kind)
    rows = pa.table({"id": keys, "v": np.arange(len(keys))})
    t.insert(rows)
    blocks = check_blocks(lake, t, len(keys))
    assert len(blocks) >= 0.7 * len(keys) // PARTITION
    assert {b.role for b in blocks} == {"delta"}
    assert {b.row_order for b in blocks} == {"row_id"}, "row ids rise with the keys"
    assert t.scan().to_arrow().sort_by("id").to_pydict() == rows.sort_by("id").to_pydict()
    assert not lake.pipeline().verify("t").problems


@pytest.mark.parametrize("kind", KINDS)
def test_a_load_of_files_is_sorted_across_its_tasks(lake, tmp_path, kind):
    t = make(lake)
    keys = keys_of(kind)
    rows = pa.table({"id": keys, "v": np.arange(len(keys))})
    size = -(-len(keys) // 6)
    for n in range(6):
        pq.write_table(rows.slice(n * size, size), tmp_path / f"{n}.parquet")
    assert lake.pipeline().load(str(tmp_path / "*.parquet"), "t").rows == len(keys)
    check_blocks(lake, t, len(keys))
    assert t.scan().to_arrow().sort_by("id").to_pydict() == rows.sort_by("id").to_pydict()
    assert not lake.pipeline().verify("t").problems
    assert not list(lake.storage.list(f"tables/{t._table_id}/stage")), "staged files are gone"


def test_a_load_stays_within_the_partitions_that_are_there(lake, tmp_path):
    t = make(lake)
    first, second = keys_of("sorted"), keys_of("sorted") + 1
    t.insert(pa.table({"id": first, "v": first}))
    blocks = live(lake, t)
    bounds = [b.first_key for b in blocks[1:]]
    divide(lake, t, bounds)
    lake.pipeline().load(write_parquet(tmp_path, second), "t")
    ranges = lake._readings.latest(t._table_id).ranges
    assert len(ranges.live) == len(bounds) + 1
    for block in live(lake, t):
        assert ranges.by_id[block.partition_id].holds(block.first_key, block.last_key)
    assert len(live(lake, t)) == 2 * len(blocks)
    assert t.scan().to_arrow().num_rows == 2 * ROWS
    assert t.get(7)["v"] == 7


def write_parquet(folder, keys, parts=6):
    size = -(-len(keys) // parts)
    for n in range(parts):
        some = keys[n * size : (n + 1) * size]
        pq.write_table(pa.table({"id": some, "v": some}), folder / f"{n}.parquet")
    return str(folder / "*.parquet")


def divide(lake, t, bounds):
    """Partitions that begin at some keys, and the blocks in them, as a job makes them."""
    from indexlake.catalog import data_files, partitions, table_heads
    from indexlake.commit.section import Section
    from indexlake.partitions.ranges import Ranges

    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        old = partitions.live_partitions(tx, t._table_id)
        partitions.end_partitions(tx, [p.partition_id for p in old], s)
        numbers = partitions.new_partition_ids(tx, len(bounds) + 1)
        edges = [None, *bounds, None]
        partitions.add_partitions(tx, t._table_id, zip(numbers, edges, edges[1:], strict=False), s)
        ranges = Ranges(partitions.live_partitions(tx, t._table_id))
        blocks = data_files.live_blocks_of(tx, [p.partition_id for p in old])
        labels = [(b.data_file_id, ranges.holding(b.first_key, b.last_key).partition_id) for b in blocks]
        data_files.relabel(tx, labels, s)
        table_heads.touch_table(tx, t._table_id, s)
        section.sequencer.record("split", job=True)
        section.commit()


@pytest.mark.parametrize("how", ["insert", "files", "one file"])
def test_a_key_that_is_given_twice_is_refused_and_named(lake, tmp_path, how):
    t = make(lake)
    keys = keys_of("random")
    keys[-1] = keys[0]
    source = pa.table({"id": keys, "v": keys})
    if how != "insert":
        source = write_parquet(tmp_path, keys, 6 if how == "files" else 1)
    with pytest.raises(il.ConstraintError, match=str(keys[0])):
        lake.pipeline().load(source, "t")
    assert len(t) == 0
    assert not live(lake, t)


def test_a_load_of_one_key_over_and_over_is_refused_without_holding_all_of_it(lake, tmp_path):
    t = make(lake)
    keys = np.full(ROWS, 12)
    with pytest.raises(il.ConstraintError, match="12"):
        t.insert(pa.table({"id": keys, "v": keys}))
    with pytest.raises(il.ConstraintError, match="12"):
        lake.pipeline().load(write_parquet(tmp_path, keys), "t")
    assert len(t) == 0


def test_a_key_that_the_table_has_is_refused(lake, tmp_path):
    t = make(lake)
    t.insert({"id": 99, "v": 1})
    with pytest.raises(il.ConstraintError, match="99"):
        lake.pipeline().load(write_parquet(tmp_path, keys_of("sorted")), "t")
    assert len(t) == 1


def test_overwrite_puts_sorted_rows_in_the_place_of_all(lake, tmp_path):
    t = make(lake)
    t.insert(pa.table({"id": keys_of("random"), "v": keys_of("random")}))
    lake.pipeline().load(write_parquet(tmp_path, keys_of("falling")), "t", mode="overwrite")
    check_blocks(lake, t, ROWS)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == sorted(keys_of("falling").tolist())


@pytest.mark.parametrize("kind", ["string", "composite", "uuid", "dictionary"])
def test_keys_of_other_types_are_sorted_too(lake, kind):
    chance = np.random.default_rng(3)
    numbers = chance.permutation(20_000)
    config = il.TableConfig(partition_row_count=PARTITION, direct_write_row_count=100)
    columns = {"a": pa.array([f"key {n}" for n in numbers]), "n": pa.array(numbers)}
    key = ["a"]
    if kind == "composite":
        columns["a"] = pa.array([f"g{n % 7}" for n in numbers])
        key = ["a", "n"]
    elif kind == "uuid":
        columns["a"] = pa.array([uuid.UUID(int=int(n) * 7**40 % 2**128).bytes for n in numbers], pa.uuid())
    elif kind == "dictionary":
        columns["n"] = pa.array([f"c{n % 50}" for n in numbers]).dictionary_encode()
    rows = pa.table(columns)
    t = lake.create_table("t", rows.schema, primary_key=key, layout="clustered", config=config)
    t.insert(rows)
    check_blocks(lake, t, len(numbers))
    assert not lake.pipeline().verify("t").problems
    asked = [columns[name][5].as_py() for name in key]
    assert t.get(asked[0] if len(key) == 1 else tuple(asked)) is not None


def test_rows_that_come_in_order_are_not_staged(lake, monkeypatch):
    monkeypatch.setattr(lake.storage.spill, "file", lambda: pytest.fail("sorted rows go straight to blocks"))
    t = make(lake)
    t.insert(pa.table({"id": keys_of("sorted"), "v": keys_of("sorted")}))
    blocks = check_blocks(lake, t, ROWS)
    assert {b.record_count for b in blocks} == {PARTITION}


def test_blocks_written_before_the_order_broke_are_sorted_with_the_rest(lake):
    t = make(lake)
    keys = np.concatenate([np.arange(0, 20_000, 2), np.arange(1, 20_000, 2)])
    t.insert(pa.table({"id": keys, "v": keys}))
    check_blocks(lake, t, 20_000)
    files = [f for f in lake.storage.list("") if f.path.endswith(".delta")]
    assert len(files) == len(live(lake, t)), "what was written too early is gone"


def test_bytes_written_are_those_that_were_given(lake):
    from indexlake.catalog import table_heads

    t = make(lake)
    t.insert(pa.table({"id": keys_of("random"), "v": keys_of("random")}))
    with lake.catalog.read() as r:
        given, written = table_heads.read_bytes(r, t._table_id)
    assert given == written == sum(b.size for b in live(lake, t))
