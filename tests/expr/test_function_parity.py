"""Random calls on random rows: types, values and errors are DuckDB's, in the evaluator and in the scalar path.

``INDEXLAKE_HYPOTHESIS=long`` tries many more.
"""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from indexlake.errors import IndexLakeError
from indexlake.expr import compile
from tests.expr import duckdb_judge as judge
from tests.expr import predicate_data as data
from tests.expr.test_functions import shown
from tests.expr.test_predicate_parity import OURS_ONLY, SOME, lazy, used

# What DuckDB says when it does not know a call, rather than a value.
UNKNOWN = ("Binder", "Catalog", "Parser", "Not implemented", "Conversion Error: Unimplemented type for cast")


def judged(text: str, batch: pa.RecordBatch, params: dict[str, object]) -> pa.Array | str:
    try:
        return judge.column(text, batch, params)
    except judge.Refused as error:
        return str(error)


@given(data.values(depth=2), st.integers(0, 200))
@SOME
def test_calls_give_the_values_and_errors_of_duckdb(value: data.Predicate, seed: int) -> None:
    params = used(value)
    batch = data.table(seed, 12, nul=False)
    want = judged(value.text, batch, params)
    try:
        expression = compile(value.text, batch.schema, params or None)
        got = expression.evaluate(batch)
    except IndexLakeError as error:
        allowed = isinstance(want, str) or lazy(value) or str(error).startswith(OURS_ONLY)
        if not allowed:
            raise
        return
    if isinstance(want, str):
        # It may refuse a combination of types that is accepted here, but not a value.
        assert want.startswith(UNKNOWN) or lazy(value), want
        return
    assert shown(got) == shown(want)
    for row, values in enumerate(batch.select(sorted(expression.columns)).to_pylist() if expression.columns else [{}]):
        try:
            one = expression.evaluate_row(values)
        except IndexLakeError as error:
            assert re.search("Python cannot hold", str(error))  # noqa: PT017
            continue
        assert shown(pa.array([one], got.type)) == shown(got.slice(row, 1)), values
