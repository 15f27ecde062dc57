"""Every function gives what DuckDB gives, in the Arrow evaluator, in the scalar path and as a folded constant."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from indexlake.errors import IndexLakeError
from indexlake.expr import compile, fallback, intervals, tree
from indexlake.expr.functions import GROUPS
from indexlake.expr.sqltype import from_arrow
from tests.expr import duckdb_judge as judge
from tests.expr.function_cases import BATCH, CALLS, FORMS

GROUPED = {**CALLS, "forms": FORMS}
JUDGED = [function for title, group in GROUPS.items() if title != "Geometries" for function in group]
"""DuckDB does without functions of geometries; `test_space` has their cases."""
TEXTS = [text for texts in GROUPED.values() for text in texts]


def shown(values: pa.Array) -> list[str]:
    """The values in a form that tells -0.0 from 0.0 and knows years beyond 9999."""
    if pa.types.is_duration(values.type):
        values = intervals.from_duration(values)
    if pa.types.is_temporal(values.type) and not pa.types.is_interval(values.type):
        values = values.cast(pa.int32() if values.type == pa.date32() else pa.int64())
    return [repr(value) for value in values.to_pylist()]


def test_every_function_has_cases() -> None:
    assert {function.name for function in JUDGED} == set(CALLS)


def test_every_synonym_is_known() -> None:
    text = " ".join(TEXTS)
    judged = [name for function in JUDGED for name in (function.name, *function.synonyms)]
    missing = [name for name in judged if name.isidentifier() and not re.search(rf"\b{name}\b", text)]
    # Spellings that DuckDB does not have, and those that differ in name only.
    assert set(missing) <= {
        "has",
        "iff",
        "array_concat",
        "array_cat",
        "array_position",
        "array_indexof",
        "localtimestamp",
    }


@pytest.mark.parametrize("name", GROUPED)
def test_the_evaluator_gives_what_duckdb_gives(name: str) -> None:
    for text, want, type in zip(GROUPED[name], *judge.columns(GROUPED[name], BATCH), strict=True):
        expression = compile(text, BATCH.schema)
        assert shown(expression.evaluate(BATCH)) == shown(want), text
        assert str(expression.root.type).replace('"', "") == type.replace('"', ""), text


@pytest.mark.parametrize("name", GROUPED)
def test_the_scalar_path_gives_what_the_evaluator_gives(name: str) -> None:
    for text in GROUPED[name]:
        check_rows(text)


def check_rows(text: str) -> None:
    expression = compile(text, BATCH.schema)
    want = expression.evaluate(BATCH)
    names = sorted(expression.columns)
    rows = BATCH.select(names).to_pylist() if names else [{}]
    for row, values in list(enumerate(rows))[::5]:
        try:
            got = expression.evaluate_row(values)
        except IndexLakeError as error:
            assert "Python cannot hold" in str(error)  # noqa: PT017
            continue
        assert shown(pa.array([got], want.type)) == shown(want.slice(row, 1)), values
        assert pa.types.is_nested(want.type) or type(got) is type(want[row].as_py())


def as_constants(text: str, row: int, names: list[str]) -> tuple[str, dict[str, Any]]:
    """The text with the values of one row as parameters in place of columns."""
    typed = {name: fallback.sql_name(from_arrow(BATCH.schema.field(name).type)) for name in names}
    for name, type in typed.items():
        text = re.sub(rf"(?<![\w.'])\b{name}\b(?!['\w(])", f"cast($p_{name} as {type})", text)
    return text, {f"p_{name}": BATCH.column(name)[row].as_py() for name in names if f"$p_{name} " in text}


@pytest.mark.parametrize("name", GROUPED)
def test_constants_fold_to_what_is_evaluated(name: str) -> None:
    for text in GROUPED[name]:
        check_folding(text)


def check_folding(text: str) -> None:
    expression = compile(text, BATCH.schema)
    want = expression.evaluate(BATCH)
    names = sorted(expression.columns)
    for row in (2, 9) if names else (0,):
        constant, params = as_constants(text, row, names)
        if {"fixed", "mp", "mi", "tsn", "span"} & set(names):  # Python's values do not tell these types
            continue
        folded = compile(constant, BATCH.schema, params)
        assert isinstance(folded.root, tree.Constant)
        assert shown(folded.evaluate(BATCH.slice(0, 1))) == shown(want.slice(row, 1)), constant


@pytest.mark.parametrize("name", GROUPED)
def test_no_rows_give_no_values(name: str) -> None:
    for text in GROUPED[name]:
        expression = compile(text, BATCH.schema)
        nothing = expression.evaluate(BATCH.slice(0, 0))
        assert len(nothing) == 0, text
        assert nothing.type == expression.type, text


# Branches that all rows take are constants inside: every operator must give as many rows as there are.
TAKEN = {
    "'a'": "'b'", "1": "n", "1.5": "x", "date '2020-01-01'": "d", "timestamp '2020-01-01 00:00:00'": "ts", "[1]": "li",
    "interval '1 day'": "to_days(n)", "{'a': 1}": "{'a': n}", "null": "null",
    "timestamptz '2020-01-01 00:00:00+00'": "tz",
}  # fmt: skip


@pytest.mark.parametrize("constant", TAKEN)
def test_a_branch_that_every_row_takes_is_a_value_for_every_row(constant: str) -> None:
    value = f"(case when length(s2) >= 0 or s2 is null then {constant} when sqrt(u) > 1 then {TAKEN[constant]} end)"
    made = [f"{value} = {constant}", f"{value} is distinct from {value}", f"{value} is null", f"[{value}]"]
    made += [f"coalesce({value}, {TAKEN[constant]})", f"{{'q': {value}}}.q", f"{value} in ({constant})"]
    made += [f"greatest({value}, {TAKEN[constant]})", f"cast({value} as varchar)", f"{value} || 'x'"]
    if constant in ("1", "1.5", "interval '1 day'"):
        made += [f"-{value}", f"{value} + {value}", f"2 * {value}"]
    if constant.startswith(("date", "time")):
        made += [f"year({value})", f"{value} + interval 1 day", f"date_trunc('month', {value})", f"{value} - {value}"]
    for text in made:
        try:
            want = judge.column(text, BATCH, {})
        except judge.Refused:
            continue
        assert shown(compile(text, BATCH.schema).evaluate(BATCH)) == shown(want), text


RAISING = [
    *(
        "sqrt(-1)",
        "sqrt(i8)",
        "ln(0)",
        "ln(-1)",
        "ln(x)",
        "log(0)",
        "log2(-1)",
        "log10(0)",
        "log(1, 5)",
        "log(0, 1)",
        "abs(-128::tinyint)",
    ),
    *(
        "i8 + 127::tinyint",
        "i << 40",
        "i << -1",
        "-1 << 1",
        "1 << 31",
        "chr(-1)",
        "lpad(s, 9, '')",
        "rpad('a', 3, '')",
        "make_date(2020, 2, 30)",
    ),
    *(
        "strptime('x', '%Y')",
        "strptime(s, '%Y-%m-%d')",
        "regexp_matches(s, '(')",
        "regexp_matches('a', '(')",
        "date_trunc('nonsense', d)",
    ),
    *(
        "cast('x' as interval)",
        "cast(s as integer)",
        "exp(x)::integer",
        "timestamp '294246-12-31' + interval '1 year'",
        "power(10, 400)::bigint",
    ),
    *(
        "interval (b) month * 1000000000",
        "repeat(s, 1000000000000)",
        "asin(2)",
        "round(1e300)::integer",
        "factorial_missing(1)",
        "strptime('2020', '%')",
    ),
]


@pytest.mark.parametrize("text", RAISING)
def test_what_duckdb_refuses_is_an_error(text: str) -> None:
    with pytest.raises(judge.Refused):
        judge.column(text, BATCH, {})
    with pytest.raises(IndexLakeError) as caught:
        compile(text, BATCH.schema).evaluate(BATCH)
    assert str(caught.value)
    with pytest.raises(IndexLakeError):
        each_row(text)


def each_row(text: str) -> list[Any]:
    """The values of the scalar path."""
    expression = compile(text, BATCH.schema)
    names = sorted(expression.columns)
    return [expression.evaluate_row(row) for row in (BATCH.select(names).to_pylist() if names else [{}])]


@pytest.mark.parametrize(
    "function",
    [each for each in JUDGED if each.strict and each.expand is None],
    ids=lambda each: each.name,
)
def test_functions_said_to_be_strict_give_null_for_null(function: Any) -> None:
    for text in CALLS[function.name]:
        expression = compile(text, BATCH.schema)
        names = [column for column in expression.columns if column in ("s", "s2", "n", "x", "d", "ts", "li", "mp", "i")]
        for name in names:
            batch = BATCH.set_column(
                BATCH.schema.get_field_index(name), name, pa.nulls(BATCH.num_rows, BATCH.column(name).type)
            )
            root = expression.root
            if isinstance(root, tree.Call) and root.name == function.name:
                assert judge.column(text, batch, {}).null_count == BATCH.num_rows, text
