"""Fields inside structs, lists and maps, by path."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.evolution.conftest import Fill, rows

ITEMS = pa.list_(pa.struct([pa.field("name", pa.string(), False), pa.field("price", pa.int32())]))
NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("items", ITEMS),
        pa.field("tags", pa.map_(pa.string(), pa.struct([("n", pa.int16())]))),
        pa.field("pair", pa.list_(pa.float32(), 2)),
        pa.field("deep", pa.struct([("a", pa.struct([("b", pa.int8()), ("c", pa.int8())])), ("d", pa.int8())])),
    ]
)


def nested(n: int) -> dict[str, Any]:
    if n % 3 == 2:
        return {"id": n, "items": None, "tags": None, "pair": None, "deep": None}
    items = [{"name": f"i{k}", "price": k if k else None} for k in range(n % 4)]
    return {
        "id": n,
        "items": items,
        "tags": [(f"k{n}", {"n": n}), ("none", None)],
        "pair": [1.5, None],
        "deep": {"a": {"b": n, "c": 1} if n % 2 else None, "d": n},
    }


@pytest.fixture(params=["vortex", "parquet", "ipc"])
def table(request: pytest.FixtureRequest, lake: il.Lake) -> il.Table:
    config = il.TableConfig(dump_format=request.param)
    t = lake.create_table("t", NESTED, primary_key="id", config=config)
    t.insert([nested(n) for n in range(12)])
    lake.pipeline().dump("t")
    t.insert([nested(n) for n in range(12, 24)])
    return t


def test_nested_fields_are_added_dropped_renamed_and_widened(lake: il.Lake, table: il.Table) -> None:
    t = table
    before = lake.snapshot_id
    with t.alter() as a:
        a.widen_column("items.element.price", pa.int64())
        a.add_column("items.element.count", pa.int32(), default=1, nullable=False)
        a.rename_column("items.element.name", "title")
        a.widen_column("tags.value.n", pa.int32())
        a.widen_column("pair.element", pa.float64())
        a.drop_column("deep.a.b")
        a.rename_column("deep.d", "e")
        a.add_column(("deep", "a", "x.y"), pa.string(), default="new")

    def changed(r: dict[str, Any]) -> dict[str, Any]:
        r = dict(r)
        if r["items"] is not None:
            r["items"] = [{"title": i["name"], "price": i["price"], "count": 1} for i in r["items"]]
        if r["deep"] is not None:
            a = r["deep"]["a"]
            r["deep"] = {"a": None if a is None else {"c": a["c"], "x.y": "new"}, "e": r["deep"]["d"]}
        return r

    expected = [changed(nested(n)) for n in range(24)]
    big = {"id": 30, "items": [{"title": "t", "price": 2**40, "count": 2}], "tags": [("k", {"n": 70_000})],
           "pair": [0.1, 0.2], "deep": {"a": {"c": 1, "x.y": None}, "e": 2}}  # fmt: skip
    t.insert(big)
    expected.append(big)
    for _ in range(2):
        assert rows(t) == expected
        assert [t.get(r["id"]) for r in expected] == expected
        assert rows(t.at(before)) == [nested(n) for n in range(24)]
        assert t.at(before).get(5) == nested(5)
        lake.pipeline().dump("t")
    assert t.update({"pair": [1.0, 2.0]}, where="id in (1, 13)").rows == 2
    assert t.get(1) == expected[1] | {"pair": [1.0, 2.0]}
    assert t.get(13)["items"] == expected[13]["items"]


def test_a_field_that_is_added_is_null_in_the_default_of_its_column(lake: il.Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.struct([("x", pa.int32())]))])
    t = lake.create_table("t", schema, defaults={"p": {"x": 1}})
    t.insert({"id": 0})
    t.add_column("q", pa.struct([("x", pa.int32())]), default={"x": 3})
    with t.alter() as a:
        a.add_column("p.y", pa.int32(), default=2)
        a.add_column("q.y", pa.int32(), default=2)
        a.add_column("q.n", pa.int32(), default=4, nullable=False)
        a.rename_column("p.x", "z")
    t.insert({"id": 1})
    assert sorted(t.scan().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 0, "p": {"z": 1, "y": 2}, "q": {"x": 3, "y": 2, "n": 4}},
        {"id": 1, "p": {"z": 1, "y": None}, "q": {"x": 3, "y": None, "n": 4}},
    ]


def test_names_of_nested_fields_match_in_any_case(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    t.rename_column("Address.ZIP", "postcode")
    assert t.get(1)["address"] == {"city": "city 1", "postcode": 10_001}


def test_a_column_with_a_dot_in_its_name_is_found_before_a_path(lake: il.Lake) -> None:
    schema = pa.schema([("a.b", pa.int32()), ("a", pa.struct([("b", pa.int32()), ("c", pa.int32())]))])
    t = lake.create_table("t", schema)
    t.widen_column("a.b", pa.int64())
    assert t.schema.field("a.b").type == pa.int64()
    t.widen_column(("a", "b"), pa.int64())
    assert t.schema.field("a").type.field("b").type == pa.int64()
    t.drop_column('"a.b"')
    t.add_column('"x.y"', pa.int8())
    t.add_column(('say "hi"',), pa.int8())
    assert t.schema.names == ["a", "x.y", 'say "hi"']


WRONG: list[tuple[Any, str]] = [
    (lambda t: t.drop_column("deep.nope"), r"no field 'nope' in 'deep'.*It has 'a', 'd'"),
    (lambda t: t.drop_column("deep.a.bb"), "Did you mean 'b'"),
    (lambda t: t.drop_column("id.x"), "'id' is of type int64, which has no fields"),
    (lambda t: t.drop_column("items.name"), "no field 'name' in 'items'.*It has 'element'"),
    (lambda t: t.drop_column("items.element"), "is what the list 'items' consists of: it cannot be dropped"),
    (lambda t: t.rename_column("tags.value", "x"), "is what the map 'tags' consists of: it cannot be renamed"),
    (lambda t: t.widen_column("tags.key", pa.large_string()), "keys of the map 'tags' cannot be changed"),
    (lambda t: t.add_column("items.x", pa.int8()), r"not a struct.*Write 'items\.element'"),
    (lambda t: t.add_column("deep.D", pa.int8()), "There is a field 'd' in 'deep' already"),
    (lambda t: t.add_column("deep.a.q", pa.int8(), nullable=False), "needs a default"),
    (lambda t: t.add_column("nope.x", pa.int8()), "There is no column 'nope' to add 'x' to"),
    (lambda t: t.rename_column("deep.a.b", "C"), "There is a field 'c' in 'deep.a' already"),
    (lambda t: t.rename_column("deep.a.b", ""), "is not a field name"),
    (lambda t: t.widen_column("deep.a", pa.int64()), r"name the field: 'deep\.a\.…'"),
    (lambda t: t.widen_column("deep..a", pa.int64()), "does not name a column"),
    (lambda t: t.widen_column((), pa.int64()), "does not name a column"),
    (lambda t: t.widen_column(5, pa.int64()), "does not name a column"),
    (lambda t: t.add_column("deep.x", 8), "needs an Arrow type"),
    (lambda t: t.add_column("deep.x", pa.int8(), default=300), "default of column 'deep.x' does not fit"),
]


def test_a_wrong_path_or_name_is_refused_and_changes_nothing(lake: il.Lake) -> None:
    t = lake.create_table("t", NESTED, primary_key="id")
    before = lake.snapshot_id
    for change, text in WRONG:
        with pytest.raises(il.SchemaError, match=text):
            change(t)
    assert lake.snapshot_id == before
    assert t.schema == NESTED


def test_the_last_field_of_a_struct_and_a_nested_unit_are_refused(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.schema([("s", pa.struct([("at", pa.timestamp("us"))])), ("i", pa.int8())]))
    with pytest.raises(il.SchemaError, match=r"'s\.at' is the last field of 's': drop 's' instead"):
        t.drop_column("s.at")
    with pytest.raises(il.SchemaError, match="inside a nested column it is not known whether every value fits"):
        t.widen_column("s.at", pa.timestamp("ns"))


def test_nested_names_with_quotes_and_other_signs_read_back_as_they_are(lake: il.Lake) -> None:
    names = ['q"q', "back\\slash", "line\nbreak", "ümlaut", "e\u0301", "a.b", "sp ace"]
    struct = pa.struct([(name, pa.int64()) for name in names])
    t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False), ("s", struct)]), primary_key="id")
    value = {name: n for n, name in enumerate(names)}
    t.insert({"id": 1, "s": value})
    assert t.get(1)["s"] == value
    lake.pipeline().dump("t")
    assert t.get(1)["s"] == value
    t.rename_column(("s", 'q"q'), 'p"p')
    assert t.get(1)["s"] == {'p"p': 0} | {name: n for name, n in value.items() if n}
