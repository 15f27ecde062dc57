"""Verify finds what is wrong with ranges, with the order of blocks and with keys that are there twice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap

import indexlake as il
from indexlake.blocks.block import BlockRecord
from indexlake.catalog import delete_entries
from indexlake.partitions.meta import meta_to_bytes
from indexlake.pipeline.meta import read_meta
from indexlake.pipeline.verify_meta import metas_of
from tests.partitions.partition_tables import blocks, cut, encoded, rows, table


@pytest.fixture
def t(lake: il.Lake) -> il.Table:
    t = table(lake, "shop.t", 10, 20)
    t.insert(rows(*range(5, 25)))
    t.insert(rows(*range(30, 41)))
    t.insert([{"id": 100, "text": "hot"}])
    t.delete("id = 12")
    t.insert([{"id": 12, "text": "again"}])  # hot, and deleted in a block
    return t


def sql(lake: il.Lake, text: str, *values: object) -> None:
    with lake.catalog.transaction() as tx:
        count = tx.execute(text, values)
        tx.commit()
    assert count


def damages(lake: il.Lake) -> set[tuple[str | None, str]]:
    found = lake.pipeline(runner="threads").verify("shop.t")
    assert not found.ok
    return {(p.path, p.what) for p in found.problems}


def ids(t: il.Table) -> list[int]:
    return [p.partition_id for p in t.partitions()]


def block_of(t: il.Table, partition: int) -> BlockRecord:
    return next(b for b in blocks(t) if b.partition_id == partition)


def test_a_sound_table_has_no_problem(lake: il.Lake, t: il.Table):
    lake.pipeline(runner="threads").dump()
    t.update({"id": 77}, "id = 6")
    lake.pipeline(runner="threads").merge("shop.t")
    found = lake.pipeline(runner="threads").verify()
    assert found.ok, found


def test_ranges_that_overlap(lake: il.Lake, t: il.Table):
    first, second, _ = ids(t)
    sql(lake, "update indexlake_partition set end_key = ? where partition_id = ?", encoded(t, 11), first)
    assert (None, f"partitions {first} and {second} overlap") in damages(lake)


@pytest.mark.parametrize(
    ("place", "column", "bound", "said"),
    [
        (1, "end_key", 18, "keys between 18 and 20 belong to no partition"),
        (0, "begin_key", 2, "keys before 2 belong to no partition"),
        (2, "end_key", 1000, "keys from 1000 on belong to no partition"),
    ],
)
def test_keys_that_belong_to_no_range(lake, t, place, column, bound, said):
    sql(lake, f"update indexlake_partition set {column} = ? where partition_id = ?", encoded(t, bound), ids(t)[place])
    assert (None, said) in damages(lake)


def test_ranges_of_the_past_are_looked_at_too(lake: il.Lake, t: il.Table):
    other = table(lake, "shop.moved", 5)
    cut(other, 3)
    (gone,) = (p.partition_id for p in other.at(lake.snapshot_id - 1).partitions() if p.begin_key is None)
    sql(lake, "update indexlake_partition set end_key = ? where partition_id = ?", encoded(other, 4), gone)
    (problem,) = lake.pipeline(runner="threads").verify("shop.moved").problems
    assert problem.what.startswith("keys between 4 and 5 belong to no partition at snapshot")
    assert lake.pipeline(runner="threads").verify("shop.t").ok


def test_a_table_without_ranges(lake: il.Lake, t: il.Table):
    sql(lake, "delete from indexlake_partition where table_id = ?", t._table_id)
    found = damages(lake)
    assert (None, "has no partitions") in found
    assert {what.partition(",")[2] for path, what in found if path is not None} == {" which has no record"}


def test_a_live_block_of_an_ended_partition(lake: il.Lake, t: il.Table):
    path, before = block_of(t, ids(t)[0]).path, set(ids(t))
    other = table(lake, "shop.other")
    (ended,) = ids(other)
    cut(other, 5)
    moved = "update indexlake_data_file set partition_id = ? where relative_path = ?"
    sql(lake, "update indexlake_partition set table_id = ? where partition_id = ?", t._table_id, ended)
    sql(lake, moved, ended, path)
    assert ended not in before
    assert (path, f"is live, and its partition {ended} is not") in damages(lake)


def test_a_live_block_of_no_partition(lake: il.Lake, t: il.Table):
    path = block_of(t, ids(t)[0]).path
    sql(lake, "update indexlake_data_file set partition_id = null where relative_path = ?", path)
    assert (path, "belongs to no partition") in damages(lake)


def test_a_block_that_is_outside_of_its_range(lake: il.Lake, t: il.Table):
    first, second, _ = ids(t)
    path = block_of(t, first).path
    sql(lake, "update indexlake_data_file set partition_id = ? where relative_path = ?", second, path)
    assert damages(lake) == {(path, f"has keys from 5 to 9, which its partition {second} does not hold")}


def test_a_record_with_other_keys_than_its_block(lake: il.Lake, t: il.Table):
    path = block_of(t, ids(t)[0]).path
    sql(lake, "update indexlake_data_file set last_key = ? where relative_path = ?", encoded(t, 8), path)
    assert damages(lake) == {(path, "has keys from 5 to 9; its record says 5 to 8")}


def test_a_block_that_is_not_sorted(lake: il.Lake, monkeypatch: pytest.MonkeyPatch):
    """Written by a program that does not sort."""
    t = table(lake, "shop.t")

    def unsorted(rows: pa.Table, schema: object) -> object:
        from indexlake.partitions.ranges import key_column

        return rows, key_column(rows, schema)

    t.insert([{"id": n, "text": "hot"} for n in (3, 2, 1)])
    with monkeypatch.context() as patch:
        patch.setattr("indexlake.partitions.ranges.sorted_by_key", unsorted)
        lake.pipeline(runner="threads").dump("shop.t")
    (block,) = blocks(t)
    assert (block.path, "is not sorted by its keys") in damages(lake)


def test_a_key_that_two_blocks_have(lake: il.Lake, t: il.Table):
    """A delete entry is lost: the row that it hid is there again, besides its newer version."""
    lake.pipeline(runner="threads").dump()
    sql(lake, "delete from indexlake_delete where table_id = ?", t._table_id)
    second = ids(t)[1]
    lost, (path, other) = sorted(damages(lake), key=lambda found: found[0] or "")
    assert lost == (None, f"partition {second} has live rows with the same key 12")
    assert (str(path).endswith(".meta"), "differs from the catalog" in other) == (True, True)


def test_a_key_that_a_block_and_a_hot_row_have(lake: il.Lake, t: il.Table):
    sql(lake, "delete from indexlake_delete where table_id = ?", t._table_id)
    second = ids(t)[1]
    assert damages(lake) == {(None, f"partition {second} has live rows with the same key 12")}


def test_a_file_that_is_damaged_is_named_once(lake: il.Lake, t: il.Table):
    path = Path(lake.storage.root, block_of(t, ids(t)[2]).path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    ((named, _),) = damages(lake)
    assert named is not None
    assert path.name in named


def test_a_delete_beyond_the_end_of_a_block(lake: il.Lake, t: il.Table):
    block = block_of(t, ids(t)[0])
    with lake.catalog.transaction() as tx:
        delete_entries.add_delete(tx, t._table_id, block.data_file_id, 3, BitMap([50]), lake.snapshot_id)
        tx.commit()
    assert damages(lake) == {(block.path, f"row 50 of {block.record_count} is recorded as deleted")}


@pytest.mark.parametrize("type", [pa.string(), pa.int32()], ids=str)
def test_keys_of_several_columns(lake: il.Lake, type: pa.DataType):
    schema = pa.schema([("a", type), ("b", pa.string())])
    values = [str(n) if type == pa.string() else n for n in range(5)]
    t = table(lake, "shop.t", (values[2], "m"), schema=schema, key=["a", "b"])
    t.insert([{"a": a, "b": b} for a, b in itertools.product(values, "amz")])
    assert lake.pipeline(runner="threads").verify().ok
    first, second = ids(t)
    path = block_of(t, first).path
    sql(lake, "update indexlake_data_file set partition_id = ? where relative_path = ?", second, path)
    low, high = (values[0], "a"), (values[2], "a")
    assert damages(lake) == {(path, f"has keys from {low} to {high}, which its partition {second} does not hold")}


# ------------------------------------------------------------ meta files


def newest_meta(lake: il.Lake, t: il.Table) -> Path:
    lake.pipeline(runner="threads").dump(t.name)
    assert lake.pipeline(runner="threads").verify().ok
    found = metas_of(lake.storage, t._state().table.namespace_id, t._table_id)
    return Path(lake.storage.root, found[0].file.path)


def test_a_meta_file_that_is_damaged(lake: il.Lake, t: il.Table):
    path = newest_meta(lake, t)
    data = path.read_bytes()
    path.write_bytes(data[:-20] + b"x" + data[-19:])
    ((named, what),) = damages(lake)
    assert (named is not None, path.name in str(named), "checksum does not match" in what) == (True, True, True)
    path.write_bytes(b"nothing of ours")
    ((named, what),) = damages(lake)
    assert (path.name in str(named), what) == (True, "is damaged: it does not start like a meta file")


def test_a_meta_file_that_differs_from_the_catalog(lake: il.Lake, t: il.Table):
    path = newest_meta(lake, t)
    sql(lake, "update indexlake_data_file set first_key = first_key where table_id = ?", t._table_id)
    assert lake.pipeline(runner="threads").verify().ok
    sql(lake, "update indexlake_data_file set role = 'data' where partition_id = ?", ids(t)[0])
    ((named, what),) = damages(lake)
    assert path.name in str(named)
    assert what.startswith("differs from the catalog, in which nothing has changed since snapshot")


def test_a_meta_file_older_than_the_newest_commit_is_no_problem(lake: il.Lake, t: il.Table):
    newest_meta(lake, t)
    t.delete("id = 7")
    t.insert(rows(*range(200, 220)))
    assert lake.pipeline(runner="threads").verify().ok


def test_a_meta_file_of_a_snapshot_that_is_not_there(lake: il.Lake, t: il.Table):
    path = newest_meta(lake, t)
    meta = replace(read_meta(lake.storage, str(path.relative_to(lake.storage.root))), snapshot=10**6)
    path.write_bytes(meta_to_bytes(meta)[1])
    ((_, what),) = damages(lake)
    assert what == f"describes snapshot {10**6}; the newest is {lake.snapshot_id}"


def test_a_meta_file_that_names_other_files(lake: il.Lake, t: il.Table):
    path = newest_meta(lake, t)
    meta = read_meta(lake.storage, str(path.relative_to(lake.storage.root)))
    first, *others = meta.blocks
    path.write_bytes(meta_to_bytes(replace(meta, blocks=(first._replace(size=1), *others)))[1])
    t.delete("id = 7")
    ((named, what),) = damages(lake)
    assert path.name in str(named)
    assert what.startswith(f"knows block {first.data_file_id} as another file")
