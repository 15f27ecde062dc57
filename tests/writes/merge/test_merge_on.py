"""How the rows of a source find those of the table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import indexlake as il
from tests.writes.merge.merging import SCHEMA, contents, counts

Make = Callable[..., il.Table]
NAN = float("nan")


def matched(t: il.Table, rows: Any, on: Any, params: Any = None) -> int:
    """How many rows of the table the source matches."""
    return t.merge(rows, on, params).when_matched_delete().execute().deleted


@pytest.mark.parametrize("on", ["id", "ID", ["id"], "t.id = s.id", "s.ID = T.id", "(t.id = s.id) and (s.id = t.id)"])
def test_columns_or_text_say_what_must_be_equal(orders: il.Table, on: Any) -> None:
    assert matched(orders, pa.table({"id": [1, 4, 7, 99]}), on) == 3


def test_several_columns_and_further_conditions(orders: il.Table) -> None:
    rows = pa.table({"id": [1, 4, 7, 8], "V": [10, 0, 70, 80], "limit": [5, 5, 5, 100]})
    assert matched(orders, rows.select(["id", "V"]).slice(0, 2), ["v", "id"]) == 1
    assert matched(orders, rows, 't.id = s.id and t.v > "limit" and t.s = $s', {"s": "a"}) == 2
    assert [row[0] for row in contents(orders)] == [0, 2, 3, 5, 6, 8]


def test_what_fails_the_further_conditions_matches_nothing(make: Make) -> None:
    t = make(SCHEMA, None, [{"id": n, "v": n, "s": "a"} for n in range(9)])
    merge = t.merge(pa.table({"id": [1, 7], "v": [0, 9]}), on="t.id = s.id and t.v < s.v")
    merge = (
        merge.when_matched_update({"s": "hit"}).when_not_matched_insert().when_not_matched_by_source_delete("t.id > 5")
    )
    assert counts(merge.execute()) == (1, 1, 2)
    assert contents(t) == [(0, 0, "a"), (1, 1, "a"), (1, 0, None), *((n, n, "a") for n in range(2, 6)), (7, 7, "hit")]


def test_null_matches_nothing_and_nan_matches_itself(make: Make) -> None:
    schema = pa.schema([("f", pa.float64()), ("n", pa.int64())])
    values = [None, NAN, 0.0, -0.0, 1.5, float("inf"), -float("inf"), None, NAN]
    t = make(schema, None, [{"f": f, "n": n} for n, f in enumerate(values)])
    rows = pa.table({"f": pa.array([None, NAN, -0.0, float("inf"), 7.0])})
    merge = t.merge(rows, on="f").when_matched_delete().when_not_matched_insert()
    assert counts(merge.execute()) == (2, 0, 5)
    left = sorted((row["n"] is None, row["n"] or 0, str(row["f"])) for row in t.scan().to_pylist())
    assert left == [
        (False, 0, "None"),
        (False, 4, "1.5"),
        (False, 6, "-inf"),
        (False, 7, "None"),
        (True, 0, "7.0"),
        (True, 0, "None"),
    ]


DAY, LATER = dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2, 3)
MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WORDS = pa.dictionary(pa.int8(), pa.string())
TYPES = [  # of the table's column and its values, of the source's, and how many rows match
    (pa.int32(), [1, 2, 3], pa.int64(), [1, 3, 2**40], 2),
    (pa.int64(), [1, 2, -1], pa.uint64(), [1, 2**64 - 1], 1),
    (pa.uint64(), [1, 2**63], pa.int8(), [1, -1], 1),
    (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("1.50")], pa.int64(), [1, 10**12], 1),
    (
        pa.decimal128(10, 1),
        [Decimal("1.0"), Decimal("1.5")],
        pa.decimal128(9, 3),
        [Decimal("1.500"), Decimal("1.001")],
        1,
    ),
    *(
        (type, [1, 2, 7], pa.decimal128(2, 1), [Decimal("1.0"), Decimal("7.0"), Decimal("7.5"), Decimal("-1.0")], 2)
        for type in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    ),
    (pa.int64(), [1, 2**62], pa.decimal128(38, 0), [Decimal(1), Decimal(2**62), Decimal(2**64), Decimal(10**30)], 2),
    (pa.int64(), [1, 2], pa.decimal128(38, 37), [Decimal(1), Decimal("2.5")], 1),
    (pa.int32(), [1, 2], pa.decimal32(5, 2), [Decimal("1.00"), Decimal("2.50")], 1),
    (pa.int32(), [1, 2], pa.decimal64(10, 0), [Decimal(1), Decimal(2**32 + 2)], 1),
    (pa.int32(), [1, 2], pa.decimal256(60, 1), [Decimal("1.0"), Decimal(10**50)], 1),
    (pa.decimal128(38, 37), [Decimal(1), Decimal(2)], pa.decimal32(5, 2), [Decimal("1.00"), Decimal("2.50")], 1),
    (pa.decimal32(5, 2), [Decimal(1), Decimal("2.5")], pa.decimal128(38, 37), [Decimal(1), Decimal("2.501")], 1),
    (pa.float32(), [0.5, 0.1], pa.float64(), [0.5, 0.1], 1),
    (pa.string(), ["a", "b"], pa.large_string(), ["a", "c"], 1),
    (pa.string(), ["a", "b"], WORDS, ["a", "c"], 1),
    (WORDS, ["a", "b", "a"], pa.string_view(), ["a", "c"], 2),
    (pa.binary(2), [b"ab", b"cd"], pa.binary(), [b"ab", b"c"], 1),
    (pa.timestamp("us"), [DAY, LATER], pa.date32(), [DAY.date(), LATER.date()], 1),
    (pa.timestamp("s", "UTC"), [MOMENT], pa.timestamp("ns", "Europe/Berlin"), [MOMENT], 1),
    (pa.bool_(), [True, False, None], pa.bool_(), [True, None], 1),
    (pa.int64(), [1, 2], pa.null(), [None], 0),
]


@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize(
    ("type", "values", "given", "rows", "count"), TYPES, ids=lambda x: str(x) if isinstance(x, pa.DataType) else ""
)
def test_types_may_differ_where_values_are_compared_exactly(
    make: Make, type: pa.DataType, values: list[Any], given: pa.DataType, rows: list[Any], count: int, key: bool
) -> None:
    if key:
        values = [value for value in dict.fromkeys(values) if value is not None]
        count = 1 if type == WORDS else count
    t = make(pa.schema([("x", type), ("n", pa.int64())]), "x" if key else None, [{"x": x, "n": 0} for x in values])
    source = pa.table({"y": pa.array(rows, given)})
    assert matched(t, source, "t.x = s.y") == count


@pytest.mark.parametrize("dump", [False, True], ids=["hot", "blocks"])
@pytest.mark.parametrize(
    "type",
    ["tinyint", "smallint", "int", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "hugeint", "decimal(9,3)"],
)
def test_sql_merges_whole_numbers_with_decimals_as_duckdb_does(module_lake: il.Lake, type: str, dump: bool) -> None:
    plain = duckdb.connect()
    module_lake.sql("drop table if exists whole")
    for run in (plain.execute, module_lake.sql):
        run(f"create table whole (id {type}, a int)")
        run("insert into whole values (1, 1), (2, 2), (3, 3), (null, 4)")
    if dump:
        module_lake.pipeline().dump("whole")
    for run in (plain.execute, module_lake.sql):
        run(
            "merge into whole using (values (1.0, 5), (3.0, 6), (7.0, 8)) s(id, a) on whole.id = s.id "
            "when matched then update set a = s.a when not matched then insert (id, a) values (s.id, s.a)"
        )
    text = "select * from whole order by all"
    assert module_lake.sql(text).fetchall() == plain.execute(text).fetchall()


@pytest.mark.parametrize(
    ("type", "given"),
    [
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_types_that_are_not_compared_exactly_are_refused(make: Make, type: pa.DataType, given: pa.DataType) -> None:
    t = make(pa.schema([("x", type), ("n", pa.int64())]))
    with pytest.raises(il.SchemaError, match="'x'"):
        matched(t, pa.table({"x": pa.array([], given)}), "x")


@pytest.mark.parametrize(
    ("on", "error", "message"),
    [
        ("", il.SchemaError, "on= says which rows match"),
        ([], il.SchemaError, "on= says which rows match"),
        (7, il.SchemaError, "on= says which rows match"),
        ("ix", il.SchemaError, "no column 'ix'"),
        ("v", il.SchemaError, "In the source: There is no column 'v'"),
        (["id", "nope"], il.SchemaError, "no column 'nope'"),
        ("t.id = s.nope", il.ExpressionError, "s.nope"),
        ("t.id > s.id", il.ExpressionError, "needs at least one equality between"),
        ("t.id = s.id or t.v = 3", il.ExpressionError, "needs at least one equality between"),
        ("t.id = 5", il.ExpressionError, "needs at least one equality between"),
        ("id = s.id", il.ExpressionError, "write t.id or s.id"),
        ("t.id = s.id and", il.ExpressionError, "cannot parse"),
    ],
)
def test_a_wrong_on_is_refused(orders: il.Table, on: Any, error: Any, message: str) -> None:
    before = contents(orders)
    with pytest.raises(error, match=message):
        matched(orders, pa.table({"id": [1]}), on)
    assert contents(orders) == before


@pytest.mark.parametrize(
    ("clause", "error", "message"),
    [
        (lambda m: m, il.ExpressionError, "has no clause"),
        (lambda m: m.when_matched_update({"nope": 1}), il.SchemaError, "no column 'nope'"),
        (lambda m: m.when_matched_update({}), il.SchemaError, "needs a dict"),
        (lambda m: m.when_matched_update({"v": 1, "V": 2}), il.SchemaError, "assigned twice"),
        (lambda m: m.when_matched_update({"v": "many"}), il.ConstraintError, "'v'"),
        (lambda m: m.when_matched_update({"v": il.expr("v")}), il.ExpressionError, "write t.v or s.v"),
        (lambda m: m.when_matched_update({"v": il.expr("x.v")}), il.ExpressionError, "x.v"),
        (lambda m: m.when_matched_update(condition="s.v"), il.ExpressionError, "true or false"),
        (lambda m: m.when_matched_update(condition=5), il.ExpressionError, "SQL text"),
        (lambda m: m.when_matched_update(condition="s.v > $n"), il.ExpressionError, "n"),
        (lambda m: m.when_matched_update(params={"n": 1}), il.ExpressionError, "without a condition"),
        (lambda m: m.when_matched_update(), il.SchemaError, "'extra' that the table does not have"),
        (lambda m: m.when_not_matched_insert(), il.SchemaError, "'extra' that the table does not have"),
        (lambda m: m.when_not_matched_insert({"id": il.expr("t.id")}), il.ExpressionError, "no match in the table"),
        (lambda m: m.when_not_matched_by_source_delete("s.v = 1"), il.ExpressionError, "no match in the source"),
        (lambda m: m.when_not_matched_by_source_update(None), il.SchemaError, "needs set="),
    ],
)
def test_a_wrong_clause_is_refused_even_if_no_row_needs_it(
    orders: il.Table, clause: Any, error: Any, message: str
) -> None:
    before = contents(orders)
    for rows in (
        pa.table({"id": [1], "v": [1], "extra": [1]}),
        pa.table({"id": [99], "v": [1], "extra": [1]}).slice(1),
    ):
        with pytest.raises(error, match=message):
            clause(orders.merge(rows, on="id")).execute()
    assert contents(orders) == before


def test_names_with_blanks_dots_and_quotes_are_found(make: Make) -> None:
    schema = pa.schema([("order id", pa.int64()), ("a.b", pa.int64()), ('say "hi"', pa.string()), ("t", pa.int64())])
    t = make(schema, "order id", [dict(zip(schema.names, (n, n, "x", n), strict=True)) for n in range(9)])
    rows = pa.table({"order id": [1, 4], "a.b": [10, 40], "s": ["p", "q"]})
    merge = t.merge(rows, on="order id").when_matched_update(
        {"A.B": il.expr('t."a.b" + s."a.b"'), 'say "hi"': il.expr("s.s"), "t": il.expr("t.t + 1")}
    )
    assert counts(merge.execute()) == (0, 2, 0)
    assert contents(t)[4] == (4, 44, "q", 5)
    assert matched(t, rows, 't."order id" = s."order id" and t."a.b" > 20') == 1


def test_the_row_id_can_be_named(orders: il.Table) -> None:
    ids = orders.scan(columns=["id"], with_row_id=True).to_arrow().rename_columns(["id", "rid"])
    merge = orders.merge(ids, on="id").when_matched_delete("t._indexlake_row_id = s.rid and t.id > 3")
    assert merge.execute().deleted == 5


def test_fields_of_structs_can_be_named(make: Make) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.struct([("x", pa.int64())]))])
    t = make(schema, "id", [{"id": n, "p": {"x": n}} for n in range(9)])
    rows = pa.table({"id": [1, 4, 7], "q": [{"y": 1}, {"y": 0}, {"y": 7}]})
    assert t.merge(rows, on="id").when_matched_delete("t.p.x = s.q.y").execute().deleted == 2


MANY: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int64(), lambda n: n * 3 - 1000),
    "string": (pa.string(), lambda n: f"ü{n % 7}-{n}"),
    "shared prefix": (pa.large_string(), lambda n: "a long beginning that all values share " + "x" * (n % 5) + str(n)),
    "binary": (pa.binary(), lambda n: n.to_bytes(3, "big") + b"\x00" * (n % 3)),
    "date": (pa.date32(), lambda n: dt.date(1950, 1, 1) + dt.timedelta(days=n)),
    "timestamp": (pa.timestamp("us"), lambda n: dt.datetime(1969, 1, 1) + dt.timedelta(hours=n)),
    "nanoseconds": (pa.timestamp("ns"), lambda n: n - 1000),
    "zoned": (pa.timestamp("ms", "UTC"), lambda n: dt.datetime(1969, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n)),
    "decimal": (pa.decimal128(30, 2), lambda n: Decimal(n * 10**15) / 100),
    "float": (pa.float64(), lambda n: (n - 1000) / 8),
    "unsigned": (pa.uint64(), lambda n: 2**63 - 1000 + n),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), lambda n: f"w{n}"),
}


@pytest.mark.parametrize("count", [3, 800])
@pytest.mark.parametrize("kind", MANY)
@pytest.mark.parametrize("key", ["key", "value", "both"])
def test_few_and_many_values_of_every_kind_are_found(
    module_lake: il.Lake, make: Make, kind: str, count: int, key: str
) -> None:
    type, value = MANY[kind]
    schema = pa.schema([("x", type), ("g", pa.int8()), ("n", pa.int64())])
    t = make(schema, {"key": "x", "value": None, "both": ["g", "x"]}[key], block_row_count=400)
    numbers = list(range(0, 1800, 2))
    for start, end in ((0, 300), (300, 600), (600, 900)):
        some = numbers[start:end]
        columns = [pa.array([value(n) for n in some], type), pa.array([n % 4 for n in some], pa.int8()), pa.array(some)]
        t.insert(pa.table(columns, schema=schema))
        if end < 900:
            module_lake.pipeline().dump(t.name)
    wanted = list(range(1, 1801, 1800 // count))
    on = ["x", "g"] if key == "both" else "x"
    rows = pa.table(
        {"x": pa.array([value(n) for n in wanted], type), "g": pa.array([n % 4 for n in wanted], pa.int64())}
    )
    merge = t.merge(rows, on=on).when_matched_update({"n": il.expr("-t.n - 1")}).when_not_matched_insert()
    there = {n for n in wanted if n % 2 == 0}
    assert counts(merge.execute()) == (len(wanted) - len(there), len(there), 0)
    found = t.scan(columns=["n"]).to_arrow().column("n").to_pylist()
    assert sorted(n for n in found if n is not None) == sorted(-n - 1 if n in there else n for n in numbers)
    assert counts(merge.execute()) == (0, len(wanted), 0)


def test_more_keys_than_are_looked_up_one_by_one_are_compared_with_all_hot_rows(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexlake.hot.inline.MOST_LOOKUPS", 4)
    t = make(SCHEMA, "id", [{"id": n, "v": n, "s": "a"} for n in range(30)])
    merge = t.merge(pa.table({"id": range(5, 40)}), on="id").when_matched_delete()
    assert merge.execute().deleted == 25
    assert [row[0] for row in contents(t)] == [0, 1, 2, 3, 4]
