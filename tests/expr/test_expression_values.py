"""What expressions give: one table of SQL texts and values per idea, on a small batch."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import ExpressionError
from indexlake.expr import compile

NAN, INF = math.nan, math.inf
D = decimal.Decimal

BATCH = pa.record_batch(
    {
        "id": pa.array([1, 2, None, 4], pa.int64()),
        "small": pa.array([127, -128, 0, None], pa.int8()),
        "big": pa.array([0, 1, 2**63, 2**64 - 1], pa.uint64()),
        "x": pa.array([1.5, NAN, None, -0.0], pa.float64()),
        "f": pa.array([0.1, NAN, INF, None], pa.float32()),
        "m": pa.array([D("1.50"), D("-1.50"), None, D("99.99")], pa.decimal128(6, 2)),
        "s": pa.array(["abc", "A%C", None, "a\nb_"], pa.string()),
        "view": pa.array(["abc", "A%C", None, "a\nb_"], pa.string_view()),
        "word": pa.array(["x", None, "y", "x"]).dictionary_encode(),
        "ok": pa.array([True, False, None, True]),
        "day": pa.array([dt.date(2020, 1, 1), dt.date(1969, 12, 31), None, dt.date(2020, 1, 2)], pa.date32()),
        "at": pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 1), None, None], pa.timestamp("us")),
        "ns": pa.array([1, 1000, None, -1], pa.timestamp("ns")),
        "zoned": pa.array([0, 1, None, 2], pa.timestamp("s", "Europe/Paris")),
        "raw": pa.array([b"a", b"\xff", None, b""], pa.binary()),
        "fixed": pa.array([b"ab", b"cd", None, b"\0\0"], pa.binary(2)),
        "span": pa.array([0, 1_000_000, None, -5], pa.duration("us")),
        "clock": pa.array([0, 1, None, 43_200], pa.time32("s")),
        "half": pa.array(np.array([0.5, 1.5, NAN, 2.0], np.float16)),
        "tags": pa.array([["a"], [], None, ["b"]], pa.list_(pa.string())),
    }
)
T, F, N = True, False, None


def values(text: str, params: Any = None) -> list[Any]:
    return compile(text, BATCH.schema, params).evaluate(BATCH).to_pylist()


def same(got: list[Any], want: list[Any]) -> bool:
    return repr(got) == repr(want)


CASES: list[tuple[str, list[Any]]] = [
    # comparisons
    ("id = 1", [T, F, N, F]),
    ("id <> 1", [F, T, N, T]),
    ("1 < id", [F, T, N, T]),
    ("id = null", [N, N, N, N]),
    ("id < 2.5", [T, T, N, F]),
    ("id = 1.0", [T, F, N, F]),
    ("id = '1'", [T, F, N, F]),
    ("small > 126.5", [T, F, F, N]),
    ("small = 300", [F, F, F, N]),
    ("small < 300", [T, T, T, N]),
    ("big > -1", [T, T, T, T]),
    ("big = 18446744073709551615", [F, F, F, T]),
    ("big > 9223372036854775807", [F, F, T, T]),
    ("big = id", [F, F, N, F]),
    # NaN is the greatest and equals itself; -0.0 equals 0.0
    ("x > 1e300", [F, T, N, F]),
    ("x = 'nan'", [F, T, N, F]),
    ("x <> x", [F, F, N, F]),
    ("x >= x", [T, T, N, T]),
    ("x < 'nan'", [T, F, N, T]),
    ("x = 0", [F, F, N, T]),
    ("x <= 0", [F, F, N, T]),
    ("f > 1", [F, T, T, N]),
    # a decimal literal is read as FLOAT beside a FLOAT, a double is not
    ("f = 0.1", [T, F, F, N]),
    ("f = 0.1e0", [F, F, F, N]),
    ("f < 0.1e0", [F, F, F, N]),
    ("half > 1", [F, T, T, T]),
    ("half = 0.5", [T, F, F, F]),
    # text by bytes
    ("s < 'b'", [T, T, N, T]),
    ("s < 'a'", [F, T, N, F]),
    ("view = 'abc'", [T, F, N, F]),
    ("word = 'x'", [T, N, F, T]),
    ("raw = 'a'", [T, F, N, F]),
    ("raw >= '\\xFF'", [F, T, N, F]),
    ("fixed = 'cd'", [F, T, N, F]),
    # times
    ("day = '2020-01-01'", [T, F, N, F]),
    ("day < '2020-01-01 10:00:00'", [F, T, N, F]),
    ("day < TIMESTAMP '2020-01-01 10:00:00'", [T, T, N, F]),
    ("at = day", [T, F, N, N]),
    ("at > '2020-01-01'", [F, T, N, N]),
    ("ns > '1970-01-01 00:00:00.000000001'", [F, T, N, F]),
    ("ns < TIMESTAMP '1970-01-01'", [F, F, N, T]),
    ("zoned = TIMESTAMPTZ '1970-01-01 01:00:01+01'", [F, T, N, F]),
    ("clock < '00:00:01'", [T, F, N, F]),
    ("clock = TIME '12:00:00'", [F, F, N, T]),
    # null
    ("id is null", [F, F, T, F]),
    ("id is not null", [T, T, F, T]),
    ("tags is null", [F, F, T, F]),
    ("id is distinct from 1", [F, T, T, T]),
    ("id is not distinct from null", [F, F, T, F]),
    ("x is not distinct from 'nan'", [F, T, F, F]),
    # logic
    ("ok and id = 1", [T, F, N, F]),
    ("ok or id = 2", [T, T, N, T]),
    ("not ok", [F, T, N, F]),
    ("ok is true", [T, F, F, T]),
    ("ok is not true", [F, T, T, F]),
    ("ok is false", [F, T, F, F]),
    ("null and false", [F, F, F, F]),
    ("null or true", [T, T, T, T]),
    ("null or false", [N, N, N, N]),
    ("id and true", [T, T, N, T]),
    ("1 = 1", [T, T, T, T]),
    # lists
    ("id in (1, 2)", [T, T, N, F]),
    ("id not in (1, 2)", [F, F, N, T]),
    ("id in (1, null)", [T, N, N, N]),
    ("id not in (1, null)", [F, N, N, N]),
    ("id in (1.5, 2)", [F, T, N, F]),
    ("x in ('nan', 0)", [F, T, N, T]),
    ("big in (1, 18446744073709551615)", [F, T, F, T]),
    ("id in (small, 4)", [F, F, N, T]),
    ("id between 2 and 4", [F, T, N, T]),
    ("id not between 2 and 4", [T, F, N, F]),
    ("id between 4 and 2", [F, F, N, F]),
    ("id between null and 1", [N, F, N, F]),
    # like
    ("s like 'a%'", [T, F, N, T]),
    ("s ilike 'a%'", [T, T, N, T]),
    ("s like 'a_b%'", [F, F, N, T]),
    ("s like 'a%_'", [T, F, N, T]),
    ("s like '%$_' escape '$'", [F, F, N, T]),
    ("s like 'A$%C' escape '$'", [F, T, N, F]),
    ("s not like '%b%'", [F, T, N, F]),
    ("s like 'abc'", [T, F, N, F]),
    ("s like ''", [F, F, N, F]),
    ("s like '%'", [T, T, N, T]),
    ("s like null", [N, N, N, N]),
    ("s like s", [T, T, N, T]),
    ("view like '%C'", [F, T, N, F]),
    ("s like 'abc$' escape '$'", [F, F, N, F]),
    # arithmetic
    ("id + 1", [2, 3, N, 5]),
    ("id - 0.5", [D("0.5"), D("1.5"), N, D("3.5")]),
    ("id * m", [D("1.50"), D("-3.00"), N, D("399.96")]),
    ("id / 2", [0.5, 1.0, N, 2.0]),
    ("id / 0", [INF, INF, N, INF]),
    ("(id - 4) // 3", [-1, 0, N, 0]),
    ("id // 0", [N, N, N, N]),
    ("(id - 4) % 3", [0, -2, N, 0]),
    ("id % 0", [N, N, N, N]),
    ("m % 1", [D("0.50"), D("-0.50"), N, D("0.99")]),
    ("x // 2", [0.75, NAN, N, -0.0]),
    ("x % 1", [0.5, NAN, N, -0.0]),
    ("x * 1e308 * 10", [INF, NAN, N, -0.0]),
    ("-m", [D("-1.50"), D("1.50"), N, D("-99.99")]),
    ("id + null", [N, N, N, N]),
    ("day + 1", [dt.date(2020, 1, 2), dt.date(1970, 1, 1), N, dt.date(2020, 1, 3)]),
    ("day - DATE '2020-01-01'", [0, -18263, N, 1]),
    ("at - at", [pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([0, 0, 0]), N, N]),
    ("abs(id - 3)", [2, 1, N, 1]),
    ("abs(m)", [D("1.50"), D("1.50"), N, D("99.99")]),
    # case, coalesce and friends
    ("case when id = 1 then 'one' when id = 2 then 'two' else 'many' end", ["one", "two", "many", "many"]),
    ("case id when 1 then 'one' end", ["one", N, N, N]),
    ("case when ok then id else 0.5 end", [D("1.0"), D("0.5"), D("0.5"), D("4.0")]),
    ("coalesce(id, 0)", [1, 2, 0, 4]),
    ("ifnull(s, '-')", ["abc", "A%C", "-", "a\nb_"]),
    ("nullif(id, 2)", [1, N, N, 4]),
    ("if(ok, 1, 2)", [1, 2, 2, 1]),
    ("case when id = 7 then cast(s as integer) else 0 end", [0, 0, 0, 0]),
    # text
    ("s || '!'", ["abc!", "A%C!", N, "a\nb_!"]),
    ("id || s", ["1abc", "2A%C", N, "4a\nb_"]),
    ("upper(s)", ["ABC", "A%C", N, "A\nB_"]),
    ("lower(view)", ["abc", "a%c", N, "a\nb_"]),
    ("length(s)", [3, 3, N, 4]),
    ("contains(s, 'b')", [T, F, N, T]),
    ("starts_with(view, 'a')", [T, F, N, T]),
    ("replace(s, 'b', 'é')", ["aéc", "A%C", N, "a\né_"]),
    ("reverse(s)", ["cba", "C%A", N, "_b\na"]),
    ("substring(s, 2)", ["bc", "%C", N, "\nb_"]),
    ("substring(s, 2, 1)", ["b", "%", N, "\n"]),
    # casts
    ("cast(2.5 as integer)", [3, 3, 3, 3]),
    ("cast(2.5e0 as integer)", [2, 2, 2, 2]),
    ("x::float", [1.5, NAN, N, -0.0]),
    ("cast(id as varchar)", ["1", "2", N, "4"]),
    ("cast(m as integer)", [2, -2, N, 100]),
    ("cast(m as decimal(5,1))", [D("1.5"), D("-1.5"), N, D("100.0")]),
    ("try_cast(s as integer)", [N, N, N, N]),
    ("cast(at as date)", [dt.date(2020, 1, 1), dt.date(2020, 1, 1), N, N]),
    ("cast(day as timestamp)", [dt.datetime(2020, 1, 1), dt.datetime(1969, 12, 31), N, dt.datetime(2020, 1, 2)]),
    ("cast(x as varchar)", ["1.5", "nan", N, "-0.0"]),
    ("cast(ok as integer)", [1, 0, N, 1]),
    # constants alone
    ("null", [N, N, N, N]),
    ("true", [T, T, T, T]),
    ("1 + 2 * 3", [7, 7, 7, 7]),
    ("'it''s'", ["it's"] * 4),
    ("2.50", [D("2.50")] * 4),
]


@pytest.mark.parametrize(("text", "want"), CASES)
def test_expression_gives(text: str, want: list[Any]) -> None:
    assert same(values(text), want)


@pytest.mark.parametrize(("text", "want"), CASES)
def test_scalar_path_gives_the_same(text: str, want: list[Any]) -> None:
    expression = compile(text, BATCH.schema)
    rows = [{name: BATCH.column(name)[row].as_py() for name in expression.columns} for row in range(4)]
    assert same([expression.evaluate_row(row) for row in rows], want)


@pytest.mark.parametrize(
    "text",
    [
        "small + 1 > 0",
        "small * small > 0",
        "-small > 0",
        "abs(small) > 0",
        "id * 9223372036854775807 > 0",
        "big + 1 > 0",
        "-big = 0",
        "cast(id * 100 as tinyint) > 0",
        "cast(x as integer) > 0",
        "m * 99999999999999.99 * 99999999999999.99 * 99999999999999.99 > 0",
        "case when id > 1 then cast(s as integer) else 0 end = 0",
    ],
)
def test_overflow_is_an_error_that_quotes_the_expression(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"\(in `") as caught:
        values(text)
    assert caught.value.text == text


def test_scalar_path_raises_on_overflow_too() -> None:
    with pytest.raises(ExpressionError, match="out of range for TINYINT"):
        compile("small + 1 = 0", BATCH.schema).evaluate_row({"small": 127})


PARAMETERS: list[tuple[str, Any, list[Any]]] = [
    ("id = $id", {"id": 2}, [F, T, N, F]),
    ("id = $1", [2], [F, T, N, F]),
    ("id = ? or id = ?", [1, 4], [T, F, N, T]),
    ("id = $1 or small = $1", (1,), [T, F, N, N]),
    ("id < $x", {"x": 2.5}, [T, T, N, F]),
    ("id < $x", {"x": D("2.5")}, [T, T, N, F]),
    ("id = $x", {"x": None}, [N, N, N, N]),
    ("id = $x", {"x": True}, [T, F, N, F]),
    ("id = $x", {"x": np.int64(2)}, [F, T, N, F]),
    ("x = $x", {"x": NAN}, [F, T, N, F]),
    ("s = $x", {"x": "abc"}, [T, F, N, F]),
    ("raw = $x", {"x": b"\xff"}, [F, T, N, F]),
    ("day = $x", {"x": dt.date(2020, 1, 1)}, [T, F, N, F]),
    ("day = $x", {"x": "2020-01-01"}, [T, F, N, F]),
    ("at > $x", {"x": dt.datetime(2020, 1, 1)}, [F, T, N, N]),
    ("zoned > $x", {"x": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}, [F, T, N, T]),
    ("clock > $x", {"x": dt.time(0, 0, 1)}, [F, F, N, T]),
    ("span > $x", {"x": dt.timedelta(milliseconds=1)}, [F, T, N, F]),
    ("at - $x < DATE '2020-01-01'", {"x": dt.timedelta(seconds=1)}, [T, T, N, N]),
    ("ns = $x", {"x": pa.scalar(1, pa.timestamp("ns"))}, [T, F, N, F]),
    ("s = cast($x as varchar)", {"x": uuid.UUID(int=0)}, [F, F, N, F]),
    ("id in $ids", {"ids": [1, 4]}, [T, F, N, T]),
    ("id in ($ids)", {"ids": [1, 4]}, [T, F, N, T]),
    ("id in $ids", {"ids": {1, 4}}, [T, F, N, T]),
    ("id in $ids", {"ids": range(1, 3)}, [T, T, N, F]),
    ("id in $ids", {"ids": np.array([1, 4])}, [T, F, N, T]),
    ("id in $ids", {"ids": pa.array([1, 4])}, [T, F, N, T]),
    ("id not in $ids", {"ids": [1, 4]}, [F, T, N, F]),
    ("id in $ids", {"ids": []}, [F, F, N, F]),
    ("id not in $ids", {"ids": [1, None]}, [F, T, N, T]),
    ("id in $ids", {"ids": [1.5, 2]}, [F, T, N, F]),
    ("big in $ids", {"ids": [1, 2**64 - 1]}, [F, T, F, T]),
    ("small in $ids", {"ids": [127, 300]}, [T, F, F, N]),
    ("m in $ids", {"ids": [D("1.5"), 5]}, [T, F, N, F]),
    ("x in $ids", {"ids": [NAN, 0.0]}, [F, T, N, T]),
    ("day in $ids", {"ids": ["2020-01-01", "1969-12-31"]}, [T, T, N, F]),
    ("s like $p", {"p": "a%"}, [T, F, N, T]),
]


@pytest.mark.parametrize(("text", "params", "want"), PARAMETERS)
def test_parameters_are_values(text: str, params: Any, want: list[Any]) -> None:
    expression = compile(text, BATCH.schema, params)
    assert same(expression.evaluate(BATCH).to_pylist(), want)
    rows = [{name: BATCH.column(name)[row].as_py() for name in expression.columns} for row in range(4)]
    assert same([expression.evaluate_row(row) for row in rows], want)


def test_mask_is_false_where_the_predicate_is_unknown() -> None:
    mask = compile("id = 1", BATCH.schema).mask(BATCH)
    assert mask.to_pylist() == [True, False, False, False]
    assert mask.null_count == 0


def test_mask_of_a_number_is_whether_it_is_not_zero() -> None:
    assert compile("id - 1", BATCH.schema).mask(BATCH).to_pylist() == [False, True, False, True]


def test_columns_are_found_without_regard_to_case_and_keep_their_case() -> None:
    schema = pa.schema([("Total", pa.int64()), ("my col", pa.int64())])
    expression = compile('TOTAL = 1 and "My Col" = 2', schema)
    assert expression.columns == {"Total", "my col"}


def test_a_table_of_several_chunks_gives_one_mask() -> None:
    table = pa.Table.from_batches([BATCH, BATCH.slice(1, 2), BATCH.slice(0, 0)])
    mask = compile("x > 1", BATCH.schema).mask(table)
    assert isinstance(mask, pa.BooleanArray)
    assert mask.to_pylist() == [True, True, False, False, True, False]
    assert compile("id + 1", BATCH.schema).evaluate(table).to_pylist() == [2, 3, None, 5, 3, None]


@pytest.mark.parametrize("text", [case[0] for case in CASES])
def test_no_rows_give_no_values(text: str) -> None:
    expression = compile(text, BATCH.schema)
    none = expression.evaluate(BATCH.slice(0, 0))
    assert len(none) == 0
    assert none.type == expression.type


def test_a_table_without_batches_gives_no_values() -> None:
    empty = BATCH.schema.empty_table()
    for text in ("id = 1", "tags", "s || 'a'", "1 = 1"):
        expression = compile(text, BATCH.schema)
        assert expression.evaluate(empty).type == expression.type
        assert len(expression.evaluate(empty)) == 0
    assert len(compile("id + 1", BATCH.schema).mask(empty)) == 0


def test_slices_are_evaluated_from_their_own_offset() -> None:
    part = BATCH.slice(1, 3)
    for text in ("m % 1", "cast(m as double)", "id % 2", "s like '%_'", "case when ok then m else 0 end"):
        whole = compile(text, BATCH.schema).evaluate(BATCH).to_pylist()
        assert same(compile(text, BATCH.schema).evaluate(part).to_pylist(), whole[1:])


def test_qualified_names_find_columns_named_so() -> None:
    schema = pa.schema([("t.a", pa.int64()), ("s.a", pa.int64())])
    assert compile("t.a = s.a", schema).columns == {"t.a", "s.a"}
