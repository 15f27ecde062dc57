"""What the clauses of a merge do, one behaviour at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.writes.merge.merging import SCHEMA, contents, counts

Make = Callable[..., il.Table]


def source(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_matched_rows_take_the_source_and_others_are_added(orders: il.Table) -> None:
    merge = orders.merge(source(id=[1, 4, 7, 50], v=[0, 0, 0, 0]), on="id")
    result = merge.when_matched_update().when_not_matched_insert().execute()
    assert counts(result) == (1, 3, 0)
    assert result.rows == 4
    assert [row for row in contents(orders) if row[1] == 0 and row[0]] == [
        (1, 0, "a"), (4, 0, "a"), (7, 0, "a"), (50, 0, None),
    ]  # fmt: skip
    assert orders.history()[-1].operation == "merge"
    assert len(orders) == 10


def test_set_takes_values_and_expressions_over_both_sides(orders: il.Table) -> None:
    merge = orders.merge(source(id=[1, 4, 7], n=[5, 6, 7]), on="id")
    merge.when_matched_update({"v": il.expr("t.v + s.n * $k", {"k": 2}), "S": "it's s.n"}).execute()
    assert [contents(orders)[n] for n in (1, 4, 7)] == [(1, 20, "it's s.n"), (4, 52, "it's s.n"), (7, 84, "it's s.n")]


def test_the_first_clause_whose_condition_is_true_applies(orders: il.Table) -> None:
    merge = (
        orders.merge(source(id=[1, 2, 4, 5, 7, 8], v=[1, 2, None, 4, 5, 6]), on="id")
        .when_matched_delete("s.v >= $low", params={"low": 5})
        .when_matched_update({"s": "small"}, condition="s.v < 3")
        .when_matched_update({"s": "null"}, condition="s.v is null")
        .when_matched_delete("s.v > 100")
    )
    assert counts(merge.execute()) == (0, 3, 2)
    assert {row[0]: row[2] for row in contents(orders)} == {
        0: "a", 1: "small", 2: "small", 3: "a", 4: "null", 5: "a", 6: "a",
    }  # fmt: skip


def test_a_clause_is_not_evaluated_for_rows_that_an_earlier_one_took(orders: il.Table) -> None:
    merge = orders.merge(source(id=[1, 4], d=[0, 2]), on="id")
    merge = merge.when_matched_delete("s.d = 0").when_matched_update({"v": il.expr("(t.v // s.d)::bigint")})
    assert counts(merge.execute()) == (0, 1, 1)
    assert contents(orders)[3] == (4, 20, "a")


def test_rows_may_be_left_alone_before_later_clauses_see_them(module_lake: il.Lake, orders: il.Table) -> None:
    before = {row[0]: row for row in contents(orders)}
    merge = (
        orders.merge(source(id=[1, 4, 4, 50, 51], v=[1, 4, 5, 6, 7]), on="id")
        .when_do_nothing("matched", "s.v >= $low", params={"low": 4})
        .when_matched_update({"s": "changed"})
        .when_do_nothing("not matched", "s.v = 6")
        .when_not_matched_insert()
        .when_do_nothing("not matched by source", "t.id < 8")
        .when_not_matched_by_source_delete()
    )
    assert "when matched and s.v >= $low then do nothing" in repr(merge)
    assert counts(merge.execute()) == (1, 1, len([key for key in before if key >= 8]))
    after = {row[0]: row for row in contents(orders)}
    assert after.pop(1)[2] == "changed"
    assert after.pop(51) == (51, 7, None)
    assert after == {key: row for key, row in before.items() if key < 8 and key != 1}
    snapshot = module_lake.snapshot_id
    assert orders.merge(source(id=[1], v=[1]), on="id").when_do_nothing("matched").execute().rows == 0
    assert module_lake.snapshot_id == snapshot
    with pytest.raises(il.SchemaError, match="'matched', 'not matched', 'not matched by source', not 'always'"):
        orders.merge(source(id=[1]), on="id").when_do_nothing("always")  # type: ignore[arg-type]


def test_rows_that_match_nothing_are_added_by_the_first_clause_that_is_true(make: Make) -> None:
    t = make(SCHEMA, "id", [{"id": 1, "v": 1, "s": "a"}], defaults={"s": "default"})
    merge = (
        t.merge(source(key=[1, 2, 3, 4], n=[1, 5, None, 7]), on="t.id = s.key")
        .when_not_matched_insert({"id": il.expr("key"), "v": il.expr("n * 2"), "s": "big"}, condition="n > 6")
        .when_not_matched_insert({"id": il.expr("s.key"), "v": 0}, condition="n is not null")
    )
    assert counts(merge.execute()) == (2, 0, 0)
    assert contents(t) == [(1, 1, "a"), (2, 0, "default"), (4, 14, "big")]


def test_rows_without_a_partner_in_the_source_are_changed_or_removed(orders: il.Table) -> None:
    merge = (
        orders.merge(source(id=[0, 3, 6]), on="id")
        .when_not_matched_by_source_delete("t.v between 40 and 70")
        .when_not_matched_by_source_update({"v": il.expr("v + 1"), "s": "left"}, condition="id <> 8")
    )
    assert counts(merge.execute()) == (0, 2, 3)
    assert contents(orders) == [
        (0, 0, "a"), (1, 11, "left"), (2, 21, "left"), (3, 30, "a"), (6, 60, "a"), (8, 80, "a"),
    ]  # fmt: skip


def test_one_merge_updates_deletes_adds_and_removes_in_one_commit(module_lake: il.Lake, orders: il.Table) -> None:
    before = module_lake.snapshot_id
    merge = (
        orders.merge(source(id=[1, 4, 30], v=[1, -1, 3]), on="id")
        .when_matched_delete("s.v < 0")
        .when_matched_update()
        .when_not_matched_insert()
        .when_not_matched_by_source_delete()
    )
    assert counts(merge.execute()) == (1, 1, 8)
    assert contents(orders) == [(1, 1, "a"), (30, 3, None)]
    assert module_lake.snapshot_id == before + 1


def test_an_empty_source_matches_nothing(module_lake: il.Lake, orders: il.Table) -> None:
    snapshot = module_lake.snapshot_id
    nothing = orders.merge([], on="id").when_matched_delete().when_not_matched_insert().execute()
    assert (nothing.rows, module_lake.snapshot_id) == (0, snapshot)
    assert counts(orders.merge([], on="id").when_not_matched_by_source_delete("v < 40").execute()) == (0, 0, 4)
    assert counts(
        orders.merge(source(id=pa.array([], pa.int64())), on="id").when_not_matched_by_source_delete().execute()
    ) == (0, 0, 5)


def test_a_merge_that_changes_nothing_makes_no_commit(module_lake: il.Lake, orders: il.Table) -> None:
    snapshot = module_lake.snapshot_id
    assert orders.merge(source(id=[1, 99]), on="id").when_matched_delete("false").execute().rows == 0
    assert module_lake.snapshot_id == snapshot


def test_primary_keys_may_be_changed_and_swapped(orders: il.Table) -> None:
    swap = source(id=[1, 4, 7], other=[4, 7, 1])
    assert counts(orders.merge(swap, on="id").when_matched_update({"id": il.expr("s.other")}).execute()) == (0, 3, 0)
    assert [contents(orders)[n] for n in (1, 4, 7)] == [(1, 70, "a"), (4, 10, "a"), (7, 40, "a")]
    assert orders.get(4) == {"id": 4, "v": 10, "s": "a"}
    before = contents(orders)
    with pytest.raises(il.DuplicateKeyError, match="id = 5 already exists"):
        orders.merge(source(id=[1], to=[5]), on="id").when_matched_update({"id": il.expr("s.to")}).execute()
    with pytest.raises(il.DuplicateKeyError, match="id = 90 is given twice"):
        orders.merge(source(id=[1, 2]), on="id").when_matched_update({"id": 90}).execute()
    with pytest.raises(il.ConstraintError, match="'id' holds a null"):
        orders.merge(source(id=[1]), on="id").when_matched_update({"id": None}).execute()
    assert contents(orders) == before


def test_a_key_that_the_merge_frees_can_be_taken_by_it(orders: il.Table) -> None:
    merge = (
        orders.merge(source(id=[1, 100], to=[None, 1]), on="id")
        .when_matched_delete()
        .when_not_matched_insert({"id": il.expr("s.to"), "v": -1})
    )
    assert counts(merge.execute()) == (1, 0, 1)
    assert contents(orders)[1] == (1, -1, None)


def test_two_new_rows_with_one_key_are_refused_and_the_key_named(orders: il.Table) -> None:
    before = contents(orders)
    for rows in (source(id=[70, 71, 70]), source(id=[*range(100, 300), 150])):
        with pytest.raises(il.DuplicateKeyError, match="is given twice") as caught:
            orders.merge(rows, on="id").when_not_matched_insert().execute()
        assert caught.value.key in (70, 150)
    assert contents(orders) == before


def test_two_new_rows_with_one_value_are_both_added_where_that_is_allowed(make: Make) -> None:
    t = make(SCHEMA)
    assert counts(t.merge(source(id=[1, 1, 2], v=[1, 2, 3]), on="id").when_not_matched_insert().execute()) == (3, 0, 0)


@pytest.mark.parametrize("key", ["id", None])
def test_two_source_rows_for_one_row_are_refused_if_both_would_change_it(make: Make, key: str | None) -> None:
    t = make(SCHEMA, key, [{"id": n, "v": n, "s": "a"} for n in range(9)])
    rows = source(id=[1, 4, 4, 50, 50], v=[1, 2, 3, 4, 5])
    for merge in (
        t.merge(rows, on="id").when_matched_update(),
        t.merge(rows, on="id").when_matched_delete(),
        t.merge(rows, on="id").when_matched_delete("s.v = 2").when_matched_update(),
    ):
        with pytest.raises(il.DuplicateKeyError, match="Several rows of the source match one row") as caught:
            merge.execute()
        assert caught.value.key == 4
        assert caught.value.table == t.name
    assert contents(t) == [(n, n, "a") for n in range(9)]
    assert counts(t.merge(rows, on="id").when_matched_update(condition="s.v <> 3").execute()) == (0, 2, 0)
    assert contents(t)[4] == (4, 2, "a")


def test_one_source_row_changes_every_row_that_it_matches(make: Make) -> None:
    t = make(SCHEMA, "id", [{"id": n, "v": n % 3, "s": "a"} for n in range(9)])
    merge = t.merge(source(v=[1, 2, 9], w=["one", "two", "nine"]), on="v")
    merge = merge.when_matched_update({"s": il.expr("w")}, condition="s.v = 1").when_matched_delete("s.v = 2")
    assert counts(merge.execute()) == (0, 3, 3)
    assert contents(t) == [(n, n % 3, "one" if n % 3 else "a") for n in range(9) if n % 3 != 2]


def test_null_in_not_null_columns_is_refused(make: Make) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("must", pa.string(), False), pa.field("v", pa.int64())])
    t = make(schema, "id", [{"id": n, "must": "a", "v": n} for n in range(3)])
    rows = source(id=[1, 9], x=["b", None])
    for merge, message in (
        (t.merge(rows, on="id").when_not_matched_insert({"id": il.expr("s.id")}), "'must' is missing"),
        (t.merge(rows, on="id").when_not_matched_insert({"id": il.expr("s.id"), "must": il.expr("x")}), "holds a null"),
        (t.merge(rows, on="id").when_matched_update({"must": None}), "holds a null"),
        (t.merge(rows, on="id").when_matched_update({"must": il.expr("nullif(s.x, 'b')")}), "holds a null"),
        (t.merge(source(id=[None]), on="id").when_not_matched_insert({"must": "x"}), "'id'"),
    ):
        with pytest.raises(il.ConstraintError, match=message):
            merge.execute()
    assert contents(t) == [(n, "a", n) for n in range(3)]


def test_a_builder_is_immutable_can_be_used_again_and_shows_its_clauses(orders: il.Table) -> None:
    base = orders.merge(source(id=[1, 60], v=[1, 1]).to_reader(), on="id")
    assert repr(base) == f"<Merge into {orders.name} on id: no clause yet>"
    update = base.when_matched_update({"v": il.expr("t.v + s.v"), "s": "x" * 50})
    both = update.when_not_matched_insert(condition="s.v > $n", params={"n": 0})
    assert repr(both).splitlines() == [
        f"<Merge into {orders.name} on id",
        "  when matched then update set v = t.v + s.v, s = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...",
        "  when not matched and s.v > $n then insert all columns of the source>",
    ]
    assert counts(update.execute()) == (0, 1, 0)
    assert counts(both.execute()) == (1, 1, 0), "a source that can be read once is read once"
    assert counts(both.execute()) == (0, 2, 0)
    assert contents(orders)[1][1] == 13


def test_a_dict_that_is_changed_after_it_was_given_changes_nothing(orders: il.Table) -> None:
    values = {"v": 1}
    merge = orders.merge(source(id=[1]), on="id").when_matched_update(values)
    values["v"] = 2
    merge.execute()
    assert contents(orders)[1][1] == 1


def test_a_token_makes_a_replay_harmless(orders: il.Table) -> None:
    merge = orders.merge(source(id=[1, 77], v=[5, 5]), on="id").when_matched_update({"v": il.expr("t.v + 1")})
    merge = merge.when_not_matched_insert()
    first = merge.execute(token="m1" + orders.name)
    assert merge.execute(token="m1" + orders.name) == first
    assert contents(orders)[1] == (1, 11, "a")


def test_values_are_fitted_to_their_columns_or_refused(make: Make) -> None:
    schema = pa.schema([("id", pa.int64()), ("small", pa.int8()), ("d", pa.dictionary(pa.int8(), pa.string()))])
    t = make(schema, "id", [{"id": n, "small": n, "d": "ab"[n % 2]} for n in range(3)])
    good = source(id=[1, 5], small=pa.array([100, 101], pa.int64()), d=["new", "a"])
    assert counts(t.merge(good, on="id").when_matched_update().when_not_matched_insert().execute()) == (1, 1, 0)
    assert contents(t)[1:] == [(1, 100, "new"), (2, 2, "a"), (5, 101, "a")]
    for bad in (source(id=[1], small=[1000]), source(id=[1], small=["x"]), source(id=[1], small=[1.5])):
        with pytest.raises(il.ConstraintError, match="'small'"):
            t.merge(bad, on="id").when_matched_update().execute()
    with pytest.raises(il.ExpressionError):
        t.merge(source(id=[1], n=[1000]), on="id").when_matched_update({"small": il.expr("s.n")}).execute()
    assert contents(t)[1] == (1, 100, "new")


@pytest.mark.parametrize("direct", [4, 1000])
def test_many_changed_rows_become_blocks(make: Make, direct: int) -> None:
    t = make(
        SCHEMA, "id", [{"id": n, "v": 0, "s": "a"} for n in range(60)], direct_write_row_count=direct, block_row_count=9
    )
    rows = source(id=list(range(20, 100)), n=list(range(80)))
    merge = (
        t.merge(rows, on="id").when_matched_update({"v": il.expr("n")}, condition="n % 10 <> 0").when_matched_delete()
    )
    result = merge.when_not_matched_insert({"id": il.expr("s.id"), "v": il.expr("n")}).execute()
    assert counts(result) == (40, 36, 4)
    expected = [(n, 0, "a") for n in range(20)] + [(n, n - 20, "a") for n in range(20, 60) if n % 10]
    assert contents(t) == expected + [(n, n - 20, None) for n in range(60, 100)]
    keys = source(id=list(range(1, 20)))
    merge = t.merge(keys, on="id").when_matched_update({"id": il.expr("t.id + 1000")})
    assert counts(merge.execute()) == (0, 19, 0)
    assert t.get(1005) == {"id": 1005, "v": 0, "s": "a"}
    assert t.get(5) is None
