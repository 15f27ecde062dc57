"""Mistakes that peers made under concurrency and at scale (numbers as in the list of the design), each a test."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.storage import faults
from tests.peers.sql_log import query_plan, statements

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def test_17_ids_never_collide(any_two_handles: Any) -> None:
    one, two = any_two_handles
    config = il.TableConfig(direct_write_row_count=10)
    one.create_table("t", SCHEMA, config=config)
    errors: list[BaseException] = []

    def write(lake: il.Lake, first: int) -> None:
        try:
            t = lake.table("t")
            for n in range(first, first + 100, 10):
                t.insert([{"id": n + k, "v": 0} for k in range(9)])
                t.insert([{"id": n + k, "v": 1} for k in range(10)])
                lake.create_table(f"other.t{n}", SCHEMA)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(lake, n * 1000)) for n, lake in enumerate((one, one, two, two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = one.table("t").scan(with_row_id=True).to_arrow()
    assert found.num_rows == 4 * 10 * 19
    assert len(set(found.column("_indexlake_row_id").to_pylist())) == found.num_rows
    with one.catalog.read() as r:
        for table, column in (
            ("snapshot", "snapshot_id"),
            ("data_file", "data_file_id"),
            ("table", "table_id"),
            ("field", "field_id"),
        ):
            numbers = [n for (n,) in r.rows(f"select {column} from indexlake_{table}")]
            assert len(numbers) == len(set(numbers)) >= 40
    assert len(one.tables()) == 41


def test_17_a_conflict_is_seen_although_each_reads_its_own_snapshot(any_two_handles: Any) -> None:
    one, two = any_two_handles
    t = one.create_table("t", SCHEMA, primary_key="id")
    t.insert([{"id": 1, "v": 0}])
    for dumped in (False, True):
        if dumped:
            one.pipeline().dump("t")
        first, second = one.transaction(), two.transaction()
        for tx in (first, second):
            tx.table("t").update({"v": il.expr("v + 1")}, "id = 1")
        before = t.get(1)["v"]
        second.commit()
        with pytest.raises(il.ConflictError):
            first.commit()
        assert t.get(1)["v"] == before + 1


@pytest.mark.inline_only("one thread reads the catalog inside its own transaction of it")
def test_17_a_writer_waits_for_another_instead_of_failing(any_two_handles: Any) -> None:
    one, two = any_two_handles
    t = one.create_table("t", SCHEMA, primary_key="id")
    two.table("t").insert({"id": 0, "v": 0})
    holding = one.catalog.transaction()
    holding.rows("select 1")
    done: list[Any] = []
    writer = threading.Thread(target=lambda: done.append(two.table("t").insert({"id": 1, "v": 0})))
    writer.start()
    time.sleep(0.2)
    assert not done
    assert t.get(0) == {"id": 0, "v": 0}, "readers do not wait"
    holding.rollback()
    writer.join(30)
    assert done[0].rows == 1
    assert len(t) == 2


def test_17_retries_depend_on_types_and_not_on_english_text() -> None:
    assert il.ConflictError("völlig andere Worte").retryable
    assert not il.DuplicateKeyError("conflict, locked, try again").retryable
    assert not il.SchemaError("deadlock detected").retryable


def test_18_concurrent_writers_of_one_key_make_no_duplicates(any_two_handles: Any) -> None:
    one, two = any_two_handles
    t = one.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=20))
    for number, dumped in enumerate((False, True)):
        for count in (1, 10, 30):
            keys = list(range(number * 1000 + count * 10, number * 1000 + count * 10 + count))
            first, second = one.transaction(), two.transaction()
            for tx in (first, second):
                assert tx.table("t").scan("id = $k", params={"k": keys[0]}).count() == 0
                tx.table("t").insert([{"id": k, "v": 0} for k in keys])
            first.commit()
            if dumped:
                one.pipeline().dump("t")
            with pytest.raises(il.DuplicateKeyError):
                second.commit()
            assert t.scan("id = $k", params={"k": keys[0]}).count() == 1
    found = t.scan(columns=["id"]).to_arrow().column(0).to_pylist()
    assert len(found) == len(set(found)) == 2 * 41


def test_18_a_key_dumped_between_the_look_and_the_commit_is_found(any_two_handles: Any) -> None:
    one, two = any_two_handles
    t = one.create_table("t", SCHEMA, primary_key="id")
    t.insert({"id": 1, "v": 0})
    busy = False

    def insert_and_dump(step: str) -> None:
        nonlocal busy
        if step == "commit.begin" and not busy:  # the look is done, the critical section not yet entered
            busy = True
            two.table("t").insert({"id": 7, "v": 2})
            two.pipeline().dump("t")

    previous = faults.install(insert_and_dump)
    try:
        with pytest.raises(il.DuplicateKeyError):
            t.insert({"id": 7, "v": 1})
    finally:
        faults.install(previous)
    assert busy
    assert t.scan("id = 7").to_pylist() == [{"id": 7, "v": 2}]


def test_19_a_delete_by_row_id_counts_only_rows_that_were_alive(any_two_handles: Any) -> None:
    one, two = any_two_handles
    t = one.create_table("t", SCHEMA, primary_key="id")
    t.insert([{"id": n, "v": n} for n in range(6)])
    one.pipeline().dump("t")
    t.insert([{"id": n, "v": n} for n in range(6, 12)])
    row_ids = t.scan(with_row_id=True, order_by="id").to_arrow().column("_indexlake_row_id").to_pylist()
    some = f"_indexlake_row_id in ({', '.join(map(str, row_ids[3:9]))})"
    assert two.table("t").delete(f"_indexlake_row_id in ({row_ids[3]}, {row_ids[8]})").rows == 2
    assert t.delete(some).rows == 4
    assert t.delete(some).rows == 0
    assert two.table("t").update({"v": 0}, some).rows == 0
    assert len(t) == 6
    one.pipeline().dump("t")
    assert t.delete(some).rows == 0


@pytest.mark.inline_only("when the catalog is told does not depend on the query")
def test_21_a_query_costs_the_same_among_many_empty_tables(new_address: Any) -> None:
    with new_address("sqlite").connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id")
        t.insert({"id": 1, "v": 0})

        def use() -> list[str]:
            with statements() as seen:
                again = lake.table("t")
                assert again.get(1) is not None
                assert again.scan("v = 0").count() == 1
                again.update({"v": 0}, "id = 1")
            return seen

        use()
        alone = use()
        for n in range(300):
            lake.create_table(f"empty.t{n}", SCHEMA)
        among = use()
        assert [s[:60] for s in among] == [s[:60] for s in alone]
        began = time.monotonic()
        for _ in range(20):
            use()
        assert (time.monotonic() - began) / 20 < 0.5


def test_22_no_statement_scans_a_catalog_table_that_grows(new_address: Any) -> None:
    with new_address("sqlite").connect() as lake:
        config = il.TableConfig(direct_write_row_count=10, block_row_count=10)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        t.insert([{"id": n, "v": n} for n in range(100)])
        with statements() as seen:
            lake._readings.states.forget(t._table_id)
            t.insert({"id": 1000, "v": 0}, token="once")
            t.insert([{"id": n, "v": n} for n in range(2000, 2020)])
            t.get(5)
            t.scan("v between 3 and 5").to_arrow()
            t.update({"v": 1}, "id in (5, 1000)")
            t.delete("id = 6")
            with lake.transaction() as tx:
                tx.table("t").scan("id = 7", for_update=True).to_arrow()
                tx.table("t").update({"v": 2}, "id = 8")
            lake.pipeline().dump("t")
            t.truncate()
        plans = {
            sql: query_plan(lake, sql)
            for sql in set(seen)
            if sql.lower().startswith(("select", "update", "delete", "with"))
        }
        assert len(plans) > 10
        grows = ("snapshot", "data_file", "delete", "touched", "locked", "index_file", "token", "field", "inline_row")
        for sql, plan in plans.items():
            for line in plan.splitlines():
                if line.startswith("SCAN") and "INDEX" not in line and " limit 1" not in sql:
                    assert not any(f"indexlake_{name}" in line for name in grows), f"{line}\n{sql}"


def test_22_planning_looks_only_at_what_can_match(new_address: Any) -> None:
    with new_address("sqlite").connect() as lake:
        config = il.TableConfig(direct_write_row_count=1, block_row_count=1)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        t.insert([{"id": n, "v": n * 10} for n in range(150)])
        assert t.stats().blocks == 150
        for where in ("id = 77", "v = 770", "v between 765 and 775", "id in (77)"):
            plan = t.scan(where).explain()
            assert (plan.blocks_read, plan.blocks_total) == (1, 150), where
        with statements() as seen:
            t.scan("v = 770").to_arrow()
        assert not any("column_stats" in sql for sql in seen), "statistics are not read again for each query"
