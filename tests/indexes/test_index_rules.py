"""The rules by which indexes stay complete, each in the history that would break without it.

Rows are compared with a look at each of them (look-ups switched off), and the plan tells that the index was used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.driver import DatabaseError
from indexlake.indexes import keys
from indexlake.pipeline import build_index as building
from indexlake.pipeline import create_index as creating
from indexlake.pipeline import merge_index as folding
from indexlake.pipeline.publish_unique import publish_unique
from indexlake.storage import faults
from tests.pipeline.job_tables import blocks, expire_everything, files
from tests.support.lakes import clock_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False), pa.field("a", pa.int16()), pa.field("b", pa.int16()),
        pa.field("x", pa.float64()), pa.field("y", pa.float64()), pa.field("note", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)  # fmt: skip
OnStep = Callable[[faults.Callback | None], object]


@pytest.fixture
def lake(two_handles: tuple[il.Lake, il.Lake]) -> il.Lake:
    return two_handles[0]


@pytest.fixture
def other(two_handles: tuple[il.Lake, il.Lake]) -> il.Lake:
    return two_handles[1]


@pytest.fixture
def fold_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments are enough for a fold, and every block gets one of its own."""
    monkeypatch.setattr(folding, "FOLD", 2)
    monkeypatch.setattr(building, "GROUP_ROWS", 1)


def table(lake: il.Lake, **config: Any) -> il.Table:
    settings = {"block_row_count": 100, "direct_write_row_count": 10, "retention": timedelta(0), **config}
    return lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(**settings))


