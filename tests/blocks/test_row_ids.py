"""Row ids of a block: row id ↔ position."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.blocks.row_ids import RowIds
from indexlake.errors import CorruptionError

ids = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1), st.integers(2**40, 2**40 + 100_000))
id_sets = st.one_of(
    st.lists(ids, unique=True, max_size=60).map(sorted),
    st.builds(lambda start, count: list(range(start, start + count)), st.integers(0, 2**62), st.integers(0, 80)),
)


@settings(max_examples=200, deadline=None)
@given(id_sets, st.lists(ids, max_size=60))
def test_positions_and_row_ids_are_those_of_a_sorted_list(model: list[int], others: list[int]) -> None:
    for row_ids in (
        RowIds.from_array(np.array(model, np.int64)),
        RowIds.from_array(np.array(model, np.uint64)),
    ):
        for copy in (row_ids, RowIds.from_bytes(row_ids.to_bytes())):
            assert list(copy) == copy.to_array().tolist() == model
            assert len(copy) == len(model)
            assert copy == row_ids
            wanted = model + others
            expected = [model.index(i) if i in model else None for i in wanted]
            assert [copy.position_of(i) for i in wanted] == expected
            assert [i in copy for i in wanted] == [e is not None for e in expected]
            vector = copy.positions_of(np.array(wanted, np.int64))
            assert vector.tolist() == [-1 if e is None else e for e in expected]
            assert [copy.row_id_at(p) for p in range(len(model))] == model
            assert copy.row_ids_at(np.arange(len(model))).tolist() == model
            if model:
                assert (copy.min, copy.max) == (model[0], model[-1])


def test_a_consecutive_range_is_small_and_needs_no_bitmap() -> None:
    row_ids = RowIds.from_array(np.arange(10**6, 2 * 10**6))
    assert len(row_ids.to_bytes()) == 17
    assert row_ids == RowIds.from_range(10**6, 10**6)
    assert row_ids.positions_of([10**6 - 1, 10**6, 2 * 10**6 - 1, 2 * 10**6]).tolist() == [
        -1,
        0,
        10**6 - 1,
        -1,
    ]


def test_many_positions_of_a_set_with_holes_are_found_at_once() -> None:
    array = np.arange(0, 300_000, 3)
    row_ids = RowIds.from_array(array)
    everything = row_ids.positions_of(np.arange(300_000))
    assert (everything[::3] == np.arange(100_000)).all()
    assert (everything[1::3] == -1).all()


def test_unsorted_repeated_or_negative_row_ids_are_refused() -> None:
    for wrong in ([2, 1], [1, 1], [-1, 3]):
        with pytest.raises(ValueError, match="strictly increasing"):
            RowIds.from_array(np.array(wrong))


def test_a_position_outside_the_block_is_refused() -> None:
    for row_ids in (RowIds.from_range(5, 3), RowIds.from_array([1, 5, 9])):
        with pytest.raises(IndexError, match="outside a block of 3 rows"):
            row_ids.row_id_at(3)
        with pytest.raises(IndexError, match="outside a block of 3 rows"):
            row_ids.row_ids_at([0, -1])


def test_a_damaged_record_is_reported() -> None:
    for data in (b"", b"\x01abc", b"\x09" * 17, b"\x02"):
        with pytest.raises(CorruptionError, match="row ids of a block cannot be read"):
            RowIds.from_bytes(data)


def test_how_many_row_ids_are_smaller_is_the_position_from_which_on_they_are_not() -> None:
    for ids in ([], [5], [5, 6, 7], [1, 4, 9, 1 << 40]):
        found = RowIds.from_array(np.array(ids, np.int64))
        for row_id in (0, 1, 4, 5, 6, 7, 8, 10, 1 << 40, (1 << 63) - 1):
            assert found.count_below(row_id) == sum(i < row_id for i in ids)


def test_pickles_are_small_even_after_all_ids_were_looked_at() -> None:
    ids = RowIds.from_array([*range(0, 100_000, 2), 2**40])
    ids.to_array()
    data = pickle.dumps(ids)
    assert len(data) < 30_000
    assert pickle.loads(data) == ids
