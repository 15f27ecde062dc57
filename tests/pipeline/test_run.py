"""``run``: what is due, in order; ``watch``; and the same from the command line."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import indexlake as il
from indexlake.cli.main import app
from indexlake.pipeline import due
from indexlake.storage import faults
from tests.pipeline.job_tables import blocks, content, files, in_blocks, rows, sizes, table
from tests.support.lakes import clock_of


def done(result):
    return [(step.job, step.table) for step in result.steps]


def test_a_lake_where_nothing_is_due_is_only_vacuumed(lake):
    t = in_blocks(table(lake), 30, 30)
    t.insert(rows(100, 5).to_pylist())
    t.delete("id = 3")
    last = lake.snapshot_id
    result = lake.pipeline().run()
    assert done(result) == [("vacuum", None)]
    assert str(result).startswith("vacuum: deleted 0 files")
    assert lake.snapshot_id == last


def test_what_is_due_is_done_in_order_for_every_table(lake):
    t = in_blocks(table(lake, inline_row_count_limit=8, freeze_after=timedelta(hours=1)), *[20] * 10)
    u = in_blocks(table(lake, "u"), *[20] * 12)
    t.insert(rows(500, 9).to_pylist())
    before = content(t), content(u)
    clock_of(lake).advance(days=8)
    result = lake.pipeline().run()
    assert done(result) == [
        ("dump", "main.t"),
        ("compact", "main.t"),
        ("freeze", "main.t"),
        ("compact", "main.u"),
        ("vacuum", None),
    ]
    assert t.stats().by_format == {"parquet": 209}
    assert u.stats().by_format == {"vortex": 240}
    assert (content(t), content(u)) == before
    clock_of(lake).advance(days=8)
    result = lake.pipeline().run()
    assert done(result) == [("expire", "main.t"), ("expire", "main.u"), ("vacuum", None)]
    assert result.steps[-1].result.files > 40
    assert (content(t), content(u)) == before
    assert {step.split("/")[1] for step in files(lake)} == {"1", "2"}
    assert lake.pipeline().verify().ok


def test_one_table_can_be_named(lake):
    in_blocks(table(lake), *[20] * 10)
    u = in_blocks(table(lake, "u"), *[20] * 10)
    assert done(lake.pipeline().run("t")) == [("compact", "main.t"), ("vacuum", None)]
    assert sizes(u) == [20] * 10
    with pytest.raises(il.NotFoundError):
        lake.pipeline().run("nothing")


def test_compaction_is_due_when_blocks_or_deleted_rows_have_gathered(lake):
    t = in_blocks(table(lake), *[10] * (due.FEWER_BLOCKS))
    assert not due.compaction_is_due(lake, t._table_id), "seven fewer is not enough"
    in_blocks(t, 10, start=500)
    assert due.compaction_is_due(lake, t._table_id)
    u = in_blocks(table(lake, "u"), 100)
    u.delete("id < 19")
    assert not due.compaction_is_due(lake, u._table_id)
    u.delete("id < 20")
    assert due.compaction_is_due(lake, u._table_id)


def test_a_dropped_table_is_expired_and_its_files_go(lake):
    in_blocks(table(lake), 20)
    lake.drop_table("t")
    clock_of(lake).advance(days=8)
    result = lake.pipeline().run()
    assert done(result) == [("expire", "main.t (dropped)"), ("vacuum", None)]
    assert result.steps[-1].result.files == 2
    assert not files(lake)


def test_a_job_that_somebody_else_does_is_left_to_them(lake):
    in_blocks(table(lake), *[20] * 10)
    results = []

    def rival(step):
        if step == "rewrite.planned":
            faults.install(None)
            results.append(lake.pipeline().run())

    faults.install(rival)
    try:
        assert lake.pipeline().compact("t")["main.t"].blocks_before == 10
    finally:
        faults.install(None)
    (step,) = (step for step in results[0].steps if step.job == "compact")
    assert step.table == "main.t"
    assert "running already" in str(step)


def test_a_table_whose_job_fails_does_not_keep_the_others_from_theirs(lake):
    t = in_blocks(table(lake), *[20] * 10)
    u = in_blocks(table(lake, "u"), *[20] * 10)
    Path(lake.storage.root, blocks(t)[0].path).unlink()
    with pytest.raises(il.CorruptionError) as caught:
        lake.pipeline().run()
    assert any("compact of main.t" in note for note in caught.value.__notes__)
    assert sizes(u) == [100, 100]
    assert lake.jobs()[0].kind == "vacuum"


def test_watch_runs_until_it_is_stopped_and_outlives_errors(lake, caplog):
    caplog.set_level(logging.WARNING, "indexlake")
    t = in_blocks(table(lake), *[20] * 10)
    stop = threading.Event()
    seen = []

    def each(result):
        seen.append(result)
        if len(seen) == 1:
            raise il.StorageError("the one who is told fails")
        if len(seen) == 3:
            stop.set()

    thread = threading.Thread(
        target=lake.pipeline().watch, kwargs={"every": timedelta(milliseconds=1), "stop": stop, "each": each}
    )
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert len(seen) == 3
    assert done(seen[0]) == [("compact", "main.t"), ("vacuum", None)]
    assert done(seen[1]) == [("vacuum", None)]
    assert "will be tried again" in caplog.text
    assert sizes(t) == [100, 100]


def test_cancel_ends_a_watch(lake):
    p = lake.pipeline()
    ran = threading.Event()
    thread = threading.Thread(target=p.watch, kwargs={"every": timedelta(hours=1), "each": lambda result: ran.set()})
    thread.start()
    assert ran.wait(30)
    p.cancel()
    thread.join(30)
    assert not thread.is_alive()
    with pytest.raises(il.SchemaError, match="every must be a timedelta above zero"):
        p.watch(every=timedelta(0))


def test_cancel_stops_the_job_that_runs_and_the_next_call_is_free(lake):
    t = in_blocks(table(lake), 20, 20)
    p = lake.pipeline()

    def cancel(step):
        if step == "rewrite.planned":
            p.cancel()

    faults.install(cancel)
    try:
        with pytest.raises(il.JobError, match="compact was stopped"):
            p.compact("t")
    finally:
        faults.install(None)
    assert sizes(t) == [20, 20]
    assert lake.jobs()[0].state == "cancelled"
    assert p.compact("t")["main.t"].blocks_before == 2


def test_the_time_after_which_a_table_freezes_is_checked_and_kept(lake):
    for wrong in (-1, timedelta(days=-1), "1d", True):
        with pytest.raises(il.SchemaError, match="freeze_after must be a timedelta or a number of seconds"):
            il.TableConfig(freeze_after=wrong)
    assert il.TableConfig().freeze_after is None
    assert il.TableConfig(freeze_after=90).freeze_after == timedelta(seconds=90)
    table(lake, freeze_after=timedelta(days=30))
    with lake._readings.open(lake.table("t")._table_id) as reading:
        state = reading.state
        assert state.table.config.freeze_after == timedelta(days=30)


# ---------------------------------------------------------------- the command line


@pytest.fixture
def command(lake):
    t = in_blocks(table(lake), *[20] * 3)
    t.insert(rows(500, 5).to_pylist())

    def call(name, *options, code=0):
        where = Path(lake.storage.root).parent
        done = CliRunner().invoke(app, ["pipeline", name, str(where), *options])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if "--json" in options else done.stdout

    return call


THREADS = ("--runner", "threads")


def test_every_job_can_be_run_from_the_command_line(command, lake):
    assert command("dump", *THREADS).startswith("main.t: 5 rows moved to 1 block of ")
    (one,) = command("compact", "--table", "t", *THREADS, "--json")
    assert (one["table"], one["blocks_before"], one["blocks_after"], one["rows"]) == ("main.t", 4, 1, 65)
    in_blocks(lake.table("t"), 50, start=1000)
    order = ("--cluster-by", "v", "--cluster-by", "text", "--order", "zorder")
    assert "2 blocks of" in command("compact", "--table", "t", *order, *THREADS)
    assert "0 blocks" in command("freeze", "--older-than", "1h", *THREADS)
    assert command("freeze", *THREADS, "--json")[0]["rows"] == 115
    assert "became" in command("thaw", *THREADS)
    assert "history from snapshot" in command("expire")
    assert "would delete 0 files" in command("vacuum", "--grace", "0s", *THREADS)
    assert command("vacuum", "--delete", *THREADS, "--json")["dry_run"] is False
    assert command("run", *THREADS).startswith("vacuum: deleted 0 files")
    (step,) = command("run", *THREADS, "--json")
    assert (step["job"], step["table"], step["result"]["files"]) == ("vacuum", None, 0)


def test_verify_ends_with_one_when_something_is_wrong(command, lake):
    assert "no problems found" in command("verify", *THREADS)
    path = blocks(lake.table("t"))[0].path
    Path(lake.storage.root, path).unlink()
    assert path in command("verify", *THREADS, code=1)
    found = command("verify", "--json", *THREADS, code=1)
    assert found["ok"] is False
    assert (found["problems"][0]["table"], found["problems"][0]["path"]) == ("main.t", path)


def test_the_command_line_says_what_is_wrong(command):
    command("freeze", "--older-than", "soon", *THREADS, code=2)
    done = CliRunner().invoke(app, ["pipeline", "dump", "/nowhere/at/all", *THREADS])
    assert isinstance(done.exception, il.NotFoundError)


def test_a_table_that_is_dropped_as_a_call_begins_is_left_out(two_handles, on_step):
    lake, other = two_handles
    calls = [lake.pipeline("threads").dump, lake.pipeline("threads").expire, lake.pipeline("threads").run]
    for nth, call in itertools.product(range(1, 12), calls):
        lake.create_table("short", [{"id": 1}])
        lake.create_table("t", [{"id": 1}], replace=True)
        steps = itertools.count(1)

        def drop(step, nth=nth, steps=steps):
            if step == "sql.query" and next(steps) == nth:
                other.drop_table("short")

        on_step(drop)
        call()
        on_step(None)
        lake.drop_table("short", missing_ok=True)
