"""Parts without columns become constants: pruning, keys and pushdowns see their values."""

from __future__ import annotations

import datetime as dt
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest

from indexlake.errors import ExpressionError
from indexlake.expr import ALWAYS, NEVER, ColumnTest, compile, statement, tree
from tests.expr.pruning_reader import holds

SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("ts", pa.timestamp("us")), ("x", pa.float64())),
        *(("tz", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())), ("st", pa.struct([("a", pa.int64())]))),
    ]
)
MOMENT = 1_700_000_000_123_456  # 2023-11-14 22:13:20.123456 UTC
DAY = dt.date(2023, 11, 14).toordinal() - dt.date(1970, 1, 1).toordinal()
US = 86_400_000_000

# predicate, its necessary condition when the statement is at MOMENT
TESTS: list[tuple[str, Any, Any]] = [
    ("s = lower('ABC')", None, ColumnTest("s", "=", ("abc",))),
    ("lower('ABC') = s", None, ColumnTest("s", "=", ("abc",))),
    ("s = trim($x)", {"x": " a "}, ColumnTest("s", "=", ("a",))),
    ("s = concat('a', 1, null)", None, ColumnTest("s", "=", ("a1",))),
    ("s in (upper('a'), 'b' || 'c')", None, ColumnTest("s", "in", ("A", "bc"))),
    ("s like lower('AB') || '%'", None, None),
    ("id = abs(-3)", None, ColumnTest("id", "=", (3,))),
    ("id = len([1, 2])", None, ColumnTest("id", "=", (2,))),
    ("id = {'a': 5}.a", None, ColumnTest("id", "=", (5,))),
    ("id = $ids[2]", {"ids": [7, 8]}, ColumnTest("id", "=", (8,))),
    ("id > round(2.5)", None, ColumnTest("id", ">", (3,))),
    ("id = coalesce(null, 4)", None, ColumnTest("id", "=", (4,))),
    ("id = greatest($a, $b)", {"a": 3, "b": 9}, ColumnTest("id", "=", (9,))),
    ("id = if(1 > 2, 1, 2)", None, ColumnTest("id", "=", (2,))),
    ("x < sqrt(16)", None, ColumnTest("x", "<", (4.0,))),
    ("d = current_date", None, ColumnTest("d", "=", (DAY,))),
    ("d >= today() - 7", None, ColumnTest("d", ">=", (DAY - 7,))),
    ("d >= now() - interval '7 days'", None, ColumnTest("d", ">=", (DAY - 6,))),
    ("ts >= date_trunc('month', current_date)", None, ColumnTest("ts", ">=", ((DAY - 13) * US,))),
    ("ts >= date_trunc('month', now())", None, ColumnTest("ts", ">=", ((DAY - 13) * US,))),
    ("tz < now()", None, ColumnTest("tz", "<", (MOMENT,))),
    ("tz < current_timestamp", None, ColumnTest("tz", "<", (MOMENT,))),
    ("ts < localtimestamp", None, ColumnTest("ts", "<", (MOMENT,))),
    ("tz > now() - $age", {"age": dt.timedelta(hours=1)}, ColumnTest("tz", ">", (MOMENT - US // 24,))),
    ("id = year(now())", None, ColumnTest("id", "=", (2023,))),
    ("id = extract(month from current_date)", None, ColumnTest("id", "=", (11,))),
    ("s = strftime(now(), '%Y-%m')", None, ColumnTest("s", "=", ("2023-11",))),
    ("ts = strptime('14.11.2023', '%d.%m.%Y')", None, ColumnTest("ts", "=", (DAY * US,))),
    ("d between current_date - interval 1 month and current_date", None, None),
    ("length('abc') = 3", None, ALWAYS),
    ("length('abc') = 4", None, NEVER),
    ("id = 1 and now() < timestamp '2000-01-01'", None, NEVER),
    # functions around columns: only that the column is not null, where that follows
    ("lower(s) = 'abc'", None, ColumnTest("s", "is not null")),
    ("coalesce(id, 1) = 1", None, ALWAYS),
    ("concat(s, 'a') = 'a'", None, ALWAYS),
    ("list_position(tags, s) = 1", None, ALWAYS),
    ("greatest(id, 5) = 5", None, ALWAYS),
    ("list_contains(tags, 'a')", None, ColumnTest("tags", "contains", ("a",))),
    ("st.a = 1", None, ColumnTest("st", "is not null")),
    ("tags[1] is null", None, ALWAYS),
    ("tags[1] = 'a'", None, ColumnTest("tags", "is not null")),
    ("string_split(s, s) = ['']", None, ALWAYS),
    ("year(d) = 2020", None, ColumnTest("d", "is not null")),
    ("tags || ['a'] = ['a']", None, ALWAYS),
    ("d + interval 1 day > ts", None, None),
]


@pytest.mark.parametrize(("text", "params", "test"), TESTS)
def test_conditions_hold_the_values_of_constant_parts(text: str, params: Any, test: Any) -> None:
    with statement(MOMENT):
        predicate = compile(text, SCHEMA, params)
    if test is not None:
        assert predicate.test() == test
    rows = [
        {"id": 3, "s": "abc", "d": dt.date(2023, 11, 14), "ts": dt.datetime(2023, 11, 14), "x": 1.0, "tags": ["a"]},
        {"id": 9, "s": "A", "d": dt.date(1970, 1, 1), "ts": dt.datetime(2024, 1, 1), "x": 4.0, "st": {"a": 1}},
        {"id": 2023, "s": "2023-11", "d": dt.date(2023, 10, 30), "tz": dt.datetime(2023, 1, 1, tzinfo=dt.UTC)},
        {},
    ]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    matches = predicate.mask(batch).to_pylist()
    for match, satisfied, row in zip(matches, holds(predicate.test(), batch), batch.to_pylist(), strict=True):
        assert satisfied or not match
        assert (predicate.evaluate_row(row) is True) is match


def test_a_part_that_always_raises_is_left_for_the_rows_that_need_it() -> None:
    batch = pa.record_batch({"id": [1]})
    text = "case when id = 1 then 1 else sqrt(-1) end"
    assert compile(text, batch.schema).evaluate(batch).to_pylist() == [1.0]
    with pytest.raises(ExpressionError, match="sqrt\\(\\) of a negative number \\(in `"):
        compile(text, batch.schema).evaluate(pa.record_batch({"id": [2]}))


def test_a_parameter_makes_a_part_raise_when_it_is_bound() -> None:
    with pytest.raises(ExpressionError, match="sqrt\\(\\) of a negative number \\(in `id = sqrt\\(\\$x\\)`\\)"):
        compile("id = sqrt($x)", SCHEMA, {"x": -1})


def test_now_moves_between_compiles_and_stands_still_in_one() -> None:
    first = compile("now() = now() and current_date = now()::date", SCHEMA)
    assert first.mask(pa.record_batch({"id": [1]})).to_pylist() == [True]
    one, two = (compile("tz < now()", SCHEMA).test().values[0] for _ in range(2))
    assert one <= two
    moments = set()
    for _ in range(3):
        moments.add(compile("tz < now()", SCHEMA).test().values)
        time.sleep(0.002)
    assert len(moments) == 3


def test_one_statement_has_one_moment() -> None:
    with statement() as moment:
        time.sleep(0.002)
        first = compile("tz < now()", SCHEMA)
        with statement() as inner:
            time.sleep(0.002)
            second = compile("tz >= now()", SCHEMA)
    assert inner == moment
    assert first.test() == ColumnTest("tz", "<", (moment,))
    assert second.test() == ColumnTest("tz", ">=", (moment,))


def test_a_pickled_expression_keeps_its_moment() -> None:
    predicate = compile("tz < now() - $age", SCHEMA, {"age": dt.timedelta(days=1)}).renamed({"tz": "f6"})
    time.sleep(0.002)
    copy = pickle.loads(pickle.dumps(predicate))
    assert copy.test() == predicate.test()
    assert copy == predicate


def test_the_whole_expression_may_be_a_constant() -> None:
    expression = compile("length('abc') + 1", SCHEMA)
    assert isinstance(expression.root, tree.Constant)
    assert expression.columns == frozenset()
    assert expression.evaluate(pa.record_batch({"id": [1, 2]})).to_pylist() == [4, 4]
    assert expression.evaluate_row({}) == 4
