"""Checksums stay in the catalog until a file is opened, and for as long as the file is there."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.open_files import OpenFiles
from indexlake.catalog.checksums import Kept, bytes_of
from indexlake.scan.execute import pieces
from indexlake.storage.checksum import Checksums
from tests.support.lakes import Address, clock_of, connect

CONFIG = il.TableConfig(direct_write_row_count=5, block_row_count=10, retention=timedelta(0))


def rows(start: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + 10), pa.int64()), "v": range(start, start + 10)})


def filled(lake: il.Lake) -> il.Table:
    t = lake.create_table("t", rows(0), primary_key="id", config=CONFIG)
    t.insert(rows(10))
    t.insert(rows(20))
    lake._files.clear()
    return t


def rewrite_and_expire(lake: il.Lake, t: il.Table) -> None:
    """No record of a block that was there is left."""
    before = {b.data_file_id for b in t._state().blocks.records}
    t.update({"v": 0}, "id % 2 = 0")
    pipeline = lake.pipeline(runner="threads")
    pipeline.compact("t")
    clock_of(lake).stop()
    pipeline.expire("t")
    assert not before & {b.data_file_id for b in lake._readings.latest(t._table_id).blocks.records}


def test_a_state_holds_no_checksums(any_address: Address) -> None:
    with any_address.connect() as lake:
        t = filled(lake)
        state = t._state()
        assert state.primary is not None
        files = [*state.blocks.records, *(link.segment for link in state.primary.links.values())]
        assert len(files) == 6
        assert all(isinstance(file.checksum, Kept) for file in files)
        for file in files:
            assert Checksums.from_bytes(file.checksum).size == file.size
        assert bytes_of([file.checksum for file in files]) == [bytes(file.checksum) for file in files]
        assert pickle.loads(pickle.dumps(files[0].checksum)) == bytes(files[0].checksum)


def test_what_was_planned_is_read_after_its_records_have_expired(any_address: Address) -> None:
    with any_address.connect() as lake:
        t = filled(lake)
        plan, fields, *_ = t.scan()._plan()
        state = t._state()
        expected = t.scan(order_by="id").to_arrow()
        rewrite_and_expire(lake, t)
        copy = pickle.loads(pickle.dumps(plan))
        assert {type(task.checksum) for task in copy.tasks} == {bytes}
        for each in (plan, copy):
            batches = [p.batch for p in pieces(each, OpenFiles(lake.storage), 2, fields, row_id=False)]
            assert pa.Table.from_batches(batches).sort_by("id") == expected
        assert state.primary is not None
        for link in state.primary.links.values():
            assert len(state.primary.index.open(lake.storage, link.segment)) == 10


def test_a_file_that_vacuum_has_deleted_is_missing(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        t = filled(lake)
        plan, fields, *_ = t.scan()._plan()
        rewrite_and_expire(lake, t)
        lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
        with pytest.raises(il.CorruptionError, match="is missing though the catalog refers to it"):
            list(pieces(plan, OpenFiles(lake.storage), 2, fields, row_id=False))
        assert len(t) == 30