def rows(start: int, count: int) -> pa.Table:
    """Values of `a` and `b` that are each in one row, and others that are in many."""
    made = [
        {
            "id": n, "a": n, "b": -n, "x": float(n % 10), "y": float(n // 10), "note": f"late parcel w{n}",
            "vec": [float(n), 1.0],
        }
        for n in range(start, start + count)
    ]  # fmt: skip
    return pa.Table.from_pylist(made, SCHEMA)


def in_blocks(t: il.Table, count: int, size: int = 20) -> il.Table:
    for n in range(count):
        t.insert(rows(n * size, size))
    return t


def define(t: il.Table, name: str, *columns: str, kind: str = "btree", unique: bool = False) -> int:
    """The definition alone: nothing is built."""
    change = creating._definition(t, name, columns, kind, unique, (), {})
    t._lake._define(change, "create index")
    return change.found[0]


def index_id(t: il.Table, name: str) -> int:
    found = [c.index for c in t._lake._readings.latest(t._table_id).indexes.values() if c.index.name == name]
    return found[-1].index_id


def query(lake: il.Lake, sql: str) -> list[Any]:
    with closing(lake.catalog.query(sql)) as found:
        return list(found)


def ids(t: il.Table, where: str, index: str | None = "by_a") -> list[int]:
    """The rows that a look-up finds, which are those that a scan finds; the plan names the index."""
    opened = t._lake._files
    opened.use_indexes = "always"
    scan = t.scan(where, columns=["id"])
    found, plan = sorted(row["id"] for row in scan.to_pylist()), scan.explain()
    assert t.scan(where).count() == len(found)
    opened.use_indexes = "never"
    assert sorted(row["id"] for row in t.scan(where, columns=["id"]).to_pylist()) == found, plan
    opened.use_indexes = "auto"
    if index is not None:
        assert plan.found_by == index, plan
    return found


def best(t: il.Table, index: str, query: Any, k: int = 3, **options: Any) -> list[int]:
    return [row["id"] for row in t.search(index, query, k, columns=["id"], **options).to_pylist()]


def once(step: str, act: Callable[[], Any]) -> faults.Callback:
    """Act when the step is passed for the first time."""
    done: list[Any] = []

    def callback(name: str) -> None:
        if name == step and not done:
            done.append(None)
            done.append(act())

    return callback


def no_gaps(lake: il.Lake) -> bool:
    t = lake.table("t")
    return all(info.rows_uncovered == 0 for info in t.indexes())


# ---------------------------------------------------------------- reading


def test_blocks_that_a_build_has_not_come_to_are_scanned(lake: il.Lake, fold_two: None, on_step: OnStep) -> None:
    t = in_blocks(table(lake), 3)
    seen = []

    def look() -> None:
        info = t.index("by_a").info
        seen.append((info.rows_in_segments, info.rows_uncovered, info.state))
        assert ids(t, "a in (5, 25, 45)") == [5, 25, 45]
        assert best(t, "text", "w45") == [45]

    define(t, "text", "note", kind="bm25")
    on_step(once("build_index.published", look))
    t.create_index("by_a", "a")
    assert seen == [(20, 40, "building")]
    assert t.index("by_a").info.state == "ready"


def test_a_block_that_one_side_of_an_or_does_not_cover_is_scanned(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("by_a", "a")
    define(t, "by_b", "b")
    assert ids(t, "a = 5 or b = -6", "by_a or by_b") == [5, 6]
    t.insert(rows(20, 20))
    assert ids(t, "a = 5 or b = -6 or a = 25 or b = -26", None) == [5, 6, 25, 26]
    lake._files.use_indexes = "always"
    plan = t.scan("a = 5 or b = -26").explain()
    assert plan.rows_in_blocks == 21, "the first block whole, of the second one row"


def test_an_index_made_today_answers_time_travel(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 2)
    then = lake.snapshot_id
    t.delete("id = 5")
    t.update({"a": 1000}, "id = 25")
    lake.pipeline().compact("t")
    t.create_index("by_a", "a")
    t.create_index("text", "note", kind="bm25")
    past = t.at(then)
    assert ids(past, "a in (5, 25)", index=None) == [5, 25]
    assert ids(t, "a in (5, 25)") == []
    assert ids(t, "a = 1000", index=None) == [25]
    lake.pipeline().dump("t")
    t.insert(rows(40, 20))
    younger = lake.snapshot_id
    t.drop_index("by_a")
    t.create_index("by_a", "a")
    assert ids(t.at(younger), "a in (6, 45)") == [6, 45], "its segments are younger than the snapshot"
    assert best(past, "text", "w5") == [5]
    assert best(t, "text", "w5") == []


def test_rows_that_were_dead_when_a_segment_was_built_are_found_before_their_end(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    then = lake.snapshot_id
    t.delete("id = 5")
    for name, columns, kind in (("by_a", "a", "btree"), ("h", "b", "hash"), ("text", "note", "bm25")):
        t.create_index(name, columns, kind=kind)
    t.create_index("place", ["x", "y"], kind="rtree")
    t.create_index("near", "vec", kind="hnsw")
    past = t.at(then)
    assert ids(past, "a = 5") == ids(past, "b = -5", "h") == [5]
    assert ids(past, "x between 4.5 and 5.5 and y between -0.5 and 0.5", "place") == [5]
    assert best(past, "text", "w5") == best(past, "place", (5, 0), 1) == best(past, "near", [5, 1], 1) == [5]
    assert ids(t, "a = 5") == ids(t, "b = -5", "h") == best(t, "text", "w5") == []
    assert best(t, "place", (5.1, 0), 1) == best(t, "near", [5.1, 1], 1) == [6]


def test_an_old_value_finds_the_row_at_old_snapshots_only(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 2)
    t.create_index("by_a", "a")
    t.create_index("text", "note", kind="bm25")
    t.create_index("near", "vec", kind="hnsw")
    then = lake.snapshot_id
    t.update({"a": 500, "note": "moved", "vec": [-9.0, 1.0]}, "id = 7")
    for job in ("dump", "compact", "freeze", "thaw"):
        getattr(lake.pipeline(), job)("t")
        assert (ids(t, "a = 7"), ids(t, "a = 500")) == ([], [7]), job
        assert (ids(t.at(then), "a = 7"), ids(t.at(then), "a = 500", None)) == ([7], []), job
        assert (best(t, "text", "w7"), best(t, "text", "moved")) == ([], [7]), job
        assert (best(t.at(then), "text", "w7"), best(t.at(then), "text", "moved")) == ([7], []), job
        assert (best(t, "near", [-9, 1], 1), best(t.at(then), "near", [-9, 1], 1)) == ([7], [0]), job


def test_hits_of_a_hash_index_are_compared_with_the_value(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys have the same hash."""
    from indexlake.indexes.hash import kind

    def same(column: keys.KeyColumn) -> Any:
        return keys.hash_keys(column) * 0

    monkeypatch.setattr(kind, "hash_key", lambda key: 0)
    monkeypatch.setattr("indexlake.indexes.btree.builder.hash_keys", same)
    t = in_blocks(table(lake), 2)
    t.create_index("h", "a", kind="hash")
    assert ids(t, "a = 7", "h") == [7]
    lake._files.use_indexes = "always"
    plan = t.scan("a = 7").explain()
    assert plan.rows_in_blocks >= 20, "the others were candidates"


def test_hot_rows_from_before_the_index_are_found(lake: il.Lake, other: il.Lake) -> None:
    t = table(lake)
    t.insert([{"id": 1, "a": 7, "note": "late"}])
    t.create_index("by_a", "a")
    t.create_index("text", "note", kind="bm25")
    other.table("t").insert([{"id": 2, "a": 7, "note": "late"}])
    for each in (t, other.table("t")):
        assert ids(each, "a = 7", None) == [1, 2]
        assert sorted(best(each, "text", "late")) == [1, 2]


def test_two_columns_that_swap_their_names_keep_their_indexes(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 2)
    t.create_index("by_a", "a")
    then = lake.snapshot_id
    with t.alter() as alter:
        alter.rename_column("a", "c").rename_column("b", "a").rename_column("c", "b")
    assert t.index("by_a").info.columns == ("b",)
    assert ids(t, "b = 7") == [7]
    assert ids(t, "a = -7", None) == [7]
    assert ids(t, "a = 7", None) == []
    assert ids(t.at(then), "a = 7") == [7]
    t.insert(rows(40, 20))
    assert ids(t, "b = -47") == [47]


def test_what_a_search_found_under_a_condition_is_not_taken_for_another_snapshot(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 2)
    t.create_index("text", "note", kind="bm25")
    t.create_index("by_a", "a")
    then = lake.snapshot_id
    t.delete("id in (5, 9)")
    lake._files.use_indexes = "always"
    for where in ("id in (5, 6)", "a in (5, 6)", "a in (9, 9)"):
        now = sorted(best(t, "text", "parcel", where=where))
        assert now == ([] if "9" in where else [6])
        assert sorted(best(t.at(then), "text", "parcel", where=where)) == ([9] if "9" in where else [5, 6])
        assert sorted(best(t, "text", "parcel", where=where)) == now


def test_dead_rows_near_the_query_do_not_hide_living_ones(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 3)
    for name, columns, kind in (("text", "note", "bm25"), ("near", "vec", "hnsw"), ("place", ["x", "y"], "rtree")):
        t.create_index(name, columns, kind=kind)
    t.delete("id < 55")
    assert sorted(best(t, "text", "late", 10)) == [55, 56, 57, 58, 59]
    assert best(t, "near", [0, 1], 10) == [55, 56, 57, 58, 59]
    assert sorted(best(t, "place", (0, 0), 10)) == [55, 56, 57, 58, 59]
    assert best(t, "near", [0, 1], 10, where="a in (57, 59, 3)") == [57, 59]


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("kind", ["btree", "hash"])
def test_a_column_that_was_widened_is_built_and_folded_anew(lake: il.Lake, fold_two: None, kind: str) -> None:
    t = in_blocks(table(lake), 3)
    t.create_index("by_a", "a", kind=kind)
    then = lake.snapshot_id
    t.widen_column("a", pa.int64())
    assert t.index("by_a").info.rows_uncovered == 60
    t.insert([{"id": 100 + n, "a": 2**40 + n} for n in range(20)])
    assert ids(t, f"a in (7, 27, {2**40 + 3})") == [7, 27, 103]
    assert ids(t.at(then), "a in (7, 27)") == [7, 27]
    result = lake.pipeline().build_index("t")["main.t.by_a"]
    assert (result.blocks, result.rows) == (3, 60)
    assert t.index("by_a").info.state == "ready"
    assert lake.pipeline().build_index("t")["main.t.by_a"].blocks == 0
    lake.pipeline().merge_index("t")
    assert t.index("by_a").info.segments == 1
    assert ids(t, f"a in (7, 27, {2**40 + 3})") == [7, 27, 103]
    assert ids(t.at(then), "a in (7, 27)", None) == [7, 27]
    assert lake.pipeline().verify().ok
    live = query(lake, "select count(*) from indexlake_index_file_block where end_snapshot is null")
    assert live == [(8,)], "four blocks, each linked once by the primary key and by the index"


def test_a_fold_planned_before_a_widening_and_committed_after_it_changes_no_answer(
    lake: il.Lake, other: il.Lake, fold_two: None, on_step: OnStep
) -> None:
    t = in_blocks(table(lake), 2)
    t.create_index("by_a", "a")
    t.insert(rows(40, 20))
    on_step(once("merge_index.written", lambda: other.table("t").widen_column("a", pa.int32())))
    lake.pipeline().merge_index("t")
    assert ids(t, "a in (7, 27, 47)", None) == [7, 27, 47]
    lake.pipeline().build_index("t")
    assert ids(t, "a in (7, 27, 47)") == [7, 27, 47]
    assert no_gaps(lake)


def test_a_unique_index_on_a_widened_column_still_refuses(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.insert([{"id": 100, "a": 100}])
    t.create_index("u", "a", unique=True)
    t.widen_column("a", pa.int64())
    t.insert([{"id": 101, "a": 2**40}])
    for job in (lambda: None, lambda: lake.pipeline().build_index("t"), lambda: lake.pipeline().dump("t")):
        job()
        for value in (7, 100, 2**40):
            with pytest.raises(il.DuplicateKeyError):
                t.insert({"id": 200, "a": value})
            with pytest.raises(il.DuplicateKeyError):
                t.update({"a": value}, "id = 3")
    assert len(t) == 22


# ---------------------------------------------------------------- builds beside others


def test_an_index_dropped_during_its_build_gets_no_links(
    lake: il.Lake, other: il.Lake, fold_two: None, on_step: OnStep
) -> None:
    t = in_blocks(table(lake), 2)
    define(t, "by_a", "a")
    on_step(once("build_index.written", lambda: other.table("t").drop_index("by_a")))
    lake.pipeline().build_index("t")
    on_step(None)
    assert query(lake, "select count(*) from indexlake_index_file_block b join indexlake_index i using (index_id) "
                       "where index_name = 'by_a' and b.end_snapshot is null") == [(0,)]  # fmt: skip
    assert t.indexes() == []
    expire_everything(lake)
    assert query(lake, "select count(*) from indexlake_index where index_name = 'by_a'") == [(0,)]
    with clock_of(lake).stopped():
        lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
    assert len(query(lake, "select * from indexlake_index_file")) == 2, "those of the primary key"


def test_a_build_is_published_though_its_blocks_were_compacted_away(
    lake: il.Lake, other: il.Lake, on_step: OnStep
) -> None:
    t = in_blocks(table(lake), 3)
    then = lake.snapshot_id
    define(t, "by_a", "a")
    on_step(once("build_index.written", lambda: other.pipeline().compact("t")))
    result = lake.pipeline().build_index("t")["main.t.by_a"]
    assert result.blocks == 3, "compact wrote a segment for what it made"
    assert (len(blocks(t)), no_gaps(lake)) == (1, True)
    assert ids(t.at(then), "a = 47") == ids(t, "a = 47") == [47]
    lake._files.use_indexes = "always"
    assert t.at(then).scan("a = 47").explain().segments_read == 1


def test_a_compaction_planned_before_the_index_leaves_a_gap_that_the_next_round_fills(
    lake: il.Lake, other: il.Lake, on_step: OnStep
) -> None:
    t = in_blocks(table(lake), 3)
    on_step(once("rewrite.written", lambda: define(other.table("t"), "by_a", "a")))
    lake.pipeline().compact("t")
    assert ids(t, "a = 47", None) == [47]
    lake.pipeline().build_index("t")
    assert ids(t, "a = 47") == [47]
    assert no_gaps(lake)


def test_a_block_that_expired_during_the_build_gets_no_link(lake: il.Lake, other: il.Lake, on_step: OnStep) -> None:
    """As if the pin of a builder that was stopped for long had lapsed."""
    t = in_blocks(table(lake), 2)
    define(t, "by_a", "a")

    def meanwhile() -> None:
        other.pipeline().compact("t")
        with other.catalog.transaction() as tx:
            tx.execute("delete from indexlake_pin")
            tx.commit()
        expire_everything(other)

    on_step(once("build_index.written", meanwhile))
    lake.pipeline().build_index("t")
    assert query(lake, "select count(*) from indexlake_index_file_block where data_file_id not in "
                       "(select data_file_id from indexlake_data_file)") == [(0,)]  # fmt: skip
    assert ids(t, "a = 27") == [27]


def test_a_build_reads_only_what_is_not_covered(lake: il.Lake, fold_two: None) -> None:
    t = in_blocks(table(lake), 3)
    by_a = define(t, "by_a", "a")
    (first, *_) = building.plan(lake, t._table_id, by_a, 1)
    from indexlake.pipeline.job import Job

    segment = building.run_task(lake.storage, first, lambda: None)
    with Job(lake, building.KIND, t._table_id, str(by_a)) as job:
        assert building.publish(lake, job, first, segment)
        assert not building.publish(lake, job, first, segment), "once is enough"
    assert lake.pipeline().build_index("t")["main.t.by_a"].blocks == 2
    assert ids(t, "a in (7, 27, 47)") == [7, 27, 47]


def test_two_builds_of_one_block_link_it_once(lake: il.Lake) -> None:
    from indexlake.pipeline.job import Job

    t = in_blocks(table(lake), 2)
    by_a = define(t, "by_a", "a")
    (task,) = building.plan(lake, t._table_id, by_a, 1000)
    made = [building.run_task(lake.storage, task, lambda: None) for _ in range(2)]
    with Job(lake, building.KIND, t._table_id, str(by_a)) as job:
        assert [building.publish(lake, job, task, segment) for segment in made] == [True, False]
    assert t.index("by_a").info.segments == 1


def test_a_second_live_link_is_refused_by_the_database(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("by_a", "a")
    with lake.catalog.transaction() as tx, pytest.raises(DatabaseError) as refused:
        tx.execute(
            """insert into indexlake_index_file_block (index_id, data_file_id, index_file_id, ordinal, begin_snapshot,
            changed_in) select index_id, data_file_id, index_file_id + 100, 0, 1, 1 from indexlake_index_file_block"""
        )
    assert refused.value.unique_violation


# ---------------------------------------------------------------- folds


def test_two_folds_of_one_segment_leave_one_link_a_block(lake: il.Lake, other: il.Lake, fold_two: None) -> None:
    from indexlake.pipeline.job import Job

    t = table(lake)
    t.create_index("by_a", "a")
    in_blocks(t, 2)
    by_a = index_id(t, "by_a")
    (early,) = folding.plan(lake, t._table_id, by_a)
    made = folding.run_task(lake.storage, early, lambda: None)
    t.insert(rows(40, 20))
    assert other.pipeline().merge_index("t")["main.t.by_a"].segments_before > 1
    with Job(lake, folding.KIND, t._table_id, str(by_a)) as job:
        assert not folding.commit(lake, job, early, made), "others took over all of it"
    assert ids(t, "a in (7, 27, 47)") == ids(other.table("t"), "a in (7, 27, 47)") == [7, 27, 47]
    assert lake.pipeline().verify().ok


def test_a_fold_moves_no_link_of_a_block_that_it_did_not_read(
    lake: il.Lake, other: il.Lake, fold_two: None, on_step: OnStep
) -> None:
    t = table(lake)
    t.create_index("by_a", "a")
    in_blocks(t, 2)
    then = lake.snapshot_id
    on_step(once("merge_index.written", lambda: other.pipeline().compact("t")))
    lake.pipeline().merge_index("t")
    assert ids(t.at(then), "a in (7, 27)") == ids(t, "a in (7, 27)") == [7, 27]
    assert ids(other.table("t").at(then), "a in (7, 27)") == [7, 27]
    lake.pipeline().merge_index("t")
    assert ids(t.at(then), "a in (7, 27)") == ids(t, "a in (7, 27)") == [7, 27]


def test_a_reader_from_before_a_fold_finishes_after_expire_and_vacuum(
    lake: il.Lake, other: il.Lake, fold_two: None
) -> None:
    t = table(lake)
    for name, columns, kind in (("by_a", "a", "btree"), ("text", "note", "bm25"), ("near", "vec", "hnsw")):
        t.create_index(name, columns, kind=kind)
    in_blocks(t, 4)
    tx = other.transaction()
    view = tx.table("t")
    assert ids(view, "a = 47") == [47]
    tx._pin.started -= 3600  # long enough to be pinned
    other._maintenance._beat_once()
    t.delete("id = 47")
    t.insert(rows(80, 20))
    lake.pipeline().merge_index("t")
    lake.pipeline().compact("t")
    expire_everything(lake)
    with clock_of(lake).stopped():
        lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
    other._files.clear()
    assert ids(view, "a = 47") == best(view, "text", "w47") == best(view, "near", [47, 1], 1) == [47]
    tx.rollback()
    assert ids(t, "a = 47") == ids(other.table("t"), "a = 47") == []


def test_a_process_that_slept_through_fold_expire_and_vacuum_asks_the_new_segment(
    lake: il.Lake, other: il.Lake, fold_two: None
) -> None:
    t = table(lake)
    t.create_index("by_a", "a")
    t.create_index("text", "note", kind="bm25")
    in_blocks(t, 4)
    mine = other.table("t")
    assert ids(mine, "a = 47") == best(mine, "text", "w47") == [47]
    before = files(lake)
    lake.pipeline().merge_index("t")
    t.insert({"id": 1000})
    expire_everything(lake)
    with clock_of(lake).stopped():
        lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
    assert before - files(lake), "the folded segments are gone"
    other._files.clear()
    assert ids(mine, "a = 47") == best(mine, "text", "w47") == [47]
    assert mine.index("by_a").info.segments == 1
    paths = {path for (path,) in query(lake, "select relative_path from indexlake_index_file")}
    assert all(Path(lake.storage.root, path).exists() for path in paths)


def test_everything_of_a_dropped_index_goes_with_its_history(lake: il.Lake, fold_two: None) -> None:
    t = in_blocks(table(lake), 3)
    plain = files(lake)
    t.create_index("by_a", "a")
    t.create_index("text", "note", kind="bm25")
    then = lake.snapshot_id
    t.drop_index("by_a")
    t.drop_index("text")
    assert t.indexes() == []
    assert ids(t.at(then), "a = 7") == best(t.at(then), "text", "w7") == [7], "the past has it"
    assert ids(t, "a = 7", "statistics") == [7]
    with pytest.raises(il.NotFoundError):
        t.search("text", "w7").to_pylist()
    t.insert({"id": 1000})
    expire_everything(lake)
    with clock_of(lake).stopped():
        lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
    assert files(lake) == plain
    assert query(lake, "select index_name from indexlake_index") == [("primary",)]


# ---------------------------------------------------------------- definitions


def test_a_column_with_an_index_is_not_dropped_whoever_is_first(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("by_a", "a", include=["b"])
    for column in ("a", "b"):
        with pytest.raises(il.SchemaError, match=rf"'{column}' cannot be dropped: index 'by_a' needs it"):
            other.table("t").drop_column(column)
    change = creating._definition(t, "text", ["note"], "bm25", False, (), {})
    other.table("t").drop_column("note")
    with pytest.raises(il.ConflictError, match=r"columns of table 'main\.t' changed"):
        lake._define(change, "create index")
    with pytest.raises(il.SchemaError, match="note"):
        t.create_index("text", "note", kind="bm25")
    t.drop_index("by_a")
    t.drop_column("a")
    assert t.indexes() == []


def test_an_index_on_a_column_that_was_added_later_is_silent_about_the_time_before(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    then = lake.snapshot_id
    t.add_column("c", pa.int32(), default=5)
    t.create_index("by_c", "c")
    t.insert(rows(20, 20).append_column("c", pa.array(range(20), pa.int32())))
    assert ids(t, "c = 5", "by_c") == [*range(20), 25]
    assert ids(t.at(then), "a = 5", "statistics") == [5]
    with pytest.raises(il.ExpressionError):
        t.at(then).scan("c = 5").to_pylist()


# ---------------------------------------------------------------- unique


def test_duplicates_that_are_there_are_named_and_the_index_is_gone(any_two_handles: tuple[il.Lake, il.Lake]) -> None:
    lake, other = any_two_handles
    t = in_blocks(table(lake), 2)
    t.insert([{"id": 100, "a": 7}, {"id": 101, "a": 200}, {"id": 102, "a": 200}, {"id": 103}, {"id": 104}])
    with pytest.raises(il.DuplicateKeyError, match=r"several rows have a = 7, 200") as refused:
        t.create_index("u", "a", unique=True)
    assert refused.value.index == "u"
    assert t.indexes() == other.table("t").indexes() == []
    t.insert({"id": 105, "a": 7})
    t.delete("id in (100, 105, 102)")
    t.create_index("u", "a", unique=True)
    assert t.index("u").info.state == "ready"
    with pytest.raises(il.DuplicateKeyError, match="unique index 'u': 7"):
        other.table("t").insert({"id": 200, "a": 7})
    t.insert([{"id": 106}, {"id": 107}]), "nulls are not equal to each other"


def test_a_duplicate_that_commits_between_validation_and_publication_is_noticed(
    any_two_handles: tuple[il.Lake, il.Lake], on_step: OnStep
) -> None:
    lake, other = any_two_handles
    t = in_blocks(table(lake), 2)
    on_step(once("publish_unique.validated", lambda: other.table("t").insert({"id": 100, "a": 7})))
    with pytest.raises(il.DuplicateKeyError, match="a = 7"):
        t.create_index("u", "a", unique=True)
    assert len(t) == 41, "who wrote it got no error"
    assert t.indexes() == []


@pytest.mark.parametrize("rounds", [1, 3, 4])
def test_rows_that_commit_in_every_round_are_compared_in_the_last_one_inside(
    any_two_handles: tuple[il.Lake, il.Lake], on_step: OnStep, rounds: int
) -> None:
    lake, other = any_two_handles
    t = in_blocks(table(lake), 1)
    written = []

    def write(name: str) -> None:
        if name == "publish_unique.validated" and len(written) < rounds:
            written.append(None)
            n = len(written)
            other.table("t").insert({"id": 100 + n, "a": 7 if n == rounds else 100 + n})

    on_step(write)
    with pytest.raises(il.DuplicateKeyError, match="a = 7"):
        t.create_index("u", "a", unique=True)
    assert t.indexes() == []
    on_step(None)
    assert len(t) == 20 + len(written)


def test_rows_that_were_dumped_between_two_rounds_are_compared_too(
    lake: il.Lake, other: il.Lake, on_step: OnStep
) -> None:
    t = in_blocks(table(lake), 1)

    def write_and_dump() -> None:
        other.table("t").insert({"id": 100, "a": 7})
        other.pipeline().dump("t")
        other.pipeline().compact("t")

    on_step(once("publish_unique.validated", write_and_dump))
    with pytest.raises(il.DuplicateKeyError, match="a = 7"):
        t.create_index("u", "a", unique=True)


def test_a_duplicate_that_was_repaired_before_the_publication_does_not_count(
    lake: il.Lake, other: il.Lake, on_step: OnStep
) -> None:
    t = in_blocks(table(lake), 1)

    def write_and_repair() -> None:
        other.table("t").insert({"id": 100, "a": 7})
        other.table("t").delete("id = 7")
        other.table("t").update({"a": 8}, "id = 100")
        other.table("t").delete("id = 8")

    on_step(once("publish_unique.validated", write_and_repair))
    t.create_index("u", "a", unique=True)
    assert t.index("u").info.state == "ready"


@pytest.mark.parametrize("how", ["hot", "block", "update", "upsert"])
def test_a_transaction_older_than_the_publication_is_checked_at_its_commit(
    any_two_handles: tuple[il.Lake, il.Lake], how: str
) -> None:
    lake, other = any_two_handles
    t = in_blocks(table(lake), 1)
    tx = other.transaction()
    mine = tx.table("t")
    if how == "hot":
        mine.insert({"id": 100, "a": 7})
    elif how == "block":
        mine.insert(pa.Table.from_pylist([{"id": 100 + n, "a": 7 + n * 100} for n in range(30)], SCHEMA))
    elif how == "update":
        mine.update({"a": 7}, "id = 3")
    else:
        mine.upsert({"id": 3, "a": 7})
    t.create_index("u", "a", unique=True)
    with pytest.raises(il.DuplicateKeyError, match="unique index 'u': 7"):
        tx.commit()
    assert len(t) == 20
    with lake.transaction() as again:
        again.table("t").update({"a": 1000}, "id = 7")
        again.table("t").insert({"id": 100, "a": 7})
    assert ids(t, "a = 7", None) == [100]


def test_nobody_gets_an_error_from_a_unique_index_that_is_not_published(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    u = define(t, "u", "a", unique=True)
    other.table("t").insert({"id": 100, "a": 7})
    other.table("t").insert(pa.Table.from_pylist([{"id": 200 + n, "a": 7} for n in range(30)], SCHEMA))
    other.table("t").update({"a": 7}, "id = 3")
    assert t.index("u").info.state == "building"
    assert ids(t, "a = 7", "u")[:2] == [3, 7]
    with pytest.raises(il.DuplicateKeyError):
        publish_unique(lake, t._table_id, u)
    assert t.indexes() == []


def test_a_value_counts_as_taken_only_while_a_live_version_has_it(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("u", "a", unique=True)
    t.update({"a": 1000}, "id = 7")
    t.insert({"id": 100, "a": 7})
    t.delete("id = 8")
    t.insert({"id": 101, "a": 8})
    with lake.transaction() as tx:
        mine = tx.table("t")
        mine.update({"a": 2000}, "id = 1")
        mine.update({"a": 1}, "id = 2")
        mine.update({"a": 2}, "id = 1")
    assert (t.get(1)["a"], t.get(2)["a"]) == (2, 1)
    t.update({"a": il.expr("-a")}, "true")
    for job in ("dump", "compact"):
        getattr(lake.pipeline(), job)("t")
        with pytest.raises(il.DuplicateKeyError):
            t.insert({"id": 102, "a": -7})
    t.insert({"id": 102, "a": 7})


def test_rows_of_one_statement_are_compared_with_each_other(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("u", ["a", "b"], unique=True)
    with pytest.raises(il.DuplicateKeyError, match="given twice"):
        t.insert([{"id": 100, "a": 1, "b": 5}, {"id": 101, "a": 1, "b": 5}])
    with pytest.raises(il.DuplicateKeyError):
        t.update({"a": 1, "b": 1}, "id in (3, 4)")
    t.insert([{"id": 100, "a": 1, "b": None}, {"id": 101, "a": 1, "b": None}])
    rows_ = [{"id": 200 + n, "a": 300, "b": 300} for n in range(40)]
    with pytest.raises(il.DuplicateKeyError):
        t.insert(pa.Table.from_pylist(rows_, SCHEMA))
    with pytest.raises(il.DuplicateKeyError):
        lake.pipeline().load(pa.Table.from_pylist(rows_, SCHEMA), "t")
    with pytest.raises(il.DuplicateKeyError):
        lake.pipeline().load(pa.Table.from_pylist([{"id": 200, "a": 7, "b": -7}], SCHEMA), "t")
    assert len(t) == 22


@pytest.mark.parametrize("purged", [False, True])
def test_a_unique_index_that_was_dropped_refuses_nobody_whose_cache_still_has_it(
    any_two_handles: tuple[il.Lake, il.Lake], purged: bool
) -> None:
    lake, other = any_two_handles
    t = in_blocks(table(lake), 1)
    mine = other.table("t")
    for n, write in enumerate(
        (
            lambda: mine.insert({"id": 100, "a": 7}),
            lambda: mine.insert([{"id": 101, "a": 500}, {"id": 102, "a": 500}]),
            lambda: mine.insert(pa.Table.from_pylist([{"id": 200 + n, "a": 7} for n in range(30)], SCHEMA)),
            lambda: mine.update({"a": 7}, "id = 3"),
            lambda: mine.upsert([{"id": 4, "a": 7}]),
        )
    ):
        t.create_index("u", "a", unique=True)
        with pytest.raises(il.DuplicateKeyError):
            write()  # the cache has it
        tx = other.transaction()
        tx.table("t").insert({"id": 300, "a": 8})
        t.drop_index("u")
        if purged:
            expire_everything(lake)
        else:
            tx.commit()
            t.delete("id = 300")
        write()
        tx.rollback()
        t.delete("id >= 100")
        t.update({"a": 3}, "id = 3")
        t.update({"a": 4}, "id = 4")
        assert len(t) == 20, n


def test_the_primary_key_is_looked_for_though_a_dropped_index_was_in_the_way(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("u", "a", unique=True)
    assert len(other.table("t")) == 20
    t.drop_index("u")
    with pytest.raises(il.DuplicateKeyError, match="Primary key id = 5"):
        other.table("t").insert([{"id": 5, "a": 500}, {"id": 102, "a": 500}])
    assert len(t) == 20


def test_a_commit_that_is_tried_again_looks_for_its_keys_again(lake: il.Lake, on_step: OnStep) -> None:
    t = in_blocks(table(lake), 1)
    t.create_index("u", "a", unique=True)
    for new in ({"id": 5, "a": 500}, {"id": 500, "a": 5}):
        tx = lake.transaction()
        tx.table("t").insert(new)
        for _ in range(2):
            with pytest.raises(il.DuplicateKeyError):
                lake._committer.commit(tx.write_set)
        tx.rollback()
    assert len(t) == 20


@pytest.mark.parametrize("kind", ["btree", "bm25"])
def test_a_build_puts_aside_where_the_lake_spills(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexlake.indexes.btree.builder.RUN_BYTES", 100)
    monkeypatch.setattr("indexlake.indexes.bm25.builder.RUN_TOKENS", 10)
    monkeypatch.setattr("indexlake.indexes.spool.IN_MEMORY", 100)
    with il.connect(tmp_path / "lake", automatic=False, spill_dir=tmp_path / "spill") as lake:
        config = il.TableConfig(block_row_count=50, direct_write_row_count=10)
        t = lake.create_table("t", {"a": "string"}, config=config)
        t.insert(pa.table({"a": [f"w{n}" for n in range(300)]}))
        (tmp_path / "spill").rmdir()
        (tmp_path / "spill").touch()
        with pytest.raises(il.IndexLakeError, match="spill"):
            t.create_index("i", "a", kind=kind)
        (tmp_path / "spill").unlink()
        lake.pipeline(runner="threads").build_index("t")
        assert t.index("i").info.rows_uncovered == 0
