"""``lake.cluster_table``: a heap table becomes clustered and back, while others read and write it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline.convert import FREE_ROUNDS
from indexlake.storage import faults
from tests.support.lakes import connect

CONFIG = il.TableConfig(partition_row_count=1_000, direct_write_row_count=500, block_row_count=2_000, retention=3_600)
LAYOUTS = ("clustered", "heap")


@contextmanager
def calling(callback):
    """The callback is told every step."""
    before = faults.install(callback)
    try:
        yield
    finally:
        faults.install(before)


def make(lake, layout="heap", key="id", name="t"):
    return lake.create_table(
        name, {"id": "int64", "v": "int64", "x": "string"}, primary_key=key, layout=layout, config=CONFIG
    )


def rows_of(start, end, step=1, seed=1):
    ids = np.random.default_rng(seed).permutation(np.arange(start, end, step))
    return pa.table({"id": ids, "v": ids * 2, "x": [f"x{n % 10}" for n in ids]})


def fill(t):
    """Blocks with deletes, rows in the hot store, and updates of both."""
    t.insert(rows_of(0, 6_000, 2))
    t.insert(rows_of(1, 3_000, 2, seed=2))
    t.delete("id < 100")
    t.update({"v": -1}, "id between 200 and 250")
    t.insert([{"id": 10_000 + n, "v": n, "x": "hot"} for n in range(20)])


def contents(t):
    return sorted(tuple(row.values()) for row in t.scan().to_arrow().to_pylist())


def layout_of(lake, t):
    return lake._readings.latest(t._table_id).table.layout


def check(lake, t, layout):
    """Everything lies as the layout says."""
    state = lake._readings.latest(t._table_id)
    assert state.table.layout == layout
    blocks = [b for b in state.blocks.records if b.end_snapshot is None and b.role != "history"]
    if layout == "heap":
        assert state.ranges is None
        assert all(b.partition_id is None and b.row_order == "row_id" for b in blocks)
        return
    live = state.ranges.live
    assert live[0].begin_key is None
    assert live[-1].end_key is None
    assert all(a.end_key == b.begin_key for a, b in pairwise(live))
    assert all(state.ranges.by_id[b.partition_id].holds(b.first_key, b.last_key) for b in blocks)
    assert not lake.pipeline().verify("t").problems


@pytest.fixture(params=LAYOUTS)
def converted_to(request):
    return request.param


def other(layout):
    return "heap" if layout == "clustered" else "clustered"


def test_all_rows_stay_and_lie_as_the_layout_says(any_lake, converted_to):
    t = make(any_lake, other(converted_to))
    t.create_index("by_x", "x")
    fill(t)
    before = contents(t)
    result = any_lake.cluster_table("t", converted_to)
    assert result.blocks_before > 1
    assert result.blocks_after > 1
    check(any_lake, t, converted_to)
    assert contents(t) == before
    assert t.get(210) == {"id": 210, "v": -1, "x": "x0"}
    assert t.get(50) is None
    assert len(t.scan("x = 'x4'").to_arrow()) == sum(row[2] == "x4" for row in before)
    t.insert({"id": 77_777, "v": 1, "x": "new"})
    with pytest.raises(il.ConstraintError):
        t.insert({"id": 210, "v": 1, "x": "again"})
    any_lake.pipeline().dump("t")
    check(any_lake, t, converted_to)
    assert len(contents(t)) == len(before) + 1


def test_a_table_that_becomes_clustered_has_one_data_block_in_each_partition(lake):
    t = make(lake)
    t.insert(rows_of(0, 10_000))
    lake.cluster_table("t")
    state = lake._readings.latest(t._table_id)
    blocks = [b for b in state.blocks.records if b.end_snapshot is None]
    assert {b.role for b in blocks} == {"data"}
    assert len(blocks) == len(state.ranges.live) == 10
    sizes = [b.record_count for b in blocks]
    assert max(sizes) <= 1.5 * min(sizes)
    assert all(b.path.startswith("schema_") for b in blocks)


def test_there_and_back_again(lake):
    t = make(lake)
    fill(t)
    before = contents(t)
    lake.cluster_table("t")
    lake.cluster_table("t", layout="heap")
    lake.cluster_table("t")
    assert contents(t) == before
    check(lake, t, "clustered")
    assert lake.cluster_table("t").blocks_before == 0, "it is clustered already"


def test_the_past_is_read_as_before(lake, converted_to):
    t = make(lake, other(converted_to))
    fill(t)
    past, then = lake.snapshot_id, contents(t)
    t.delete("id > 2000")
    middle, after_delete = lake.snapshot_id, contents(t)
    lake.cluster_table("t", converted_to)
    t.update({"v": 9}, "id < 400")
    assert contents(t.at(past)) == then
    assert contents(t.at(middle)) == after_delete
    assert t.at(past).get(5_000)["v"] == 10_000
    assert t.at(middle).get(5_000) is None
    changes = t.changes(past, middle).to_arrow()
    assert len(changes) == len(then) - len(after_delete)
    assert len(t.changes(middle, lake.snapshot_id).to_arrow()) == 2 * len([r for r in after_delete if r[0] < 400])


def test_rows_changed_while_it_runs_are_carried_over(two_handles, converted_to):
    lake, writer = two_handles
    t = make(lake, other(converted_to))
    fill(t)
    w = writer.table("t")
    begun = []

    def meanwhile(step):
        if step == "convert.round" and not begun:
            begun.append(step)
            w.delete("id between 300 and 350")
            w.update({"v": 5}, "id between 400 and 420")
            w.insert({"id": 500_001, "v": 1, "x": "hot"})
            w.insert(rows_of(20_000, 21_000))  # a block of its own
            writer.pipeline().dump("t")

    with calling(meanwhile):
        lake.cluster_table("t", converted_to)
    assert begun
    check(lake, t, converted_to)
    found = contents(t)
    assert found == contents(w)
    ids = [row[0] for row in found]
    assert len(set(ids)) == len(ids)
    assert not [n for n in ids if 300 <= n <= 350]
    assert {row[1] for row in found if 400 <= row[0] <= 420} == {5}
    assert sum(20_000 <= n < 21_000 for n in ids) == 1_000
    assert 500_001 in ids


def test_a_truncate_meanwhile_leaves_nothing(two_handles):
    lake, writer = two_handles
    t = make(lake)
    fill(t)
    begun = []

    def meanwhile(step):
        if step == "convert.round" and not begun:
            begun.append(step)
            writer.table("t").truncate()

    with calling(meanwhile):
        lake.cluster_table("t")
    check(lake, t, "clustered")
    assert contents(t) == []
    t.insert({"id": 1, "v": 1, "x": ""})
    assert len(t) == 1


def test_statements_that_were_prepared_for_the_other_layout_get_through(two_handles, converted_to):
    lake, other_lake = two_handles
    t = make(lake, other(converted_to))
    fill(t)
    count = len(t)

    def batches():
        yield pa.RecordBatch.from_pydict(rows_of(30_000, 31_000).to_pydict(), schema=t.schema)
        other_lake.cluster_table("t", converted_to)
        yield pa.RecordBatch.from_pydict(rows_of(31_000, 32_000).to_pydict(), schema=t.schema)

    t.insert(batches())  # which cannot be read again
    assert layout_of(lake, t) == converted_to
    assert len(t) == len(contents(t)) == count + 2_000
    check(lake, t, converted_to)


def test_a_transaction_that_began_before_is_told_to_run_again(two_handles):
    lake, other_lake = two_handles
    t = make(lake)
    fill(t)
    tx = lake.transaction()
    tx.table("t").update({"v": 0}, "id = 500")
    other_lake.cluster_table("t")
    with pytest.raises(il.ConflictError, match="layout"):
        tx.commit()
    lake.run(lambda tx: tx.table("t").update({"v": 0}, "id = 500"))
    assert t.get(500)["v"] == 0


@pytest.mark.parametrize("step", ["block.begin", "block.written", "convert.round", "convert.commit"])
def test_one_that_fails_leaves_the_table_as_it_was(lake, step):
    t = make(lake)
    fill(t)
    before = contents(t)

    class DiedError(Exception):
        pass

    def die(reached):
        if reached == step:
            raise DiedError

    with calling(die), pytest.raises(DiedError):
        lake.cluster_table("t")
    check(lake, t, "heap")
    assert contents(t) == before
    lake.cluster_table("t")
    check(lake, t, "clustered")
    assert contents(t) == before


def test_what_cannot_be_clustered_is_refused(lake):
    make(lake, key=None)
    with pytest.raises(il.SchemaError, match="no primary key"):
        lake.cluster_table("t")
    with pytest.raises(il.SchemaError, match="'sorted' is not known"):
        lake.cluster_table("t", layout="sorted")
    with pytest.raises(il.NotFoundError):
        lake.cluster_table("missing")


def test_an_empty_table_becomes_clustered(lake):
    t = make(lake)
    lake.cluster_table("t")
    assert len(lake._readings.latest(t._table_id).ranges.live) == 1
    fill(t)
    check(lake, t, "clustered")


def test_a_clustered_table_moves_to_another_namespace(lake):
    t = make(lake, "clustered")
    fill(t)
    before = contents(t)
    old = lake._readings.latest(t._table_id).table.namespace_id
    t.alter().rename("elsewhere.t2").commit()
    t = lake.table("elsewhere.t2")
    new = lake._readings.latest(t._table_id).table.namespace_id
    assert contents(t) == before
    t.insert(rows_of(40_000, 41_000))
    lake.pipeline().dump("elsewhere.t2")
    assert len(contents(t)) == len(before) + 1_000
    folders = {b.path.split("/")[0] for b in lake._readings.latest(t._table_id).blocks.records if b.role != "history"}
    assert folders == {f"schema_{old}", f"schema_{new}"}
    lake.pipeline().merge("elsewhere.t2")
    assert len(contents(t)) == len(before) + 1_000
    assert not lake.pipeline().verify("elsewhere.t2").problems


def test_it_ends_though_others_never_stop_to_write_blocks(two_handles, converted_to):
    lake, writer = two_handles
    t = make(lake, other(converted_to))
    fill(t)
    count, rounds, inserts = len(t), [], []

    def meanwhile(step):
        if step == "convert.round" and len(rounds) < 20:
            first = 20_000 + 1_000 * len(rounds)
            rounds.append(first)
            inserts.append(threading.Thread(target=writer.table("t").insert, args=(rows_of(first, first + 600),)))
            inserts[-1].start()
            inserts[-1].join(1)

    with calling(meanwhile):
        lake.cluster_table("t", converted_to)
    for insert in inserts:
        insert.join(30)
    assert len(rounds) < 10
    assert len(contents(t)) == count + 600 * len(rounds)
    assert layout_of(lake, t) == converted_to
    if converted_to == "clustered":
        check(lake, t, converted_to)
    assert not [job for job in lake.jobs() if job.state == "running"]
    assert not lake.pipeline().verify("t").problems


def _dies_in_its_last_round(path, layout):
    lake, rounds = connect(path), []

    def meanwhile(step):
        if step == "convert.round":
            rounds.append(step)
            if len(rounds) > FREE_ROUNDS:
                os.kill(os.getpid(), signal.SIGKILL)
            lake.table("t").insert(rows_of(20_000 * len(rounds), 20_000 * len(rounds) + 600))

    faults.install(meanwhile)
    lake.cluster_table("t", layout)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_one_that_is_killed_keeps_nobody_from_writing(tmp_path):
    with connect(tmp_path / "lake") as lake:
        fill(make(lake))
        count = len(lake.table("t"))
    one = multiprocessing.get_context("fork").Process(
        target=_dies_in_its_last_round, args=(tmp_path / "lake", LAYOUTS[0])
    )
    one.start()
    one.join(60)
    assert one.exitcode == -signal.SIGKILL
    with connect(tmp_path / "lake") as lake:
        t = lake.table("t")
        last = [job for job in lake.jobs() if job.kind == "cluster" and job.state == "running"]
        assert len(last) == 2
        t.insert(rows_of(100_000, 100_600))
        assert [job.state for job in lake.jobs() if job.kind == "cluster"].count("lost") == 1
        assert layout_of(lake, t) == "heap"
        lake.cluster_table("t")
        assert len(contents(t)) == count + 600 * (FREE_ROUNDS + 1)
        check(lake, t, "clustered")
