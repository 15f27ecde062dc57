"""What a user reads when an expression is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from indexlake.errors import ExpressionError, IndexLakeError
from indexlake.expr import compile

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("Total", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
    ]
)

CASES: list[tuple[str, Any, str]] = [
    ("", None, 'the expression is empty; write a condition such as "id = 1"'),
    (
        "totl = 1",
        None,
        'there is no column "totl"; did you mean "Total"? The columns are: id, Total, name, day, tags, raw',
    ),
    ("zzz = 1", None, 'there is no column "zzz" The columns are: id, Total, name, day, tags, raw (in `zzz = 1`)'),
    ("id = = 1", None, "cannot parse `id = = 1`: "),
    ("id = 1; id = 2", None, "`id = 1; id = 2` holds several expressions; give one"),
    ("select 1", None, "cannot parse `select 1`: "),
    ("id = (select 1)", None, "an expression does not support subqueries (in `id = (select 1)`)"),
    ("id in (select 1)", None, "a subquery is not allowed here; read its rows first and bind them as a list parameter"),
    ("id = 'abc'", None, "'abc' cannot be read as BIGINT, the type of column \"id\" (BIGINT) (in `id = 'abc'`)"),
    ("day = 'soon'", None, "'soon' cannot be read as DATE, the type of column \"day\" (DATE)"),
    ("day = '2020-02-30'", None, "'2020-02-30' is not a valid DATE; write YYYY-MM-DD [hh:mm:ss]"),
    ("id in (1, 'x')", None, "'x' cannot be read as BIGINT, the type of column \"id\" (BIGINT)"),
    ("id = $x", {"x": "abc"}, "'abc' cannot be read as BIGINT, the type of column \"id\" (BIGINT)"),
    ("name < 5", None, 'cannot compare column "name" (VARCHAR) with 5 (INTEGER); add a cast (in `name < 5`)'),
    ("day = 5", None, 'cannot compare column "day" (DATE) with 5 (INTEGER); add a cast'),
    ("tags = 'a'", None, "cannot compare column \"tags\" (nested) with 'a' (VARCHAR); add a cast"),
    ("name + 1 > 0", None, '`+` is not defined for column "name" (VARCHAR) and 1 (INTEGER); add a cast'),
    ("-name = 1", None, "`-` is not defined for VARCHAR; add a cast"),
    ("id like '1%'", None, "`like` needs text, not BIGINT; add a cast: `cast(… as varchar)`"),
    ("name like 'a' escape 'xy'", None, "the escape of `like` is one character or empty, not 'xy'"),
    ("frobnicate(id)", None, "there is no function frobnicate() (in `frobnicate(id)`)"),
    ("lowr(name) = 'a'", None, "there is no function lowr(); did you mean lower()?"),
    ("ltrim(name) = 'a'", None, "an expression does not support `LTRIM(name)`"),
    ("lower(id) = 'a'", None, "lower(BIGINT) is not defined; lower takes text"),
    ("day + '1 day' > day", None, "`+` is not defined for column \"day\" (DATE) and '1 day' (VARCHAR); add a cast"),
    ("day > INTERVAL 1 DAY", None, "an expression does not support INTERVAL literals; bind a timedelta as a parameter"),
    ("cast(id as json)", None, "a cast to JSON is not supported"),
    ("cast(id as date)", None, 'there is no cast from column "id" (BIGINT) to DATE'),
    (
        "cast(id as decimal(40,2))",
        None,
        "DECIMAL(40,2) is not a type; the width is 1 to 38, the scale at most the width",
    ),
    ("day and true", None, 'column "day" (DATE) is neither true nor false; compare it with something'),
    ("case when true then id else name end", None, "the branches of `case` are VARCHAR and BIGINT; add a cast"),
    ("id = $x", None, 'parameter $x has no value; give params={"x": …}'),
    ("id = $x", {"y": 1}, "parameter $x has no value; give params={…} with it"),
    ("id = $x", {"x": 1, "y": 1}, "parameter $y is given but not used"),
    ("id = $2", [1], "parameter $2 has no value: 1 given"),
    ("id = ?", [1, 2], "2 parameters are given, but the text uses 1"),
    ("id = ?", "1", "params is a mapping of names or a sequence of values, not text"),
    ("id = $x", {"x": object}, "a parameter of type type (<class 'object'>) is not supported"),
    ("id = $x", {"x": [1]}, "parameter $x is a list; a list is only allowed after `in`"),
    ("id in $x", {"x": 1}, "after `in` stands a list: `in (1, 2)` or a list parameter `in $ids`"),
    ("id in name", None, "after `in` stands a list: `in (1, 2)` or a list parameter `in $ids`"),
]


@pytest.mark.parametrize(("text", "params", "message"), CASES)
def test_error_says_what_is_wrong(text: str, params: Any, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile(text, SCHEMA, params).mask(SCHEMA.empty_table())
    assert str(caught.value).startswith(message)


def test_error_carries_the_text() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile("totl = 1", SCHEMA)
    assert caught.value.text == "totl = 1"


@pytest.mark.parametrize(
    "text", ["id = 1 " + "or id = 1 " * 5000, "(" * 3000 + "id = 1" + ")" * 3000, "not " * 5000 + "true"]
)
def test_long_texts_work_or_are_refused(text: str) -> None:
    try:
        expression = compile(text, SCHEMA)
        expression.mask(SCHEMA.empty_table())
        expression.test()
    except ExpressionError as error:
        assert "deep" in str(error)  # noqa: PT017


@pytest.mark.parametrize("value", ["x", 1.5, b"x", None, [1], {"a": 1}])
def test_a_text_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(IndexLakeError):
        compile(value, SCHEMA)


def test_without_duckdb_an_unusual_cast_names_the_extra() -> None:
    program = """
import sys
sys.modules["duckdb"] = None
import pyarrow as pa
from indexlake.errors import ExpressionError, MissingExtraError
from indexlake.expr import compile
batch = pa.record_batch({"x": pa.array(["1"]), "d": pa.array([0], pa.date32())})
usual = compile("x = '1' and d = '1970-01-01' and x like '1%' and d < '2020-01-01'", batch.schema)
assert usual.mask(batch).to_pylist() == [True]
try:
    compile("cast(x as integer) = 1", batch.schema).mask(batch)
except MissingExtraError as error:
    assert "indexlake[sql]" in str(error), error
else:
    raise SystemExit("no error")
try:
    compile("d = '1/2/1970'", batch.schema)
except ExpressionError as error:
    assert "indexlake[sql]" in str(error), error
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
