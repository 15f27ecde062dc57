"""Tasks are plain values that run anywhere; the thread runner keeps their order and stops when asked."""

from __future__ import annotations

import pickle
import threading
import time

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline.dump import dump, plan_chunk, run_task
from indexlake.pipeline.runner import ThreadRunner

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])


def filled(lake, rows, **config):
    table = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(**config))
    table.insert([{"id": n, "text": f"row {n}", "tags": [str(n), None]} for n in range(rows)])
    return table


def test_a_dump_task_survives_pickling_and_writes_the_same_block(lake):
    table = filled(lake, 50)
    task = plan_chunk(lake, table._table_id, history=False)
    copy = pickle.loads(pickle.dumps(task))
    assert copy.chunk.parts[0].rows.equals(task.chunk.parts[0].rows)
    (block,) = run_task(lake.storage, copy, lambda: None)
    assert block.record_count == 50
    assert len(table) == 50  # nothing is visible before the commit


@pytest.mark.inline_only("a commit is dumped whole")
def test_a_backlog_is_dumped_in_several_chunks_at_a_time(lake):
    table = filled(lake, 95, block_row_count=10)
    before = table.scan(order_by="id").to_arrow()
    result = dump(lake, table._table_id, runner=ThreadRunner(lake.storage, width=4))
    assert (result.rows, result.blocks) == (95, 10)
    assert table.stats().hot_rows == 0
    assert table.scan(order_by="id").to_arrow().equals(before)
    assert lake.jobs()[0].progress.tasks_done == 10


def test_results_come_in_the_order_of_the_tasks(lake):
    started = threading.Barrier(3)

    def run(storage, task, check):
        started.wait(10)  # all three run at once
        return task * 10

    assert list(ThreadRunner(lake.storage, width=3).map(run, [1, 2, 3], lambda: None)) == [10, 20, 30]


def test_a_task_that_fails_ends_the_others_and_raises(lake):
    ran = []

    def run(storage, task, check):
        if task == 0:
            raise il.StorageError("no space")
        time.sleep(0.01)
        ran.append(task)

    with pytest.raises(il.StorageError, match="no space"):
        list(ThreadRunner(lake.storage, width=1).map(run, list(range(100)), lambda: None))
    assert len(ran) < 50
    assert not [t for t in threading.enumerate() if t.name.startswith("indexlake-task")]


def test_a_dump_that_is_stopped_leaves_the_rows_where_they_are(lake):
    table = filled(lake, 40, block_row_count=10)
    stop = threading.Event()
    stop.set()
    with pytest.raises(il.JobError, match="stopped"):
        dump(lake, table._table_id, stop=stop)
    assert lake.jobs()[0].state == "cancelled"
    assert len(table) == 40
