"""Update, delete and truncate: which rows, how many, and what they become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, row, rows, tiered


def test_update_sets_plain_values_and_expressions_over_the_old_row(make: Any) -> None:
    t = tiered(make)
    done = t.update(
        {"total": il.expr("coalesce(total, 0) * $f + id", {"f": 2}), "CITY": "id"},
        where="id in $ids",
        params={"ids": [3, 7, 9, 12, 14, 25, 99]},
    )
    assert (done.rows, done.updated, done.inserted, done.deleted) == (6, 6, 0, 0)
    changed = {3, 7, 9, 12, 14, 25}
    expected = [
        {**r, "city": "id", "total": (r["total"] or 0) * 2 + r["id"]} if r["id"] in changed else r for r in EVERYTHING
    ]
    assert content(t) == expected
    dump(t)
    assert content(t) == expected
    assert t.get(9) == expected[8]


def test_assignments_see_the_old_row_and_not_each_other(make: Any) -> None:
    t = make(pa.schema({"id": pa.int64(), "a": pa.int64(), "b": pa.int64()}), "id")
    t.insert({"id": 1, "a": 10, "b": 20})
    t.update({"a": il.expr("b"), "b": il.expr("a")}, "id = 1")
    assert t.get(1) == {"id": 1, "a": 20, "b": 10}


def test_update_to_null_and_to_text_that_looks_like_sql(make: Any) -> None:
    t = tiered(make)
    t.update({"city": "total * 2", "total": None}, "id in (2, 12, 25)")
    assert [r for r in content(t) if r["id"] in (2, 12, 25)] == [
        {"id": n, "city": "total * 2", "total": None} for n in (2, 12, 25)
    ]


def test_delete_removes_what_matches_and_counts_it(make: Any) -> None:
    t = tiered(make)
    done = t.delete("id % 3 = 0 or city is null")
    left = [r for r in EVERYTHING if r["id"] % 3 and r["city"] is not None]
    assert (done.rows, done.deleted, done.updated) == (30 - len(left), 30 - len(left), 0)
    assert content(t) == left
    assert len(t) == len(left)
    assert t.delete("id % 3 = 0").rows == 0
    dump(t)
    assert content(t) == left


def test_statements_that_match_nothing_commit_nothing(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id
    assert t.delete("id > 1000").rows == 0
    assert t.update({"city": "x"}, "id > 1000").rows == 0
    assert t.update({"city": "x"}, "null").rows == 0
    assert lake.snapshot_id == before


def test_truncate_removes_every_row_and_counts_them(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id
    done = t.truncate()
    assert (done.rows, done.deleted) == (30, 30)
    assert len(t) == 0
    assert t.get(5) is None
    assert t.truncate().rows == 0
    t.insert(rows(range(1, 4)))
    dump(t)
    assert content(t) == rows(range(1, 4))
    assert content(t.at(before)) == EVERYTHING


def test_a_row_id_names_a_row_in_every_tier(make: Any) -> None:
    t = tiered(make)
    ids = {r["id"]: r["_indexlake_row_id"] for r in t.scan(with_row_id=True).to_pylist()}
    for n in (2, 9, 12, 25):
        found = t.scan("_indexlake_row_id = $r", params={"r": ids[n]}, with_row_id=True).to_pylist()
        assert found == [{**row(n), "_indexlake_row_id": ids[n]}]
    some = t.scan("_indexlake_row_id in $r", params={"r": [ids[n] for n in (2, 12, 25)]}, order_by="id")
    assert some.to_pylist() == rows([2, 12, 25])
    assert t.update({"city": "by id"}, "_indexlake_row_id = $r", params={"r": ids[12]}).rows == 1
    assert t.get(12)["city"] == "by id"
    both = f"_indexlake_row_id in ({ids[2]}, {ids[12]}) and city = 'by id'"
    assert t.delete(both).rows == 1
    assert t.get(12) is None
    assert t.get(2) == row(2)


def test_a_delete_by_row_id_of_a_dead_row_counts_nothing(make: Any) -> None:
    t = tiered(make)
    ids = {r["id"]: r["_indexlake_row_id"] for r in t.scan(with_row_id=True).to_pylist()}
    for n in (2, 9, 12, 25):
        where = f"_indexlake_row_id = {ids[n]}"
        assert t.delete(where).rows == 1
        assert t.delete(where).rows == 0
    assert t.delete(f"_indexlake_row_id in ({', '.join(map(str, ids.values()))})").rows == 26
    assert t.delete("_indexlake_row_id in (-1, 0, 999999)").rows == 0
    assert len(t) == 0


def test_large_updates_write_blocks_and_keep_row_ids(make: Any) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=50, block_row_count=64)
    t.insert(rows(range(150)))
    t.insert(rows(range(150, 180)))
    ids = t.scan(order_by="id", with_row_id=True).to_arrow().column("_indexlake_row_id")
    assert t.update({"total": il.expr("id * 1.0")}, "true").rows == 180
    assert content(t) == [{**row(n), "total": float(n)} for n in range(180)]
    assert t.scan(order_by="id", with_row_id=True).to_arrow().column("_indexlake_row_id") == ids
    assert t.stats().hot_rows < 50
    assert t.delete("id >= 100").rows == 80
    assert [r["id"] for r in content(t)] == list(range(100))
    with pytest.raises(il.DuplicateKeyError):
        t.insert(row(99))
    t.insert(row(100))


def test_an_update_of_many_rows_to_one_key_is_refused(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=50)
    t.insert(rows(range(100)))
    before = lake.snapshot_id
    with pytest.raises(il.DuplicateKeyError):
        t.update({"id": 500}, "true")
    assert t.changes(before, lake.snapshot_id).count() == 0
    assert content(t) == rows(range(100))


def test_update_and_delete_without_where_are_errors(make_local: Any) -> None:
    t = make_local(SCHEMA, "id")
    with pytest.raises(il.ExpressionError, match="where='true'"):
        t.update({"city": "x"})
    with pytest.raises(il.ExpressionError, match=r"truncate\(\)"):
        t.delete()


def test_wrong_assignments_are_errors_and_change_nothing(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id
    cases: list[tuple[Any, type[il.IndexLakeError], str]] = [
        ({"citty": "x"}, il.SchemaError, "Did you mean 'city'"),
        ({}, il.SchemaError, "dict of column names"),
        ({"city": "a", "CITY": "b"}, il.SchemaError, "assigned twice"),
        ({"id": "abc"}, il.ConstraintError, "'id'"),
        ({"id": None}, il.ConstraintError, "NOT NULL"),
        ({"id": 2**63}, il.ConstraintError, "'id'"),
        ({"id": il.expr("null")}, il.ConstraintError, "NOT NULL"),
        ({"total": il.expr("city")}, il.IndexLakeError, "total|city"),
        ({"total": il.expr("nothing + 1")}, il.IndexLakeError, "nothing"),
        ({"id": il.expr("id + 9223372036854775807")}, il.ExpressionError, "id"),
        ({"_indexlake_row_id": 5}, il.SchemaError, "_indexlake_row_id"),
    ]
    for assignments, kind, text in cases:
        for where in ("id in (2, 12, 25)", "true"):
            with pytest.raises(kind, match=text):
                t.update(assignments, where)
    assert lake.snapshot_id == before
    assert content(t) == EVERYTHING


def test_many_updates_of_one_row_leave_one_row(make: Any) -> None:
    t = tiered(make)
    for n in range(15):
        t.update({"total": float(n)}, "id in (2, 12, 25)")
        if n % 5 == 4:
            dump(t)
    assert [t.get(k)["total"] for k in (2, 12, 25)] == [14.0] * 3
    assert len(content(t)) == len(t) == 30
