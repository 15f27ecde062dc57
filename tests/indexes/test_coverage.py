"""Coverage: segments answer for the blocks that are linked to them, at every retained snapshot, whatever ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.block import BlockRecord
from indexlake.catalog import activity, data_files, segments, table_heads
from indexlake.catalog.driver import DatabaseError
from indexlake.commit.section import Section
from indexlake.indexes import registry
from indexlake.indexes.builder import write_content
from indexlake.indexes.coverage import FEW, Coverage
from indexlake.indexes.keys import KeyColumn, encode_key
from indexlake.indexes.kind import SegmentFile
from indexlake.indexes.registry import kind_named
from indexlake.snapshots import state as table_state
from indexlake.snapshots.state import TableState
from tests.indexes.sorted_list import SortedList
from tests.pipeline.job_tables import blocks, content, expire_everything, files, in_blocks, rows, table

LINKS = "select data_file_id, index_file_id, end_snapshot from indexlake_index_file_block order by 1, 2"
SEGMENTS = "select index_file_id, relative_path from indexlake_index_file order by 1"


@pytest.fixture
def lake(two_handles: tuple[il.Lake, il.Lake]) -> il.Lake:
    return two_handles[0]


@pytest.fixture
def other(two_handles: tuple[il.Lake, il.Lake]) -> il.Lake:
    return two_handles[1]


def query(lake: il.Lake, sql: str) -> list[Any]:
    with closing(lake.catalog.query(sql)) as found:
        return list(found)


def state_of(lake: il.Lake, name: str = "t") -> TableState:
    with lake._readings.open(lake.table(name)._table_id) as reading:
        return reading.state


def primary(lake: il.Lake) -> Coverage:
    found = state_of(lake).primary
    assert found is not None
    return found


def folded(lake: il.Lake, coverage: Coverage, over: Sequence[BlockRecord]) -> SegmentFile:
    """One segment file for several blocks, made from the segments that they have."""
    index = coverage.index
    links = [coverage.links[block.data_file_id] for block in over]
    content = kind_named(index.kind).merge(index, [(index.open(lake.storage, x.segment), [x.ordinal]) for x in links])
    starts = np.cumsum([0, *(block.record_count for block in over)]).tolist()
    table_id, writer_id = over[0].table_id, lake._writer_id()
    return write_content(lake.storage, index, links[0].segment.key_types, content, table_id, writer_id, starts)


def fold(lake: il.Lake, over: Sequence[BlockRecord]) -> int:
    """The blocks are linked to one new segment instead of their own; the commit, as a fold would make it."""
    new = folded(lake, primary(lake), over)
    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        for block in over:
            tx.execute(
                """update indexlake_index_file_block set end_snapshot = ?, changed_in = ?
                where data_file_id = ? and end_snapshot is null""",
                (s, s, block.data_file_id),
            )
        segments.add_segment(tx, over[0].table_id, new, [b.data_file_id for b in over], s)
        table_heads.touch_table(tx, over[0].table_id, s)
        section.sequencer.record("compact", job=True)
        section.commit()
    return s


def commit(lake: il.Lake, t: il.Table, sql: str, *values: Any) -> int:
    """One statement as a commit that writes definitions or links and no block."""
    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        assert tx.execute(sql.replace(":s", str(s)), values)
        table_heads.touch_table(tx, t._table_id, s)
        section.sequencer.record("compact", job=True)
        section.commit()
    return s


def refreshed_is_loaded(lake: il.Lake) -> TableState:
    """The cache, brought up to date, equals what a new process reads."""
    refreshed = state_of(lake)
    with lake.catalog.read() as r:
        loaded = table_state.load(r, refreshed.table.table_id, refreshed.at)
    for state in (refreshed, loaded):
        assert state.primary is None or state.primary is state.indexes[state.primary.index.index_id]
    seen = [{i: (c.index, c.links, c.gaps) for i, c in s.indexes.items()} for s in (refreshed, loaded)]
    assert seen[0] == seen[1]
    return refreshed


def found(lake: il.Lake, coverage: Coverage, value: Any, snapshot: int | None = None) -> list[tuple[int, int]]:
    """(block, position) of the rows with a value in the index's only column."""
    state = state_of(lake)
    codec = coverage.index.fields(state.current)[0].codec
    key = encode_key([codec], [codec.encode_one(value)])
    at = state.at if snapshot is None else snapshot
    one = [(b.data_file_id, p) for b, p in coverage.find(key, state, at, lake._files)]
    keys = KeyColumn.from_keys([key], ints=codec.kind == "int")
    hits = coverage.find_many(keys, state, at, lake._files)
    assert sorted(one) == sorted((b.data_file_id, p) for b, _, places in hits for p in places.tolist())
    return one


