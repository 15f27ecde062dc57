"""Which column or field a name means."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from indexlake.errors import ExpressionError
from indexlake.expr import ColumnTest, compile
from indexlake.expr.sqltype import from_arrow

INNER = pa.struct([("z", pa.float64()), ("my f", pa.string()), ("a.b", pa.int32())])
SCHEMA = pa.schema(
    [
        ("st", pa.struct([("a", pa.int64()), ("In", INNER), ("list", pa.list_(pa.int64()))])),
        *(
            ("st.a", pa.string()),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("list", pa.list_(pa.int64())),
            ("my col", pa.int64()),
        ),
        *(
            ("date", pa.date32()),
            ("Sub", pa.struct([("Field", pa.int64())])),
            ("left", pa.int64()),
            ("text", pa.string()),
        ),
    ]
)
ROW = {
    "st": {"a": 1, "In": {"z": 1.5, "my f": "x", "a.b": 7}, "list": [4, 5]},
    "st.a": "column",
    "map": [("k", 3)],
    "list": [1, 2],
    "my col": 5,
    "date": None,
    "Sub": {"Field": 9},
    "left": 6,
    "text": "t",
}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("st.a", "column"),  # a column of that name goes first
        ('"st.a"', "column"),
        ("st['a']", 1),
        ("(st).a", 1),
        ("st.in.z", 1.5),
        ("ST.IN.Z", 1.5),
        ("st.in['z']", 1.5),
        ('st."In"."my f"', "x"),
        ('st.in."a.b"', 7),
        ("st.list[2]", 5),
        ("st['list'][1:1]", [4]),
        ("list[1]", 1),
        ("list[-1]", 2),
        ("\"map\"['k']", 3),
        ('"my col" + "MY COL"', 10),
        ("sub.field", 9),
        ("left", 6),
        ("left(text, 1)", "t"),
        ("text[1]", "t"),
        ("date is null", True),
        ("date > date '2020-01-01'", None),
        ("{'my f': text}.\"my f\"", "t"),
    ],
)
def test_a_name_means(text: str, want: object) -> None:
    expression = compile(text, SCHEMA)
    batch = pa.RecordBatch.from_pylist([ROW], SCHEMA)
    assert expression.evaluate(batch).to_pylist() == [want]
    assert expression.evaluate_row(ROW) == want


JOINED = pa.schema(
    [
        *(("t.id", pa.int64()), ("t.v", pa.int64()), ("t.lone", pa.string()), ("t.st", pa.struct([("f", pa.int64())]))),
        *(
            ("s.id", pa.int64()),
            ("s.v", pa.int64()),
            ("s.My Col", pa.int64()),
            ("s.t", pa.int64()),
            ("t.a.b", pa.int64()),
        ),
    ]
)
PAIR: dict[str, object] = {
    "t.id": 1,
    "t.v": 10,
    "t.lone": "o",
    "t.st": {"f": 4},
    "s.id": 1,
    "s.v": 20,
    "s.My Col": 3,
    "s.t": 8,
    "t.a.b": 2,
}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("t.v + s.v", 30),
        ("T.V - S.v", -10),
        ("lone", "o"),
        ('"my col"', 3),
        ('s."My Col"', 3),
        ("t.st.f", 4),
        ("st.f", 4),
        ("t.st['f']", 4),
        ("s.t", 8),
        ('t."a.b"', 2),
        ("t.a.b", 2),
        ("t.id = s.id and t.v < s.v", True),
    ],
)
def test_a_qualified_name_means(text: str, want: object) -> None:
    expression = compile(text, JOINED, qualifiers=("t", "s"))
    batch = pa.RecordBatch.from_pylist([PAIR], JOINED)
    assert expression.evaluate(batch).to_pylist() == [want]
    assert expression.evaluate_row(PAIR) == want
    copy = pickle.loads(pickle.dumps(expression))
    assert copy.columns == expression.columns
    assert copy.evaluate_row(PAIR) == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v = 1", 'column "v" is ambiguous; write t.v or s.v (in `v = 1`)'),
        ("ID = 1", 'column "ID" is ambiguous; write t.id or s.id'),
        ("t.vv = 1", 'there is no column "t.vv"; did you mean "t.v"? The columns are: t.id, t.v'),
        ("s.lone = 'a'", 'there is no column "s.lone"'),
        ("u.v = 1", 'there is no column "u.v"'),
        ("t.st.g = 1", 'column "t.st" (STRUCT(f BIGINT)) has no field "g"'),
    ],
)
def test_a_name_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile(text, JOINED, qualifiers=("t", "s"))
    assert str(caught.value).startswith(message)


def test_a_column_named_like_a_word_of_sql_is_quoted() -> None:
    schema = pa.schema([("only", pa.int64())])
    with pytest.raises(ExpressionError, match='if that is a column, write "only" in double quotes'):
        compile("only = 1", schema)
    assert compile('"only" = 1', schema).columns == {"only"}


def test_qualified_columns_are_renamed_and_pruned_like_others() -> None:
    predicate = compile("t.v > 5 and lone = 'x'", JOINED, qualifiers=("t", "s"))
    assert predicate.columns == {"t.v", "t.lone"}
    renamed = predicate.renamed({"t.v": "f1", "t.lone": "f2"})
    assert renamed.columns == {"f1", "f2"}
    assert ColumnTest("f1", ">", (5,)) in renamed.test().children


def test_the_same_text_with_and_without_qualifiers_is_not_confused() -> None:
    schema = pa.schema([("t.v", pa.int64())])
    assert compile("v", schema, qualifiers=("t",)).columns == {"t.v"}
    with pytest.raises(ExpressionError, match='no column "v"'):
        compile("v", schema)


@pytest.mark.parametrize(
    ("text", "type", "want"),
    [
        ("2.345", pa.decimal128(5, 2), "2.35"),
        ("'12'", pa.int8(), "12"),
        ("x / 2", pa.int64(), "2"),
        ("x", pa.float32(), "5.0"),
        ("x", pa.string(), "5"),
        ("interval '1 day 1 hour'", pa.duration("s"), "1 day, 1:00:00"),
        ("timestamp '2020-01-01 10:00:00'", pa.date32(), "2020-01-01"),
        ("date '2020-01-01'", pa.timestamp("ms"), "2020-01-01 00:00:00"),
        ("[1, 2]", pa.list_(pa.string()), "['1', '2']"),
        ("null", pa.list_(pa.string()), "None"),
        ("{'b': 'q', 'a': '7'}", pa.struct([("a", pa.int8()), ("b", pa.string())]), "{'a': 7, 'b': 'q'}"),
    ],
)
def test_a_value_is_converted_to_what_the_column_holds(text: str, type: pa.DataType, want: str) -> None:
    batch = pa.record_batch({"x": [5]})
    expression = compile(text, batch.schema, target=from_arrow(type))
    assert str(expression.evaluate(batch)[0].as_py()) == want
    assert str(expression.evaluate_row({"x": 5})) == want


@pytest.mark.parametrize(
    ("text", "type", "message"),
    [
        ("1000", pa.int8(), "1000 is out of range for TINYINT"),
        ("x * 100", pa.int8(), "out of range for TINYINT"),
        ("'x'", pa.int8(), "'x' cannot be read as TINYINT"),
        ("12345.678", pa.decimal128(5, 2), "cannot be read as DECIMAL"),
        ("interval '1 month'", pa.duration("us"), "an interval with months has no fixed length"),
        ("now()", pa.int64(), "which a column of type BIGINT cannot take; add a cast"),
        ("[1]", pa.int64(), "which a column of type BIGINT cannot take; add a cast"),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_refused(text: str, type: pa.DataType, message: str) -> None:
    batch = pa.record_batch({"x": [5]})
    with pytest.raises(ExpressionError) as caught:
        compile(text, batch.schema, target=from_arrow(type)).evaluate(batch)
    assert message in str(caught.value)
