"""Reads through the trees of the memory store give what a look at each row gives, in the inline store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.support.lakes import connect

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [None, 0.0, -0.0, nan, inf, -inf, 1.5, -1.5, 1e300]),
    "float": (pa.float32(), [None, 0.0, -0.0, nan, inf, -inf, 1.5, -1.5]),
    "int32": (pa.int32(), [None, 0, -1, 1, 2**31 - 1, -(2**31)]),
    "string": (pa.string(), [None, "", "a", "a\0", "a\0b", "å", "b" * 300]),
    "date": (pa.date32(), [None, *pa.array([0, -1, 20_000], pa.date32()).to_pylist()]),
}
TESTS = ["c = $a", "c in ($a, $b)", "c > $a", "c >= $a", "c < $a", "c <= $a and c > $b", "c between $b and $a",
         "c is null", "c = $a or c is null", "c <> $a", "c = $a and id > 3"]  # fmt: skip


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[list[il.Lake]]:
    with connect(tmp_path / "memory", hot="memory") as one, connect(tmp_path / "inline", hot="inline") as other:
        yield [one, other]


def answers(view: Any, values: list[Any]) -> list[Counter[str]]:
    given = [value for value in values if value is not None]
    found = []
    for a, b in zip(given, [*given[1:], given[0]], strict=True):
        for where in TESTS:
            params = {name: value for name, value in (("a", a), ("b", b)) if f"${name}" in where}
            found.append(Counter(repr(row) for row in view.scan(where, params=params).to_pylist()))
    return found


@pytest.mark.parametrize("kind", VALUES)
def test_by_values_of_an_index(lakes: list[il.Lake], kind: str) -> None:
    type, values = VALUES[kind]
    seen = []
    for lake in lakes:
        t = lake.create_table("t", {"id": "int64", "c": type, "d": "int64"}, primary_key="id")
        t.create_index("by_c", "c")
        t.create_index("by_d_c", ["d", "c"], kind="hash")
        t.insert([{"id": n, "c": value, "d": n % 2} for n, value in enumerate(values * 2)])
        past, results = lake.snapshot_id, [answers(t, values)]
        t.update({"c": values[-1]}, "id < 3")
        t.delete("id = 4")
        results += [answers(t, values), answers(t.at(past), values)]
        with lake.transaction() as tx:
            own = tx.table("t")
            own.insert({"id": 100, "c": values[1], "d": 0})
            own.update({"c": values[1]}, "id = 5")
            own.delete("id = 6")
            results.append(answers(own, values))
        t.add_column("e", pa.int64(), default=3)
        results += [answers(t, values), answers(t.at(past), values)]
        if kind in ("int32", "float"):
            t.drop_index("by_c")
            t.drop_index("by_d_c")
            wider = {"int32": pa.int64(), "float": pa.float64()}[kind]
            t.widen_column("c", wider)
            t.create_index("by_c", "c")
            t.insert({"id": 200, "c": values[1], "d": 0, "e": 1})
            results += [answers(t, values), answers(t.at(past), values)]
        seen.append(results)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", VALUES)
def test_unique_values(lakes: list[il.Lake], kind: str) -> None:
    """Nulls do not meet, zeros of both signs do, NaNs do; what is deleted or moved to a block is not held twice."""
    type, values = VALUES[kind]
    seen = []
    for lake in lakes:
        t = lake.create_table("t", {"id": "int64", "c": type}, primary_key="id")
        t.create_index("once", "c", unique=True)
        outcomes: list[Any] = []
        for n, value in enumerate(values * 3):
            try:
                t.insert({"id": n, "c": value})
                outcomes.append(True)
            except il.DuplicateKeyError:
                outcomes.append(False)
            if n == len(values):
                lake.pipeline().dump("t")
            if n == 2 * len(values):
                t.delete("id < 3")
        seen.append((outcomes, Counter(map(repr, t.scan().to_pylist()))))
    assert seen[0] == seen[1]
