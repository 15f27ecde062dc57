"""Which changes a feed shows: every kind of commit, in every place where rows can lie."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog import commits
from indexlake.pipeline.compact import live_blocks
from indexlake.pipeline.rewrite import rewrite
from indexlake.pipeline.runner import ThreadRunner
from indexlake.schema import ROW_ID
from tests.feed.versions import expected_feed, replayed, versions_at
from tests.support.lakes import clock_of

PLACES = ["hot", "dumped vortex", "dumped parquet", "dumped ipc", "direct"]


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": n, "v": n * 10, "s": f"s{n}"} for n in numbers]


def dump(table: il.Table) -> None:
    table._lake.pipeline().dump(table.name)


def short(changes: Any) -> list[tuple[str, int, Any]]:
    """(kind, id, v) of each change."""
    return [(c["_change_type"], c["id"], c["v"]) for c in changes.to_pylist()]


def check(table: il.Table, since: int) -> None:
    """The whole feed is what the snapshots say, and its parts add up to it."""
    last = table._lake.snapshot_id
    wanted = expected_feed(table, since, last)
    found = table.changes(since, with_row_id=True)
    assert found.to_pylist() == wanted
    assert found.count() == len(wanted)
    for middle in range(since, last + 1):
        parts = [table.changes(since, middle, with_row_id=True), table.changes(middle, with_row_id=True)]
        assert [row for part in parts for row in part.to_pylist()] == wanted, middle
    start = {i: row for i, (_, row) in versions_at(table, since).items()}
    assert replayed(start, wanted) == {i: row for i, (_, row) in versions_at(table, last).items()}


@pytest.fixture(params=PLACES)
def placed(request: pytest.FixtureRequest, any_shared_lake: il.Lake, new_table: Any) -> il.Table:
    """Rows 1 … 6, in one place or another."""
    place: str = request.param
    format = place.split()[-1] if " " in place else "vortex"
    table: il.Table = new_table(
        any_shared_lake, dump_format=format, direct_write_row_count=5 if place == "direct" else 1000
    )
    table.insert(pa.Table.from_pylist(rows(1, 2, 3, 4, 5, 6), table.schema))
    if place.startswith("dumped"):
        dump(table)
    return table


def test_an_insert_is_inserts(placed: il.Table) -> None:
    created = placed.history()[0].snapshot_id
    assert short(placed.changes(created)) == [("insert", n, n * 10) for n in range(1, 7)]
    assert placed.changes(created).to_arrow().column("_snapshot_id").unique().to_pylist() == [
        placed.history()[1].snapshot_id
    ]


def test_an_update_is_an_old_row_and_a_new_one(any_shared_lake: il.Lake, placed: il.Table) -> None:
    before = any_shared_lake.snapshot_id
    placed.update({"v": 0}, "id in (2, 5)")
    wanted = [
        ("update_preimage", 2, 20), ("update_preimage", 5, 50), ("update_postimage", 2, 0), ("update_postimage", 5, 0)
    ]  # fmt: skip
    assert short(placed.changes(before)) == wanted
    dump(placed)
    assert short(placed.changes(before)) == wanted
    check(placed, before)


def test_an_update_to_equal_values_is_an_update(any_shared_lake: il.Lake, placed: il.Table) -> None:
    before = any_shared_lake.snapshot_id
    placed.update({"v": il.expr("v")}, "id = 3")
    assert short(placed.changes(before)) == [("update_preimage", 3, 30), ("update_postimage", 3, 30)]


def test_a_delete_is_deletes(any_shared_lake: il.Lake, placed: il.Table) -> None:
    before = any_shared_lake.snapshot_id
    placed.delete("id > 4")
    assert short(placed.changes(before)) == [("delete", 5, 50), ("delete", 6, 60)]
    dump(placed)
    check(placed, before)


def test_a_changed_key_is_one_update(any_shared_lake: il.Lake, placed: il.Table) -> None:
    before = any_shared_lake.snapshot_id
    placed.update({"id": il.expr("id + 100")}, "id = 1")
    assert short(placed.changes(before)) == [("update_preimage", 1, 10), ("update_postimage", 101, 10)]


def test_a_key_that_is_deleted_and_inserted_again_is_a_delete_and_an_insert(
    any_shared_lake: il.Lake, placed: il.Table
) -> None:
    before = any_shared_lake.snapshot_id
    with any_shared_lake.transaction() as tx:
        table = tx.table(placed.name)
        table.delete("id = 1")
        table.insert({"id": 1, "v": 11, "s": None})
    assert short(placed.changes(before)) == [("delete", 1, 10), ("insert", 1, 11)]
    check(placed, before)


def test_a_truncate_is_deletes_and_what_follows_in_its_transaction_are_inserts(
    any_shared_lake: il.Lake, placed: il.Table
) -> None:
    before = any_shared_lake.snapshot_id
    placed.delete("id = 6")
    placed.update({"v": 1}, "id = 1")
    with any_shared_lake.transaction() as tx:
        table = tx.table(placed.name)
        table.insert(rows(50))
        table.truncate()
        table.insert(rows(1, 60))
        table.update({"v": 2}, "id = 60")
    changes = short(placed.changes(any_shared_lake.snapshot_id - 1))
    assert sorted(changes[:5]) == [("delete", 1, 1), *(("delete", n, n * 10) for n in (2, 3, 4, 5))]
    assert changes[5:] == [("insert", 1, 10), ("insert", 60, 2)]
    check(placed, before)
    dump(placed)
    check(placed, before)


def test_statements_of_one_transaction_show_as_their_net_effect(any_shared_lake: il.Lake, placed: il.Table) -> None:
    before = any_shared_lake.snapshot_id
    with any_shared_lake.transaction() as tx:
        table = tx.table(placed.name)
        table.update({"v": 1}, "id = 1")
        table.update({"v": 2}, "id = 1")  # one update, from the committed row to the last
        table.update({"v": 1}, "id = 2")
        table.delete("id = 2")  # a delete
        table.insert(rows(70))
        table.update({"v": 3}, "id = 70")  # an insert
        table.insert(rows(80))
        table.delete("id = 80")  # nothing
    assert short(placed.changes(before)) == [
        ("update_preimage", 1, 10), ("delete", 2, 20), ("update_postimage", 1, 2), ("insert", 70, 3)
    ]  # fmt: skip
    check(placed, before)


def test_a_transaction_over_several_tables_shows_in_each_under_one_snapshot(
    any_shared_lake: il.Lake, new_table: Any
) -> None:
    a, b = new_table(any_shared_lake), new_table(any_shared_lake)
    before = any_shared_lake.snapshot_id
    with any_shared_lake.transaction() as tx:
        tx.table(a.name).insert(rows(1))
        tx.table(b.name).insert(rows(2))
    assert short(a.changes(before)) == [("insert", 1, 10)]
    assert short(b.changes(before)) == [("insert", 2, 20)]
    (first,), (second,) = a.changes(before), b.changes(before)
    assert first["_snapshot_id"] == second["_snapshot_id"] == any_shared_lake.snapshot_id


def test_a_large_update_written_as_blocks_pairs_with_the_rows_it_replaces(
    any_shared_lake: il.Lake, new_table: Any
) -> None:
    table = new_table(any_shared_lake, direct_write_row_count=10, block_row_count=7)
    table.insert(pa.Table.from_pylist(rows(*range(40)), table.schema))
    table.insert(rows(*range(100, 105)))
    before = any_shared_lake.snapshot_id
    table.update({"v": 0}, "id % 2 = 0")
    found = table.changes(before).to_pylist()
    assert [c["_change_type"] for c in found] == ["update_preimage"] * 23 + ["update_postimage"] * 23
    assert [c["id"] for c in found[:23]] == [c["id"] for c in found[23:]]
    check(table, before)


def test_rows_superseded_before_they_are_dumped_are_found_in_history_blocks(
    any_shared_lake: il.Lake, new_table: Any
) -> None:
    table = new_table(any_shared_lake, block_row_count=4)
    before = any_shared_lake.snapshot_id
    table.insert(rows(*range(6)))
    for n in range(5):
        table.update({"v": n}, "id = 1 or id = $n", params={"n": n})
    table.delete("id = 5")
    check(table, before)
    hot = table.changes(before, with_row_id=True).to_pylist()
    until = any_shared_lake.snapshot_id
    dump(table)
    assert table.stats().history_blocks > 1
    assert table.changes(before, until, with_row_id=True).to_pylist() == hot
    check(table, before)


def test_a_row_changed_while_its_block_is_written_shows_once(any_shared_lake: il.Lake, new_table: Any) -> None:
    from indexlake.pipeline.dump import commit_chunk, plan_chunk, purge, run_task
    from indexlake.pipeline.job import Job

    table = new_table(any_shared_lake)
    before = any_shared_lake.snapshot_id
    table.insert(rows(1, 2, 3))
    task = plan_chunk(any_shared_lake, table._table_id, history=False)
    assert task is not None
    block = run_task(any_shared_lake.storage, task, lambda: None)
    table.update({"v": 0}, "id = 1")
    table.delete("id = 2")
    with Job(any_shared_lake, "dump", table._table_id) as job:
        assert commit_chunk(any_shared_lake, job, task, block)
    check(table, before)  # nothing is purged yet: hot copies of what is in the block are still there
    purge(any_shared_lake, table._table_id)
    check(table, before)
    table.truncate()
    check(table, before)


def test_a_job_is_told_from_a_user_by_a_flag_and_not_by_its_name(any_shared_lake: il.Lake, new_table: Any) -> None:
    """A user's MERGE and a job that merges blocks are both called merge."""
    lake = any_shared_lake
    table = new_table(lake, direct_write_row_count=1)
    table.insert(rows(1))
    table.insert(rows(2))
    before = lake.snapshot_id
    table.merge(rows(2, 3), on="id").when_matched_update({"v": 0}).when_not_matched_insert().execute()

    def choose(state: Any, snapshot: int) -> Any:
        return [(live_blocks(state, snapshot), "ipc")]

    assert rewrite(lake, table._table_id, "merge", choose, ThreadRunner(lake.storage)).blocks_before >= 2
    with lake.catalog.read() as r:
        assert [operation for _, _, operation, _ in commits.list_snapshots(r, before + 1)] == ["merge", "merge"]
    assert sorted(short(table.changes(before))) == [
        ("insert", 3, 30), ("update_postimage", 2, 0), ("update_preimage", 2, 20)
    ]  # fmt: skip
    assert short(table.changes(before + 1)) == []
    check(table, before)


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_what_expired_is_refused_and_what_is_kept_stays_exact(any_shared_lake: il.Lake, new_table: Any) -> None:
    table = new_table(any_shared_lake, retention=timedelta(0), block_row_count=3)
    table.insert(rows(*range(8)))
    dump(table)
    table.delete("id = 1")
    table.update({"v": 0}, "id = 2")
    table.update({"v": 1}, "id = 2")
    middle = any_shared_lake.snapshot_id
    table.delete("id = 3")
    table.update({"v": 5}, "id in (2, 4)")
    dump(table)
    wanted = expected_feed(table, middle, any_shared_lake.snapshot_id)
    with any_shared_lake.catalog.read() as r:
        ((moment,),) = r.rows("select committed_at from indexlake_snapshot where snapshot_id = ?", (middle,))
    with clock_of(any_shared_lake).stopped(moment + 60_000_000):
        result = any_shared_lake.pipeline().expire(table.name)[table.name]
    assert result.horizon == middle
    assert result.deletes_folded
    assert table.changes(middle, with_row_id=True).to_pylist() == wanted
    check(table, middle)
    with pytest.raises(il.SnapshotExpiredError, match=f"history is kept from snapshot {middle} on") as caught:
        table.changes(middle - 1)
    assert caught.value.horizon == middle


