"""Leases across hosts: takeover, fencing, and the pins of long jobs."""

from __future__ import annotations

import socket

import pytest

import indexlake as il
from indexlake.catalog.clock import now
from indexlake.pipeline import maintenance
from indexlake.pipeline.job import DEAD_AFTER, JobBusy, LeaseLost
from tests.pipeline.job_tables import content, in_blocks, rows, sizes, table
from tests.support.lakes import clock_of


@pytest.fixture
def at_step(on_step):
    """Do something once, when a job comes to a named step."""

    def install(name, act):
        def callback(step):
            if step == name:
                on_step(None)
                act()

        on_step(callback)

    return install


def elsewhere(lake, *, beat=0):
    """The running job seems to belong to another host, last heard of so many microseconds ago."""
    with lake.catalog.transaction() as tx:
        changed = tx.execute(
            "update indexlake_job set host = 'another', pid = 1, heartbeat_at = ? where state = 'running'",
            (now() - beat,),
        )
        tx.commit()
    assert changed == 1


def states(lake):
    return [(job.kind, job.state) for job in lake.jobs()]


def test_the_job_of_another_host_that_beats_is_left_alone(any_lake, at_step):
    in_blocks(table(any_lake), 20, 20)

    def rival():
        elsewhere(any_lake, beat=DEAD_AFTER - 5_000_000)
        with pytest.raises(JobBusy, match="compact of this table is running already, by") as caught:
            any_lake.pipeline().compact("t")
        assert caught.value.retryable
        assert any_lake.pipeline().freeze("t")["main.t"].blocks_before == 2, "another kind of job is free to run"

    at_step("rewrite.planned", rival)
    assert any_lake.pipeline().compact("t")["main.t"].blocks_after == 1
    assert states(any_lake) == [("freeze", "done"), ("compact", "done")]


@pytest.mark.parametrize("step", ["rewrite.planned", "rewrite.written"])
def test_a_job_that_lost_its_lease_commits_nothing(any_lake, at_step, step):
    t = in_blocks(table(any_lake), 20, 20, 20)
    before = content(t)
    done = []

    def paused():
        """This run sleeps for longer than it may; another host takes it over and finishes."""
        elsewhere(any_lake, beat=DEAD_AFTER + 1)
        done.append(any_lake.pipeline().compact("t")["main.t"])

    at_step(step, paused)
    with pytest.raises(LeaseLost, match="taken over by another process; its work is dropped") as caught:
        any_lake.pipeline().compact("t")
    assert caught.value.retryable
    assert done[0].blocks_before == 3
    assert sizes(t) == [60]
    assert content(t) == before
    assert sorted(states(any_lake)) == [("compact", "done"), ("compact", "lost")]
    assert any_lake.pipeline().verify().ok


def test_a_dump_that_lost_its_lease_commits_nothing(any_lake, at_step):
    t = table(any_lake)
    t.insert(rows(0, 9).to_pylist())

    def paused():
        elsewhere(any_lake, beat=DEAD_AFTER + 1)
        any_lake.pipeline().dump("t")

    at_step("dump.written", paused)
    with pytest.raises(LeaseLost):
        any_lake.pipeline().dump("t")
    assert sizes(t) == [9]
    assert len(content(t)) == 9


def test_a_vacuum_that_lost_its_lease_deletes_nothing(any_lake, at_step):
    t = in_blocks(table(any_lake), 20)

    def paused():
        elsewhere(any_lake, beat=DEAD_AFTER + 1)
        any_lake.pipeline().vacuum(dry_run=False)

    at_step("vacuum.listed", paused)
    with pytest.raises(LeaseLost):
        any_lake.pipeline().vacuum(dry_run=False)
    assert len(content(t)) == 20


def test_a_heartbeat_tells_a_job_that_it_was_taken_over_before_it_wastes_more_work(any_lake, at_step):
    in_blocks(table(any_lake), 20, 20)

    def paused():
        elsewhere(any_lake, beat=DEAD_AFTER + 1)
        any_lake.pipeline().compact("t")
        any_lake._maintenance._beat_once()

    at_step("rewrite.planned", paused)
    with pytest.raises(LeaseLost):
        any_lake.pipeline().compact("t")
    assert len(list(any_lake.storage.list("tables"))) == 6, (
        "two blocks and the one of the other run, with their segments"
    )


def test_a_lease_of_a_dead_process_of_this_host_is_taken_over_at_once(any_lake, at_step):
    t = in_blocks(table(any_lake), 20, 20)

    def dies():
        with any_lake.catalog.transaction() as tx:
            tx.execute("update indexlake_job set pid = 999999999 where state = 'running'")
            tx.commit()
        assert any_lake.pipeline().compact("t")["main.t"].blocks_before == 2
        raise il.StorageError("this is the dead one")

    at_step("rewrite.planned", dies)
    with pytest.raises(il.StorageError):
        any_lake.pipeline().compact("t")
    assert sizes(t) == [40]
    assert sorted(state for _, state in states(any_lake)) == ["done", "lost"]
    assert socket.gethostname() in any_lake.jobs()[0].owner


