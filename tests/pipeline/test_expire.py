"""Expire in steps: however much has ended, no commit removes more than a few records, and what one run leaves the next
one finds."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline import expire
from indexlake.snapshots import state as state_module
from tests.crash.failing import failing
from tests.support.lakes import clock_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])
ENDED = "select count(*) from indexlake_data_file where end_snapshot is not null"


def one(lake: il.Lake, sql: str) -> Any:
    return next(iter(lake.catalog.query(sql)))[0]


def steps_of(lake: il.Lake) -> list[tuple[int, int]]:
    """Blocks and files of segments, after each commit of an expire."""
    seen = []

    class Counting(expire.Section):
        def commit(self) -> None:
            super().commit()
            seen.append((one(lake, ENDED), one(lake, "select count(*) from indexlake_index_file")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expire, "Section", Counting)
        lake.pipeline(runner="threads").expire("t")
    return seen


@pytest.fixture
def worn(any_lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> il.Lake:
    """A table of which nine blocks have ended, with deletes in blocks that live on and an index that was dropped."""
    monkeypatch.setattr(expire, "STEP", 2)
    monkeypatch.setattr(expire, "LONG", 3600)
    monkeypatch.setattr(expire, "STEP_RECORDS", 5)
    config = il.TableConfig(direct_write_row_count=2, block_row_count=100, retention=timedelta(0))
    t = any_lake.create_table("t", SCHEMA, primary_key="id", config=config)
    t.create_index("by_v", "v")
    for n in range(9):
        t.insert(pa.table({"id": [2 * n, 2 * n + 1], "v": [n, n]}))
    any_lake.pipeline(runner="threads").compact("t")
    t.drop_index("by_v")
    for n in range(3):
        t.insert(pa.table({"id": range(100 + 10 * n, 110 + 10 * n), "v": [n] * 10}))
        t.delete(f"id in ({100 + 10 * n}, {101 + 10 * n})")
        t.delete(f"id = {102 + 10 * n}")
    clock_of(any_lake).stop()
    return any_lake


def is_known(lake: il.Lake) -> None:
    """What this process knows of the table is what another one would read."""
    with lake._readings.open(lake.table("t")._table_id) as reading:
        refreshed = reading.state
        loaded = state_module.load(reading.transaction, refreshed.table.table_id, reading.snapshot)
    assert {b.data_file_id for b in refreshed.blocks.records} == {b.data_file_id for b in loaded.blocks.records}
    assert refreshed.indexes.keys() == loaded.indexes.keys()
    assert all(refreshed.indexes[i].links == loaded.indexes[i].links for i in loaded.indexes)
    assert refreshed.table == loaded.table


def test_after_a_commit_that_took_long_the_next_one_removes_half(
    worn: il.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expire, "STEP", 4)
    monkeypatch.setattr(expire, "LONG", -1)
    assert [blocks for blocks, _ in steps_of(worn)][:5] == [5, 3, 2, 1, 0]
    is_known(worn)


def test_each_commit_of_an_expire_removes_only_some_of_what_has_ended(worn: il.Lake) -> None:
    before = sorted(worn.table("t").scan().to_pylist(), key=lambda row: row["id"])
    ended = [blocks for blocks, _ in steps_of(worn)]
    assert ended[0] == 7
    assert ended[-1] == 0
    assert all(a - b <= 2 for a, b in pairwise(ended))
    is_known(worn)
    assert sorted(worn.table("t").scan().to_pylist(), key=lambda row: row["id"]) == before
    assert one(worn, "select count(*) from indexlake_delete where snapshot_id > 0") == 0
    assert one(worn, "select count(*) from indexlake_index where index_name = 'by_v'") == 0
    assert worn.pipeline(runner="threads").verify().ok


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_what_an_expire_that_died_has_left_is_removed_by_the_next_one(worn: il.Lake, nth: int) -> None:
    before = sorted(worn.table("t").scan().to_pylist(), key=lambda row: row["id"])
    with worn.transaction() as tx:  # the horizon stays where the first run puts it
        assert len(tx.table("t")) == len(before)
        with failing("expire.commit", nth=nth), pytest.raises(OSError, match="injected"):
            worn.pipeline(runner="threads").expire("t")
        assert one(worn, ENDED) == 9 - 2 * (nth - 1)
        assert sorted(worn.table("t").scan().to_pylist(), key=lambda row: row["id"]) == before
        result = worn.pipeline(runner="threads").expire("t")["main.t"]
        assert result.blocks_dropped == 9 - 2 * (nth - 1)
        assert one(worn, ENDED) == 0
        is_known(worn)
        assert sorted(worn.table("t").scan().to_pylist(), key=lambda row: row["id"]) == before
        assert not worn.pipeline(runner="threads").expire("t")["main.t"].did_something


def test_a_dropped_table_goes_in_steps_too(worn: il.Lake) -> None:
    worn.drop_table("t")
    table_id = one(worn, "select table_id from indexlake_table where table_name = 't'")
    expire.expire(worn, table_id)
    for name in ("table", "data_file", "index_file", "index_file_block", "delete", "index", "touched"):
        assert one(worn, f"select count(*) from indexlake_{name}") == 0, name
    assert worn.pipeline().vacuum(grace=timedelta(0)).files > 0


def test_what_has_ended_is_found_without_looking_at_what_has_not(worn: il.Lake) -> None:
    if worn.catalog.database() != "sqlite":
        pytest.skip("PostgreSQL chooses by the size of a table")
    for sql in (
        "select data_file_id from indexlake_data_file where table_id = 1 and end_snapshot <= 5 limit 9",
        """select data_file_id from indexlake_index_file_block where index_id in
        (select index_id from indexlake_index where table_id = 1) and end_snapshot <= 5 limit 9""",
    ):
        plan = " ".join(row[-1] for row in worn.catalog.query(f"explain query plan {sql}"))
        assert "_ended" in plan, plan
