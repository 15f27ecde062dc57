"""What users of other systems complained about in their indexes (numbers as in the list of the design), each a test
here.

The plan is asserted everywhere: one peer's test passed because both sides scanned.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.indexes import registry
from indexlake.pipeline import build_index, merge_index
from indexlake.storage import faults
from tests.model.indexed_table import ranked_texts
from tests.peers.sql_log import statements
from tests.pipeline.job_tables import expire_everything
from tests.support.lakes import clock_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False), pa.field("other", pa.int64()), pa.field("key", pa.string()),
        pa.field("v", pa.int64()), pa.field("note", pa.string()), pa.field("vec", pa.list_(pa.float32(), 2)),
        pa.field("x", pa.float64()), pa.field("y", pa.float64()), pa.field("tags", pa.list_(pa.string())),
    ]
)  # fmt: skip
CONFIG = {"direct_write_row_count": 20, "block_row_count": 100}
JOBS = ("dump", "compact", "freeze", "thaw", "build_index", "merge_index")


def row(n: int, mark: int | None = None) -> dict[str, Any]:
    m = n if mark is None else mark
    return {
        "id": n, "other": -n, "key": f"k{m}", "v": m, "note": f"late parcel w{m}", "vec": [float(m), 0.5],
        "x": float(m), "y": float(-m), "tags": [f"t{m}", "all"],
    }  # fmt: skip


def rows(start: int, count: int) -> pa.Table:
    return pa.Table.from_pylist([row(n) for n in range(start, start + count)], SCHEMA)


def table(lake: il.Lake, count: int = 60, **config: Any) -> il.Table:
    t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(**{**CONFIG, **config}))
    for start in range(0, count, 30):
        t.insert(rows(start, min(30, count - start)))
    return t


def all_kinds(t: il.Table) -> None:
    t.create_index("by_v", "v")
    t.create_index("by_key", "key", kind="hash")
    t.create_index("by_tag", "tags")
    t.create_index("text", "note", kind="bm25")
    t.create_index("near", "vec", kind="hnsw")
    t.create_index("place", ["x", "y"], kind="rtree")


def found_with(t: il.Table, where: str, index: str | None) -> list[int]:
    """By look-up; the plan says that the index was used, unless there are no blocks to look into."""
    t._lake._files.use_indexes = "always"
    scan = t.scan(where, columns=["id"])
    found, plan = sorted(r["id"] for r in scan.to_pylist()), scan.explain()
    t._lake._files.use_indexes = "auto"
    if index is not None and plan.blocks_read:
        assert plan.found_by == index, plan
    return found


def searched(t: il.Table, by: str, query: Any, k: int = 10, **options: Any) -> list[int]:
    search = t.search(by, query, k, columns=["id"], **options)
    found = [r["id"] for r in search.to_pylist()]
    assert search.explain().indexes == (by,)
    return found


def finds(t: il.Table, mark: int) -> dict[str, list[int]]:
    """The rows that each kind finds by a value, which marks one row."""
    window = f"x between {mark - 0.5} and {mark + 0.5} and y between {-mark - 0.5} and {-mark + 0.5}"
    near = t.search("near", [float(mark), 0.5], 1, columns=["id"]).to_pylist()
    place = t.search("place", (mark, -mark), 1, columns=["id"]).to_pylist()
    window = f"x between {mark - 0.5} and {mark + 0.5} and y between {-mark - 0.5} and {-mark + 0.5}"
    return {
        "btree": found_with(t, f"v = {mark}", "by_v"),
        "hash": found_with(t, f"key = 'k{mark}'", "by_key"),
        "list": found_with(t, f"list_contains(tags, 't{mark}')", "by_tag"),
        "window": found_with(t, window, "place"),
        "text": searched(t, "text", f"w{mark}"),
        "near": [r["id"] for r in near if r["_distance"] < 1e-9],
        "place": [r["id"] for r in place if r["_distance"] < 1e-9],
    }  # fmt: skip


def everywhere(*ids: int) -> dict[str, list[int]]:
    return {kind: list(ids) for kind in ("btree", "hash", "list", "window", "text", "near", "place")}


# ---------------------------------------------------------------- stale indexes


def test_23_a_merge_by_an_indexed_column_skips_no_row_that_changed_since_the_index_was_built(lake: il.Lake) -> None:
    t = table(lake)
    t.create_index("by_key", "key")
    for step, job in enumerate(("", *JOBS)):
        if job:
            getattr(lake.pipeline(), job)("t")
        t.update({"key": f"new{step}"}, f"id = {step}")
        assert found_with(t, f"key = 'new{step}'", None) == [step]
        source = [{"key": f"new{step}", "v": 1000 + step}, {"key": f"k{20 + step}", "v": 2000 + step}]
        merged = t.merge(pa.Table.from_pylist(source), on="key").when_matched_update({"v": il.expr("s.v")}).execute()
        assert merged.updated == 2, job
        assert (t.get(step)["v"], t.get(20 + step)["v"]) == (1000 + step, 2000 + step)
    plan = t.scan("key = 'k50'").explain()
    assert plan.found_by == "by_key", plan


def test_24_an_update_by_a_key_that_is_not_the_first_column_changes_its_rows(lake: il.Lake) -> None:
    t = table(lake)
    t.create_index("by_other", "other")
    t.create_index("by_v_key", ["v", "key"])
    lake._files.use_indexes = "always"
    plan = t.scan("other = -7").explain()
    assert (plan.found_by, plan.rows_in_blocks) == ("by_other", 1)
    assert t.update({"note": "changed"}, "other = -7").updated == 1
    assert t.update({"note": "changed too"}, "key = 'k8'").updated == 1, "the second column of an index"
    assert t.merge(pa.table({"other": [-9]}), on="other").when_matched_update({"note": "merged"}).execute().updated == 1
    assert [t.get(n)["note"] for n in (7, 8, 9)] == ["changed", "changed too", "merged"]
    assert t.delete("other = -7").deleted == 1


@pytest.mark.parametrize("job", JOBS)
def test_25_an_upsert_matches_after_every_job(lake: il.Lake, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_index, "FOLD", 2)
    t = table(lake)
    all_kinds(t)
    t.update({"v": -1}, "id = 3")
    getattr(lake.pipeline(), job)("t")
    result = t.upsert([row(3, 903), row(33, 933), row(70, 970)])
    assert (result.updated, result.inserted) == (2, 1), job
    assert finds(t, 903) == everywhere(3)
    assert finds(t, 933) == everywhere(33)
    assert finds(t, 970) == everywhere(70)
    assert finds(t, 33) == everywhere()
    getattr(lake.pipeline(), job)("t")
    assert t.upsert([row(3, 803)]).updated == 1
    assert finds(t, 803) == everywhere(3)
    assert finds(t, 903) == everywhere()
    assert len(t) == 61


WRITES: dict[str, Callable[[il.Lake, il.Table], Any]] = {
    "insert": lambda lake, t: [t.delete("id = 5"), t.insert(row(5, 905))],
    "insert a block": lambda lake, t: [
        t.delete("id = 5"), t.insert(pa.Table.from_pylist([row(5, 905), *(row(n) for n in range(200, 240))], SCHEMA)),
    ],
    "update": lambda lake, t: t.update({k: v for k, v in row(5, 905).items() if k not in ("id", "other")}, "id = 5"),
    "upsert": lambda lake, t: t.upsert(row(5, 905)),
    "merge with columns in another order": lambda lake, t: t.merge(
        pa.Table.from_pylist([row(5, 905)], SCHEMA).select(list(reversed(SCHEMA.names))), on="other"
    ).when_matched_update().execute(),
    "load": lambda lake, t: lake.pipeline().load(pa.Table.from_pylist([row(5, 905)], SCHEMA), "t", mode="upsert"),
    "transaction": lambda lake, t: lake.run(
        lambda tx: [tx.table("t").delete("v = 5"), tx.table("t").insert(row(5, 905))]
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WRITES)
def test_26_every_kind_follows_every_way_to_write(lake: il.Lake, way: str) -> None:
    t = table(lake)
    all_kinds(t)
    before = lake.snapshot_id
    assert finds(t, 5) == everywhere(5)
    WRITES[way](lake, t)
    for job in ("", "dump", "compact"):
        if job:
            getattr(lake.pipeline(), job)("t")
        assert finds(t, 905) == everywhere(5), f"{way}, {job}"
        assert finds(t, 5) == everywhere(), f"{way}, {job}"
        assert finds(t.at(before), 5) == everywhere(5), f"{way}, {job}"


def test_27_an_old_value_finds_the_row_at_old_snapshots_and_not_at_new_ones(lake: il.Lake) -> None:
    t = table(lake)
    all_kinds(t)
    snapshots = [lake.snapshot_id]
    for mark in (901, 902, 903):
        t.upsert(row(5, mark))
        snapshots.append(lake.snapshot_id)
        if mark == 902:
            lake.pipeline().dump("t")
    lake.pipeline().compact("t")
    for shown, snapshot in zip((5, 901, 902, 903), snapshots, strict=True):
        for mark in (5, 901, 902, 903):
            wanted = everywhere(5) if mark == shown else everywhere()
            assert finds(t.at(snapshot), mark) == wanted, f"{mark} at the time of {shown}"
    assert finds(t, 903) == everywhere(5)


# ---------------------------------------------------------------- search


def test_28_text_is_found_after_deletes(lake: il.Lake) -> None:
    t = table(lake)
    t.create_index("text", "note", kind="bm25")
    t.delete("id < 29 or id = 40")
    assert sorted(searched(t, "text", "late", 100)) == [*range(29, 40), *range(41, 60)]
    assert searched(t, "text", "w40") == []
    lake.pipeline().compact("t")
    assert sorted(searched(t, "text", "late parcel", 100)) == [*range(29, 40), *range(41, 60)]
    t.delete("true")
    assert searched(t, "text", "late") == []
    assert t.search("text", "late").explain().segments >= 1


def test_29_phrases_are_found_by_default_also_in_many_rows(lake: il.Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("note", pa.string())])
    t = lake.create_table("t", schema, primary_key="id")
    count = 150_000
    words = np.array(["red", "green", "blue", "old", "new", "small"])
    picked = words[np.random.default_rng(0).integers(0, 6, (count, 3))]
    notes = [" ".join(w) for w in picked.tolist()]
    notes[70_000] = "the quick brown fox jumps"
    notes[140_000] = "brown quick the fox jumps"
    t.insert(pa.table({"id": range(count), "note": notes}, schema))
    t.create_index("text", "note", kind="bm25")
    assert searched(t, "text", '"quick brown fox"') == [70_000]
    assert sorted(searched(t, "text", "quick brown fox")) == [70_000, 140_000]
    phrase = sum("red green" in note for note in notes)
    assert len(searched(t, "text", '"red green"', count)) == phrase > 1000
    assert t.search("text", '"red green"').explain().blocks_scanned == 0


def test_30_a_filtered_search_returns_as_many_rows_as_there_are(lake: il.Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("group", pa.int64()), SCHEMA.field("vec")])
    t = lake.create_table("t", schema, primary_key="id", config=il.TableConfig(**CONFIG))
    random = np.random.default_rng(1)
    count = 6000
    vectors = random.normal(size=(count, 2)).astype(np.float32)
    # The matches are far from the query.
    groups = np.where(vectors[:, 0] > 1.3, 1, 0)
    data = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2)
    t.insert(pa.table([pa.array(range(count)), pa.array(groups), data.cast(schema.field("vec").type)], schema=schema))
    t.create_index("near", "vec", kind="hnsw")
    matches = int(groups.sum())
    assert 322 < matches < 900
    for k in (10, 322, matches, 5000):
        search = t.search("near", [-3.0, 0.0], k, where='"group" = 1', columns=["id"])
        found = search.to_pylist()
        assert len(found) == min(k, matches)
        plan = search.explain()
        assert plan.indexes == ("near",)
        assert plan.blocks_scanned == 0
        assert (plan.segments >= 1, plan.hot_rows) == (True, 0)
        far = np.sort(((vectors[groups == 1] - [-3.0, 0.0]) ** 2).sum(1))[: len(found)]
        assert np.allclose([r["_distance"] for r in found], far, rtol=1e-4)


def test_31_the_memory_of_a_build_does_not_grow_with_the_table(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the rows, the same peak: a task reads a bounded group of blocks, and text is spooled."""
    monkeypatch.setattr(build_index, "GROUP_ROWS", 2000)
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64()), pa.field("note", pa.string())])
    config = il.TableConfig(block_row_count=1000, direct_write_row_count=100, dump_format="parquet")
    peaks = {}
    for name, count in (("warm", 2000), ("small", 4000), ("large", 40_000)):
        t = lake.create_table(name, schema, primary_key="id", config=config)
        for start in range(0, count, 4000):
            some = range(start, start + min(count, 4000))
            t.insert(pa.table({"id": some, "v": some, "note": [f"late w{n % 500} x{n % 77}" for n in some]}, schema))
        monkeypatch.setattr(merge_index, "FOLD", 1000)
        seen = []
        for again in range(3):  # what other threads do meanwhile only adds to it
            if again:
                t.drop_index("by_v")
                t.drop_index("text")
            lake._files.clear()
            tracemalloc.start()
            t.create_index("by_v", "v")
            t.create_index("text", "note", kind="bm25")
            seen.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        peaks[name] = min(seen)
        assert {info.rows_uncovered for info in t.indexes()} == {0}
        assert found_with(t, "v = 7", "by_v") == [7]
    assert peaks["large"] < 2 * peaks["small"], peaks


