"""Group commit: threads that commit at once share database commits, and each fails alone."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("thread", pa.int64())])


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: Any, new_address: Any) -> Any:
    with new_address(request.param).connect(automatic=False) as lake:
        yield lake


def _together(count: int, work: Any) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_eight_threads_inserting_share_database_commits(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    before = lake._committer.commits, lake._committer.groups
    _together(8, lambda n: [t.insert({"id": n * 1000 + i, "thread": n}) for i in range(40)])
    commits, groups = lake._committer.commits - before[0], lake._committer.groups - before[1]
    assert commits == 320
    assert groups <= 0.6 * commits, f"{groups} database commits for {commits} commits"
    assert sorted(r["id"] for r in t.scan().to_pylist()) == sorted(n * 1000 + i for n in range(8) for i in range(40))
    snapshots = [s.snapshot_id for s in t.history() if s.operation == "insert"]
    assert len(snapshots) == 320, "each commit has its own snapshot"


def test_in_a_group_each_fails_alone(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    t.insert([{"id": i, "thread": -1} for i in range(0, 40, 2)])
    refused: list[int] = []

    def work(n: int) -> None:
        for i in range(40):
            if n % 2:
                t.insert({"id": n * 1000 + i, "thread": n})
                continue
            try:
                t.insert({"id": i, "thread": n})
            except il.DuplicateKeyError as error:
                refused.append(error.key)

    _together(6, work)
    assert Counter(refused) == {i: 2 if i % 2 else 3 for i in range(40)}
    assert len(t) == 40 + 3 * 40
    assert t.scan("id < 40").count() == 40


def test_two_write_sets_of_one_group_on_one_row_do_not_both_win(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    t.insert({"id": 1, "thread": 0})
    wins: list[int] = []

    def work(n: int) -> None:
        for _ in range(10):
            tx = lake.transaction()
            row = tx.table("t").get(1)
            tx.table("t").update({"thread": row["thread"] + 1}, "id = 1")
            try:
                tx.commit()
                wins.append(n)
            except il.ConflictError:
                pass

    _together(6, work)
    assert t.get(1) == {"id": 1, "thread": len(wins)}
    assert wins


def test_readers_see_whole_commits_only_and_never_go_back(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    stop = threading.Event()

    def work(n: int) -> None:
        if n < 2:
            try:
                for i in range(25):
                    first = (n * 25 + i) * 10
                    t.insert([{"id": first + k, "thread": n} for k in range(10)])
                    if i % 10 == 9 and n == 0:
                        lake.pipeline().dump("t")
            finally:
                if n == 0:
                    stop.set()
            return
        seen = 0
        while not stop.is_set():
            rows = t.scan(columns=["id"]).to_arrow().column(0).to_pylist()
            assert len(rows) == len(set(rows)), "a row twice"
            assert len(rows) % 10 == 0, "half a commit"
            assert len(rows) >= seen, "a commit went away"
            seen = len(rows)

    _together(4, work)
    assert len(t) == 500
