"""Columns that are added, dropped, renamed and widened: old rows read right in every place, nothing is rewritten."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.evolution.conftest import SCHEMA, Fill, row, rows

FORMATS = ["vortex", "parquet", "ipc"]


def check_everywhere(t: il.Table, expected: dict[int, dict[str, Any]]) -> None:
    """Every way to read a row gives the same one."""
    assert rows(t) == [expected[n] for n in sorted(expected)]
    assert len(t) == len(expected)
    for n, wanted in expected.items():
        assert t.get(n) == wanted
    assert t.get(2) is None
    found = t.get_many([1, 11, 41, 42]).to_pylist()
    assert sorted(found, key=lambda r: r["id"]) == [expected[1], expected[11], expected[41]]


def filled() -> dict[int, dict[str, Any]]:
    expected = {n: row(n) for n in range(50) if n not in (2, 12, 42)}
    expected[1]["note"] = "changed"
    return expected


def paths(t: il.Table) -> set[str]:
    return {b.path for b in t._state().blocks.records}


@pytest.mark.parametrize("format", FORMATS)
def test_an_added_column_has_its_default_in_old_rows_wherever_they_are(lake: il.Lake, fill: Fill, format: str) -> None:
    t = fill(lake, format=format)
    files = paths(t)
    t.add_column("kind", pa.string(), default="old")
    assert paths(t) == files
    t.insert({"id": 100, "kind": None})
    t.insert({"id": 101})
    expected = {n: r | {"kind": "old"} for n, r in filled().items()}
    empty = {"v": None, "note": None, "address": None}
    expected[100] = {"id": 100, **empty, "kind": None}
    expected[101] = {"id": 101, **empty, "kind": "old"}
    check_everywhere(t, expected)
    assert t.scan("kind is null").to_pylist() == [expected[100]]
    assert t.scan("kind = 'old'").count() == len(expected) - 1
    assert t.scan("kind = 'new'").count() == 0
    assert t.scan("kind = 'old' and id = 11").to_pylist() == [expected[11]]
    lake.pipeline().dump("t")
    check_everywhere(t, expected)
    assert t.scan("kind is null").to_pylist() == [expected[100]]


@pytest.mark.parametrize("format", FORMATS)
def test_a_widened_column_holds_old_and_new_values(lake: il.Lake, fill: Fill, format: str) -> None:
    t = fill(lake, format=format)
    t.widen_column("v", pa.int64())
    assert t.schema.field("v").type == pa.int64()
    assert t.update({"v": 2**40}, where="id in (1, 11, 41)").rows == 3
    expected = filled()
    for n in (1, 11, 41):
        expected[n]["v"] = 2**40
    check_everywhere(t, expected)
    for _ in range(2):
        assert [r["id"] for r in rows(t, where="v >= 2147483648")] == [1, 11, 41]
        assert [r["id"] for r in rows(t, where="v < 4")] == [0, 3]
        assert [r["id"] for r in rows(t, where="v is null and id < 30")] == [6, 13, 20, 27]
        lake.pipeline().dump("t")
    check_everywhere(t, expected)


def test_a_renamed_column_is_the_same_column(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.rename_column("NOTE", "Remark")
    assert t.schema.names == ["id", "v", "Remark", "address"]
    expected = {n: {"id": n, "v": r["v"], "Remark": r["note"], "address": r["address"]} for n, r in filled().items()}
    check_everywhere(t, expected)
    assert t.scan("remark = 'note 11'").to_pylist() == [expected[11]]
    with pytest.raises(il.ExpressionError, match="note"):
        t.scan("note = 'x'").to_pylist()
    with pytest.raises(il.SchemaError, match="no column 'note'"):
        t.insert({"id": 7000, "note": "x"})


def test_the_primary_key_may_be_renamed(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.rename_column("id", "number")
    assert t.primary_key == ("number",)
    assert t.get(11)["number"] == 11
    assert t.get({"number": 41})["number"] == 41
    with pytest.raises(il.DuplicateKeyError, match="number = 11"):
        t.insert({"number": 11})
    assert t.update({"v": 0}, where="number = 11").rows == 1
    assert t.at(lake.snapshot_id - 2).get({"id": 11})["id"] == 11


def test_a_dropped_column_comes_back_empty_when_its_name_is_used_again(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    before = lake.snapshot_id
    t.drop_column("note")
    between = lake.snapshot_id
    expected = {n: {k: v for k, v in r.items() if k != "note"} for n, r in filled().items()}
    check_everywhere(t, expected)
    t.add_column("note", pa.int64(), default=5)
    assert {r["note"] for r in rows(t)} == {5}
    assert t.get(11)["note"] == t.get(41)["note"] == 5
    lake.pipeline().dump("t")
    assert {r["note"] for r in rows(t, where="note = 5")} == {5}
    assert rows(t.at(before)) == list(filled().values())
    assert rows(t.at(between)) == list(expected.values())
    assert t.at(before).scan("note = 'note 41'").count() == 1


def test_two_columns_swap_their_names_in_one_commit(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.table({"a": [1], "b": ["x"], "c": [True]}))
    with t.alter() as a:
        a.rename_column("a", "b")
        a.rename_column("b", "c")
        a.rename_column("c", "a")
    assert t.scan().to_pylist() == [{"b": 1, "c": "x", "a": True}]


def test_columns_keep_their_place_when_they_change(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.widen_column("v", pa.int64())
    t.add_column("last", pa.bool_())
    t.drop_column("note")
    t.rename_column("address", "place")
    t.widen_column("place.zip", pa.int64())
    assert t.schema.names == ["id", "v", "place", "last"]


def test_many_alterations_of_one_column_add_up(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.schema([("id", pa.int64())]))
    t.insert({"id": 1})
    t.add_column("n", pa.int8(), default=7)
    t.insert({"id": 2, "n": 2})
    t.widen_column("n", pa.int16())
    t.insert({"id": 3, "n": 300})
    t.rename_column("n", "m")
    t.widen_column("m", pa.decimal128(10, 2))
    t.insert({"id": 4})
    expected = [Decimal(7), Decimal(2), Decimal(300), Decimal(7)]
    assert [r["m"] for r in rows(t)] == expected
    assert [r["id"] for r in rows(t, where="m = 7")] == [1, 4]
    lake.pipeline().dump("t")
    assert [r["m"] for r in rows(t)] == expected
    assert [r["id"] for r in rows(t, where="m > 2.5 and m < 301")] == [1, 3, 4]


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
WIDENINGS: list[tuple[Any, Any, Any, Any]] = [
    (pa.int8(), pa.int64(), -128, -128),
    (pa.uint8(), pa.int16(), 255, 255),
    (pa.uint32(), pa.uint64(), 2**32 - 1, 2**32 - 1),
    (pa.int32(), pa.float64(), -(2**31), float(-(2**31))),
    (pa.int16(), pa.float32(), -32768, -32768.0),
    (pa.int64(), pa.decimal128(21, 2), 2**63 - 1, Decimal(2**63 - 1)),
    (pa.uint64(), pa.decimal128(20, 0), 2**64 - 1, Decimal(2**64 - 1)),
    (pa.float16(), pa.float32(), 1.5, 1.5),
    (pa.float32(), pa.float64(), float("-inf"), float("-inf")),
    (pa.decimal128(5, 2), pa.decimal128(8, 3), Decimal("999.99"), Decimal("999.990")),
    (pa.decimal128(18, 0), pa.decimal256(60, 5), Decimal(10**18 - 1), Decimal(10**18 - 1)),
    (pa.date32(), pa.timestamp("us"), date(2024, 2, 29), datetime(2024, 2, 29)),
    (pa.date32(), pa.date64(), date(1, 1, 1), date(1, 1, 1)),
    (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), NOON, NOON),
    (pa.time32("s"), pa.time64("us"), time(23, 59, 59), time(23, 59, 59)),
    (pa.duration("s"), pa.duration("us"), timedelta(days=-3), timedelta(days=-3)),
    (pa.string(), pa.large_string(), "é\0", "é\0"),
    (pa.binary(), pa.large_binary(), b"\x00\xff", b"\x00\xff"),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), "word", "word"),
]


def test_every_widening_keeps_every_value(lake: il.Lake) -> None:
    for number, (old, new, value, wanted) in enumerate(WIDENINGS):
        schema = pa.schema([pa.field("id", pa.int64(), False), ("v", old), ("s", pa.struct([("x", old)]))])
        t = lake.create_table(f"t{number}", schema, primary_key="id", defaults={"v": value})
        t.insert([{"id": 1, "v": value, "s": {"x": value}}, {"id": 2, "v": None, "s": {"x": None}}])
        lake.pipeline().dump(t.name)
        t.insert([{"id": 3, "v": value, "s": {"x": value}}, {"id": 4, "v": None, "s": None}])
        t.widen_column("v", new)
        expected = [wanted, None, wanted, None]
        assert [r["v"] for r in rows(t)] == expected
        assert [t.get(n)["v"] for n in (1, 2, 3, 4)] == expected
        assert [r["id"] for r in rows(t, where="v = $v", params={"v": wanted})] == [1, 3]
        t.insert({"id": 5})
        assert t.get(5)["v"] == wanted  # the default has the new type too
        if old.id in (pa.timestamp("s").id, pa.duration("s").id) or new == pa.timestamp("us"):
            continue  # not inside nested columns
        t.widen_column("s.x", new)
        assert [r["s"] for r in rows(t)][:4] == [{"x": wanted}, {"x": None}, {"x": wanted}, None]


REFUSED = [
    (pa.int64(), pa.int32(), "not every int64 value fits int32 exactly"),
    (pa.int64(), pa.float64(), "a wider integer"),
    (pa.int32(), pa.uint64(), "a wider integer"),
    (pa.int64(), pa.decimal128(18, 0), "enough digits"),
    (pa.float64(), pa.float32(), "a float with more bits"),
    (pa.decimal128(10, 2), pa.decimal128(11, 4), "digits before and after the point"),
    (pa.string(), pa.int64(), "large_string"),
    (pa.timestamp("us"), pa.timestamp("ms"), "finer unit and the same time zone"),
    (pa.timestamp("us"), pa.timestamp("ns", "UTC"), "the same time zone"),
    (pa.bool_(), pa.int8(), "computes every value anew"),
    (pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int16())]), r"name the field: 'c\.…'"),
    (pa.int32(), pa.int32(), "is already of type int32"),
    (pa.int32(), "int65", "int65"),
    (pa.int32(), 64, "needs an Arrow type"),
    (pa.int32(), pa.null(), "can hold no value"),
]


def test_what_is_no_widening_is_refused_with_what_would_be(lake: il.Lake) -> None:
    for number, (old, new, text) in enumerate(REFUSED):
        t = lake.create_table(f"t{number}", pa.schema([("c", old)]))
        before = lake.snapshot_id
        with pytest.raises(il.SchemaError, match=text):
            t.widen_column("c", new)
        assert lake.snapshot_id == before
        assert t.schema.field("c").type == old


@pytest.mark.parametrize("place", ["hot", "block", "older column"])
def test_a_finer_unit_is_refused_when_a_value_does_not_fit(lake: il.Lake, place: str) -> None:
    old = pa.timestamp("s") if place == "older column" else pa.timestamp("us")
    t = lake.create_table("t", pa.schema([("id", pa.int64()), ("at", old)]))
    t.insert([{"id": 1, "at": datetime(2024, 1, 1)}, {"id": 2, "at": datetime(2500, 1, 1)}])
    if place != "hot":
        lake.pipeline().dump("t")
    if place == "older column":
        t.widen_column("at", pa.timestamp("us"))
        t.insert({"id": 3, "at": datetime(2024, 1, 1)})
    with pytest.raises(il.SchemaError, match=r"2500-01-01.* is outside the range of the new type"):
        t.widen_column("at", pa.timestamp("ns"))
    t.delete("id = 2")
    if place == "hot":
        t.widen_column("at", pa.timestamp("ns"))
        assert t.scan().to_arrow().column("at").cast(pa.timestamp("s")).to_pylist() == [datetime(2024, 1, 1)]


def test_an_explicit_null_stays_null_through_a_widening(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.schema([("id", pa.int64())]))
    t.insert({"id": 1})
    t.add_column("n", pa.int32(), default=1)
    t.insert({"id": 2, "n": None})
    t.widen_column("n", pa.int64())
    assert [r["n"] for r in rows(t)] == [1, None]
    lake.pipeline().dump("t")
    assert [r["n"] for r in rows(t)] == [1, None]
    assert [r["id"] for r in rows(t, where="n is null")] == [2]


def test_an_added_column_that_is_not_null_needs_a_default(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    with pytest.raises(il.SchemaError, match="'n' is NOT NULL and needs a default"):
        t.add_column("n", pa.int64(), nullable=False)
    t.add_column("n", pa.int64(), default=0, nullable=False)
    assert {r["n"] for r in rows(t)} == {0}
    with pytest.raises(il.ConstraintError, match="NOT NULL"):
        t.insert({"id": 300, "n": None})


def test_defaults_of_every_kind_fill_old_rows(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    kinds: dict[str, tuple[Any, Any]] = {
        "words": (pa.list_(pa.string()), ["a", None]),
        "point": (pa.struct([pa.field("x", pa.float64(), False)]), {"x": 1.5}),
        "coded": (pa.dictionary(pa.int8(), pa.string()), "a"),
        "view": (pa.string_view(), "a longer text than fits inline"),
        "big": (pa.uint64(), 2**64 - 1),
        "pairs": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    }
    with t.alter() as a:
        for name, (type, default) in kinds.items():
            a.add_column(name, type, default)
    for _ in range(2):
        found = t.scan(columns=[*kinds, "id"]).to_arrow()
        assert found.num_rows == 47
        for name, (type, default) in kinds.items():
            assert found.schema.field(name).type == type
            assert found.column(name).to_pylist() == [default] * 47
            assert t.get(11)[name] == t.get(41)[name] == default
        lake.pipeline().dump("t")


def test_updates_of_old_rows_keep_their_other_columns(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.add_column("kind", pa.string(), default="old")
    t.widen_column("v", pa.int64())
    for n in (1, 11, 40):  # in a dumped block, in a direct one, hot
        assert t.update({"note": "one"}, where="id = $id", params={"id": n}).rows == 1
        assert t.get(n) == filled()[n] | {"note": "one", "kind": "old"}
        assert t.update({"v": il.expr("v + 5000000000")}, where="id = $id", params={"id": n}).rows == 1
        assert t.get(n)["v"] == n + 5_000_000_000
    assert t.update({"note": "many"}, where="kind = 'old' and v >= 20 and v < 45").rows == 19
    assert t.delete("kind = 'old' and v = 43").rows == 1
    assert t.delete("kind = 'none'").rows == 0


@pytest.mark.inline_only("names the inline store")
def test_row_addresses_are_found_by_an_added_column(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.add_column("kind", pa.string(), default="old")
    found = t.row_metadata("kind = 'old' and id in (1, 11, 41)").read_all().to_pylist()
    assert sorted(r["location"].split(":")[0] for r in found) == ["inline", "vortex", "vortex"]
    assert t.row_metadata("kind = 'new'").read_all().num_rows == 0


def test_a_table_can_be_altered_before_it_has_rows(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    t.add_column("n", pa.int8())
    t.widen_column("n", pa.int16())
    t.drop_column("note")
    assert t.scan().to_pylist() == []
    t.insert({"id": 1, "n": 300})
    assert t.get(1) == {"id": 1, "v": None, "address": None, "n": 300}


def test_statistics_of_old_blocks_are_asked_in_the_type_that_they_were_made_for(lake: il.Lake) -> None:
    config = il.TableConfig(direct_write_row_count=5)
    t = lake.create_table("t", pa.schema([("id", pa.int64()), ("n", pa.int32()), ("f", pa.float32())]), config=config)
    for first in (0, 100, 200):
        numbers = range(first, first + 10)
        t.insert(pa.table({"id": numbers, "n": pa.array(numbers, pa.int32()), "f": pa.array(numbers, pa.float32())}))
    t.widen_column("n", pa.int64())
    t.widen_column("n", pa.decimal128(25, 3))
    t.widen_column("f", pa.float64())
    t.insert(pa.table({"id": range(300, 310), "n": [Decimal(n) for n in range(300, 310)], "f": [0.1] * 10}))
    found = {
        "n = 105": (1, 1),
        "n >= 105": (3, 25),
        "n < 5 or n = 302": (2, 6),
        "n in (3, 203, 5000000000)": (3, 2),  # 5000000000 is no int32: nothing is known of it
        "n = 5000000000": (3, 0),
        "n = 5.5": (3, 0),
        "n > 5.5": (4, 34),
        "n is null": (0, 0),
        "f = 105": (1, 1),
        "f = 0.1": (4, 10),
        "f = 'NaN'::double": (3, 0),
    }
    seen = {where: (t.scan(where).explain().blocks_read, t.scan(where).count()) for where in found}
    assert seen == found


def test_a_table_has_as_many_columns_as_the_catalog_can_hold() -> None:
    with il.connect(":memory:") as lake:
        t = lake.create_table("wide", {f"c{n}": "int64" for n in range(1997)}, primary_key="c0")
        t.insert({"c0": 1, "c1996": 7})
        assert t.get(1)["c1996"] == 7
        before = lake.snapshot_id
        with pytest.raises(il.SchemaError, match="at most 1,997 columns"):
            t.add_column("one_more", "int64")
        with pytest.raises(il.SchemaError, match="would have 1,998"):
            lake.create_table("wider", {f"c{n}": "int64" for n in range(1998)})
        with lake.transaction() as tx:
            with pytest.raises(il.SchemaError, match="would have 1,998"):
                tx.create_table("wider", {f"c{n}": "int64" for n in range(1998)})
            with pytest.raises(il.SchemaError, match="at most 1,997 columns"):
                tx.table("wide").add_column("one_more", "int64")
            with pytest.raises(il.SchemaError, match="would have 1,998"):
                tx.sql(f"create table wider as select {', '.join(f'{n} as c{n}' for n in range(1998))}")
        assert lake.snapshot_id == before
        assert t.get(1)["c1996"] == 7
