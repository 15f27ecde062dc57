"""What somebody meets who has only read the documentation: odd keys, wrong tables, and advice that has to be true."""

from __future__ import annotations

import pytest
from xxhash import xxh3_128_hexdigest

import indexlake as il
from indexlake.catalog import partitions as partition_records
from indexlake.partitions import merging
from indexlake.partitions.meta import meta_from_bytes
from indexlake.partitions.partition import Partition
from indexlake.pipeline.meta import publish_meta
from tests.partitions.clustered_tables import clustered, lose_catalog, metas, rows
from tests.support.lakes import connect


@pytest.mark.parametrize("key", [-5, 1000])
def test_a_meta_file_says_the_same_whoever_reads_the_catalog(tmp_path, key):
    with connect(tmp_path / "lake") as lake:
        t = clustered(lake)
        t.insert(rows(0, 200))
        lake.pipeline().merge("s.t")
        lake.pipeline().split("s.t", at=key)  # the block is of another partition now, and its record is replaced
        assert lake.pipeline().verify().problems == ()
        with connect(tmp_path / "lake") as other:
            assert publish_meta(other, t._table_id) is None, "nothing has changed"
        assert lake.pipeline().verify().problems == ()
        assert len(metas(lake, t._table_id)) > 0


def test_a_step_reads_only_the_partitions_that_it_changes(lake, monkeypatch):
    t = clustered(lake, partition_row_count=1)
    t.insert(rows(0, 200))
    read = []

    def counted(*record):
        read.append(record)
        return Partition(*record)

    monkeypatch.setattr(partition_records, "Partition", counted)
    assert lake.pipeline().merge("s.t")["s.t"].moves == 200
    assert len(t.partitions()) == 200
    assert len(read) < 5 * 200


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_large_rows_are_put_in_order_a_batch_at_a_time(lake, monkeypatch, direction):
    t = clustered(lake, partition_row_count=10_000)
    for start in range(4):
        t.insert([{"id": n, "v": n, "text": "x" * 1_000} for n in range(start, 400, 4)])
    monkeypatch.setattr(merging, "BATCH_BYTES", 20_000)
    found = list(t.scan(order_by=[("id", direction)]).to_batches())
    ids = [n for batch in found for n in batch.column("id").to_pylist()]
    assert ids == sorted(range(400), reverse=direction == "desc")
    assert max(batch.num_rows for batch in found) <= 20, "not all 400 kB at once"
    monkeypatch.setattr(merging, "BATCH_BYTES", 1)
    assert [row["id"] for row in t.scan(order_by=[("id", direction)], limit=3)] == ids[:3]
    lake.pipeline().merge("s.t")
    assert [row["id"] for row in t.scan()] == list(range(400))


def test_a_damaged_block_is_not_called_a_newer_file(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    publish_meta(lake, t._table_id)
    storage = lose_catalog(lake, tmp_path / "files")
    (block,) = storage.glob("**/*.delta")
    block.write_bytes(block.read_bytes()[:-1])
    result = il.restore(storage, tmp_path / "restored", partial=True)
    assert [lost.rows for lost in result.lost_blocks] == [60]
    assert result.newer_files == ()


def test_a_meta_file_of_a_newer_format_is_not_damaged(lake, tmp_path):
    t = clustered(lake)
    t.insert(rows(0, 60))
    publish_meta(lake, t._table_id)
    storage = lose_catalog(lake, tmp_path / "files")
    newest = storage / metas(lake, t._table_id)[0]
    newest.write_bytes(newest.read_bytes().replace(b"indexlake-meta 1 ", b"indexlake-meta 2 ", 1))
    with pytest.raises(il.CorruptionError, match="Upgrade"):
        il.restore(storage, tmp_path / "restored", partial=True)
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("body", [b"{}", b"[]", b"nothing"])
def test_a_meta_file_that_says_nothing_is_damaged(body):
    line = f"indexlake-meta 1 1 1 a {xxh3_128_hexdigest(body)}\n"
    with pytest.raises(il.CorruptionError, match="is damaged"):
        meta_from_bytes(line.encode() + body, "x.meta")


def test_the_folder_of_a_lake_is_not_its_storage_root(tmp_path):
    with connect(tmp_path / "lake") as lake:
        clustered(lake).insert(rows(0, 60))
    for wrong in (tmp_path / "lake", tmp_path / "lake" / "files" / "schema_1"):
        with pytest.raises(il.NotFoundError, match=r"is this the storage root.*`files` inside it"):
            il.restore(wrong, tmp_path / "restored")


def test_advice_that_can_be_followed(lake):
    heap = lake.create_table("heap", rows(0, 5))
    p = lake.pipeline()
    for wrong in (heap.partitions, lambda: p.merge("heap"), lambda: p.split("heap"), lambda: p.split("heap", at=3)):
        with pytest.raises(il.SchemaError, match="no primary key") as caught:
            wrong()
        assert "cluster_table" not in str(caught.value)
        assert "scan(" not in str(caught.value)
    keyed = lake.create_table("keyed", rows(0, 5), primary_key="id")
    before = lake.snapshot_id
    with pytest.raises(il.SchemaError, match="cluster_table"):
        keyed.partitions()
    lake.cluster_table("keyed")
    with pytest.raises(il.SchemaError, match=f"was a heap at snapshot {before}") as caught:
        keyed.at(before).partitions()
    assert "cluster_table" not in str(caught.value)
