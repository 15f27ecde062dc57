"""Mistakes that peers made in scans and jobs (numbers as in the list of the design), each a test here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.statistics import stats_from_bytes
from indexlake.catalog import table_heads
from indexlake.storage import faults
from tests.support.lakes import clock_of
from tests.support.waiting import wait_until

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.float64()), pa.field("s", pa.string())])


def rows(numbers: Any) -> list[dict[str, Any]]:
    return [{"id": n, "v": float(n), "s": f"s{n}"} for n in numbers]


def content(t: il.Table) -> list[dict[str, Any]]:
    return sorted(t.scan().to_pylist(), key=lambda r: r["id"])


@pytest.mark.inline_only("readers need no transaction of the catalog")
def test_01_inline_rows_and_file_list_are_read_in_one_transaction(any_address: Any, monkeypatch: Any) -> None:
    with any_address.connect() as lake, any_address.connect() as other:
        t = lake.create_table("t", SCHEMA, primary_key="id")
        head = table_heads.read_head
        busy = False
        dumps = 0

        def dump_meanwhile(r: Any, *rest: Any) -> Any:
            nonlocal busy, dumps
            found = head(r, *rest)
            if not busy and hasattr(r, "close"):  # the reader's own transaction, after its first statement
                busy = True
                dumps += other.pipeline().dump("t")["main.t"].blocks
                busy = False
            return found

        for step in range(4):
            t.insert(rows(range(step * 10, step * 10 + 10)))
            t.update({"s": "x"}, "id % 10 = 3")
            expected = content(t)
            monkeypatch.setattr(table_heads, "read_head", dump_meanwhile)
            try:
                assert content(t) == expected, "rows while a dump of another process commits"
                assert t.get(step * 10 + 3) is not None
                assert len(t) == len(expected)
            finally:
                monkeypatch.setattr(table_heads, "read_head", head)
            assert content(t) == expected
        assert dumps >= 4


def test_01_scans_during_dumps_of_another_process_are_always_whole(any_address: Any) -> None:
    with any_address.connect() as lake, any_address.connect() as other:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(block_row_count=7))
        t.insert(rows(range(20)))
        stop = threading.Event()
        errors: list[BaseException] = []

        def churn() -> None:
            try:
                while not stop.is_set():
                    other.table("t").update({"v": il.expr("v + 1")}, "id % 4 = 0")
                    other.pipeline().dump("t")
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for _ in range(60):
                assert sorted(t.scan(columns=["id"]).to_arrow().column(0).to_pylist()) == list(range(20))
        finally:
            stop.set()
            thread.join()
        assert not errors


def test_02_a_dump_does_not_count_statistics_twice(new_address: Any) -> None:
    with new_address("sqlite").connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id")
        t.insert([*rows(range(10)), {"id": 10, "v": None, "s": None}])
        before = t.stats()

        def update_meanwhile(step: str) -> None:
            if step == "dump.written":
                faults.install(None)
                t.update({"v": None}, "id in (3, 4)")

        faults.install(update_meanwhile)
        try:
            lake.pipeline().dump("t")
        finally:
            faults.install(None)
        lake.pipeline().dump("t")
        lake.pipeline().dump("t")
        after = t.stats()
        assert before.rows == after.rows == len(t) == 11
        assert after.hot_rows == 0
        assert after.block_rows - after.deleted_in_blocks == 11
        state = t._state()
        column = state.current.field("v").column
        live = [b for b in state.blocks.records if b.role == "data"]
        nulls = [stats_from_bytes(b.column_stats)[column].null_count for b in live]
        assert sorted(nulls) == [1, 2], "each version's null is counted in the block that holds it, once"
        assert [stats_from_bytes(b.column_stats)["f1"].null_count for b in live] == [0, 0]
        assert t.scan("v is null").count() == 3


def test_03_mixed_deletes_of_inline_and_block_rows_lose_no_other_row(any_address: Any) -> None:
    with any_address.connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=20))
        t.insert(rows(range(15)))
        lake.pipeline().dump("t")
        t.insert(rows(range(15, 40)))
        t.insert(rows(range(40, 55)))
        assert t.delete("id % 5 = 0").rows == 11
        left = [n for n in range(55) if n % 5]
        assert [r["id"] for r in content(t)] == left
        with lake.transaction() as tx:
            inside = tx.table("t")
            inside.insert(rows(range(60, 65)))
            assert inside.delete("id in (1, 16, 41, 61)").rows == 4
            assert inside.delete("id in (1, 16, 41, 61)").rows == 0
        left = [n for n in [*left, *range(60, 65)] if n not in (1, 16, 41, 61)]
        for _ in range(2):
            assert [r["id"] for r in content(t)] == left
            assert len(t) == len(left)
            lake.pipeline().dump("t")


def test_03_an_update_never_leaves_the_old_and_the_new_row(any_address: Any) -> None:
    with any_address.connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=20))
        t.insert(rows(range(10)))
        lake.pipeline().dump("t")
        t.insert(rows(range(10, 35)))
        t.insert(rows(range(35, 45)))
        for n in range(3):
            assert t.update({"v": float(n)}, "id % 3 = 0").rows == 15
            assert t.update({"s": f"{n}"}, "true").rows == 45
            found = content(t)
            assert [r["id"] for r in found] == list(range(45))
            assert {r["s"] for r in found} == {f"{n}"}
            assert t.scan("v is not null").count() == 45
            lake.pipeline().dump("t")
            assert content(t) == found


def _inline_rows(lake: il.Lake, t: il.Table) -> int:
    with lake.catalog.read() as r:
        return int(r.rows(f"select count(*) from indexlake_inline_row_{t._table_id}")[0][0])


def test_04_dead_inline_rows_are_reclaimed_without_being_asked(any_address: Any) -> None:
    config = il.TableConfig(inline_row_count_limit=50)
    with any_address.connect(automatic=True) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        t.insert(rows([1]))
        first = lake.snapshot_id
        for n in range(150):
            t.update({"v": float(n)}, "id = 1")
        wait_until(lambda: _inline_rows(lake, t) < 60, "dead rows are not removed")
        assert t.get(1)["v"] == 149.0
        assert t.at(first + 5).get(1)["v"] == 4.0, "what is retained stays readable"


@pytest.mark.inline_only("counts the rows of the inline table")
def test_04_versions_beyond_the_retention_are_removed(new_address: Any) -> None:
    with new_address("sqlite").connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(retention=0))
        t.insert(rows([1]))
        for n in range(50):
            t.update({"v": float(n)}, "id = 1")
        assert _inline_rows(lake, t) == 51
        clock_of(lake).stop()
        lake.pipeline().expire("t")
        assert _inline_rows(lake, t) == 1
        assert t.get(1)["v"] == 49.0


def test_05_a_failed_dump_does_not_block_the_next_one(any_address: Any) -> None:
    with any_address.connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(block_row_count=5))
        t.insert(rows(range(12)))
        t.update({"v": 0.0}, "id = 1")
        expected = content(t)
        for step in ("dump.planned", "block.written", "dump.written", "dump.commit", "dump.committed", "dump.purged"):

            def fail(name: str, wanted: str = step) -> None:
                if name == wanted:
                    raise OSError(f"failed at {wanted}")

            previous = faults.install(fail)
            try:
                with pytest.raises((OSError, il.IndexLakeError)):
                    lake.pipeline().dump("t")
            finally:
                faults.install(previous)
            assert lake.jobs()[0].state == "failed"
            assert content(t) == expected, step
            t.insert(rows([100 + len(expected)]))
            expected = content(t)
        lake.pipeline().dump("t")
        assert lake.jobs()[0].state == "done"
        assert t.stats().hot_rows == 0
        assert content(t) == expected


def test_05_a_killed_dump_does_not_block_the_next_one(new_address: Any) -> None:
    address = new_address("sqlite")
    with address.connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id")
        t.insert(rows(range(12)))
    program = "import sys, indexlake; indexlake.connect(sys.argv[1], automatic=False).pipeline().dump('t')"
    killed = subprocess.run(
        [sys.executable, "-c", program, address.catalog],
        env={**os.environ, "INDEXLAKE_FAULTS": "dump.written=kill"},
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    with address.connect() as lake:
        assert lake.jobs()[0].state == "running"
        assert lake.pipeline().dump("t")["main.t"].rows == 12
        assert [job.state for job in lake.jobs() if job.kind == "dump"] == ["done", "lost"]
        assert content(lake.table("t")) == rows(range(12))


def test_08_files_outlive_the_commit_that_drops_them(new_address: Any) -> None:
    with new_address("sqlite").connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=5))
        t.insert(rows(range(10)))
        files = {f.path for f in lake.storage.list("tables")}
        before = lake.snapshot_id

        def fail(step: str) -> None:
            if step == "commit.applied":
                raise il.CatalogError("the commit failed")

        for drop in (t.truncate, lambda: t.delete("true"), lambda: lake.drop_table("t")):
            previous = faults.install(fail)
            try:
                with pytest.raises(il.CatalogError):
                    drop()
            finally:
                faults.install(previous)
            assert lake.snapshot_id == before
            assert content(t) == rows(range(10))
        lake._files.clear()
        t.truncate()
        lake.drop_table("t")
        assert {f.path for f in lake.storage.list("tables")} == files
        assert content(lake.at(before).table("t")) == rows(range(10))
