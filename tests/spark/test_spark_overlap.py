"""Jobs on Spark beside each other, beside writes, open transactions and readers: no answer changes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.clock import now
from indexlake.pipeline.job import JobBusy
from tests.pipeline.job_tables import content
from tests.support.lakes import clock_of, connect

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
CONFIG = il.TableConfig(block_row_count=60, direct_write_row_count=20)
STEPS = 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(autouse=True)
def empty_table(lake: il.Lake) -> None:
    lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "v": [n * 7919 % 101 for n in numbers], "text": [f"row {n}" for n in numbers]})


def texts(t: Any) -> dict[int, str]:
    return {row["id"]: row["text"] for row in content(t)}


@contextmanager
def meanwhile(folder: Path, spark: Any, **jobs: Callable[[Any], Any]) -> Iterator[dict[str, int]]:
    """Each job again and again in a thread and on a handle of its own; yields how often each came through."""
    stop = threading.Event()
    errors: list[BaseException] = []
    done = dict.fromkeys(jobs, 0)

    def repeat(name: str, job: Callable[[Any], Any]) -> None:
        try:
            with connect(folder) as lake:
                pipeline = lake.pipeline(spark=spark)
                while not stop.is_set():
                    with suppress(JobBusy):
                        job(pipeline)
                        done[name] += 1
                    time.sleep(0.01)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=one) for one in jobs.items()]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    if errors:
        raise errors[0]


def expire_all(pipeline: Any) -> None:
    """As if everything had happened long ago; what is pinned stays all the same."""
    with clock_of(pipeline._lake).stopped(now() + 48 * 3600 * 1_000_000):
        pipeline.expire("t")
        pipeline.vacuum(dry_run=False, grace=timedelta(0))


def test_compact_freeze_truncate_updates_and_dumps_at_once_give_the_right_table(
    lake: il.Lake, folder: Path, spark: Any
) -> None:
    chance = random.Random(7)
    t = lake.table("t")
    wanted: dict[int, str] = {}
    past: list[tuple[int, dict[int, str]]] = []
    fresh = step = 0
    jobs: dict[str, Callable[[Any], Any]] = {
        "dump": lambda p: p.dump("t"),
        "compact": lambda p: p.compact("t"),
        "freeze": lambda p: p.freeze("t"),
        "thaw": lambda p: p.thaw("t"),
        "vacuum": lambda p: p.vacuum(dry_run=False, grace=timedelta(0)),
    }
    deadline = time.monotonic() + 120
    with meanwhile(folder, spark, **jobs) as done:
        while step < STEPS or (min(done.values()) < 2 and time.monotonic() < deadline):
            if step % 10 == 9:
                t.truncate()
                wanted = {}
            elif chance.random() < 0.5 or not wanted:
                count = chance.choice((3, 25, 70))
                new = rows(fresh, count)
                t.insert(new if count > 20 else new.to_pylist())
                wanted |= {n: f"row {n}" for n in range(fresh, fresh + count)}
                fresh += count
            else:
                modulus, rest = chance.choice((3, 7)), chance.randrange(3)
                hit = [n for n in wanted if n % modulus == rest]
                params = {"m": modulus, "r": rest}
                if chance.random() < 0.6:
                    assert t.update({"text": f"u{step}"}, "id % $m = $r", params).rows == len(hit)
                    wanted |= dict.fromkeys(hit, f"u{step}")
                else:
                    assert t.delete("id % $m = $r", params).rows == len(hit)
                    wanted = {n: text for n, text in wanted.items() if n % modulus != rest}
            assert texts(t) == wanted
            if step % 4 == 0:
                past.append((lake.snapshot_id, dict(wanted)))
            step += 1
            time.sleep(0.1)  # or the jobs would see one state after the other hardly begun
    assert min(done.values()) >= 2, done
    assert texts(t) == wanted
    assert {row["id"]: row["text"] for row in t.to_spark(spark).collect()} == wanted
    for snapshot, then in past:
        assert texts(t.at(snapshot)) == then
    verified = lake.pipeline(runner="threads").verify()
    assert verified.ok, verified


def test_an_open_transaction_commits_what_a_dump_and_a_compaction_moved_under_it(lake: il.Lake, spark: Any) -> None:
    t = lake.table("t")
    for n in range(4):
        t.insert(rows(n * 25, 25))
    t.insert(rows(100, 5).to_pylist())
    tx = lake.transaction()
    mine = tx.table("t")
    assert mine.update({"text": "mine"}, "id % 10 = 0").rows == 11
    assert mine.delete("id % 10 = 1").rows == 11
    t.update({"text": "theirs"}, "id % 10 = 2")
    p = lake.pipeline(spark=spark)
    assert p.dump("t")["main.t"].rows > 0
    assert p.compact("t")["main.t"].blocks_before > 1
    assert mine.get(10) == {"id": 10, "v": 10 * 7919 % 101, "text": "mine"}
    assert mine.get(12) == {"id": 12, "v": 12 * 7919 % 101, "text": "row 12"}, "it still reads at its snapshot"
    assert mine.get(11) is None
    tx.commit()
    texts_of = {0: "mine", 2: "theirs"}
    assert texts(t) == {n: texts_of.get(n % 10, f"row {n}") for n in range(105) if n % 10 != 1}
    losing = lake.transaction()
    losing.table("t").update({"text": "late"}, "id = 50")
    t.update({"text": "first"}, "id = 50")
    p.dump("t")
    p.compact("t")
    with pytest.raises(il.ConflictError):
        losing.commit()
    assert t.get(50)["text"] == "first"


def test_keys_the_change_feed_and_row_ids_do_not_notice_rewrites(lake: il.Lake, spark: Any) -> None:
    t = lake.table("t")
    start = lake.snapshot_id
    for n in range(5):
        t.insert(rows(n * 25, 25))
    t.update({"text": "changed"}, "id % 6 = 0")
    t.delete("id % 11 = 5")
    t.insert({"id": 5, "v": 0, "text": "again"})

    def seen() -> tuple[Any, ...]:
        feed = sorted(t.changes(start).to_pylist(), key=str)
        return content(t), feed, [t.get(n) for n in range(130)], [t.locate(r["_indexlake_row_id"]) is None
                                                                 for r in content(t)]  # fmt: skip

    before = seen()
    p = lake.pipeline(spark=spark)
    p.dump("t")
    for job in (p.compact, p.freeze, p.thaw, lambda name: p.compact(name, cluster_by=["v"])):
        job("t")
        assert seen() == before
    with pytest.raises(il.DuplicateKeyError):
        t.insert({"id": 5, "v": 1, "text": "no"})
    assert t.upsert([{"id": 5, "v": 1, "text": "yes"}]).updated == 1


@pytest.mark.inline_only("another process reads, and sees the last checkpoint")
def test_dataframes_made_before_are_read_while_jobs_replace_and_delete_files(
    lake: il.Lake, folder: Path, spark: Any
) -> None:
    t = lake.table("t")
    t.set_config(retention=timedelta(0))
    for n in range(4):
        t.insert(rows(n * 25, 25))
    t.insert(rows(100, 9).to_pylist())
    t.delete("id % 8 = 1")
    whole, some = t.to_spark(spark), t.to_spark(spark, ["id"], "v > 50")
    source = spark.read.format("indexlake").option("table", "t").load(str(folder))
    expected = sorted((r["id"], r["v"], r["text"]) for r in content(t))
    few = sorted(r["id"] for r in content(t) if r["v"] > 50)

    def rewrite(p: Any) -> None:
        p.dump("t")
        p.compact("t")
        p.freeze("t")
        expire_all(p)

    deadline = time.monotonic() + 120
    step = 0
    with meanwhile(folder, spark, rewrite=rewrite) as done:
        while done["rewrite"] < 2 and time.monotonic() < deadline:
            t.update({"text": f"later {step}"}, "id % 3 = $r", {"r": step % 3})
            assert sorted(map(tuple, whole.collect())) == expected
            assert sorted(r[0] for r in some.collect()) == few
            assert sorted(map(tuple, source.collect())) == expected
            step += 1
    assert done["rewrite"] >= 2
    assert sorted(map(tuple, whole.collect())) == expected
    assert sorted(map(tuple, source.collect())) == expected
    assert texts(t) != {r[0]: r[2] for r in expected}
