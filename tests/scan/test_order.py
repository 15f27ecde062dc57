"""Sorting: nulls last both ways, NaN the greatest, equal rows as they came; in a temporary file when rows are many."""

from __future__ import annotations

import math
import random
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.scan import order, sorted_runs
from indexlake.scan.order import ordered

SCHEMA = pa.schema(
    [
        pa.field("f", pa.float64()),
        pa.field("s", pa.string_view()),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        pa.field("b", pa.bool_()),
        pa.field("n", pa.int64()),
        pa.field("l", pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ]
)
Row = dict[str, Any]


def rows(count: int, seed: int = 0) -> list[Row]:
    chance = random.Random(seed)
    floats = [None, math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -1.5]
    return [
        {
            "f": chance.choice(floats),
            "s": chance.choice([None, "", "a", "aa", "b\x00", "ä"]),
            "d": chance.choice([None, *(f"d{n}" for n in range(200))]),
            "b": chance.choice([None, True, False]),
            "n": n,
            "l": [f"x{chance.randrange(200)}"],
        }
        for n in range(count)
    ]


def batches(given: list[Row], size: int = 30) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(given[n : n + size], SCHEMA) for n in range(0, len(given), size)]


def compared(a: Any, b: Any) -> int:
    """By value: NaN the greatest, zeros equal."""
    if isinstance(a, float):
        a, b = ((math.isnan(x), 0.0 if math.isnan(x) else x) for x in (a, b))
    elif isinstance(a, str):
        a, b = a.encode(), b.encode()
    return int((a > b) - (a < b))


def plainly_sorted(given: list[Row], by: list[tuple[str, str]]) -> list[int]:
    """The numbers of the rows, by Python's own sort."""

    def compare(x: Row, y: Row) -> int:
        for name, direction in by:
            a, b = x[name], y[name]
            if (a is None) != (b is None):
                return 1 if a is None else -1  # nulls last, whatever the direction
            if a is not None and (found := compared(a, b)):
                return found if direction == "asc" else -found
        return 0

    return [row["n"] for row in sorted(given, key=cmp_to_key(compare))]


ORDERS = [
    [("f", "asc")],
    [("f", "desc"), ("s", "asc")],
    [("s", "desc"), ("f", "asc"), ("b", "desc")],
    [("d", "asc"), ("b", "asc")],
    [("b", "desc")],
    [("n", "desc")],
    [("b", "asc"), ("b", "desc"), ("d", "desc")],
]


@pytest.mark.parametrize("by", ORDERS, ids=str)
@pytest.mark.parametrize(("run", "piece"), [(64 << 20, 1 << 19), (6_000, 600), (1_200, 90), (1, 1)])
def test_any_budget_gives_what_a_plain_sort_gives(
    by: list[tuple[str, str]], run: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = rows(90 if run == 1 else 600)
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", run)
    monkeypatch.setattr(sorted_runs, "PIECE_BYTES", piece)
    found = pa.Table.from_batches(ordered(batches(given), SCHEMA, by, None), SCHEMA)
    numbers = found.column("n").to_pylist()
    assert numbers == plainly_sorted(given, by)
    assert found.drop_columns("f").to_pylist() == [{k: v for k, v in given[n].items() if k != "f"} for n in numbers]


@pytest.mark.parametrize("most", [0, 1, 37, 1999, 2000, 5000])
@pytest.mark.parametrize("enough", [10, 100_000])
def test_a_limit_gives_the_first_rows(most: int, enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", 20_000)
    monkeypatch.setattr(order, "_ENOUGH", enough)
    given = rows(2000, seed=most)
    by = [("d", "desc"), ("f", "asc")]
    found = pa.Table.from_batches(ordered(batches(given), SCHEMA, by, most), SCHEMA)
    assert found.column("n").to_pylist() == plainly_sorted(given, by)[:most]


def test_no_rows_are_sorted_to_no_rows() -> None:
    assert list(ordered([], SCHEMA, [("f", "asc")], None)) == []
    assert list(ordered(batches(rows(3))[:0], SCHEMA, [("f", "asc")], 5)) == []


def test_a_scan_in_order_streams_from_a_temporary_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", 50_000)
    monkeypatch.setattr(sorted_runs, "PIECE_BYTES", 5_000)
    with il.connect(str(tmp_path), automatic=False) as lake:
        schema = pa.schema({"id": pa.int64(), "v": pa.float64(), "s": pa.string()})
        t = lake.create_table("t", schema, "id", config=il.TableConfig(direct_write_row_count=1000))
        chance = random.Random(5)
        numbers = list(range(12_000))
        chance.shuffle(numbers)
        given = [{"id": n, "v": chance.choice([None, 1.0, math.inf, n / 7]), "s": f"s{n % 9}"} for n in numbers]
        t.insert(pa.Table.from_pylist(given[:9000], schema))
        t.insert(given[9000:9500])
        lake.pipeline().dump("t")
        t.insert(given[9500:10_000])
        found = t.scan(order_by=[("s", "desc"), "v", ("id", "desc")])
        wanted = sorted(given[:10_000], key=lambda r: (-int(r["s"][1:]), r["v"] is None, r["v"] or 0.0, -r["id"]))
        assert found.to_pylist() == wanted
        assert t.scan(order_by=["s", ("id", "asc")], limit=5000, offset=4000, columns=["id"]).to_pylist() == [
            {"id": r["id"]} for r in sorted(given[:10_000], key=lambda r: (r["s"], r["id"]))[4000:9000]
        ]
