"""Dump by call and by itself, and what lake.jobs() shows."""

from __future__ import annotations

from typing import Any

import pytest

import indexlake as il
from indexlake.storage import faults
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, rows, tiered
from tests.support.waiting import wait_until


def test_a_dump_moves_all_hot_rows_and_no_answer_changes(lake: il.Lake, make: Any, combination: Any) -> None:
    t = tiered(make)
    done = dump(t)
    assert (done.rows, done.history_rows) == (10, 0)
    assert done.blocks == 1 or combination.layout == "clustered"  # one for each partition that it has rows of
    assert done.bytes > 0
    assert content(t) == EVERYTHING
    assert t.stats().hot_rows == 0
    again = dump(t)
    assert (again.rows, again.blocks) == (0, 0)
    assert t.stats().by_format == {combination.format: 30}


@pytest.mark.blocks_of_heap
def test_a_dump_cuts_blocks_of_the_configured_size(make: Any) -> None:
    t = make(SCHEMA, "id", block_row_count=8)
    t.insert(rows(range(20)))
    assert dump(t).blocks == 3
    assert t.stats().blocks == 3
    assert content(t) == rows(range(20))


def test_superseded_versions_move_to_history_blocks_and_stay_readable(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    t.insert(rows([1]))
    states = [(lake.snapshot_id, content(t))]
    for n in range(10):
        t.update({"total": float(n)}, "id = 1")
        states.append((lake.snapshot_id, content(t)))
    assert t.stats().superseded_hot_rows == 10
    done = dump(t)
    assert (done.rows, done.history_rows) == (1, 10)
    stats = t.stats()
    assert (stats.superseded_hot_rows, stats.history_blocks, stats.blocks) == (0, 1, 1)
    for snapshot, expected in states:
        assert content(t.at(snapshot)) == expected
        assert t.at(snapshot).get(1) == expected[0]


def test_jobs_are_listed_newest_first_with_their_progress(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    dump(t)
    job = lake.jobs()[0]
    assert (job.kind, job.table, job.state, job.error) == ("dump", t.name, "done", None)
    assert job.progress.rows == 10
    assert job.progress.tasks_done == job.progress.tasks == 1
    assert job.finished_at is not None
    assert job.started_at <= job.finished_at
    assert str(__import__("os").getpid()) in job.owner


def test_a_failed_dump_is_shown_and_the_next_one_works(lake: il.Lake, make: Any) -> None:
    t = tiered(make)

    def fail(step: str) -> None:
        if step == "dump.written":
            raise il.StorageError("the disk is on fire")

    previous = faults.install(fail)
    try:
        with pytest.raises(il.StorageError, match="on fire"):
            dump(t)
    finally:
        faults.install(previous)
    job = lake.jobs()[0]
    assert (job.kind, job.state, job.table) == ("dump", "failed", t.name)
    assert "on fire" in str(job.error)
    assert content(t) == EVERYTHING
    assert dump(t).rows == 10
    assert lake.jobs()[0].state == "done"
    assert content(t) == EVERYTHING


def test_dump_without_a_name_does_every_table(new_address: Any) -> None:
    with new_address("sqlite").connect(automatic=False) as lake:
        for name in ("a.x", "b.y"):
            lake.create_table(name, SCHEMA, primary_key="id").insert(rows(range(3)))
        done = lake.pipeline().dump()
        assert {name: result.rows for name, result in done.items()} == {"a.x": 3, "b.y": 3}


def test_the_hot_store_is_dumped_in_the_background_when_it_is_full(new_address: Any, combination: Any) -> None:
    config = il.TableConfig(inline_row_count_limit=20, dump_format=combination.format)
    with new_address(combination.database, combination.storage).connect(automatic=True) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        for start in range(0, 50, 5):
            t.insert(rows(range(start, start + 5)))
        wait_until(lambda: t.stats().hot_rows < 20 and t.stats().blocks, "the hot store is not dumped")
        assert content(t) == rows(range(50))
        assert lake.jobs()[0].kind in ("dump", "expire")
        assert {job.state for job in lake.jobs()} <= {"done", "running"}


def test_two_dumps_of_one_table_do_not_run_at_once(lake: il.Lake, make: Any) -> None:
    t = tiered(make)

    def again(step: str) -> None:
        if step == "dump.planned":
            faults.install(None)
            with pytest.raises(il.JobError, match="running already") as caught:
                dump(t)
            assert caught.value.retryable

    faults.install(again)
    try:
        assert dump(t).rows == 10
    finally:
        faults.install(None)
    assert content(t) == EVERYTHING


def test_a_dump_ends_although_rows_keep_coming(make: Any) -> None:
    t = make(SCHEMA, "id")
    t.insert(rows(range(5)))
    written = 0

    def keep_writing(step: str) -> None:
        nonlocal written
        if step == "dump.written" and written < 20:
            written += 1
            t.update({"total": float(written)}, "id = 1")

    previous = faults.install(keep_writing)
    try:
        done = dump(t)
    finally:
        faults.install(previous)
    assert done.rows == 5
    assert written <= 2, "one chunk of rows and one of their history"
    assert t.get(1)["total"] == written
