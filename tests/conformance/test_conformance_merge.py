"""Upsert and merge on every catalog, storage and block format."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, content, dump, tiered


def test_upsert_replaces_and_adds_rows_in_every_tier(make: Any) -> None:
    t = tiered(make)
    done = t.upsert([{"id": n, "city": "Bern"} for n in (3, 12, 25, 200)])
    assert (done.rows, done.inserted, done.updated, done.deleted) == (4, 1, 3, 0)
    done = t.upsert(pa.table({"id": [4, 13, 26, 201], "total": [1.0, 2.0, 3.0, 4.0]}))
    assert (done.inserted, done.updated) == (1, 3)
    totals = {4: 1.0, 13: 2.0, 26: 3.0}
    expected = [
        {**r, "city": "Bern" if r["id"] in (3, 12, 25) else r["city"], "total": totals.get(r["id"], r["total"])}
        for r in EVERYTHING
    ]
    expected += [{"id": 200, "city": "Bern", "total": None}, {"id": 201, "city": None, "total": 4.0}]
    assert content(t) == expected
    dump(t)
    assert content(t) == expected
    assert t.get(200) == expected[-2]


@pytest.mark.parametrize("on", ["id", "t.id = s.id and t.id < 1000"])
def test_merge_updates_deletes_adds_and_removes_rows_in_every_tier(make: Any, on: str) -> None:
    t = tiered(make)
    rows = pa.table({"id": [1, 9, 14, 28, 300, 301], "total": [1.0, None, 2.0, 3.0, 4.0, None]})
    merge = (
        t.merge(rows, on)
        .when_matched_delete("s.total is null")
        .when_matched_update({"total": il.expr("coalesce(t.total, 0) + s.total"), "city": "Bern"})
        .when_not_matched_insert(condition="total > 0")
        .when_not_matched_by_source_delete("t.id in (2, 15, 29)")
    )
    done = merge.execute()
    assert (done.rows, done.inserted, done.updated, done.deleted) == (8, 1, 3, 4)
    added = {1: 1.0, 14: 2.0, 28: 3.0}
    expected = [
        {**r, "city": "Bern", "total": (r["total"] or 0) + added[r["id"]]} if r["id"] in added else r
        for r in EVERYTHING
        if r["id"] not in (2, 9, 15, 29)
    ]
    expected.append({"id": 300, "city": None, "total": 4.0})
    assert content(t) == expected
    dump(t)
    assert content(t) == expected


def test_merge_by_value_finds_every_row_that_has_it(make: Any) -> None:
    t = tiered(make)
    rows = [{"city": "Oslo", "to": "Bergen"}, {"city": "Paris", "to": "Nice"}]
    merge = t.merge(rows, on="city").when_matched_update({"city": il.expr("s.to")})
    done = merge.when_not_matched_insert({"id": 500, "city": il.expr("s.city")}).execute()
    oslo = [r for r in EVERYTHING if r["city"] == "Oslo"]
    assert (done.inserted, done.updated) == (1, len(oslo))
    assert t.scan("city = 'Bergen'").count() == len(oslo)
    assert t.get(500) == {"id": 500, "city": "Paris", "total": None}


def test_an_upsert_of_a_composite_key_finds_its_rows(make: Any) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])
    t = make(schema, ["a", "b"])
    keys = [(a, b) for a in ("", "x", "x\x00y") for b in (-1, 0, 1)]
    t.insert([{"a": a, "b": b, "v": 0} for a, b in keys[:5]])
    dump(t)
    t.insert([{"a": a, "b": b, "v": 0} for a, b in keys[5:]])
    rows = pa.Table.from_pylist([{"b": b, "v": 1, "a": a} for a, b in [*keys, ("new", 0)]])
    assert t.upsert(rows).updated == 9
    assert t.merge(rows, on=["a", "b"]).when_matched_update({"v": il.expr("t.v + s.v")}).execute().updated == 10
    assert [row["v"] for row in t.scan().to_pylist()] == [2] * 10