# ---------------------------------------------------------------- a segment over several blocks


@pytest.mark.parametrize("more", [0, FEW], ids=["few blocks", "many blocks"])
def test_a_fold_by_another_process_is_seen_and_answers_for_its_blocks(lake: il.Lake, other: il.Lake, more: int) -> None:
    t = in_blocks(table(lake), 30, 30, 30, *[10] * more)
    before = lake.snapshot_id
    t.delete("id = 31")
    mine = other.table("t")
    assert mine.get(45) == {"id": 45, "v": 45 * 7919 % 1009, "text": "row 45"}
    assert len(refreshed_is_loaded(other).blocks) == 3 + more
    three = blocks(t)[:3]
    fold(lake, three)
    for each in (other, lake):
        state = refreshed_is_loaded(each)
        links = [primary(each).links[b.data_file_id] for b in three]
        assert len({link.index_file_id for link in links}) == 1
        assert [link.ordinal for link in links] == [0, 1, 2]
        assert state.primary is not None
        assert not state.primary.gaps
    for path in {path for _, path in query(lake, SEGMENTS)} - {links[0].segment.path}:
        if path not in {primary(lake).links[b.data_file_id].segment.path for b in blocks(t)[3:]}:
            Path(lake.storage.root, path).unlink()  # nobody needs the folded ones
    every = range(90 + 10 * more)
    assert [n for n in every if mine.get(n) is None] == [31]
    assert mine.get_many([5, 31, 45, 89, 1000]).num_rows == 3
    assert mine.scan("id in (5, 31, 45, 89)").count() == 3
    assert mine.at(snapshot=before).get(31)["id"] == 31, "physical coverage: the link is younger than the snapshot"
    with pytest.raises(il.DuplicateKeyError):
        mine.insert({"id": 89})
    mine.update({"v": -1}, "id = 60")
    mine.insert({"id": 31, "v": 0})
    assert mine.upsert(rows(0, 90)).updated == 90
    assert other.pipeline().verify().ok
    for key in (0, 29, 30, 59, 60, 89):
        assert found(other, primary(other), key, before) == [(three[key // 30].data_file_id, key % 30)]


def test_a_segment_answers_only_for_the_blocks_that_are_linked_to_it(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 20, 20, 20)
    first, second, third = blocks(t)
    fold(lake, [first, second])
    fold(lake, [second, third])  # the first segment still holds the keys of the second block
    linked = {b.data_file_id: primary(lake).links[b.data_file_id].index_file_id for b in (first, second, third)}
    assert linked[first.data_file_id] != linked[second.data_file_id] == linked[third.data_file_id]
    for key in range(60):
        assert found(lake, primary(lake), key) == [(blocks(t)[key // 20].data_file_id, key % 20)]
    assert lake.pipeline().verify().ok


def test_a_second_live_link_of_a_block_is_refused(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 20, 20)
    new = folded(lake, primary(lake), blocks(t))
    with lake.catalog.transaction() as tx, pytest.raises(DatabaseError) as refused:
        segments.add_segment(tx, t._table_id, new, [blocks(t)[0].data_file_id], lake.snapshot_id + 1)
    assert refused.value.unique_violation


# ---------------------------------------------------------------- ends, expire, purge


@pytest.mark.parametrize("end", ["compact", "truncate"])
def test_coverage_outlives_the_end_of_a_block(lake: il.Lake, other: il.Lake, end: str) -> None:
    t = in_blocks(table(lake), 20, 20)
    old = blocks(t)
    then = lake.snapshot_id
    assert len(other.table("t")) == 40
    links = query(lake, LINKS)
    if end == "compact":
        lake.pipeline().compact("t")
    else:
        t.truncate()
    assert [b.end_snapshot for b in blocks(t, ended=True)[:2]] == [lake.snapshot_id] * 2
    assert set(links) <= set(query(lake, LINKS)), "nothing happens to the links of ended blocks"
    refreshed_is_loaded(other)
    for each in (lake, other):
        assert not primary(each).gaps
        assert found(each, primary(each), 25, then) == [(old[1].data_file_id, 5)]
        assert each.table("t").at(snapshot=then).get(25)["id"] == 25
        assert len(found(each, primary(each), 25)) == (1 if end == "compact" else 0)
    assert lake.pipeline().verify().ok


def test_links_go_with_their_block_and_segments_with_their_last_link(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake, block=20), 20, 20, 20)
    fold(lake, blocks(t))
    expire_everything(lake)
    assert len(other.table("t")) == 60
    ((_, path),) = query(lake, SEGMENTS)
    first = blocks(t)[0].data_file_id
    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        data_files.end_blocks(tx, [first], s)
        section.sequencer.record("compact", job=True)
        section.commit()
    expire_everything(lake)
    refreshed_is_loaded(other)
    assert [file for file, _, _ in query(lake, LINKS)] == [b.data_file_id for b in blocks(t)]
    assert len(blocks(t)) == 2
    assert [p for _, p in query(lake, SEGMENTS)] == [path], "two blocks still need it"
    assert [found(other, primary(other), key) != [] for key in (5, 25, 45)] == [False, True, True]
    t.truncate()
    expire_everything(lake)
    refreshed_is_loaded(other)
    assert query(lake, LINKS) == query(lake, SEGMENTS) == []
    assert path in [p for (p,) in query(lake, "select relative_path from indexlake_garbage")]


@pytest.mark.inline_only("the horizon stays below rows that only the redo log holds")
def test_links_that_a_fold_ended_stay_until_the_horizon_has_reached_their_end(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake), 20, 20)
    t.insert({"id": 100})
    before = lake.snapshot_id
    assert len(other.table("t")) == 41
    ended = fold(lake, blocks(t))
    assert [end for _, _, end in query(lake, LINKS)].count(ended) == 2
    with lake.catalog.transaction() as tx:
        activity.set_pin(tx, "of somebody who planned before", before, "x", 2**60)
        tx.commit()
    expire_everything(lake)
    assert [end for _, _, end in query(lake, LINKS)].count(ended) == 2
    assert len(query(lake, SEGMENTS)) == 3
    with lake.catalog.transaction() as tx:
        tx.execute("delete from indexlake_pin")
        tx.commit()
    t.insert({"id": 101})
    purge = state_of(other).table.purge_number
    expire_everything(lake)
    assert [end for _, _, end in query(lake, LINKS)] == [None, None]
    assert len(query(lake, SEGMENTS)) == 1
    assert refreshed_is_loaded(other).table.purge_number > purge
    assert content(other.table("t")) == content(t)


@pytest.mark.parametrize("more", [0, FEW], ids=["few blocks", "many blocks"])
def test_a_purge_of_links_only_reaches_every_cache(lake: il.Lake, other: il.Lake, more: int) -> None:
    """Not what a fold does: a link without successor ends, so that its block becomes a gap."""
    t = in_blocks(table(lake), 20, 20, *[10] * more)
    one = blocks(t)[0]
    assert other.table("t").get(3)["id"] == 3
    end = "update indexlake_index_file_block set end_snapshot = :s, changed_in = :s where data_file_id = ?"
    s = commit(lake, t, end, one.data_file_id)
    t.insert({"id": 1000})
    refreshed_is_loaded(other)
    assert (found(other, primary(other), 3, s - 1), found(other, primary(other), 3, s)) == ([(one.data_file_id, 3)], [])
    expire_everything(lake)
    assert refreshed_is_loaded(other).table.horizon >= s
    assert primary(other).gaps == {one.data_file_id}
    assert found(other, primary(other), 25) == [(blocks(t)[1].data_file_id, 5)]
    (problem,) = lake.pipeline().verify().problems
    assert problem.what == "has no key segment, so its primary keys cannot be found"


# ---------------------------------------------------------------- several indexes


def define(lake: il.Lake, t: il.Table, kind: str = "btree") -> int:
    """An index on column v, which the catalog gets by hand: nothing else defines one yet."""
    (field,) = query(lake, "select field_id from indexlake_field where field_name = 'v'")
    commit(
        lake,
        t,
        """insert into indexlake_index (index_id, index_name, index_kind, table_id, key_field_ids, include_field_ids,
        params, begin_snapshot, changed_in) values (77, 'by_v', ?, ?, ?, '', '{}', :s, :s)""",
        kind,
        t._table_id,
        str(field[0]),
    )
    return 77


def test_every_writer_writes_blocks_for_every_index(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake), 20)
    assert len(other.table("t")) == 20
    old = blocks(t)[0].data_file_id
    by_v = define(lake, t)
    refreshed_is_loaded(other)
    assert primary(other).index.index_id != by_v
    assert state_of(other).indexes[by_v].gaps == {old}, "blocks that were there before are gaps"
    assert not primary(other).gaps

    def dump() -> None:
        other.table("t").insert(rows(200, 5))
        other.table("t").update({"v": 6}, "id = 200")
        other.pipeline().dump("t")
        assert state_of(other).blocks.records[-1].role == "history"

    writers = {
        "insert": lambda: other.table("t").insert(rows(100, 20)),
        "update": lambda: other.table("t").update({"v": 5}, "id >= 100"),
        "dump": dump,
        "load": lambda: other.pipeline().load(pa.table(rows(300, 20)), "t"),
        "upsert": lambda: other.table("t").upsert(rows(300, 30)),
    }
    for name, write in writers.items():
        known = {b.data_file_id for b in blocks(t)}
        write()
        new = {b.data_file_id for b in blocks(t)} - known
        coverage = refreshed_is_loaded(lake).indexes[by_v]
        assert new, name
        assert new <= coverage.links.keys(), name
        assert coverage.gaps == {old}, f"{name}: history blocks are not for indexes"
        assert not primary(lake).gaps, name
    everything = {row["_indexlake_row_id"]: row["v"] for row in content(t)}
    then, coverage = lake.snapshot_id, state_of(lake).indexes[by_v]
    hits = [(state_of(lake).blocks.record(f), p) for f, p in found(lake, coverage, 5)]
    ids = {
        state_of(lake).addresses(block, lake._files).row_id_at(position)
        for block, position in hits
        if block is not None
    }
    assert ids == {row for row, v in everything.items() if v == 5}, "the first block has none"
    lake.pipeline().compact("t")
    state = refreshed_is_loaded(other)
    assert state.indexes[by_v].gaps == {old}, "an ended block stays a gap for old snapshots"
    assert len(found(other, state.indexes[by_v], 5)) == len(ids) == len(found(other, state.indexes[by_v], 5, then))
    assert other.pipeline().verify().ok


def test_an_index_that_was_dropped_while_a_block_was_written_gets_no_link(lake: il.Lake, other: il.Lake) -> None:
    t = in_blocks(table(lake), 20)
    by_v = define(lake, t)
    with lake.transaction() as tx:
        tx.table("t").insert(rows(100, 20))
        commit(other, t, "update indexlake_index set end_snapshot = :s, changed_in = :s where index_id = ?", by_v)
    state = refreshed_is_loaded(lake)
    new = blocks(t)[1].data_file_id
    assert state.indexes[by_v].gaps == {blocks(t)[0].data_file_id, new}
    assert not primary(lake).gaps
    t.insert(rows(200, 20))
    assert state_of(lake).indexes[by_v].links == {}, "and new blocks are not written for it"
    assert t.get(105)["id"] == 105


def test_an_unknown_kind_is_an_error_for_those_who_need_it_only(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 20)
    define(lake, t, kind="of_tomorrow")
    assert t.get(3)["id"] == 3
    assert t.scan("v >= 0").count() == 20
    assert t.scan("v >= 0", order_by="v", limit=3).count() == 3
    t.insert({"id": 50})
    t.insert(rows(100, 20))
    t.create_index("near_v", ["id", "v"], kind="rtree")
    assert len(t.search("id", (100, 0), k=3).to_pylist()) == 3
    lake.pipeline().dump("t")
    lake.pipeline().compact("t")
    with pytest.raises(il.NotFoundError, match=r"no index kind 'of_tomorrow'; there are .*btree.* upgrade"):
        t.search("by_v", 1).to_pylist()
    with pytest.raises(il.NotFoundError, match="no index kind 'of_tomorrow'"):
        lake.pipeline().build_index("t")
    assert [info.state for info in t.indexes()] == ["failing", "ready"]
    assert len(t) == 41
    t.drop_index("by_v")


def test_a_kind_can_be_registered(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "sorted_list", SortedList())
    t = table(lake)
    by_v = define(lake, t, kind="sorted_list")
    in_blocks(t, 20, 20)
    coverage = state_of(lake).indexes[by_v]
    paths = [link.segment.path for link in coverage.links.values()]
    entries = [json.loads(Path(lake.storage.root, path).read_bytes()) for path in paths]
    assert [e["starts"] for e in entries] == [[0, 20], [0, 20]]
    assert found(lake, coverage, 7919 % 1009) == [(blocks(t)[0].data_file_id, 1)]
    assert lake.pipeline().verify().ok
    assert len(files(lake)) == 6


# ---------------------------------------------------------------- verify


def test_verify_accepts_keys_that_are_longer_than_their_bounds(lake: il.Lake) -> None:
    schema = pa.schema([pa.field("id", pa.string(), False)])
    t = lake.create_table("t", schema, primary_key="id")
    t.insert([{"id": "x" * 100 + str(n)} for n in range(10)])
    lake.pipeline().dump("t")
    assert lake.pipeline().verify().ok
    (block,) = blocks(t)
    link = primary(lake).links[block.data_file_id]
    assert len(link.segment.min_key) < 100
    with lake.catalog.transaction() as tx:
        tx.execute("update indexlake_index_file set max_key = ?", (b"x" * 50,))
        tx.commit()
    (problem,) = lake.pipeline().verify().problems
    assert problem.path == link.segment.path
    assert problem.what == "does not find the smallest or the largest of its own keys"


def test_verify_finds_links_to_segments_without_record_or_with_another_number_of_rows(lake: il.Lake) -> None:
    t = in_blocks(table(lake), 20, 20, 20)
    three = blocks(t)
    fold(lake, [three[1], three[2], three[0]])
    assert lake.pipeline().verify().ok
    path = primary(lake).links[three[0].data_file_id].segment.path
    with lake.catalog.transaction() as tx:
        tx.execute("update indexlake_data_file set record_count = 19 where data_file_id = ?", (three[0].data_file_id,))
        tx.commit()
    damages = {(p.path, p.what) for p in lake.pipeline().verify().problems}
    rows_differ = f"covers a different number of rows than {three[0].path} has"
    assert damages == {(three[0].path, "holds 20 rows; its record says 19"), (path, rows_differ)}
    with lake.catalog.transaction() as tx:
        tx.execute("delete from indexlake_index_file where relative_path = ?", (path,))
        tx.commit()
    said = [p.what for p in lake.pipeline().verify().problems]
    assert sum("which has no record" in what for what in said) == 3
    assert sum("has no key segment" in what for what in said) == 0, "the links that ended are still there"


# ---------------------------------------------------------------- plain values


def test_of_several_links_of_a_block_the_one_with_the_largest_end_counts(lake: il.Lake) -> None:
    in_blocks(table(lake), 20)
    state, coverage = state_of(lake), primary(lake)
    ((file_id, live),) = coverage.links.items()
    ended = live._replace(index_file_id=900, end_snapshot=5)
    later = live._replace(index_file_id=901, end_snapshot=9)
    schema = lake.table("t")._schema_now()
    nothing = (schema, state.blocks, [], np.ones(1, bool), set())
    index = coverage.index
    for order in ([ended, later, live], [live, later, ended], [later, live, ended]):
        assert Coverage.of(index, state.blocks, order, schema).links == {file_id: live}
        others = [x for x in order if x is not live]
        assert Coverage.of(index, state.blocks, others, schema).links[file_id] is later
    taken_over = [live._replace(end_snapshot=12), live._replace(index_file_id=902)]
    for order in (taken_over, taken_over[::-1]):
        assert coverage.advance(index, *nothing, order, None).links[file_id] is taken_over[1]
    alone = coverage.advance(index, *nothing, [live._replace(end_snapshot=12)], None)
    assert alone.links[file_id].end_snapshot == 12
    assert not alone.gaps
    assert alone.advance(index, *nothing, [], 11).links.keys() == {file_id}
    assert alone.advance(index, *nothing, [], 12).gaps == {file_id}
    assert coverage.advance(index, *nothing, [], None) is coverage
