"""The checker of lists finds each anomaly by name, and nothing in histories that snapshot isolation allows."""

from __future__ import annotations

import pytest

from tests.trials.list_checker import Done, Op, anomalies, append, read, write_skews

GOOD = [
    Done("a", [read("x"), append("x", 1), read("x", 1)], ended=1),
    Done("b", [read("x", 1), append("x", 2), append("y", 3), read("y", 3)], begun=2, ended=3),
    Done("c", [append("y", 9), read("y", 3, 9)], committed=False, begun=4, ended=5),
    Done("d", [read("y", 3), append("y", 4), append("y", 5)], begun=4, ended=6),
    Done("e", [read("x", 1), read("y")], begun=1.5, ended=7),
    Done("end", [read("x", 1, 2), read("y", 3, 4, 5)], begun=8, ended=9),
]


def names(history: list[Done]) -> set[str]:
    return {text.split(":")[0] for text in anomalies(history)}


def test_a_correct_history_has_no_anomaly() -> None:
    assert anomalies(GOOD) == []
    assert write_skews(GOOD) == 0


def test_pure_write_skew_is_accepted() -> None:
    history = [
        Done("t1", [read("x"), read("y"), append("x", 1)], begun=0, ended=2),
        Done("t2", [read("x"), read("y"), append("y", 2)], begun=1, ended=3),
        Done("end", [read("x", 1), read("y", 2)], begun=4, ended=5),
    ]
    assert anomalies(history) == []
    assert write_skews(history) == 1


def test_the_anomaly_of_a_read_only_transaction_is_accepted() -> None:
    history = [
        Done("t1", [read("x"), read("y"), append("x", 1)], begun=0, ended=9),
        Done("t2", [append("y", 2)], begun=1, ended=2),
        Done("t3", [read("x"), read("y", 2)], begun=3, ended=4),
        Done("end", [read("x", 1), read("y", 2)], begun=10, ended=11),
    ]
    assert anomalies(history) == []


CASES: dict[str, list[Done]] = {
    "G0": [
        Done("t1", [append("x", 1), append("y", 3)]),
        Done("t2", [append("x", 2), append("y", 4)]),
        Done("end", [read("x", 1, 2), read("y", 4, 3)]),
    ],
    "G1a": [
        Done("t1", [append("x", 1)], committed=False),
        Done("t2", [read("x", 1)]),
    ],
    "G1b": [
        Done("t1", [append("x", 1), append("x", 2)]),
        Done("t2", [read("x", 1)]),
        Done("end", [read("x", 1, 2)]),
    ],
    "G1c": [
        Done("t1", [append("x", 1), read("y", 2)]),
        Done("t2", [append("y", 2), read("x", 1)]),
    ],
    "G-single": [
        Done("t1", [read("x"), read("y", 2)]),
        Done("t2", [append("x", 1), append("y", 2)]),
        Done("end", [read("x", 1), read("y", 2)]),
    ],
    "G-nonadjacent": [  # t1 -rw-> t2 -wr-> t3 -rw-> t4 -wr-> t1
        Done("t1", [read("x"), read("y", 2)]),
        Done("t2", [append("x", 1)]),
        Done("t3", [read("x", 1), read("y")]),
        Done("t4", [append("y", 2)]),
    ],
    "G-single (real time)": [
        Done("t1", [append("x", 1)], begun=0, ended=1),
        Done("t2", [read("x")], begun=2, ended=3),
        Done("end", [read("x", 1)], begun=4, ended=5),
    ],
    "G0 (real time)": [
        Done("t1", [append("x", 1)], begun=0, ended=1),
        Done("t2", [append("x", 2)], begun=2, ended=3),
        Done("end", [read("x", 2, 1)], begun=4, ended=5),
    ],
    "lost update": [
        Done("t1", [read("x"), append("x", 1)], begun=0, ended=1),
        Done("t2", [read("x"), append("x", 2)], begun=0, ended=2),
        Done("end", [read("x", 2)], begun=3, ended=4),
    ],
    "internal": [Done("t1", [append("x", 1), read("x")])],
    "incompatible order": [
        Done("t1", [read("x", 1, 2)]),
        Done("t2", [read("x", 2)]),
        Done("t3", [append("x", 1)]),
        Done("t4", [append("x", 2)]),
    ],
    "from nowhere": [Done("t1", [read("x", 7)])],
    "twice": [Done("t1", [append("x", 1)]), Done("t2", [read("x", 1, 1)])],
}


@pytest.mark.parametrize("name", CASES)
def test_each_anomaly_is_found_by_name(name: str) -> None:
    assert name in names(CASES[name]), anomalies(CASES[name])
    assert name in names([*GOOD[:-1], *_elsewhere(CASES[name])])


def _elsewhere(history: list[Done]) -> list[Done]:
    """The same under other keys and later, so that it can follow a history that is correct."""
    return [
        Done(f"{d.name}'", [Op(f"{o.key}'", o.value, o.found) for o in d.ops], d.committed, d.begun + 20, d.ended + 20)
        for d in history
    ]


def test_a_lost_update_of_lists_that_keep_both_is_named_too() -> None:
    history = [
        Done("t1", [read("x"), append("x", 1)]),
        Done("t2", [read("x"), append("x", 2)]),
        Done("end", [read("x", 1, 2)]),
    ]
    assert names(history) == {"G-single", "lost update"}


def test_the_trace_shows_the_cycle_and_its_transactions() -> None:
    (text,) = anomalies(CASES["G1c"])
    assert text.splitlines()[0] == "G1c: t1 -wr[x: 1]-> t2 -wr[y: 2]-> t1"
    assert text.splitlines()[1:] == ["  t2: [append y 2, read x [1]]", "  t1: [append x 1, read y [2]]"]