# ---------------------------------------------------------------- keeping


def test_32_listing_indexes_opens_no_segment(lake: il.Lake) -> None:
    t = table(lake)
    all_kinds(t)
    lake._files.clear()
    opened: list[str] = []
    before = faults.install(lambda name: opened.append(name) if name.startswith("storage.") else None)
    try:
        listed = t.indexes()
    finally:
        faults.install(before)
    assert opened == []
    assert [(i.name, i.rows_in_segments, i.rows_uncovered) for i in listed] == [
        (name, 60, 0) for name in ("by_key", "by_tag", "by_v", "near", "place", "text")
    ]
    assert all(i.size_bytes > 0 and i.segments > 0 for i in listed)


def test_33_a_name_in_other_case_rebuilds_nothing_and_a_failing_index_stops_no_other(
    lake: il.Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    t = table(lake)
    t.create_index("By_V", "v")
    snapshot = lake.snapshot_id
    assert t.create_index("by_v", "V").name == "By_V"
    assert lake.snapshot_id == snapshot, "nothing was built again"
    with pytest.raises(il.NotFoundError, match=r"no index 'byv'; it has 'By_V'"):
        lake.pipeline().build_index("t", "byv")
    t.create_index("text", "note", kind="bm25")
    bm25 = registry.kind_named("bm25")

    def broken(*_: Any, **__: Any) -> Any:
        raise il.SchemaError("the analyser is broken")

    with monkeypatch.context() as patched:
        patched.setattr(bm25, "builder", broken)
        t.insert(rows(100, 30))
        t.insert(row(200))
        lake.pipeline().dump("t")
        lake.pipeline().run("t")
        infos = {i.name: i for i in t.indexes()}
        assert (infos["By_V"].state, infos["By_V"].rows_uncovered) == ("ready", 0)
        assert (infos["text"].state, infos["text"].rows_uncovered) == ("failing", 31)
        assert "the analyser is broken" in (infos["text"].last_error or "")
        assert found_with(t, "v in (7, 110, 200)", "By_V") == [7, 110, 200]
    assert searched(t, "text", "w110 w200 w7") != []
    assert sorted(searched(t, "text", "w110 w200 w7")) == [7, 110, 200], "rows without a segment are searched too"
    lake.pipeline().run("t")
    assert {i.state for i in t.indexes()} == {"ready"}
    assert t.search("text", "w110").explain().blocks_scanned == 0


def test_34_many_small_writes_leave_few_segments(lake: il.Lake) -> None:
    t = table(lake, 0)
    t.create_index("by_v", "v")
    t.create_index("text", "note", kind="bm25")
    most = 0
    for n in range(48):
        t.insert(rows(n * 20, 20))
        lake.pipeline().merge_index("t")
        most = max(most, *(i.segments for i in t.indexes()))
    assert most < 2 * merge_index.FOLD, "48 blocks"
    lake._files.use_indexes = "always"
    plan = t.scan("v = 555").explain()
    assert plan.found_by == "by_v"
    assert plan.segments_read < merge_index.FOLD
    assert found_with(t, "v = 555", "by_v") == searched(t, "text", "w555") == [555]


def test_35_a_compaction_during_a_build_fails_neither_and_throws_nothing_away(
    lake: il.Lake, monkeypatch: pytest.MonkeyPatch, on_step: Callable[[faults.Callback | None], object]
) -> None:
    monkeypatch.setattr(build_index, "GROUP_ROWS", 30)
    t = table(lake, 180)
    then = lake.snapshot_id
    steps: list[str] = []

    def compact_once(name: str) -> None:
        if name == "build_index.written":
            steps.append(name)
            if len(steps) == 2:
                lake.pipeline().compact("t")

    on_step(compact_once)
    info = t.create_index("by_v", "v")
    on_step(None)
    assert (info.state, info.rows_uncovered) == ("ready", 0)
    assert len(steps) <= 6 + 1, "what was built before is not built again"
    assert found_with(t, "v in (7, 170)", "by_v") == found_with(t.at(then), "v in (7, 170)", "by_v") == [7, 170]
    lake._files.use_indexes = "always"
    assert t.at(then).scan("v = 170").explain().rows_in_blocks < 180, "segments of compacted blocks serve the past"


def test_36_cleaning_keeps_the_index_and_a_write_costs_the_same_however_large_the_table_is(lake: il.Lake) -> None:
    t = table(lake, 60, retention=timedelta(0))
    all_kinds(t)
    costs = []
    for n in range(4):
        for start in range(1000 * (n + 1), 1000 * (n + 1) + 120, 30):
            t.insert(rows(start, 30))
        t.upsert([row(5, 900 + n)])
        segments = {i.name: i.segments for i in t.indexes()}
        files: list[str] = []
        before = faults.install(lambda name, files=files: files.append(name) if name.startswith("storage.c") else None)
        try:
            with statements() as said:
                t.upsert([row(6, 800 + n)])
        finally:
            faults.install(before)
        costs.append(len(said))
        assert files == [], "no segment is written for a row"
        assert {i.name: i.segments for i in t.indexes()} == segments
    assert costs[-1] <= costs[0] + 1, costs
    lake.pipeline().compact("t")
    expire_everything(lake)
    with clock_of(lake).stopped():
        lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))
    assert finds(t, 903) == everywhere(5)
    assert finds(t, 803) == everywhere(6)
    assert {i.rows_uncovered for i in t.indexes()} == {0}


