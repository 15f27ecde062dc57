"""The checker finds each anomaly, and nothing in a correct history."""

from __future__ import annotations

from tests.commit.bank import INITIAL, Record
from tests.commit.history_checker import anomalies

GOOD = [
    Record("a", 0, 1, {1: INITIAL, 2: INITIAL}, [1, 2]),
    Record("b", 1, 2, {1: "a"}, [1]),
    Record("c", 1, None, {2: "a"}, [2]),
    Record("d", None, 3, {}, [2]),
    Record("e", 3, None, {1: "b", 2: "d"}, []),
]


def test_a_correct_history_has_no_anomaly() -> None:
    assert anomalies(GOOD) == []


def test_write_skew_is_allowed() -> None:
    skew = [
        Record("x", 0, 1, {1: INITIAL, 2: INITIAL}, [1]),
        Record("y", 0, 2, {1: INITIAL, 2: INITIAL}, [2]),
    ]
    assert anomalies(skew) == []


def test_each_anomaly_is_found() -> None:
    cases = {
        "lost update": Record("x", 1, 9, {1: "a"}, [1]),
        "dirty read": Record("x", 3, None, {2: "c"}, []),
        "intermediate read": Record("x", 3, None, {1: "b (half-way)"}, []),
        "stale or skewed read": Record("x", 3, None, {1: "b", 2: "a"}, []),
    }
    for name, record in cases.items():
        assert any(text.startswith(name) for text in anomalies([*GOOD, record])), name
    future = Record("x", 1, None, {1: "b"}, [])
    assert any(text.startswith("stale or skewed read") for text in anomalies([*GOOD, future]))
    assert anomalies([*GOOD, Record("x", 5, 3, {}, [2])]) != []
