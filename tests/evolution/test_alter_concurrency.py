"""A table altered while others read and write it: transactions, stale caches, jobs and blocks under way."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.clock import now
from indexlake.pipeline.dump import commit_chunk, plan_chunk, run_task
from indexlake.pipeline.job import Job
from tests.evolution.conftest import SCHEMA, Fill, row, rows
from tests.support.lakes import clock_of, connect

Two = tuple[il.Lake, il.Lake]


def many(first: int, count: int = 30) -> pa.Table:
    return pa.Table.from_pylist([row(n) for n in range(first, first + count)], SCHEMA)


@pytest.mark.parametrize("size", ["rows", "block"])
def test_a_transaction_begun_before_a_column_was_added_takes_its_default(
    two_handles: Two, fill: Fill, size: str
) -> None:
    lake, other = two_handles
    t = fill(lake)
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.insert(many(100)) if size == "block" else mine.insert([row(100), row(101)])
        mine.update({"note": "mine"}, where="id in (1, 11, 41)")
        other.table("t").add_column("kind", pa.string(), default="old")
        other.table("t").insert({"id": 70, "kind": "new"})
        assert mine.schema.names == SCHEMA.names  # the transaction sees the columns of its snapshot
        assert mine.get(100) == row(100)
        assert mine.get(70) is None
        mine.update({"v": -1}, where="id = 100")
        with pytest.raises(il.SchemaError, match="no column 'kind'"):
            mine.insert({"id": 300, "kind": "x"})
        with pytest.raises(il.ExpressionError, match="kind"):
            mine.scan("kind = 'old'").to_pylist()
    assert t.get(100) == row(100) | {"v": -1, "kind": "old"}
    assert t.get(101) == row(101) | {"kind": "old"}
    assert [t.get(n)["note"] for n in (1, 11, 41)] == ["mine"] * 3
    assert t.get(70)["kind"] == "new"
    assert t.scan("kind = 'old'").count() == len(t) - 1
    lake.pipeline().dump("t")
    assert t.scan("kind = 'old'").count() == len(t) - 1


@pytest.mark.parametrize("size", ["rows", "block"])
@pytest.mark.parametrize("what", ["widen", "nested", "rename", "drop", "table", "config"])
def test_a_transaction_conflicts_only_with_a_column_that_holds_something_else_now(
    two_handles: Two, fill: Fill, what: str, size: str
) -> None:
    lake, other = two_handles
    t, there = fill(lake), other.table("t")
    alter: dict[str, Any] = {
        "widen": lambda: there.widen_column("v", pa.int64()),
        "nested": lambda: there.add_column("address.country", pa.string(), default="DE"),
        "rename": lambda: there.rename_column("v", "w"),
        "drop": lambda: there.drop_column("v"),
        "table": lambda: there.rename("u"),
        "config": lambda: there.set_config(retention=60),
    }
    tx = lake.transaction()
    mine = tx.table("t")
    mine.insert(many(100)) if size == "block" else mine.insert(row(100))
    alter[what]()
    if what in ("widen", "nested"):
        with pytest.raises(il.ConflictError, match="was altered after this transaction began") as caught:
            tx.commit()
        assert caught.value.retryable
        assert t.get(100) is None
        assert lake.run(lambda tx: tx.table("t").insert(row(100)).rows) == 1
    else:
        tx.commit()
    expected = row(100)
    if what == "rename":
        expected = {"id": 100, "w": 100, "note": None, "address": None}
    elif what == "drop":
        del expected["v"]
    assert t.get(100) == expected
    lake.pipeline().dump(t.name)
    assert t.get(100) == expected


def test_a_transaction_that_only_truncates_or_locks_survives_an_alteration(two_handles: Two, fill: Fill) -> None:
    lake, other = two_handles
    t = fill(lake)
    with lake.transaction() as tx:
        tx.table("t").truncate()
        tx.table("t").insert(row(1))
        other.table("t").add_column("kind", pa.string(), default="old")
    assert t.scan().to_pylist() == [row(1) | {"kind": "old"}]
    with lake.transaction() as tx:
        assert tx.table("t").scan("id = 1", for_update=True).to_pylist() == [row(1) | {"kind": "old"}]
        other.table("t").rename_column("kind", "sort")
    assert t.get(1)["sort"] == "old"


def test_a_transaction_begun_after_an_alteration_sees_it_though_the_cache_is_old(two_handles: Two, fill: Fill) -> None:
    lake, other = two_handles
    fill(lake)
    assert other.table("t").get(1)["id"] == 1  # a cache that knows the old columns
    lake.table("t").add_column("kind", pa.string(), default="old")
    with other.transaction() as tx:
        tx.table("t").insert({"id": 100, "kind": "new"})
    assert other.table("t").get(100)["kind"] == "new"


def test_a_statement_uses_the_newest_columns_though_the_cache_is_old(two_handles: Two, fill: Fill) -> None:
    lake, other = two_handles
    fill(lake)
    t, there = lake.table("t"), other.table("t")
    for given in ("dict", "table", "generator"):
        assert there.get(1)["id"] == 1
        t.add_column(f"c {given}", pa.int64(), default=7)
        new = {"id": 1000 + len(given), f"c {given}": 1}
        source: Any = {"dict": new, "table": pa.Table.from_pylist([new]), "generator": (r for r in [new])}[given]
        there.insert(source)
        assert t.get(new["id"])[f"c {given}"] == 1
    assert there.get(1)["id"] == 1
    t.rename_column("note", "remark")
    with pytest.raises(il.SchemaError, match="no column 'note'"):
        there.insert({"id": 2000, "note": "lost"})
    there.insert({"id": 2000, "remark": "kept"})
    t.widen_column("v", pa.int64())
    assert there.update({"v": 2**40}, where="id = 2000").rows == 1
    t.drop_column("v")
    there.insert(many(3000).drop_columns(["v", "note"]))
    assert there.delete("id >= 3000").rows == 30
    with pytest.raises(il.ExpressionError, match="v"):
        there.update({"remark": "x"}, where="v = 1")


def test_rows_that_can_be_read_once_survive_a_column_added_while_they_are_written(
    lake: il.Lake, fill: Fill, tmp_path: Path
) -> None:
    with connect(tmp_path / "lake", retry_timeout=0.2) as impatient:
        t = fill(impatient)

        def source() -> Any:
            yield row(100)
            lake.table("t").add_column("kind", pa.string(), default="old")
            yield row(101)

        assert t.insert(source()).rows == 2
        assert [t.get(n)["kind"] for n in (100, 101)] == ["old", "old"]

        def hopeless() -> Any:
            yield row(200) | {"kind": "x"}
            lake.table("t").widen_column("v", pa.int64())

        with pytest.raises(il.ConflictError, match="altered"):
            t.insert(hopeless())
        assert t.get(200) is None


def test_alterations_of_two_processes_add_up(two_handles: Two, fill: Fill) -> None:
    lake, other = two_handles
    t, there = fill(lake), other.table("t")
    mine, theirs = t.alter().add_column("a", pa.int8(), default=1), there.alter().add_column("b", pa.int8(), default=2)
    mine.commit()
    theirs.commit()
    assert t.schema.names[-2:] == ["a", "b"]
    assert there.get(11) == row(11) | {"a": 1, "b": 2}
    both = [t.alter().add_column("c", pa.int8()), there.alter().add_column("C", pa.int16())]
    both[0].commit()
    with pytest.raises(il.SchemaError, match="There is already a column 'C'"):
        both[1].commit()
    gone = there.alter().widen_column("note", pa.large_string())
    t.drop_column("note")
    with pytest.raises(il.SchemaError, match="no column 'note'"):
        gone.commit()


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.inline_only("chunks of history alone")
def test_a_dump_planned_before_an_alteration_commits_after_it(two_handles: Two, fill: Fill, history: bool) -> None:
    lake, other = two_handles
    t = fill(lake)
    before = lake.snapshot_id
    t.update({"note": "later"}, where="id in (40, 41)")
    pictures = {s: rows(t.at(s)) for s in (before, lake.snapshot_id)}
    task = plan_chunk(lake, t._table_id, history=history)
    blocks = run_task(lake.storage, task, lambda: None)
    with other.table("t").alter() as a:
        a.add_column("kind", pa.string(), default="old")
        a.widen_column("v", pa.int64())
        a.drop_column("address.city")
        a.rename_column("note", "remark")
    t.update({"v": 2**40, "kind": "new"}, where="id = 43")
    pictures[lake.snapshot_id] = rows(t)
    with Job(lake, "dump", t._table_id) as job:
        assert commit_chunk(lake, job, task, blocks)
    assert {s: rows(t.at(s)) for s in pictures} == pictures
    assert rows(other.table("t")) == [*pictures.values()][-1]
    lake.pipeline().dump("t")
    assert {s: rows(t.at(s)) for s in pictures} == pictures


def test_one_dump_of_rows_written_with_different_columns_keeps_every_snapshot(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake, key=None)
    pictures = {}
    for number in range(4):
        t.update({"note": f"round {number}"}, where="id >= 30 and id < 45")
        t.insert({"id": 100 + number})
        pictures[lake.snapshot_id] = rows(t)
        t.widen_column("v", [pa.int64(), pa.decimal128(20, 0), pa.decimal128(21, 0), pa.decimal128(22, 1)][number])
        t.drop_column("address") if number == 1 else t.add_column(f"c{number}", pa.int8(), default=number)
        pictures[lake.snapshot_id] = rows(t)
    lake.pipeline().dump("t")
    assert t.stats().hot_rows == t.stats().superseded_hot_rows == 0
    assert {s: rows(t.at(s)) for s in pictures} == pictures


# ---------------------------------------------------------------- expire


def later(lake: il.Lake, seconds: int) -> None:
    clock_of(lake).stop(now() + (7 * 24 * 3600 + seconds) * 1_000_000)


def inline_columns(lake: il.Lake, t: il.Table) -> set[str]:
    name = f"indexlake_inline_row_{t._table_id}"
    if lake.catalog.database() == "postgres":
        sql = """select column_name::text from information_schema.columns
            where table_name = ? and table_schema = current_schema()"""
    else:
        sql = "select name from pragma_table_info(?)"
    return {column for (column,) in lake.catalog.query(sql, (name,)) if not column.startswith("_")}


@pytest.mark.inline_only("looks into the inline table")
def test_expire_removes_the_inline_columns_that_nothing_needs(any_lake: il.Lake, fill: Fill) -> None:
    lake = any_lake
    t = fill(lake)
    with t.alter() as a:
        a.drop_column("note")
        a.widen_column("v", pa.int64())
        a.add_column("kind", pa.string(), default="old")
    t.insert({"id": 60, "v": 2**40})
    expected = rows(t)
    assert len(inline_columns(lake, t)) == 6
    for seconds in (10, 20):  # the first releases the columns, the second removes them
        later(lake, seconds)
        lake.pipeline().expire("t")
        assert rows(t) == expected
        assert t.get(41)["v"] is None
        assert t.get(40)["v"] == 40
    assert len(inline_columns(lake, t)) == 5  # of the old v, hot rows still need their values
    lake.pipeline().dump("t")
    assert rows(t) == expected
    for seconds in (30, 40, 50):
        t.update({"kind": "new"}, where="id = 60")
        later(lake, seconds)
        lake.pipeline().expire("t")
    assert len(inline_columns(lake, t)) == 4
    expected[-1]["kind"] = "new"
    assert rows(t) == expected
    t.insert({"id": 61, "kind": "x"})
    assert t.get(61) == {"id": 61, "v": None, "address": None, "kind": "x"}
    assert lake.pipeline().verify().ok


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_rows_older_than_the_horizon_are_dumped_with_the_columns_at_the_horizon(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.widen_column("v", pa.int64())
    t.drop_column("note")
    expected = rows(t)
    later(lake, 10)
    lake.pipeline().expire("t")
    t.add_column("kind", pa.string(), default="old")
    lake.pipeline().dump("t")
    block = max(t._state().blocks.records, key=lambda b: b.data_file_id)
    held = t._state().schema.at(block.schema_snapshot)
    assert held.names == ("id", "v", "address")
    assert held.field("v").type == pa.int64()
    assert rows(t) == [r | {"kind": "old"} for r in expected]


def test_readers_and_writers_go_on_while_a_table_is_altered_again_and_again(two_handles: Two) -> None:
    lake, other = two_handles
    t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int8())]), primary_key="id")
    failures: list[BaseException] = []
    stop = threading.Event()
    written: list[int] = []

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run)

    def write() -> None:
        n = len(written)
        other.table("t").insert({"id": n, "n": 1})
        written.append(n)
        other.table("t").update({"n": 2}, where="id = $id", params={"id": n})

    def read() -> None:
        seen = len(written)
        found = t.scan().to_arrow()
        assert found.num_rows >= seen
        assert set(found.column("n").to_pylist()) <= {1, 2}

    threads = [guarded(write), guarded(read)]
    for thread in threads:
        thread.start()
    for number, wider in enumerate([pa.int16(), pa.int32(), pa.int64(), pa.decimal128(19, 0), pa.decimal128(20, 0)]):
        t.add_column(f"c{number}", pa.int64(), default=number)
        t.widen_column("n", wider)
        lake.pipeline().dump("t")
        t.drop_column(f"c{number}")
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert sorted(r["id"] for r in t.scan().to_pylist()) == written
    assert {r["n"] for r in rows(t)} <= {1, 2}


@pytest.mark.parametrize("size", ["rows", "block"])
@pytest.mark.parametrize(
    "meanwhile",
    [
        ["alter table t add column c double not null default random()"],
        ["alter table t add column c double default random()"],
        ["alter table t add column c int", "update t set c = 1", "alter table t alter c set not null"],
    ],
)
def test_a_transaction_begun_before_leaves_no_null_where_a_new_column_has_none(
    two_handles: Two, fill: Fill, meanwhile: list[str], size: str
) -> None:
    lake, other = two_handles
    t = fill(lake)
    tx = lake.transaction()
    tx.table("t").insert(many(100) if size == "block" else row(100))
    for text in meanwhile:
        other.sql(text)
    with pytest.raises(il.ConflictError, match="got a new rule after this transaction began"):
        tx.commit()
    assert t.get(100) is None
    assert t.scan("c is null").count() == 0
