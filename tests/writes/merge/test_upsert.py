"""What upsert does, one behaviour at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.writes.merge.merging import SCHEMA, contents, counts

Make = Callable[..., il.Table]


def as_dicts(rows: list[dict[str, Any]]) -> Any:
    return rows


def as_table(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows)


def as_reader(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows).to_reader()


def as_generator(rows: list[dict[str, Any]]) -> Any:
    return (row for row in rows)


FORMS = pytest.mark.parametrize("form", [as_dicts, as_table, as_reader, as_generator])


@FORMS
def test_rows_with_known_keys_are_replaced_and_others_added_in_every_tier(
    orders: il.Table, form: Callable[..., Any]
) -> None:
    given = [{"id": n, "v": -n, "s": "new"} for n in (1, 4, 7, 100)]
    result = orders.upsert(form(given))
    assert counts(result) == (1, 3, 0)
    assert result.rows == 4
    assert [row for row in contents(orders) if row[2] == "new"] == [(n, -n, "new") for n in (1, 4, 7, 100)]
    assert len(orders) == 10
    assert orders.history()[-1].operation == "upsert"


@FORMS
def test_only_the_given_columns_change_and_new_rows_take_defaults(make: Make, form: Callable[..., Any]) -> None:
    rows = [{"id": n, "v": n * 10, "s": "a"} for n in range(9)]
    t = make(SCHEMA, "id", rows, defaults={"s": "none"})
    assert counts(t.upsert(form([{"id": 2, "v": 1}, {"id": 5, "v": 2}, {"id": 8, "v": 3}, {"id": 9, "v": 4}]))) == (
        1,
        3,
        0,
    )
    assert [contents(t)[n] for n in (2, 5, 8, 9)] == [(2, 1, "a"), (5, 2, "a"), (8, 3, "a"), (9, 4, "none")]


def test_rows_keep_their_ids(orders: il.Table) -> None:
    def ids() -> dict[int, int]:
        found = orders.scan(columns=["id"], with_row_id=True).to_pylist()
        return {row["id"]: row["_indexlake_row_id"] for row in found}

    before = ids()
    orders.upsert([{"id": n, "v": 0} for n in range(9)])
    orders.upsert(pa.table({"id": range(9), "v": [1] * 9, "s": ["x"] * 9}))
    assert ids() == before


def test_dicts_may_name_different_columns(orders: il.Table) -> None:
    for form in (as_dicts, as_generator):
        orders.upsert(form([{"id": 1, "v": 5}, {"id": 4, "s": "b"}, {"id": 7}, {"ID": 20, "S": "c"}]))
        rows = {row[0]: row for row in contents(orders)}
        assert (rows[1], rows[4], rows[7], rows[20]) == ((1, 5, "a"), (4, 40, "b"), (7, 70, "a"), (20, None, "c"))


def test_column_names_match_in_any_case(orders: il.Table) -> None:
    orders.upsert({"Id": 1, "V": 7})
    orders.upsert(pa.table({"ID": [2], "v": [8]}))
    assert contents(orders)[1:3] == [(1, 7, "a"), (2, 8, "a")]


@pytest.mark.parametrize(
    "rows",
    [[], (), pa.table({"id": pa.array([], pa.int64())}), iter([])],
    ids=["list", "tuple", "table", "iterator"],
)
def test_no_rows_are_fine(module_lake: il.Lake, orders: il.Table, rows: Any) -> None:
    before = module_lake.snapshot_id
    assert counts(orders.upsert(rows)) == (0, 0, 0)
    assert module_lake.snapshot_id == before


@FORMS
def test_a_missing_column_without_default_is_an_error_for_new_rows_only(make: Make, form: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64()), pa.field("must", pa.string(), False)])
    t = make(schema, "id", [{"id": n, "v": n, "must": "a"} for n in range(3)])
    assert t.upsert(form([{"id": 1, "v": 5}])).updated == 1
    with pytest.raises(il.ConstraintError, match="'must' is missing and has no default") as caught:
        t.upsert(form([{"id": 1, "v": 6}, {"id": 9, "v": 6}]))
    assert caught.value.column == "must"
    assert contents(t) == [(0, 0, "a"), (1, 5, "a"), (2, 2, "a")]


@FORMS
@pytest.mark.parametrize("count", [2, 100])
def test_a_key_given_twice_is_refused_and_named(orders: il.Table, form: Callable[..., Any], count: int) -> None:
    before = contents(orders)
    rows = [{"id": 50 + n, "v": n} for n in range(count)] + [{"id": 51, "v": 7}]
    with pytest.raises(il.DuplicateKeyError, match="id = 51 is given twice") as caught:
        orders.upsert(form(rows))
    assert caught.value.key == 51
    assert caught.value.table == orders.name
    assert contents(orders) == before


def test_a_key_given_twice_in_different_columns_is_refused(orders: il.Table) -> None:
    rows = [{"id": 51, "v": 7}, {"id": 51, "s": "x"}]
    for given in (rows, [*({"id": 100 + n} for n in range(100)), *rows], iter(rows)):
        with pytest.raises(il.DuplicateKeyError, match="id = 51 is given twice"):
            orders.upsert(given)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ({"v": 1}, il.ConstraintError, "'id' is missing"),
        (pa.table({"v": [1]}), il.ConstraintError, "'id' is missing"),
        ({"id": None, "v": 1}, il.ConstraintError, "'id' holds a null"),
        (pa.table({"id": pa.array([1, None])}), il.ConstraintError, "'id' holds a null"),
        ({"id": 1, "w": 1}, il.SchemaError, "no column 'w'"),
        (pa.table({"id": [1], "w": [1]}), il.SchemaError, "no column 'w'"),
        ({"id": 1, "v": "many"}, il.ConstraintError, "Column 'v'"),
        (pa.table({"id": [1], "v": ["many"]}), il.ConstraintError, "Column 'v'"),
        (pa.table({"id": pa.array([2**63], pa.uint64())}), il.ConstraintError, "'id'"),
        ({"id": 1, "ID": 2}, il.SchemaError, "given twice"),
        (pa.table([[1], [2]], ["id", "ID"]), il.SchemaError, "given twice"),
        ([{"id": 1}, 7], il.SchemaError, "A row is a dict"),
        (5, il.SchemaError, "Rows cannot be read from int"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(
    module_lake: il.Lake, orders: il.Table, rows: Any, error: Any, message: str
) -> None:
    before, snapshot = contents(orders), module_lake.snapshot_id
    with pytest.raises(error, match=message):
        orders.upsert(rows)
    assert contents(orders) == before
    assert module_lake.snapshot_id == snapshot


def test_a_table_without_primary_key_is_refused(make: Make) -> None:
    t = make(SCHEMA)
    for rows in ({"id": 1}, pa.table({"id": [1]}), []):
        with pytest.raises(il.SchemaError, match="no primary key"):
            t.upsert(rows)


def test_composite_and_unusual_keys_are_found(make: Make) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.float64()), ("v", pa.int64())])
    rows = [{"a": a, "b": b, "v": 0} for a in ("", "x\x00", "ü") for b in (0.0, float("nan"), float("inf"))]
    t = make(schema, ["a", "b"], rows)
    again = [{"v": 1, "b": -row["b"] if row["b"] == 0 else row["b"], "a": row["a"]} for row in rows]
    assert counts(t.upsert(pa.Table.from_pylist(again, schema=schema))) == (0, 9, 0)
    assert counts(t.upsert([{**row, "v": 2} for row in again])) == (0, 9, 0)
    assert [row["v"] for row in t.scan().to_pylist()] == [2] * 9
    days = make(
        pa.schema([("day", pa.date32()), ("v", pa.int64())]),
        "day",
        [{"day": date(2026, 1, n), "v": n} for n in range(1, 10)],
    )
    assert counts(days.upsert({"day": date(2026, 1, 2), "v": 0})) == (0, 1, 0)
    assert counts(days.upsert(pa.table({"day": [date(2026, 1, 3), date(2027, 1, 1)]}))) == (1, 1, 0)


def test_dictionary_nested_and_view_columns_are_kept(make: Make) -> None:
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("d", pa.dictionary(pa.int8(), pa.string())),
            ("l", pa.list_(pa.int64())),
            ("w", pa.string_view()),
        ]
    )
    rows = [{"id": n, "d": "abc"[n % 3], "l": [n], "w": str(n)} for n in range(9)]
    t = make(schema, "id", rows)
    t.upsert(
        pa.Table.from_pylist(
            [{"id": 1, "d": "new"}, {"id": 7, "d": "b"}, {"id": 11, "d": "z"}], schema=schema.remove(2).remove(2)
        )
    )
    t.upsert([{"id": 4, "l": [9, None], "w": None}])
    got = {row["id"]: row for row in t.scan().to_pylist()}
    assert got[1] == {"id": 1, "d": "new", "l": [1], "w": "1"}
    assert got[7] == {"id": 7, "d": "b", "l": [7], "w": "7"}
    assert got[11] == {"id": 11, "d": "z", "l": None, "w": None}
    assert got[4] == {"id": 4, "d": "b", "l": [9, None], "w": None}
    assert t.scan().to_arrow().schema == t.schema


@pytest.mark.parametrize("direct", [3, 1000])
def test_many_rows_go_to_blocks_and_few_to_the_hot_store(make: Make, direct: int) -> None:
    t = make(
        SCHEMA, "id", [{"id": n, "v": 0, "s": "a"} for n in range(30)], direct_write_row_count=direct, block_row_count=7
    )
    before = t.stats()
    assert counts(t.upsert(pa.table({"id": range(10, 50), "v": range(40)}))) == (20, 20, 0)
    after = t.stats()
    if direct == 3:
        assert after.hot_rows <= before.hot_rows
        assert after.blocks > before.blocks
    else:
        assert after.blocks == before.blocks
    assert contents(t) == [(n, 0, "a") for n in range(10)] + [
        (n, n - 10, "a" if n < 30 else None) for n in range(10, 50)
    ]


def test_a_token_makes_a_replay_harmless(orders: il.Table) -> None:
    first = orders.upsert([{"id": 1, "v": 5}, {"id": 77, "v": 5}], token="u1" + orders.name)
    orders.update({"v": 6}, "id = 1")
    assert orders.upsert([{"id": 1, "v": 5}, {"id": 77, "v": 5}], token="u1" + orders.name) == first
    assert contents(orders)[1] == (1, 6, "a")


@FORMS
def test_a_transaction_upserts_what_it_has_written_itself(
    module_lake: il.Lake, orders: il.Table, form: Callable[..., Any]
) -> None:
    with module_lake.transaction() as tx:
        t = tx.table(orders.name)
        t.insert({"id": 20, "v": 1, "s": "own"})
        t.delete("id = 4")
        t.update({"v": 11}, "id = 7")
        result = t.upsert(
            form(
                [{"id": 20, "v": 2}, {"id": 4, "v": 3}, {"id": 7, "s": "b"} if form is as_dicts else {"id": 7, "v": 11}]
            )
        )
        assert (result.rows, result.snapshot_id, *counts(result)) == (3, None, 1, 2, 0)
        assert counts(t.upsert(form([{"id": 20, "v": 9}, {"id": 21, "v": 9}]))) == (1, 1, 0)
    rows = {row[0]: row for row in contents(orders)}
    assert rows[20] == (20, 9, "own")
    assert rows[4] == (4, 3, None)
    assert rows[7] == (7, 11, "b" if form is as_dicts else "a")
    assert rows[21] == (21, 9, None)
    assert len(rows) == 11


def test_a_failed_upsert_leaves_its_transaction_as_it_was(module_lake: il.Lake, orders: il.Table) -> None:
    with module_lake.transaction() as tx:
        t = tx.table(orders.name)
        t.insert({"id": 20, "v": 1, "s": "own"})
        with pytest.raises(il.DuplicateKeyError):
            t.upsert([{"id": 20, "v": 2}, {"id": 20, "v": 3}])
        with pytest.raises(il.ConstraintError):
            t.upsert(pa.table({"id": [20, 21], "v": ["x", "y"]}))
        assert t.get(20) == {"id": 20, "v": 1, "s": "own"}
    assert len(orders) == 10


def test_a_transaction_after_a_truncate_upserts_into_an_empty_table(module_lake: il.Lake, orders: il.Table) -> None:
    with module_lake.transaction() as tx:
        t = tx.table(orders.name)
        t.truncate()
        assert counts(t.upsert(pa.table({"id": [1, 4], "v": [1, 1]}))) == (2, 0, 0)
        assert counts(t.upsert({"id": 1, "v": 2})) == (0, 1, 0)
    assert contents(orders) == [(1, 2, None), (4, 1, None)]


def test_what_was_there_can_be_read_at_the_old_snapshot(module_lake: il.Lake, orders: il.Table) -> None:
    before, snapshot = contents(orders), module_lake.snapshot_id
    orders.upsert(pa.table({"id": range(12), "v": [0] * 12}))
    assert contents(orders.at(snapshot)) == before


def test_a_view_of_the_past_and_a_read_only_lake_refuse_it(module_lake: il.Lake, orders: il.Table) -> None:
    with pytest.raises(il.OwnershipError, match="read-only"):
        orders.at(module_lake.snapshot_id).upsert({"id": 1})


@pytest.mark.parametrize("hot", [0, 40, 3000])
def test_many_keys_are_found_among_few_and_among_many_hot_rows(make: Make, hot: int) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=5000)
    t.insert(pa.table({"id": range(6000), "v": [0] * 6000, "s": ["block"] * 6000}))
    t.insert([{"id": n, "v": 1, "s": "hot"} for n in range(10_000, 10_000 + hot)])
    t.update({"v": 2}, "id % 300 = 0")
    known = [*range(0, 6000, 9), *range(10_000, 10_000 + hot, 3)]
    new = list(range(50_000, 50_010))
    given = pa.table({"id": known + new, "v": [-1] * (len(known) + 10), "s": ["new"] * (len(known) + 10)})
    assert counts(t.upsert(given)) == (10, len(known), 0)
    assert len(t) == 6000 + hot + 10
    assert [row[0] for row in contents(t) if row[2] == "new"] == known + new
    assert all(row[1] == -1 for row in contents(t) if row[2] == "new")
