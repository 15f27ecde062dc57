"""Verify finds every damage, names the file and the table, and repairs nothing."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

import indexlake as il
from indexlake.blocks.statistics import stats_from_bytes, stats_to_bytes
from indexlake.display import counted
from indexlake.storage import faults
from tests.pipeline.job_tables import blocks, content, expire_everything, in_blocks, rows, table
from tests.support.lakes import clock_of
from tests.types.arrow_strategies import typed_arrays, types


@pytest.fixture
def t(lake):
    t = in_blocks(table(lake, "shop.t"), 50, 50)
    t.update({"text": "new"}, "id < 5")
    t.update({"text": "newer"}, "id < 5")
    lake.pipeline().dump("shop.t")  # a block of rows and one of history
    in_blocks(table(lake, "sound"), 50)
    return t


def sql(lake, text, *values):
    with lake.catalog.transaction() as tx:
        count = tx.execute(text, values)
        tx.commit()
    assert count


def file(lake, path):
    return Path(lake.storage.root, path)


def segment_of(lake, t, block):
    with lake._readings.open(t._table_id) as reading:
        return reading.state.primary.links[block.data_file_id].segment.path


def damages(lake):
    """What verify says about the damaged table; a second look says the same: nothing was repaired."""
    found = lake.pipeline().verify()
    again = lake.pipeline().verify("shop.t")
    assert not found.ok
    assert sorted(map(str, found.problems)) == sorted(map(str, again.problems))
    assert {p.table for p in found.problems} == {"shop.t"}
    assert counted(len(found.problems), "problem") + ":" in str(found)
    return {(p.path, p.what) for p in found.problems}


def only(lake):
    (damage,) = damages(lake)
    return damage


def test_a_sound_lake_has_no_problem(lake, t):
    found = lake.pipeline().verify()
    assert found.ok
    assert (found.tables, found.files, found.unreachable_files) == (2, 9, 0)
    assert str(found) == f"2 tables, 9 files, {found.bytes:,} bytes verified; no problems found"


def test_a_flipped_bit_in_a_block(lake, t):
    path = blocks(t)[0].path
    data = bytearray(file(lake, path).read_bytes())
    data[len(data) // 3] ^= 4
    file(lake, path).write_bytes(data)
    named, what = only(lake)
    assert named == path
    assert "damaged" in what or "checksum" in what


def test_a_flipped_bit_in_a_key_segment(lake, t):
    path = segment_of(lake, t, blocks(t)[1])
    data = bytearray(file(lake, path).read_bytes())
    data[-1] ^= 1
    file(lake, path).write_bytes(data)
    assert only(lake)[0] == path


def test_a_file_that_is_gone(lake, t):
    path = blocks(t)[0].path
    file(lake, path).unlink()
    named, what = only(lake)
    assert named == path
    assert "missing" in what or "not there" in what


def test_a_file_that_was_cut_short(lake, t):
    path = blocks(t)[0].path
    file(lake, path).write_bytes(file(lake, path).read_bytes()[:-7])
    assert only(lake)[0] == path


def test_two_files_that_were_swapped(lake, t):
    one, two = (file(lake, b.path) for b in blocks(t)[:2])
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    assert {path for path, _ in damages(lake)} == {b.path for b in blocks(t)[:2]}


def test_a_wrong_count_in_the_catalog(lake, t):
    block = blocks(t)[0]
    sql(lake, "update indexlake_data_file set record_count = 49 where data_file_id = ?", block.data_file_id)
    assert damages(lake) == {
        (block.path, "holds 50 rows; its record says 49"),
        (segment_of(lake, t, block), f"covers a different number of rows than {block.path} has"),
    }


def test_wrong_row_ids_in_the_catalog(lake, t):
    one, two = blocks(t)[:2]
    swap = "update indexlake_data_file set row_ids = ?, max_row_id = ? where data_file_id = ?"
    sql(lake, swap, two.row_ids, one.max_row_id, one.data_file_id)
    assert only(lake) == (one.path, "holds other row ids than its record says")
    sql(lake, swap, one.row_ids, 400, one.data_file_id)
    low, high = one.min_row_id, one.max_row_id
    assert only(lake) == (one.path, f"holds row ids {low}–{high}; its record says {low}–400")


def test_wrong_versions_in_the_catalog(lake, t):
    block = next(b for b in blocks(t, ended=True) if b.role == "history")
    sql(lake, "update indexlake_data_file set min_snapshot = 1, max_snapshot = 1 where role = 'history'")
    n = block.max_snapshot
    assert only(lake) == (block.path, f"holds versions 1–{n}; its record says 1–1")


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("f1", {"min": 3}),
        ("f1", {"max": 48}),
        ("f3", {"min": b"row 1"}),
        ("f3", {"max": b"row 8"}),
        ("f3", {"null_count": 0, "value_count": 50}),
    ],
)
def test_wrong_statistics_in_the_catalog(lake, column, change):
    """They decide which files are read at all."""
    t = table(lake, "shop.t")
    t.insert(rows(0, 50).set_column(2, "text", pa.array([f"row {n}" for n in range(49)] + [None])))
    assert lake.pipeline().verify().ok
    (block,) = blocks(t)
    stats = stats_from_bytes(block.column_stats)
    stats[column] = replace(stats[column], **change)
    sql(lake, "update indexlake_data_file set column_stats = ?", stats_to_bytes(stats))
    path, what = only(lake)
    assert path == block.path
    assert f"its record says {stats[column]}" in what


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
@settings(max_examples=20, deadline=None)
@given(array=typed_arrays(types()))
def test_values_of_any_type_have_the_statistics_that_were_written(format, array):
    with tempfile.TemporaryDirectory() as folder, il.connect(folder, automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=1, block_row_count=32, dump_format=format)
        try:
            t = lake.create_table("t", pa.schema([("a", array.type)]), config=config)
        except il.SchemaError:
            return  # a type that no table has
        t.insert(pa.table({"a": array}))
        found = lake.pipeline(runner="threads").verify()
        assert found.ok, str(found)


def test_a_format_that_the_file_does_not_have(lake, t):
    block = blocks(t)[0]
    sql(lake, "update indexlake_data_file set format = 'parquet' where data_file_id = ?", block.data_file_id)
    assert only(lake)[0] == block.path


def test_a_delete_record_that_points_nowhere(lake, t):
    add = """insert into indexlake_delete (data_file_id, snapshot_id, table_id, positions, changed_in)
        select ?, 3, table_id, positions, 3 from indexlake_delete limit 1"""
    sql(lake, add, 4711)
    assert only(lake) == (None, "deletes are recorded for block 4711, which has no record")


def test_a_delete_beyond_the_end_of_its_block(lake, t):
    block = blocks(t)[1]
    from pyroaring import BitMap

    from indexlake.catalog import delete_entries

    with lake.catalog.transaction() as tx:
        delete_entries.add_delete(tx, t._table_id, block.data_file_id, 3, BitMap([50]), lake.snapshot_id)
        tx.commit()
    assert only(lake) == (block.path, "row 50 of 50 is recorded as deleted")


def test_a_block_without_its_key_segment_and_a_segment_without_its_block(lake, t):
    one = blocks(t)[0]
    path = segment_of(lake, t, one)
    sql(lake, "update indexlake_index_file_block set data_file_id = 4711 where data_file_id = ?", one.data_file_id)
    assert damages(lake) == {
        (one.path, "has no key segment, so its primary keys cannot be found"),
        (path, "covers block 4711, which has no record"),
    }


def test_a_table_that_was_dropped_and_is_still_in_the_past_is_looked_at_too(lake, t):
    path = blocks(t)[0].path
    lake.drop_table("shop.t")
    assert lake.pipeline().verify().ok
    file(lake, path).unlink()
    (problem,) = lake.pipeline().verify().problems
    assert (problem.table, problem.path) == ("shop.t (dropped)", path)
    expire_everything(lake)
    assert lake.pipeline().verify().ok, "no retained snapshot reaches it any more"


def test_what_expires_and_is_vacuumed_meanwhile_is_no_problem(lake, t):
    from datetime import timedelta

    t.delete("id % 2 = 0")
    lake.pipeline().compact("shop.t")
    steps = []

    def remove(step):
        if step == "storage.open" and not steps:
            steps.append(step)
            with clock_of(lake).stopped():
                lake.pipeline().expire("shop.t")
                lake.pipeline().vacuum(dry_run=False, grace=timedelta(0))

    faults.install(remove)
    try:
        found = lake.pipeline().verify("shop.t")
    finally:
        faults.install(None)
    assert steps
    assert found.ok, found


def test_files_that_nothing_names_are_counted_and_are_no_problem(lake, t):
    with pytest.raises(il.DuplicateKeyError):
        t.insert(rows(0, 20))
    found = lake.pipeline().verify()
    assert found.ok
    assert found.unreachable_files == 2
    assert len(content(t)) == 100
