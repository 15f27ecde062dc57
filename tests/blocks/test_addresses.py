"""Row id ↔ position, in blocks of any order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexlake as il
from indexlake.blocks.addresses import LookedUp, ranked
from indexlake.blocks.row_ids import RowIds


@given(
    st.sets(st.integers(0, 10_000), max_size=80), st.randoms(use_true_random=False), st.lists(st.integers(0, 10_000))
)
def test_both_ways_agree_with_a_dict_whatever_the_order(ids, chance, asked):
    order = sorted(ids)
    rank = ranked(RowIds.from_array(order).to_bytes())
    chance.shuffle(order)
    looked_up = LookedUp(np.array(order, np.int64))
    for addresses, by_position in ((looked_up, order), (rank, sorted(ids))):
        place = {row_id: position for position, row_id in enumerate(by_position)}
        assert addresses.positions_of(asked).tolist() == [place.get(row_id, -1) for row_id in asked]
        assert addresses.row_ids_at(np.arange(len(by_position))).tolist() == by_position
        assert [addresses.row_id_at(n) for n in range(len(by_position))] == by_position


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_the_row_ids_of_a_block_can_be_read_from_its_own_column(tmp_path, format):
    config = il.TableConfig(direct_write_row_count=10, block_row_count=40, dump_format=format)
    with il.connect(tmp_path, automatic=False) as lake:
        t = lake.create_table("t", {"id": "int64"}, primary_key="id", config=config)
        t.insert(pa.table({"id": range(100)}))
        state = lake._readings.latest(t._table_id)
        for block in state.blocks.records:
            schema = state.schema.at(block.schema_snapshot).file
            positions = np.arange(block.record_count)
            by_record = state.addresses(block, lake._files).row_ids_at(positions)
            assert lake._files.addresses(block, schema).row_ids_at(positions).tolist() == by_record.tolist()
