"""Group commit: threads that commit at once share database commits, and each fails alone."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.threads import in_threads

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("thread", pa.int64())])


def test_eight_threads_share_database_commits(any_lake: il.Lake, on_step: Any) -> None:
    t = any_lake.create_table("t", SCHEMA, primary_key="id")
    before = any_lake._committer.commits, any_lake._committer.groups
    wait_for_the_disk(on_step)
    in_threads(8, lambda n: [t.upsert({"id": n * 1000 + i, "thread": n}) for i in range(40)])
    commits, groups = any_lake._committer.commits - before[0], any_lake._committer.groups - before[1]
    assert commits == 320
    assert groups <= 0.6 * commits, f"{groups} database commits for {commits} commits"
    assert sorted(r["id"] for r in t.scan().to_pylist()) == sorted(n * 1000 + i for n in range(8) for i in range(40))
    snapshots = [s.snapshot_id for s in t.history() if s.operation == "upsert"]
    assert len(snapshots) == 320, "each commit has its own snapshot"


def wait_for_the_disk(on_step: Any) -> None:
    waits = "sql.commit.before", "log.sync"
    on_step(lambda step: time.sleep(0.002) if step in waits else None)


def test_in_a_group_each_fails_alone(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, primary_key="id")
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

    in_threads(6, work)
    assert Counter(refused) == {i: 2 if i % 2 else 3 for i in range(40)}
    assert len(t) == 40 + 3 * 40
    assert t.scan("id < 40").count() == 40


def test_two_write_sets_of_one_group_on_one_row_do_not_both_win(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, primary_key="id")
    t.insert({"id": 1, "thread": 0})
    wins: list[int] = []

    def work(n: int) -> None:
        for _ in range(10):
            tx = any_lake.transaction()
            row = tx.table("t").get(1)
            tx.table("t").update({"thread": row["thread"] + 1}, "id = 1")
            try:
                tx.commit()
                wins.append(n)
            except il.ConflictError:
                pass

    in_threads(6, work)
    assert t.get(1) == {"id": 1, "thread": len(wins)}
    assert wins


def test_readers_see_whole_commits_only_and_never_go_back(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, primary_key="id")
    stop = threading.Event()

    def work(n: int) -> None:
        if n < 2:
            try:
                for i in range(25):
                    first = (n * 25 + i) * 10
                    t.insert([{"id": first + k, "thread": n} for k in range(10)])
                    if i % 10 == 9 and n == 0:
                        any_lake.pipeline().dump("t")
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

    in_threads(4, work)
    assert len(t) == 500


def test_interrupted_twice_no_row_is_acknowledged_that_is_not_there(any_lake: il.Lake, on_step: Any) -> None:
    """The second interrupt comes while the first thread finds out what has become of the others' commits."""
    t = any_lake.create_table("t", {"id": "int64"})
    left: list[str] = []

    class Interrupt(BaseException):
        pass

    def interrupt(step: str) -> None:
        if step in ("sql.commit.before", "log.sync"):
            time.sleep(0.002)
            if left and threading.current_thread().name == "interrupted":
                left.pop()
                raise Interrupt

    on_step(interrupt)
    accepted: list[int] = []

    def work(n: int) -> None:
        if n == 0:
            threading.current_thread().name = "interrupted"
        for i in range(30):
            if n == 0:
                left[:] = ["once", "again"]
            try:
                t.insert([{"id": n * 100 + i}])
                accepted.append(n * 100 + i)
            except (Interrupt, il.CatalogError):
                pass

    in_threads(6, work)
    left.clear()
    found = sorted(row["id"] for row in t)
    assert set(accepted) <= set(found)
    assert len(found) == len(set(found))
