"""Columns of every Arrow type can be compared, tested for null and pruned."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import IndexLakeError
from indexlake.expr import compile
from tests.expr.pruning_reader import holds

D = decimal.Decimal
DAY = 86_400

# a type, three values in order (the middle one is asked for), and the middle one as SQL
CASES: list[tuple[pa.DataType, list[Any], str]] = [
    (pa.int8(), [-128, 0, 127], "0"),
    (pa.uint64(), [0, 2**63, 2**64 - 1], "9223372036854775808"),
    (pa.float16(), [np.float16(-1), np.float16(0.5), np.float16("inf")], "0.5"),
    (pa.float32(), [-1.0, 0.5, float("nan")], "0.5"),
    (pa.decimal32(5, 2), [D("-1.00"), D("1.50"), D("999.99")], "1.5"),
    (pa.decimal64(15, 3), [D("-1.000"), D("1.500"), D("999.990")], "1.5"),
    (pa.decimal128(38, 10), [D("-1"), D("1.5"), D("9999999999999999999999999999.5")], "1.5"),
    (pa.decimal256(60, 5), [D("-1"), D("1.5"), D("9" * 50)], "1.5"),
    (pa.decimal256(20, 5), [D("-1"), D("1.5"), D("99")], "1.5"),
    (pa.decimal128(5, -2), [D("-100"), D("200"), D("1000000")], "200"),
    (pa.string(), ["", "b", "é"], "'b'"),
    (pa.large_string(), ["", "b", "é"], "'b'"),
    (pa.string_view(), ["", "b", "é"], "'b'"),
    (pa.dictionary(pa.int32(), pa.large_string()), ["", "b", "é"], "'b'"),
    (pa.dictionary(pa.int8(), pa.int64()), [-1, 0, 1], "0"),
    (pa.binary(), [b"", b"b", b"\xff"], "'b'"),
    (pa.large_binary(), [b"", b"b", b"\xff"], "'b'"),
    (pa.binary_view(), [b"", b"b", b"\xff"], "'b'"),
    (pa.binary(2), [b"\0\0", b"bb", b"\xff\xff"], "'bb'"),
    (pa.date32(), [-1, 1, 40_000], "'1970-01-02'"),
    (pa.date64(), [-DAY * 1000, DAY * 1000, DAY * 9000], "'1970-01-02'"),
    (pa.timestamp("s"), [-1, 1, 10**10], "'1970-01-01 00:00:01'"),
    (pa.timestamp("ms"), [-1, 1000, 10**13], "'1970-01-01 00:00:01'"),
    (pa.timestamp("us"), [-1, 10**6, 10**16], "'1970-01-01 00:00:01'"),
    (pa.timestamp("ns"), [-1, 10**9, 2**62], "'1970-01-01 00:00:01'"),
    (pa.timestamp("s", "UTC"), [-1, 1, 10**10], "'1970-01-01 00:00:01'"),
    (pa.timestamp("ms", "Asia/Tokyo"), [-1, 1000, 10**13], "'1970-01-01 09:00:01+09'"),
    (pa.timestamp("us", "+01:00"), [-1, 10**6, 10**16], "'1970-01-01 00:00:01+00'"),
    (pa.timestamp("ns", "UTC"), [-1, 10**9, 2**62], "'1970-01-01 00:00:01'"),
    (pa.time32("s"), [0, 60, 61], "'00:01:00'"),
    (pa.time32("ms"), [0, 60_000, 60_001], "'00:01:00'"),
    (pa.time64("us"), [0, 60_000_000, 60_000_001], "'00:01:00'"),
    (pa.time64("ns"), [0, 60 * 10**9, 60 * 10**9 + 1000], "TIME '00:01:00'"),
]
SPANS = [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]


def column(type: pa.DataType, values: list[Any]) -> pa.RecordBatch:
    items = [*values, None]
    if pa.types.is_dictionary(type):
        array = pa.array(items, type.value_type).dictionary_encode().cast(type)
    elif pa.types.is_decimal(type) and type.scale < 0:
        array = pa.array(items, pa.decimal128(20, 0)).cast(type)
    else:
        array = pa.array(items, type)
    return pa.record_batch([array], names=["c"])


def check(batch: pa.RecordBatch, text: str, want: list[Any], params: Any = None) -> None:
    expression = compile(text, batch.schema, params)
    assert expression.evaluate(batch).to_pylist() == want, text
    for row, value in enumerate(want):
        assert expression.evaluate_row({"c": batch.column(0)[row].as_py()}) == value, text
    satisfied = holds(expression.test(), batch)
    for value, holds_ in zip(want, satisfied, strict=True):
        assert holds_ or value is not True
        if expression.condition().exact:
            assert holds_ == (value is True)


@pytest.mark.parametrize(("type", "values", "middle"), CASES, ids=[str(case[0]) for case in CASES])
def test_values_of_the_type_compare_in_order(type: pa.DataType, values: list[Any], middle: str) -> None:
    batch = column(type, values)
    check(batch, f"c = {middle}", [False, True, False, None])
    check(batch, f"c <> {middle}", [True, False, True, None])
    check(batch, f"c < {middle}", [True, False, False, None])
    check(batch, f"c >= {middle}", [False, True, True, None])
    check(batch, f"c in ({middle}, null)", [None, True, None, None])
    check(batch, f"c is distinct from {middle}", [True, False, True, True])
    check(batch, "c is null", [False, False, False, True])
    check(batch, "c = c", [True, True, True, None])


@pytest.mark.parametrize("type", SPANS, ids=str)
def test_durations_compare_with_timedeltas(type: pa.DataType) -> None:
    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type.unit]
    batch = column(type, [-second, second, 5 * second])
    for text, want in (("c = $p", [False, True, False, None]), ("c > $p", [False, False, True, None])):
        check(batch, text, want, {"p": dt.timedelta(seconds=1)})


NESTED = [
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.list_(pa.int8(), 1),
    pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()),
]


@pytest.mark.parametrize("type", NESTED, ids=str)
def test_nested_values_are_compared_as_wholes(type: pa.DataType) -> None:
    value: Any = {"a": 1} if pa.types.is_struct(type) else [("k", 1)] if pa.types.is_map(type) else ["a"]
    if pa.types.is_list(type) or pa.types.is_fixed_size_list(type):
        value = [1]
    batch = pa.record_batch([pa.array([value, None], type)], names=["c"])
    assert compile("c is null", batch.schema).evaluate(batch).to_pylist() == [False, True]
    assert compile("c is not null and true", batch.schema).mask(batch).to_pylist() == [True, False]
    assert compile("c = c", batch.schema).evaluate(batch).to_pylist() == [True, None]
    assert compile("c is distinct from null", batch.schema).evaluate(batch).to_pylist() == [True, False]
    assert compile("c", batch.schema).evaluate(batch).equals(batch.column("c"))
    assert compile("coalesce(c, c)", batch.schema).evaluate(batch).to_pylist() == [value, None]
    with pytest.raises(IndexLakeError, match="which is neither true nor false"):
        compile("c", batch.schema).mask(batch)
    for text in ("c = 1", "c in (1)", "c + 1 = 2", "c like 'a'", "not c", "-c", "lower(c) = 'a'", "c and true"):
        with pytest.raises(IndexLakeError):
            compile(text, batch.schema)


def test_a_type_that_sql_does_not_know_is_tested_for_null_only() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    batch = pa.record_batch([union], names=["c"])
    assert compile("c is null", batch.schema).evaluate(batch).to_pylist() == [False, False]
    with pytest.raises(IndexLakeError, match=r'cannot compare column "c" \(nested\)'):
        compile("c = c", batch.schema)


ODD_TEXTS = [
    *(
        "distinct id",
        "count(*)",
        "count(distinct id)",
        "sum(id) over ()",
        "*",
        "id.*",
        "exists (select 1)",
        "id = any([1])",
    ),
    *(
        "[1, 2]",
        "{'a': 1}",
        "id[1]",
        "lambda x: x",
        "x -> x",
        "id at time zone 'utc'",
        "interval '1' day",
        "current_date",
    ),
    *(
        "id = 0x10",
        "x'ab'",
        "e'a'",
        "b'1'",
        "id similar to 'a'",
        "id glob 'a'",
        "id ~ 'a'",
        "@id",
        "#1",
        ":x",
        "id::json",
    ),
    *(
        "cast(id as decimal(a))",
        "cast(id as int[])",
        "id is json",
        "id between 1",
        "id in",
        "id in ()",
        "case end",
        "))",
        "'",
    ),
    *(
        "id = 1 limit 1",
        "id = 1 order by id",
        "1; drop table t",
        "/*",
        "id collate nocase = 'a'",
        "(1, 2) = (1, 2)",
        "id !~~ 'a'",
    ),
    *(
        "id is not distinct from",
        "not",
        "- ",
        "id = all (select 1)",
        "$",
        "?",
        "$1x",
        "id = $é",
        "\0",
        "id = '\0",
        "unnest([1])",
    ),
    *(
        "struct_pack(a := 1)",
        "id:a",
        "id -> 'a'",
        "id ->> 'a'",
        "id[1:2]",
        "extract(year from id)",
        "position('a' in 'b')",
    ),
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_are_refused_with_our_own_error(text: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.string())])
    batch = pa.record_batch({"id": [1], "x": ["a"]})
    try:
        compile(text, schema).evaluate(batch)
    except IndexLakeError as error:
        assert str(error)  # noqa: PT017