def test_tables_without_a_key_and_equal_rows_are_told_apart_by_row_id(any_shared_lake: il.Lake, new_table: Any) -> None:
    table = new_table(any_shared_lake, primary_key=None)
    before = any_shared_lake.snapshot_id
    table.insert(rows(1, 1, 1))
    dump(table)
    table.insert(rows(1, 1))
    table.update({"v": 0}, "id = 1")
    table.delete("true")
    check(table, before)
    ids = [c[ROW_ID] for c in table.changes(before, with_row_id=True).to_pylist()]
    assert len(set(ids)) == 5


def test_every_type_comes_through_with_nulls_nans_and_dictionaries(local_lake: il.Lake, new_table: Any) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("f", pa.float64()),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
            pa.field("l", pa.list_(pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string_view())]))),
            pa.field("w", pa.string_view()),
        ]
    )
    table = new_table(local_lake, schema, "id", direct_write_row_count=100)
    before = local_lake.snapshot_id

    def row(n: int) -> dict[str, Any]:
        value = [None, float("inf"), -0.0][n % 3]
        return {"id": f"{n:04}", "f": value, "d": f"d{n}" if n % 7 else None, "l": [{"x": n, "y": "y"}], "w": f"w{n}"}

    for start in (0, 100, 200):  # together more values of d than int8 can number
        table.insert(pa.Table.from_pylist([row(n) for n in range(start, start + 100)], schema))
    table.insert([row(n) for n in range(300, 360)])
    dump(table)
    table.insert([row(n) for n in range(460, 500)])
    table.update({"w": "new"}, "id < '0010' or id > '0490'")
    table.delete("id between '0100' and '0400'")
    check(table, before)
    found = table.changes(before).to_arrow()
    assert found.schema.field("d").type == schema.field("d").type
    assert found.schema.field("l").type == schema.field("l").type
