"""Inserting: every kind of input, defaults, nullability, large batches straight to blocks."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, row, rows, tiered


def test_rows_in_every_tier_are_one_table(make: Any) -> None:
    t = tiered(make)
    assert content(t) == EVERYTHING
    assert len(t) == 30
    dump(t)
    assert content(t) == EVERYTHING


def test_a_dict_and_a_list_of_dicts_are_rows(make: Any) -> None:
    t = make(SCHEMA, "id")
    one = t.insert(row(1))
    assert (one.rows, one.inserted, one.updated, one.deleted) == (1, 1, 0, 0)
    more = t.insert(rows([2, 3]))
    assert (more.rows, more.inserted) == (2, 2)
    assert more.snapshot_id > one.snapshot_id
    assert content(t) == rows([1, 2, 3])


def _sources(count: int) -> dict[str, Any]:
    import duckdb
    import pandas
    import polars

    table = pa.Table.from_pylist(rows(range(count)), SCHEMA)
    frame = pandas.DataFrame({name: table.column(name).to_pylist() for name in table.column_names})
    return {
        "tuple": tuple(rows(range(count))),
        "generator": (row(n) for n in range(count)),
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(max_chunksize=7),
        "batches": table.to_batches(max_chunksize=7),
        "pandas": frame.astype({"id": "int64"}),
        "polars": polars.from_arrow(table),
        "duckdb": duckdb.connect().from_arrow(table),
    }


@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize(
    "kind", ["tuple", "generator", "table", "batch", "reader", "batches", "pandas", "polars", "duckdb"]
)
def test_anything_with_rows_is_inserted(make_local: Any, kind: str, count: int) -> None:
    t = make_local(SCHEMA, "id", direct_write_row_count=100)
    written = t.insert(_sources(count)[kind])
    assert written.rows == count
    found = content(t)
    assert [(r["id"], r["city"]) for r in found] == [(r["id"], r["city"]) for r in rows(range(count))]
    assert t.stats().hot_rows == (count if count < 100 else 0)


def test_a_scan_is_inserted_into_another_table(make: Any) -> None:
    source, target = tiered(make), make(SCHEMA, "id")
    assert target.insert(source.scan("id <= 10")).rows == 10
    assert content(target) == rows(range(1, 11))


@pytest.mark.blocks_of_heap
def test_large_batches_go_straight_to_blocks_in_one_commit(lake: il.Lake, make: Any, combination: Any) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=50, block_row_count=40)
    before = lake.snapshot_id
    written = t.insert(pa.Table.from_pylist(rows(range(100)), SCHEMA))
    assert written.rows == 100
    assert [s.snapshot_id for s in t.history() if s.snapshot_id > before] == [written.snapshot_id]
    stats = t.stats()
    assert (stats.hot_rows, stats.blocks, stats.by_format) == (0, 3, {combination.format: 100})
    assert content(t) == rows(range(100))
    assert t.insert(rows(range(100, 149))).rows == 49
    assert t.stats().hot_rows == 49


def test_no_rows_are_no_commit(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    before = lake.snapshot_id
    for nothing in ([], iter([]), SCHEMA.empty_table(), ()):
        assert t.insert(nothing).rows == 0
    assert lake.snapshot_id == before


def test_missing_columns_take_their_default_or_null(make: Any) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("state", pa.string(), False),
            pa.field("since", pa.date32()),
            pa.field("tags", pa.list_(pa.string())),
        ]
    )
    defaults = {"STATE": "new", "since": datetime.date(2026, 11, 1), "tags": ["a"]}
    t = make(schema, "id", defaults=defaults, direct_write_row_count=3)
    t.insert({"id": 1})
    t.insert([{"id": 2, "since": None}, {"id": 3, "state": "old", "tags": []}])
    t.insert(pa.table({"id": [4, 5, 6], "state": ["x", "y", "z"]}))
    day = datetime.date(2026, 11, 1)
    expected = [
        {"id": 1, "state": "new", "since": day, "tags": ["a"]},
        {"id": 2, "state": "new", "since": None, "tags": ["a"]},
        {"id": 3, "state": "old", "since": day, "tags": []},
        *({"id": n, "state": s, "since": day, "tags": ["a"]} for n, s in ((4, "x"), (5, "y"), (6, "z"))),
    ]
    assert content(t) == expected
    dump(t)
    assert content(t) == expected


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_a_null_in_a_required_column_is_refused(lake: il.Lake, make: Any, many: bool) -> None:
    t = make(pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), False)]), "id", direct_write_row_count=5)
    before = lake.snapshot_id
    filler = [{"id": n, "n": n} for n in range(10 if many else 1)]
    for bad, text in (
        ({"id": 99, "n": None}, "Column 'n' holds a null"),
        ({"id": None, "n": 1}, "Column 'id' holds a null"),
        ({"id": 99}, "Column 'n' is missing and has no default"),
    ):
        with pytest.raises(il.ConstraintError, match=text) as caught:
            t.insert([*filler, bad])
        assert caught.value.column in ("n", "id")
    with pytest.raises(il.ConstraintError, match="holds a null"):
        t.insert(pa.table({"id": list(range(11)), "n": pa.array([None, *range(10)], pa.int64())}))
    assert len(t) == 0
    assert lake.snapshot_id == before


def test_row_ids_are_unique_and_kept_through_update_and_dump(make: Any) -> None:
    t = tiered(make)

    def ids() -> dict[int, int]:
        found = t.scan(columns=["id"], with_row_id=True).to_pylist()
        return {r["id"]: r["_indexlake_row_id"] for r in found}

    before = ids()
    assert len(set(before.values())) == 30
    t.update({"city": "moved"}, "id in (2, 12, 25)")
    assert ids() == before
    dump(t)
    assert ids() == before
    t.update({"city": "again"}, "true")
    assert ids() == before
    assert [r["city"] for r in content(t)] == ["again"] * 30


def test_wide_and_narrow_numbers_are_fitted_without_loss(make_local: Any) -> None:
    t = make_local(pa.schema({"id": pa.int64(), "small": pa.int8(), "real": pa.float64(), "text": pa.string()}), "id")
    t.insert(pa.table({"id": pa.array([1], pa.int16()), "small": pa.array([127], pa.int64()), "real": [3]}))
    t.insert(pa.table({"id": [2], "text": pa.array(["x"], pa.large_string())}))
    t.insert(pa.table({"id": [3], "text": pa.array(["y"]).dictionary_encode()}))
    assert [r["text"] for r in content(t)] == [None, "x", "y"]
    assert t.get(1) == {"id": 1, "small": 127, "real": 3.0, "text": None}
