"""The jobs on Spark: the same task code, the same answers; cancel, errors, and workers that die."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline.rewrite import run_task
from indexlake.pipeline.runner import ChosenRunner, ThreadRunner
from indexlake.spark import runner as spark_runner
from indexlake.spark.runner import SparkRunner
from tests.pipeline.job_tables import content
from tests.support.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("bucket", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
CONFIG = il.TableConfig(block_row_count=100, direct_write_row_count=30)


def rows(start: int, count: int) -> pa.Table:
    made = [
        {"id": n, "bucket": n * 7919 % 101, "text": None if n % 11 == 0 else f"row {n}", "tags": [str(n), None]}
        for n in range(start, start + count)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def filled(lake: il.Lake, blocks: int = 12) -> il.Table:
    """Small blocks, deleted and updated rows, hot rows, superseded versions."""
    t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
    for n in range(blocks):
        t.insert(rows(n * 40, 40))
    t.insert(rows(10_000, 20).to_pylist())
    t.update({"text": "changed"}, "id % 9 = 0")
    t.delete("id % 13 = 0")
    return t


def test_every_job_gives_on_spark_what_it_gives_in_threads(lake: il.Lake, spark: Any) -> None:
    t = filled(lake)
    before, first = content(t), lake.snapshot_id
    p = lake.pipeline(spark=spark)
    assert "on Spark local[2,3]" in repr(p)
    dumped = p.dump("t")["main.t"]
    assert dumped.rows > 0
    assert dumped.history_rows > 0
    assert content(t) == before
    compacted = p.compact("t")["main.t"]
    assert compacted.blocks_before > compacted.blocks_after > 0
    assert content(t) == before
    assert p.compact("t", cluster_by=["bucket"])["main.t"].rows == len(before)
    assert content(t) == before
    assert p.freeze("t")["main.t"].blocks_after > 0
    assert t.stats().by_format == {"parquet": len(before)}
    assert content(t) == before
    verified = p.verify()
    assert verified.ok
    assert verified.files > 0
    assert p.thaw("t")["main.t"].blocks_after > 0
    assert content(t) == before == content(t.at(first))
    assert t.get(9) == next({k: v for k, v in r.items() if k in SCHEMA.names} for r in before if r["id"] == 9)
    assert {job.state for job in lake.jobs()} == {"done"}
    assert lake.jobs()[0].progress.tasks_done > 0


def test_threads_and_spark_write_the_same_blocks(lake: il.Lake, spark: Any) -> None:
    from indexlake.pipeline.compact import groups_to_compact
    from indexlake.pipeline.rewrite import plan

    t = filled(lake)
    tasks = plan(lake, t._table_id, groups_to_compact)
    assert len(tasks) > 1
    here = list(ThreadRunner(lake.storage).map(run_task, tasks, lambda: None))
    there = list(SparkRunner(spark, lake.storage).map(run_task, tasks, lambda: None))
    for one, other in zip(here, there, strict=True):
        for a, b in zip(one.blocks, other.blocks, strict=True):
            assert (a.record_count, a.versions, a.column_stats) == (b.record_count, b.versions, b.column_stats)
            assert a.row_ids == b.row_ids
            assert a.file.path != b.file.path


def test_a_session_that_is_given_or_active_is_used_by_default(
    lake: il.Lake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Spark local" in repr(lake.pipeline(spark=spark))
    assert "Spark local" in repr(lake.pipeline(runner="spark"))
    assert "threads" in repr(lake.pipeline(runner="threads"))
    assert "Spark local" in repr(ChosenRunner(lake.storage)._runner(0))
    found = []
    thread = threading.Thread(target=lambda: found.append(repr(ChosenRunner(lake.storage)._runner(0))))
    thread.start()
    thread.join()
    assert "Spark local" in found[0], "also in a thread that did not make the session"
    with il.connect(":memory:") as temporary:
        t = temporary.create_table("t", [{"x": 1}])
        assert temporary.pipeline().dump("t")["main.t"].rows == 1, "memory is in this process only"
        assert len(t) == 1
        with pytest.raises(il.JobError, match=r"cannot be reached by Spark.*runner='threads'"):
            temporary.pipeline(runner="spark")
    with pytest.raises(il.JobError, match="leave spark= out"):
        lake.pipeline(runner="threads", spark=spark)
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "_jsc", None)  # what stop() leaves
        with pytest.raises(il.JobError, match="This Spark session is stopped"):
            lake.pipeline(spark=spark)


def test_cancel_from_another_thread_cancels_the_spark_job(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def slow(storage: Any, task: int, check: Any) -> int:
        (started.parent / f"started{task}").touch()
        time.sleep(60)
        return task

    runner = SparkRunner(spark, lake.storage)
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise il.JobError("stopped")

    def cancel() -> None:
        wait_until((tmp_path / "started0").exists, "the job does not start")
        stop.set()

    begun = time.monotonic()
    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(il.JobError, match="stopped"):
        list(runner.map(slow, [0, 1], check))
    thread.join()
    assert time.monotonic() - begun < 30
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), "the job goes on")


def test_a_cancelled_job_is_shown_and_the_next_one_does_the_work(lake: il.Lake, spark: Any) -> None:
    t = filled(lake)
    before = content(t)
    p = lake.pipeline(spark=spark)

    class Cancelling(SparkRunner):
        def _round(self, run: Any, tasks: Any, check: Any) -> Any:
            p.cancel()
            return super()._round(run, tasks, check)

    p._runner = Cancelling(spark, lake.storage)
    with pytest.raises(il.JobError, match="stopped"):
        p.compact("t")
    assert lake.jobs()[0].state == "cancelled"
    assert content(t) == before
    assert lake.pipeline(spark=spark).compact("t")["main.t"].blocks_before > 0
    assert content(t) == before


def test_an_error_of_a_task_arrives_as_it_is_without_a_word_of_java(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    t = filled(lake)
    with lake._readings.open(t._table_id) as reading:
        state = reading.state
        path = state.blocks.records[0].path
    file = tmp_path / "lake" / "files" / path
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(il.CorruptionError) as caught:
        lake.pipeline(spark=spark).compact("t")
    assert caught.value.path == path
    assert not any(word in str(caught.value) for word in ("Py4J", "java", "Traceback", "spark"))
    assert caught.value.__cause__ is None
    assert lake.jobs()[0].state == "failed"
    assert not lake.pipeline(spark=spark).verify().ok


def test_an_error_that_is_not_ours_is_one_sentence(lake: il.Lake, spark: Any) -> None:
    def broken(storage: Any, task: int, check: Any) -> int:
        return 1 // task

    with pytest.raises(il.JobError) as caught:
        list(SparkRunner(spark, lake.storage).map(broken, [1, 0], lambda: None))
    assert str(caught.value) == "A task failed on Spark: ZeroDivisionError: integer division or modulo by zero"


def test_a_worker_that_dies_is_replaced_and_nothing_doubles(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    t = filled(lake)
    before = content(t)
    marks = tmp_path / "marks"
    marks.mkdir()

    def dying(storage: Any, task: Any, check: Any) -> Any:
        from indexlake.pipeline.rewrite import run_task

        done = run_task(storage, task, check)
        mark = marks / str(task.inputs[0].file_id)
        if not mark.exists():
            mark.touch()
            os._exit(3)  # after its files were written
        return done

    class Dying(SparkRunner):
        def map(self, run: Any, tasks: Any, check: Any) -> Any:
            return super().map(dying, tasks, check)

    p = lake.pipeline(spark=spark)
    p._runner = Dying(spark, lake.storage)
    done = p.compact("t")["main.t"]
    assert done.blocks_before > done.blocks_after > 0
    assert list(marks.iterdir())
    assert content(t) == before
    verified = lake.pipeline(runner="threads").verify()
    assert verified.ok
    assert verified.unreachable_files >= 2 * len(list(marks.iterdir())), "a block and a segment of each first attempt"


def test_a_worker_that_dies_every_time_is_one_clear_error(lake: il.Lake, spark: Any) -> None:
    def deadly(storage: Any, task: int, check: Any) -> int:
        os._exit(3)

    with pytest.raises(il.JobError, match="Spark could not run the tasks: Job aborted") as caught:
        list(SparkRunner(spark, lake.storage).map(deadly, [0], lambda: None))
    assert "\n" not in str(caught.value)
    assert "Py4JJavaError" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_tasks_that_carry_much_with_them_come_in_small_rounds_or_are_run_here(
    lake: il.Lake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(block_row_count=100))
    for n in range(19):  # the rows of one commit stay together in memory
        t.insert(rows(50 * n, 50).to_pylist())
    before = content(t)
    rounds: list[int] = []
    whole = SparkRunner._round

    def counted(self: Any, run: Any, tasks: Any, check: Any) -> Any:
        rounds.append(len(tasks))
        return whole(self, run, tasks, check)

    monkeypatch.setattr(SparkRunner, "_round", counted)
    monkeypatch.setattr(spark_runner, "ROUND_BYTES", 30_000)
    assert lake.pipeline(spark=spark).dump("t")["main.t"].rows == 950
    assert sum(rounds) == 10
    assert max(rounds) < 8
    monkeypatch.setattr(spark_runner, "LARGE", 1000)
    rounds.clear()
    t.update({"text": "again"}, "id < 500")
    lake.pipeline(spark=spark).dump("t")
    assert rounds == []
    assert [r["id"] for r in content(t)] == [r["id"] for r in before]


def test_secrets_are_in_no_description_of_what_is_sent(spark: Any, s3: Any, new_address: Any) -> None:
    with new_address("sqlite", "s3").connect(automatic=False) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
        for n in range(3):
            t.insert(rows(n * 40, 40))
        before = content(t)
        p = lake.pipeline(spark=spark)
        assert p.compact("t")["main.t"].blocks_before == 2, "workers reach the object store with what they are given"
        assert content(t) == before
        remote = spark_runner._Remote(run_task, lake.storage.spec(), lake.storage.secrets)
        for text in (repr(remote), repr(p), repr(lake.storage.spec()), repr(lake.storage)):
            assert s3.secret not in text
            assert s3.key not in text


def test_the_command_line_runs_its_jobs_on_spark_unless_told_otherwise(lake: il.Lake, spark: Any) -> None:
    from typer.testing import CliRunner

    from indexlake.cli.main import app

    t = filled(lake, blocks=3)
    before = content(t)
    folder = str(Path(lake.storage.root).parent)
    done = CliRunner().invoke(app, ["pipeline", "dump", folder, "--table", "t"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("main.t: ")
    assert content(t) == before
    assert t.stats().hot_rows == 0
    assert CliRunner().invoke(app, ["pipeline", "verify", folder]).exit_code == 0