def test_37_answers_are_complete_in_time_travel_and_scores_are_those_of_one_index(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(**CONFIG))
    rare = "rare"
    texts = {n: f"late {'parcel ' * (n % 4)}{rare if n in (3, 33, 77) else ''} w{n}" for n in range(90)}
    for start in (0, 30):  # two segments
        some = [{**row(n), "note": texts[n]} for n in range(start, start + 30)]
        t.insert(pa.Table.from_pylist(some, SCHEMA))
        t.create_index("text", "note", kind="bm25")
    t.insert([{**row(n), "note": texts[n]} for n in range(60, 79)])
    t.insert([{**row(n), "note": texts[n]} for n in range(79, 90)])
    before = lake.snapshot_id
    t.delete("id in (3, 4, 5, 6, 40)")
    for view, gone in ((t, {3, 4, 5, 6, 40}), (t.at(before), set())):
        state = {n: {"note": text} for n, text in texts.items() if n not in gone}
        for query in ("rare", "parcel", "late rare", "parcel w33"):
            search = view.search("text", query, 1000, columns=["id"])
            found = {r["id"]: r["_score"] for r in search.to_pylist()}
            wanted = dict(ranked_texts(state, query, state))
            assert found.keys() == wanted.keys(), query
            assert all(math.isclose(found[n], score, rel_tol=1e-5) for n, score in wanted.items()), query
            assert search.explain().segments == 2
        near_dead = view.search("text", "rare", 2).to_pylist()
        assert len(near_dead) == 2, "k rows though better ones are dead"
    lake.pipeline().dump("t")
    assert {r["id"] for r in t.search("text", "rare").to_pylist()} == {33, 77}