# ---------------------------------------------------------------- pins


def expire_now(lake, handle=None):
    handle = handle or lake
    with clock_of(handle).stopped():
        return handle.pipeline().expire("t")["main.t"].horizon


def age_readers(lake):
    for reader in list(lake._pins.held):
        reader.started -= 2 * maintenance.PIN_AFTER
    lake._maintenance._beat_once()


@pytest.mark.parametrize("job", ["compact", "cluster", "freeze", "dump"])
def test_the_snapshot_of_a_long_job_is_pinned_although_nothing_is_retained(any_lake, at_step, job):
    t = in_blocks(table(any_lake, retention=0), 20, 20, 20)
    t.insert(rows(100, 9).to_pylist())
    planned = []

    def long():
        planned.append(any_lake.snapshot_id)
        t.update({"text": "meanwhile"}, "id % 5 = 0")
        t.delete("id = 7")
        age_readers(any_lake)
        assert expire_now(any_lake) <= planned[0], "the touched rows are still known"

    step = "dump.written" if job == "dump" else "rewrite.written"
    at_step(step, long)
    p = any_lake.pipeline()
    before = content(t)
    run = {
        "compact": p.compact,
        "cluster": lambda name: p.compact(name, cluster_by=["v"]),
        "freeze": p.freeze,
        "dump": p.dump,
    }[job]
    done = run("t")["main.t"]
    assert planned
    assert done.rows > 0, "it was committed at the first go"
    wanted = {r["id"]: "meanwhile" if r["id"] % 5 == 0 else r["text"] for r in before if r["id"] != 7}
    assert {r["id"]: r["text"] for r in content(t)} == wanted
    age_readers(any_lake)
    any_lake.pipeline().dump("t")  # the horizon does not pass what is in memory alone
    assert expire_now(any_lake) == any_lake.snapshot_id - 1, "the pin went with the job"
    assert any_lake.pipeline().verify().ok


def test_a_job_whose_snapshot_expired_after_all_is_planned_again(any_lake, at_step):
    t = in_blocks(table(any_lake, retention=0), 20, 20)

    def expires():
        t.update({"text": "meanwhile"}, "id = 3")
        expire_now(any_lake)

    at_step("rewrite.written", expires)
    assert any_lake.pipeline().compact("t")["main.t"].blocks_after == 1
    assert t.get(3)["text"] == "meanwhile"
    assert len(content(t)) == 40


def test_pinned_readers_keep_their_snapshot_whatever_jobs_do(any_lake):
    t = in_blocks(table(any_lake, retention=0), 20, 20, 20)
    t.insert(rows(100, 9).to_pylist())
    reader = t.scan(order_by="id")
    first = reader.to_arrow()
    tx = any_lake.transaction()
    seen = tx.table("t").scan(order_by="id").to_arrow()
    age_readers(any_lake)
    t.delete("id % 2 = 0")
    p = any_lake.pipeline()
    for job in (p.dump, p.compact, p.freeze, lambda name: p.compact(name, cluster_by=["v"]), p.thaw):
        job("t")
        expire_now(any_lake)
        p.vacuum(dry_run=False)
        assert tx.table("t").scan(order_by="id").to_arrow().equals(seen)
    assert t.at(tx.snapshot_id).scan(order_by="id").to_arrow().equals(first)
    tx.rollback()


def test_an_open_transaction_commits_what_a_dump_and_a_compaction_moved_under_it(any_lake):
    t = in_blocks(table(any_lake), 20, 20)
    t.insert(rows(100, 9).to_pylist())
    tx = any_lake.transaction()
    mine = tx.table("t")
    mine.update({"text": "mine"}, "id in (3, 25, 104)")
    mine.delete("id in (4, 26, 105)")
    t.update({"text": "others"}, "id in (5, 27, 106)")
    p = any_lake.pipeline()
    p.dump("t")
    p.compact("t")
    mine.update({"text": "mine too"}, "id = 30")
    p.compact("t", cluster_by=["v"])
    p.freeze("t")
    tx.commit()
    found = {r["id"]: r["text"] for r in content(t)}
    assert {n for n, text in found.items() if text == "mine"} == {3, 25, 104}
    assert {n for n, text in found.items() if text == "others"} == {5, 27, 106}
    assert found[30] == "mine too"
    assert not {4, 26, 105} & set(found)
    assert len(found) == 46
    loser = any_lake.transaction()
    loser.table("t").update({"text": "late"}, "id = 3")
    t.update({"text": "early"}, "id = 3")
    p.thaw("t")
    with pytest.raises(il.ConflictError):
        loser.commit()
