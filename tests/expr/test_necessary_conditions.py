"""The tests that a predicate implies, and whether they are exact."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest

from indexlake.expr import ALWAYS, NEVER, All, Any_, ColumnTest, Test, compile
from indexlake.types import codec_for

D = decimal.Decimal
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("big", pa.uint64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("word", pa.dictionary(pa.int8(), pa.string())),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("ms", pa.timestamp("ms", "UTC")),
        ("ns", pa.timestamp("ns")),
        ("fixed", pa.binary(2)),
        ("half", pa.float16()),
        ("tags", pa.list_(pa.int8())),
        ("_indexlake_row_id", pa.int64()),
    ]
)


def c(column: str, op: Any, *values: Any) -> ColumnTest:
    return ColumnTest(column, op, values)


def both(*children: Test) -> All:
    return All(children)


def either(*children: Test) -> Any_:
    return Any_(children)


CASES: list[tuple[str, Any, Test, bool]] = [
    ("id = 1", None, c("id", "=", 1), True),
    ("1 < id", None, c("id", ">", 1), True),
    ("ID = $id", {"id": 5}, c("id", "=", 5), True),
    ("_indexlake_row_id = 7", None, c("_indexlake_row_id", "=", 7), True),
    ("_indexlake_row_id in $ids", {"ids": [7, 8, 7]}, c("_indexlake_row_id", "in", 7, 8), True),
    ("id <> 1", None, either(c("id", "<", 1), c("id", ">", 1)), True),
    ("id < 2.5", None, c("id", "<", 3), True),
    ("id <= 2.5", None, c("id", "<=", 2), True),
    ("id > 2.5", None, c("id", ">", 2), True),
    ("id = 2.5", None, NEVER, True),
    ("id <> 2.5", None, c("id", "is not null"), True),
    ("id = 9007199254740992e0", None, both(c("id", ">=", 2**53), c("id", "<=", 2**53 + 1)), True),
    ("small < 300", None, c("small", "is not null"), True),
    ("small = 300", None, NEVER, True),
    ("big > -1", None, c("big", "is not null"), True),
    ("big = 18446744073709551615", None, c("big", "=", 2**64 - 1), True),
    ("x > 1", None, c("x", ">", 1.0), True),
    ("f = 0.1e0", None, NEVER, True),
    ("f < 0.1e0", None, c("f", "<", 0.10000000149011612), True),
    ("m > 1.005", None, c("m", ">", D("1.00")), True),
    ("m = 1.50", None, c("m", "=", D("1.50")), True),
    ("m >= $p", {"p": 9.99}, c("m", ">=", D("9.97")), False),
    ("s = 'a'", None, c("s", "=", "a"), True),
    ("word = 'a'", None, c("word", "=", "a"), True),
    ("s like 'ab%'", None, both(c("s", ">=", "ab"), c("s", "<", "ac")), True),
    ("s like 'ab_'", None, both(c("s", ">=", "ab"), c("s", "<", "ac")), False),
    ("s like 'ab'", None, c("s", "=", "ab"), True),
    ("s like 'a$%' escape '$'", None, c("s", "=", "a%"), True),
    ("s like '%b'", None, c("s", "is not null"), False),
    ("s ilike 'ab%'", None, c("s", "is not null"), False),
    ("s not like 'ab%'", None, c("s", "is not null"), False),
    ("s like '\U0010ffff%'", None, c("s", ">=", "\U0010ffff"), True),
    ("ok", None, c("ok", "=", True), True),
    ("not ok", None, c("ok", "=", False), True),
    ("ok is true", None, c("ok", "=", True), True),
    ("ok is not true", None, ALWAYS, False),
    ("day = '2020-01-01'", None, c("day", "=", 18262), True),
    ("day < TIMESTAMP '2020-01-01 12:00:00'", None, c("day", "<", 18263), True),
    ("at = DATE '1970-01-02'", None, c("at", "=", 86_400_000_000), True),
    ("ms >= '1970-01-01 00:00:00.0005'", None, c("ms", ">=", 1), True),
    ("ms = '1970-01-01 00:00:00.0005'", None, NEVER, True),
    ("ns > '1970-01-01 00:00:00.000000001'", None, c("ns", ">", 1), True),
    ("fixed = 'abc'", None, NEVER, True),
    ("fixed = 'ab'", None, c("fixed", "=", b"ab"), True),
    ("fixed > 'abc'", None, c("fixed", "is not null"), False),
    ("half > 1", None, c("half", "is not null"), False),
    ("id is null", None, c("id", "is null"), True),
    ("tags is not null", None, c("tags", "is not null"), True),
    ("id = null", None, NEVER, True),
    ("not (id = null)", None, NEVER, True),
    ("id is not distinct from 5", None, c("id", "=", 5), True),
    ("id is not distinct from null", None, c("id", "is null"), True),
    ("id is distinct from 5", None, ALWAYS, False),
    ("id in (1, 2)", None, c("id", "in", 1, 2), True),
    ("id in (1, null)", None, c("id", "=", 1), True),
    ("id not in (1, 2)", None, c("id", "is not null"), False),
    ("id not in (1, null)", None, NEVER, True),
    ("id in $ids", {"ids": []}, NEVER, True),
    ("small in (1, 300)", None, c("small", "=", 1), True),
    ("m in (1.5, 2.123)", None, c("m", "=", D("1.50")), True),
    ("id between 1 and 5", None, both(c("id", ">=", 1), c("id", "<=", 5)), True),
    ("not (id between 1 and 5)", None, either(c("id", "<", 1), c("id", ">", 5)), True),
    ("id = 1 and s = 'a'", None, both(c("id", "=", 1), c("s", "=", "a")), True),
    ("id = 1 or s = 'a'", None, either(c("id", "=", 1), c("s", "=", "a")), True),
    (
        "not (id = 1 or s = 'a')",
        None,
        both(either(c("id", "<", 1), c("id", ">", 1)), either(c("s", "<", "a"), c("s", ">", "a"))),
        True,
    ),
    ("id = 1 or id + 1 = 3", None, either(c("id", "=", 1), c("id", "is not null")), False),
    ("id + small > 3", None, both(c("small", "is not null"), c("id", "is not null")), False),
    ("coalesce(id, 1) = 1", None, ALWAYS, False),
    ("case when ok then id = 1 end", None, ALWAYS, False),
    ("id = 1 and true", None, c("id", "=", 1), True),
    ("id = 1 and false", None, NEVER, True),
    ("1 = 1", None, ALWAYS, True),
    ("null", None, NEVER, True),
]


@pytest.mark.parametrize(("text", "params", "test", "exact"), CASES)
def test_predicate_implies(text: str, params: Any, test: Test, exact: bool) -> None:
    predicate = compile(text, SCHEMA, params)
    assert predicate.test() == test
    assert predicate.condition().exact is exact


@pytest.mark.parametrize(("text", "params"), [case[:2] for case in CASES])
def test_values_are_accepted_by_the_columns_codec(text: str, params: Any) -> None:
    def check(test: Test) -> None:
        if isinstance(test, ColumnTest):
            for value in test.values:
                codec_for(SCHEMA.field(test.column).type).encode_constant(value)
        else:
            for child in test.children:
                check(child)

    check(compile(text, SCHEMA, params).test())


def test_not_in_is_not_in() -> None:
    """Peers, mistake 9: NOT IN reached the SQL prefilter as IN."""
    assert compile("id not in (1, 2)", SCHEMA).test() == c("id", "is not null")
    assert compile("not id in (1, 2)", SCHEMA).test() == c("id", "is not null")


def test_uint64_constants_stay_integers() -> None:
    """Peers, mistake 10: UInt64 went through a float."""
    assert compile("big = 9007199254740993", SCHEMA).test() == c("big", "=", 2**53 + 1)
    assert compile("big > $x", SCHEMA, {"x": 2**64 - 2}).test() == c("big", ">", 2**64 - 2)


def test_nan_constants_are_in_the_test() -> None:
    """Peers, mistake 12: NaN and float bounds."""
    (value,) = compile("x >= $x", SCHEMA, {"x": math.nan}).test().values  # type: ignore[union-attr]
    assert math.isnan(value)


def test_renamed_predicates_test_the_new_names() -> None:
    predicate = compile("id = 1 and s = 'a'", SCHEMA).renamed({"id": "f1"})
    assert predicate.columns == {"f1", "s"}
    assert predicate.test() == both(c("f1", "=", 1), c("s", "=", "a"))
    batch = pa.record_batch({"f1": [1, 2], "s": ["a", "a"]})
    assert predicate.mask(batch).to_pylist() == [True, False]
    assert predicate.evaluate_row({"f1": 1, "s": "a"}) is True


def test_large_lists_are_one_test() -> None:
    ids = list(range(50_000))
    predicate = compile("id in $ids", SCHEMA, {"ids": ids})
    assert predicate.test() == ColumnTest("id", "in", tuple(ids))


def test_days_are_counts() -> None:
    day = dt.date(2024, 2, 29)
    test = compile("day >= $day", SCHEMA, {"day": day}).test()
    assert test == c("day", ">=", (day - dt.date(1970, 1, 1)).days)
