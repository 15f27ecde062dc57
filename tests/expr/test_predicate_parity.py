"""Random data and random predicates: every path gives the rows that DuckDB gives.

A predicate that DuckDB refuses may be refused here or give any rows, but never crash.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexlake.blocks.formats import parquet
from indexlake.errors import IndexLakeError
from indexlake.expr import Bound, compile
from indexlake.storage import Storage
from indexlake.types.vortex import to_vortex
from tests.blocks.formats.block_files import block
from tests.expr import duckdb_judge as judge
from tests.expr import predicate_data as data
from tests.expr import pruning_reader as prune

LONG = os.environ.get("INDEXLAKE_HYPOTHESIS") == "long"
SOME = settings(
    max_examples=20_000 if LONG else 300,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
FEW = settings(SOME, max_examples=10_000 if LONG else 150)

# DuckDB negates unsigned integers without a check; here that is the overflow which it is elsewhere.
OURS_ONLY = ("the result of `-` is out of range for U",)


def used(predicate: data.Predicate) -> dict[str, Any]:
    found = {name: value for name, value in predicate.params.items() if re.search(rf"\${name}\b", predicate.text)}
    if "like" in predicate.text:  # DuckDB takes NUL for an escape in `ilike` and with `escape ''`
        return {name: value.replace("\0", "0") if isinstance(value, str) else value for name, value in found.items()}
    return found


def lazy(predicate: data.Predicate) -> bool:
    """Whether an engine may leave parts of the predicate unevaluated, and with them their errors."""
    return re.search(r"\b(and|or|case|coalesce|if|ifnull|nullif|split_part)\b", predicate.text) is not None


def rows_for(predicate: data.Predicate, seed: int, rows: int) -> pa.RecordBatch:
    return data.table(seed, rows, nul="like" not in predicate.text)


def judged(predicate: data.Predicate, batch: pa.RecordBatch, params: dict[str, Any]) -> list[bool | None] | None:
    try:
        return judge.truths(predicate.text, batch, params)
    except judge.Refused:
        return None


def bound(predicate: data.Predicate, schema: pa.Schema, params: dict[str, Any], legal: bool) -> Bound | None:
    try:
        return compile(predicate.text, schema, params or None)
    except IndexLakeError as error:
        impossible = re.search(r"cannot be read as|does not fit in|out of range for", str(error))
        if legal and not (impossible and lazy(predicate)):
            raise
        return None


@given(data.predicates(depth=2), st.integers(0, 200))
@SOME
def test_arrow_evaluator_gives_the_values_that_duckdb_gives(predicate: data.Predicate, seed: int) -> None:
    params = used(predicate)
    batch = rows_for(predicate, seed, 16)
    want = judged(predicate, batch, params)
    expression = bound(predicate, batch.schema, params, legal=want is not None)
    if expression is None:
        return
    try:
        got = expression.evaluate(batch).to_pylist()
    except IndexLakeError as error:
        if want is not None and not (str(error).startswith(OURS_ONLY) or lazy(predicate)):
            raise
        return
    if want is not None:
        assert [None if value is None else bool(value) for value in got] == want
        assert expression.mask(batch).to_pylist() == [value is True for value in want]


@given(data.predicates(depth=2), st.integers(0, 200))
@SOME
def test_scalar_path_gives_the_values_that_the_evaluator_gives(predicate: data.Predicate, seed: int) -> None:
    params = used(predicate)
    batch = data.table(seed, 6)
    expression = bound(predicate, batch.schema, params, legal=False)
    if expression is None:
        return
    names = sorted(expression.columns)
    rows = batch.select(names).to_pylist() if names else [{}] * batch.num_rows
    for index, row in enumerate(rows):
        try:
            want = repr(expression.evaluate(batch.slice(index, 1))[0].as_py())
        except IndexLakeError:
            want = "raises"
        try:
            got = repr(expression.evaluate_row(row))
        except IndexLakeError:
            got = "raises"
        if "raises" in (want, got):  # which operand is computed first is unspecified
            continue
        assert got == want, (row, got, want)


@given(data.predicates(depth=2, casts=False), st.integers(0, 200))
@SOME
def test_rows_that_match_satisfy_the_necessary_conditions(predicate: data.Predicate, seed: int) -> None:
    params = used(predicate)
    batch = data.table(seed, 16)
    expression = bound(predicate, batch.schema, params, legal=False)
    if expression is None:
        return
    try:
        matches = expression.mask(batch).to_pylist()
    except IndexLakeError:
        return
    condition = expression.condition()
    assert condition.test == expression.test()
    satisfied = prune.holds(condition.test, batch)
    for match, holds in zip(matches, satisfied, strict=True):
        assert holds or not match
        if condition.exact:
            assert holds == match


# -- files -------------------------------------------------------------------------------------------------

FILE_COLUMNS = ["i8", "i32", "i64", "u8", "u64", "f32", "f64", "s", "b", "m9", "d", "ts", "tz", "bin", "sd"]


def numbered(seed: int, rows: int, ordered: bool) -> pa.Table:
    """Pool values in file order, or sorted by one column so that zones and row groups can be skipped."""
    batch = data.table(seed, rows, FILE_COLUMNS)
    table = pa.Table.from_batches([batch])
    if ordered:
        table = table.sort_by("f64" if seed % 2 else "i64")
    return table.append_column("row", pa.array(range(rows)))


TABLES = [(1, 60, False), (2, 300, True), (3, 20_000, True), (4, 20_000, False)]


@pytest.fixture(scope="module")
def vortex_files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[pa.Table, Any]]:
    import vortex

    folder: Path = tmp_path_factory.mktemp("vortex")
    files = []
    for number, shape in enumerate(TABLES):
        table = numbered(*shape)
        stored = pa.table([to_vortex(column.combine_chunks()) for column in table.columns], names=table.column_names)
        path = folder / f"{number}.vortex"
        vortex.io.write(stored, str(path))
        files.append((table, vortex.open(str(path))))
    return files


@pytest.fixture(scope="module")
def parquet_files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[pa.Table, Any]]:
    storage = Storage.open(str(tmp_path_factory.mktemp("parquet")))
    files = []
    for number, shape in enumerate(TABLES):
        table = numbered(*shape)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parquet, "BATCH_ROWS", max(shape[1] // 20, 4))
            files.append((table, block(storage, "parquet", table, f"{number}")))
    return files


def expected(expression: Bound, table: pa.Table) -> list[int] | None:
    try:
        return table.column("row").filter(expression.mask(table)).to_pylist()
    except IndexLakeError:
        return None


def check(found: list[int], want: list[int], exact: bool) -> None:
    if exact:
        assert found == want
    else:
        assert set(want) <= set(found)


@given(data.predicates(columns=FILE_COLUMNS, depth=1, casts=False), st.integers(0, 3))
@FEW
def test_vortex_pushdown_keeps_every_matching_row(
    vortex_files: list[tuple[pa.Table, Any]], predicate: data.Predicate, number: int
) -> None:
    table, file = vortex_files[number]
    expression = bound(predicate, table.schema, used(predicate), legal=False)
    pushed = expression.vortex() if expression is not None else None
    if expression is None or pushed is None:
        return
    want = expected(expression, table)
    if want is not None:
        found = file.scan(["row"], expr=pushed[0]).read_all().to_arrow_table().column("row").to_pylist()
        check(found, want, pushed[1])


@given(data.predicates(columns=FILE_COLUMNS, depth=1, casts=False), st.integers(0, 3))
@FEW
def test_row_groups_with_a_matching_row_survive(
    parquet_files: list[tuple[pa.Table, Any]], predicate: data.Predicate, number: int
) -> None:
    table, reader = parquet_files[number]
    expression = bound(predicate, table.schema, used(predicate), legal=False)
    want = expected(expression, table) if expression is not None else None
    survivors = reader.surviving(expression) if want is not None else None
    if survivors is not None:
        groups = np.searchsorted(reader.chunk_starts(), want, side="right") - 1
        assert survivors[groups].all()
