"""Several processes, one lake."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("by", pa.int64())])
CONFIG = il.TableConfig(inline_row_count_limit=40, direct_write_row_count=100, block_row_count=100)
spawn = multiprocessing.get_context("spawn")


def _insert(path: str, number: int, count: int, start: Any) -> None:
    with il.connect(path) as lake:
        t = lake.table("t")
        start.wait(60)
        for n in range(count):
            key = number * 10_000 + n
            t.insert({"id": key, "by": number})
            if n % 5 == 4:
                t.update({"by": il.expr("by + 100")}, "id = $id", {"id": key - 1})
            if n % 20 == 19:
                first = number * 10_000 + 5000 + n * 100
                t.insert(pa.table({"id": range(first, first + 100), "by": [number] * 100}))


def test_many_processes_insert_while_automatic_dumps_run_and_lose_nothing(tmp_path: Path) -> None:
    processes, count = 3, 60
    with il.connect(tmp_path, automatic=False) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
        start = spawn.Barrier(processes)
        workers = [
            spawn.Process(target=_insert, args=(str(tmp_path), n, count, start)) for n in range(1, processes + 1)
        ]
        for worker in workers:
            worker.start()
        seen = 0
        while any(worker.is_alive() for worker in workers):
            now = len(t)
            assert now >= seen, "rows went away"
            seen = now
            time.sleep(0.02)
        assert [worker.exitcode for worker in workers] == [0] * processes
        rows = {r["id"]: r["by"] for r in t.scan().to_pylist()}
        expected = {}
        for number in range(1, processes + 1):
            for n in range(count):
                expected[number * 10_000 + n] = number + (100 if n % 5 == 3 else 0)
                if n % 20 == 19:
                    first = number * 10_000 + 5000 + n * 100
                    expected |= dict.fromkeys(range(first, first + 100), number)
        assert rows == expected
        assert len(t) == len(expected)
        assert t.stats().blocks > 3 * processes, "dumps ran meanwhile"
        for key in list(expected)[::37]:
            assert t.get(key) == {"id": key, "by": expected[key]}


def _create(path: str, start: Any, answers: Any) -> None:
    with il.connect(path) as lake:
        start.wait(60)
        try:
            lake.create_table("same", [{"x": 1}])
            answers.put("made it")
        except il.AlreadyExistsError as error:
            answers.put(str(error))


def test_of_two_processes_that_create_the_same_table_one_is_told_that_it_exists(tmp_path: Path) -> None:
    il.connect(tmp_path).close()
    start, answers = spawn.Barrier(2), spawn.Queue()
    workers = [spawn.Process(target=_create, args=(str(tmp_path), start, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = sorted(answers.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert found == [
        "Table 'main.same' already exists. Use it with exist_ok=True (in SQL: IF NOT EXISTS), or drop it first.",
        "made it",
    ]
    with il.connect(tmp_path) as lake:
        assert lake.table("same").scan().to_pylist() == [{"x": 1}]


def _connect(path: str, number: int, start: Any) -> None:
    start.wait(60)
    with il.connect(path) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", exist_ok=True)
        t.insert({"id": number, "by": number})


@pytest.mark.parametrize("processes", [4])
def test_processes_that_make_the_same_lake_at_once_all_get_it(tmp_path: Path, processes: int) -> None:
    start = spawn.Barrier(processes)
    workers = [spawn.Process(target=_connect, args=(str(tmp_path / "new"), n, start)) for n in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * processes
    with il.connect(tmp_path / "new") as lake:
        assert sorted(lake.table("t").scan().to_arrow().column("id").to_pylist()) == list(range(processes))
        assert (tmp_path / "new" / "files" / "indexlake.json").exists()
