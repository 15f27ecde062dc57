"""What somebody meets who has only read the documentation: odd keys, wrong tables, and advice that has to be true."""

from __future__ import annotations

import pytest

from indexlake.catalog import partitions as partition_records
from indexlake.partitions import merging
from indexlake.partitions.partition import Partition
from indexlake.pipeline.meta import publish_meta
from tests.partitions.clustered_tables import clustered, metas, rows
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
