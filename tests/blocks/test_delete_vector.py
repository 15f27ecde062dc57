"""Delete logs: what was deleted from a block, by which commit."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from indexlake.blocks.delete_vector import DeleteLog, positions_from_bytes, positions_to_bytes
from indexlake.errors import CorruptionError

ROWS = 50
entry = st.tuples(st.integers(0, 8), st.frozensets(st.integers(0, ROWS - 1), min_size=1, max_size=25))


def check(log: DeleteLog, model: list[tuple[int, frozenset[int]]]) -> None:
    assert len(log) == len(model)
    assert [(s, frozenset(p)) for s, p in log.entries()] == model
    for snapshot in range(10):
        expected = frozenset().union(*(p for s, p in model if s <= snapshot))
        assert [log.contains(p, snapshot) for p in range(ROWS)] == [p in expected for p in range(ROWS)]
        assert log.count_at(snapshot) == len(expected)
        at = log.at(snapshot)
        if not expected:
            assert at is None
        else:
            assert frozenset(at) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(entry, max_size=4), st.lists(st.tuples(st.integers(0, 100), entry), max_size=8))
def test_every_log_ever_made_keeps_its_answers(
    start: list[tuple[int, frozenset[int]]], steps: list[tuple[int, tuple[int, frozenset[int]]]]
) -> None:
    logs = [(DeleteLog(start), start)]
    for parent, (snapshot, positions) in steps:
        log, model = logs[parent % len(logs)]
        logs.append((log.add(snapshot, positions), [*model, (snapshot, positions)]))
    for log, model in logs:
        check(log, model)
    for log, model in reversed(logs):  # and again, now that unions are cached
        check(log, model)


def test_an_entry_of_snapshot_zero_holds_at_every_snapshot() -> None:
    log = DeleteLog([(0, [3]), (7, [4])])
    assert [log.contains(3, s) for s in (0, 6, 7)] == [True, True, True]
    assert [log.contains(4, s) for s in (0, 6, 7)] == [False, False, True]


def test_the_bitmap_given_may_be_changed_afterwards() -> None:
    given_bitmap = BitMap([1, 2])
    log = DeleteLog().add(1, given_bitmap)
    given_bitmap.add(3)
    assert not log.contains(3, 1)
    assert list(log.at(1)) == [1, 2]


def test_a_hundred_thousand_single_deletes_and_point_reads_between_them_stay_cheap() -> None:
    log = DeleteLog()
    started = time.perf_counter()
    for number in range(100_000):
        log = log.add(number + 1, [number * 7])
        assert log.contains(number * 7, number + 1)
        assert not log.contains(number * 7 + 1, number + 1)
    elapsed = time.perf_counter() - started
    assert log.count_at(50_000) == 50_000
    assert log.count_at(100_000) == 100_000
    assert elapsed < 10, f"{elapsed:.1f} s: adding is not of constant cost"


def test_threads_that_go_on_from_one_log_do_not_see_each_other() -> None:
    base = DeleteLog([(1, [0])])
    results: dict[int, DeleteLog] = {}

    def run(number: int) -> None:
        log = base
        for step in range(200):
            log = log.add(2 + step, [1 + 1000 * number + step])
        results[number] = log

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, log in results.items():
        assert list(log.at(1000)) == [0, *range(1 + 1000 * number, 201 + 1000 * number)]
    assert list(base.at(1000)) == [0]


@given(st.frozensets(st.integers(0, 2**32 - 1), max_size=50))
@settings(max_examples=50, deadline=None)
def test_positions_round_trip_through_the_catalog(positions: frozenset[int]) -> None:
    assert frozenset(positions_from_bytes(positions_to_bytes(positions))) == positions
    array = np.array(sorted(positions), np.int64)
    assert positions_to_bytes(array) == positions_to_bytes(positions)


def test_damaged_positions_are_reported() -> None:
    with pytest.raises(CorruptionError, match="deleted positions of a block cannot be read"):
        positions_from_bytes(b"nonsense")


def test_readers_that_bring_one_log_up_to_date_share_the_new_entries() -> None:
    base = DeleteLog([(1, [0])])
    one, two = base.add(2, [5]), base.add(2, [5])
    other = base.add(2, [6])
    assert one.entries() == two.entries()
    assert one._history is two._history
    assert other._history is not one._history
    assert [list(log.at(2)) for log in (base, one, two, other)] == [[0], [0, 5], [0, 5], [0, 6]]


def test_the_entries_of_a_range_of_commits_leave_out_its_begin() -> None:
    log = DeleteLog([(0, [9]), (3, [1]), (5, [2, 4])]).add(7, [3])
    assert [(s, list(p)) for s, p in log.between(3, 7)] == [(5, [2, 4]), (7, [3])]
    assert [s for s, _ in log.between(0, 3)] == [3]
    assert log.between(7, 100) == []
