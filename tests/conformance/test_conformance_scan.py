"""Scans: every parameter, every output, laziness and repeatability."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, row, rows, tiered
from tests.support.waiting import wait_until


def test_where_params_columns_order_limit_and_offset_work_together(make: Any) -> None:
    t = tiered(make)
    found = t.scan(
        "total > $low and city in $cities",
        params={"low": 3, "cities": ["Oslo", "Rome"]},
        columns=["city", "id"],
        order_by=[("city", "desc"), ("id", "asc")],
        limit=4,
        offset=2,
    ).to_arrow()
    matching = [r for r in EVERYTHING if r["total"] and r["total"] > 3 and r["city"] in ("Oslo", "Rome")]
    expected = sorted(matching, key=lambda r: (r["city"] != "Rome", r["id"]))[2:6]
    assert found.column_names == ["city", "id"]
    assert found.to_pylist() == [{"city": r["city"], "id": r["id"]} for r in expected]


def test_positional_parameters_are_bound_in_order(make: Any) -> None:
    t = tiered(make)
    assert sorted(r["id"] for r in t.scan("id between ? and ?", params=[8, 11]).to_pylist()) == [8, 9, 10, 11]


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_nulls_sort_last_both_ways_and_nan_is_the_greatest(make: Any, direction: str) -> None:
    t = make(pa.schema({"id": pa.int64(), "x": pa.float64()}), "id")
    values = [1.0, math.nan, None, -math.inf, math.inf, -0.0, None, 2.5]
    t.insert([{"id": n, "x": x} for n, x in enumerate(values[:5])])
    dump(t)
    t.insert([{"id": n + 5, "x": x} for n, x in enumerate(values[5:])])
    found = t.scan(order_by=[("x", direction), ("id", "asc")], columns=["x"]).to_arrow().column("x").to_pylist()
    up = [-math.inf, -0.0, 1.0, 2.5, math.inf, math.nan]
    expected = [*(up if direction == "asc" else up[::-1]), None, None]
    assert [repr(x) for x in found] == [repr(x) for x in expected]
    top = t.scan(order_by=[("x", direction)], limit=2, columns=["x"]).to_arrow().column("x").to_pylist()
    assert [repr(x) for x in top] == [repr(x) for x in expected[:2]]


def test_strings_sort_by_their_bytes(make: Any) -> None:
    t = make(pa.schema({"s": pa.string()}))
    t.insert([{"s": s} for s in ["b", "Z", "é"]])
    dump(t)
    t.insert([{"s": s} for s in ["a", "", "😀", "ﬀ"]])
    found = [r["s"] for r in t.scan(order_by="s").to_pylist()]
    assert found == sorted(found, key=str.encode)


def test_order_by_takes_a_name_a_pair_and_a_list(make: Any) -> None:
    t = tiered(make)
    down = [r["id"] for r in EVERYTHING][::-1]
    for order in [("id", "desc"), [("id", "desc")], [("_indexlake_row_id", "asc"), "id"], "id"]:
        found = [r["id"] for r in t.scan(order_by=order).to_pylist()]
        assert sorted(found) == down[::-1]
        if order in (("id", "desc"), [("id", "desc")]):
            assert found == down
    assert [r["id"] for r in t.scan(order_by="id").to_pylist()] == down[::-1]


def test_limit_and_offset_count_rows_of_all_tiers(make: Any) -> None:
    t = tiered(make)
    for limit, offset in [(0, 0), (1, 0), (7, 20), (50, 0), (None, 25), (3, 29), (3, 30), (3, 99)]:
        stop = None if limit is None else offset + limit
        expected = EVERYTHING[offset:stop]
        assert t.scan(order_by="id", limit=limit, offset=offset).to_pylist() == expected
        scan = t.scan(limit=limit, offset=offset)
        assert len(scan.to_pylist()) == scan.count() == len(expected)


def test_count_agrees_with_rows(make: Any) -> None:
    t = tiered(make)
    for where in [None, "true", "false", "null", "id > 15", "city is null", "total is not null and id % 2 = 0"]:
        assert t.count(where) == t.scan(where).count() == len(t.scan(where).to_pylist())
    assert t.count("id > $least", {"least": 15}) == 15
    assert t.count() == len(t) == 30


def test_columns_may_be_one_name_and_the_row_id(make: Any) -> None:
    t = tiered(make)
    assert t.scan(columns="city").to_arrow().column_names == ["city"]
    assert t.scan(columns=["_indexlake_row_id", "id"], limit=1).to_arrow().column_names == ["id", "_indexlake_row_id"]
    with_id = t.scan(with_row_id=True).to_arrow()
    assert with_id.schema == SCHEMA.append(pa.field("_indexlake_row_id", pa.int64(), False))
    only = t.scan(columns=[], with_row_id=True).to_arrow()
    assert only.column_names == ["_indexlake_row_id"]
    assert sorted(only.column(0).to_pylist()) == sorted(with_id.column(3).to_pylist())


def test_every_output_holds_the_same_rows(make: Any) -> None:
    t = tiered(make)
    scan = t.scan(order_by="id")
    assert scan.to_pylist() == EVERYTHING
    assert scan.to_arrow().to_pylist() == EVERYTHING
    assert pa.Table.from_batches(scan.to_batches(), scan.schema).to_pylist() == EVERYTHING
    assert scan.to_pandas()["id"].tolist() == [r["id"] for r in EVERYTHING]
    assert scan.to_polars().to_dicts() == EVERYTHING
    assert scan.to_duckdb().fetchall() == [tuple(r.values()) for r in EVERYTHING]


def test_a_scan_is_an_arrow_stream_for_pyarrow_polars_pandas_and_duckdb(make: Any) -> None:
    import duckdb
    import polars

    t = tiered(make)
    scan = t.scan("id > 3", order_by="id")
    assert pa.schema(scan) == SCHEMA
    assert pa.table(scan).to_pylist() == EVERYTHING[3:]
    assert pa.RecordBatchReader.from_stream(scan).read_all().to_pylist() == EVERYTHING[3:]
    assert polars.DataFrame(scan).to_dicts() == EVERYTHING[3:]
    connection = duckdb.connect()
    connection.register("scanned", scan)
    for _ in range(2):
        assert connection.execute("select count(*), max(id), sum(total) from scanned").fetchall() == [
            (27, 30, sum(r["total"] or 0 for r in EVERYTHING[3:]))
        ]
    empty = t.scan("id < 0")
    assert pa.table(empty).schema == SCHEMA
    assert connection.from_arrow(empty).fetchall() == []


def test_a_scan_reads_nothing_before_its_first_batch_and_then_keeps_its_snapshot(make: Any) -> None:
    t = tiered(make)
    scan = t.scan(order_by="id")
    stream = scan.__arrow_c_stream__()
    batches = t.scan("id = 31")
    t.insert(row(31))
    assert scan.to_pylist() == rows(range(1, 32)), "made before the insert, run after it"
    assert batches.count() == 1
    del stream
    t.delete("id <= 20")
    dump(t)
    t.update({"city": "new"}, "true")
    assert scan.to_pylist() == rows(range(1, 32)), "the snapshot of the first run is kept"
    assert scan.count() == 31
    assert len(t.scan().to_pylist()) == 11


def test_writes_and_dumps_while_batches_are_taken_change_nothing(make: Any) -> None:
    t = make(SCHEMA, "id", block_row_count=10)
    t.insert(rows(range(40)))
    dump(t)
    t.insert(rows(range(40, 60)))
    batches = t.scan().to_batches()
    taken = next(batches).to_pylist()
    t.delete("id % 2 = 0")
    t.update({"total": -1.0}, "true")
    dump(t)
    t.truncate()
    for batch in batches:
        taken += batch.to_pylist()
    assert sorted(taken, key=lambda r: r["id"]) == rows(range(60))


def test_an_abandoned_scan_leaves_nothing_running(make: Any) -> None:
    import threading

    t = make(SCHEMA, "id", direct_write_row_count=10, block_row_count=10)
    t.insert(rows(range(100)))
    for _ in range(5):
        next(t.scan().to_batches())
    wait_until(
        lambda: not any(x.name.startswith("indexlake-scan") for x in threading.enumerate()), "threads of scans are left"
    )


def test_null_comparisons_follow_three_valued_logic_in_every_tier(make: Any) -> None:
    t = tiered(make)

    def ids(where: str) -> list[int]:
        return sorted(r["id"] for r in t.scan(where).to_pylist())

    null_city = [r["id"] for r in EVERYTHING if r["city"] is None]
    assert ids("city is null") == null_city
    assert ids("city = null") == ids("city <> null") == []
    assert ids("not (city = 'Oslo')") == [r["id"] for r in EVERYTHING if r["city"] not in ("Oslo", None)]
    assert ids("city is distinct from 'Oslo'") == [r["id"] for r in EVERYTHING if r["city"] != "Oslo"]
    assert ids("city not in ('Oslo', null)") == []
    assert ids("coalesce(city, 'none') = 'none'") == null_city


@pytest.mark.blocks_of_heap
def test_explain_names_blocks_hot_rows_and_how_rows_are_found(make: Any, combination: Any) -> None:
    t = tiered(make)
    everything = t.scan().explain()
    assert (everything.blocks_total, everything.blocks_read, everything.hot_rows) == (2, 2, 10)
    assert everything.rows_in_blocks == 20
    assert f"scan {t.name} at snapshot" in str(everything)
    assert combination.format in str(everything)
    by_key = t.scan("id = 12").explain()
    assert (by_key.found_by, by_key.blocks_read, by_key.rows_in_blocks) == ("primary key", 1, 1)
    by_row_id = t.scan("_indexlake_row_id = 1").explain()
    assert by_row_id.found_by == "row id"
    assert by_row_id.blocks_read <= 1
    pruned = t.scan("total > 9.2").explain()
    assert (pruned.found_by, pruned.blocks_read) == ("statistics", 1)
    assert "where total > 9.2" in repr(pruned)


def test_hot_rows_beyond_the_memory_budget_are_spilled(make_local: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("indexlake.hot.rows.MEMORY_BYTES", 1000)
    monkeypatch.setattr("indexlake.hot.rows.BATCH_ROWS", 50)
    monkeypatch.setattr("indexlake.hot.inline.BATCH_ROWS", 50)
    t = make_local(SCHEMA, "id")
    t.insert(rows(range(500)))
    assert content(t) == rows(range(500))
    assert t.update({"city": "x"}, "id < 300").rows == 300
    assert t.scan("city = 'x'").count() == 300


def test_wrong_parameters_of_a_scan_are_errors(make: Any) -> None:
    t = tiered(make)
    with pytest.raises(il.SchemaError, match=r"no column 'totl'.*'total'"):
        t.scan(columns=["totl"]).to_arrow()
    with pytest.raises(il.SchemaError, match="no column 'nothing'"):
        t.scan(order_by="nothing").to_arrow()
    with pytest.raises(il.SchemaError, match="'asc' or 'desc'"):
        t.scan(order_by=[("id", "down")]).to_arrow()
    with pytest.raises(il.ExpressionError, match="limit must be a whole number"):
        t.scan(limit=-1)
    with pytest.raises(il.ExpressionError, match="offset must be a whole number"):
        t.scan(offset=1.5)
    with pytest.raises(il.SchemaError, match="twice"):
        t.scan(columns=["id", "ID"]).to_arrow()
    with pytest.raises(il.OwnershipError, match="transaction"):
        t.scan(for_update=True)
