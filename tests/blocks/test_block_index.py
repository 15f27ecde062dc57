"""The block index: never drops a block that may match, and drops what it can."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.blocks import prune
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.block_index import BlockIndex
from indexlake.blocks.statistics import StatisticsBuilder, stats_to_bytes
from indexlake.expr.test import ALWAYS, NEVER, All, Any_, ColumnTest, Test
from indexlake.types import Codec, codec_for

TYPES: dict[str, pa.DataType] = {
    "f1": pa.int64(),
    "f2": pa.float64(),
    "f3": pa.binary(),
    "f4": pa.list_(pa.int8()),
    "f5": pa.string(),
}
CODECS = {name: codec_for(type_) for name, type_ in TYPES.items()}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "f1": st.one_of(st.integers(-4, 4), st.sampled_from([-(2**63), 2**63 - 1])),
    "f2": st.sampled_from([math.nan, -math.nan, -0.0, 0.0, 1.5, -math.inf, math.inf]),
    "f3": st.one_of(
        st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"\xff" * 40, b"\xff" * 32, b"a" * 40, b"a" * 32 + b"\xff"]),
        st.binary(max_size=2),
    ),
    "f4": st.lists(st.integers(0, 3), max_size=2),
    "f5": st.sampled_from(["", "b", "é" * 20, "\U0010ffff" * 10]),
}
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
Row = dict[str, Any]


def record(number: int, rows: Sequence[Row] = (), columns: Sequence[str] = (), **changes: Any) -> BlockRecord:
    stats = b""
    if columns:
        schema = pa.schema([(name, TYPES[name]) for name in columns])
        builder = StatisticsBuilder(schema)
        builder.add(pa.table({n: pa.array([row[n] for row in rows], TYPES[n]) for n in columns}, schema=schema))
        stats = stats_to_bytes(builder.finish())
    fields: dict[str, Any] = {
        "data_file_id": number,
        "table_id": 1,
        "path": f"{number}.vortex",
        "format": "vortex",
        "role": "data",
        "row_order": "row_id",
        "size": 1,
        "record_count": len(rows),
        "row_ids": b"",
        "min_row_id": 10 * number,
        "max_row_id": 10 * number + 9,
        "min_snapshot": 1,
        "max_snapshot": 1,
        "column_stats": stats,
        "first_key": None,
        "last_key": None,
        "checksum": b"",
        "partition_id": None,
        "schema_snapshot": 1,
        "begin_snapshot": 1,
        "end_snapshot": None,
        "changed_in": 1,
        **changes,
    }
    return BlockRecord(**fields)


def satisfies(row: Row, test: Test) -> bool:
    match test:
        case All(children):
            return all(satisfies(row, child) for child in children)
        case Any_(children):
            return any(satisfies(row, child) for child in children)
        case ColumnTest(column, op, values):
            value = encoded(CODECS[column], row[column])
            if op in ("is null", "is not null"):
                return (value is None) == (op == "is null")
            others = [encoded(CODECS[column], v) for v in values]
            if value is None:
                return False
            if op in ("=", "in"):
                return value in others
            return bool(OPERATORS[op](value, others[0]))
    raise AssertionError(test)


def encoded(codec: Codec, value: Any) -> Any:
    return codec.canonical(codec.encode_one(value))


@st.composite
def column_tests(draw: st.DrawFn) -> ColumnTest:
    column = draw(st.sampled_from(sorted(TYPES)))
    ops = ["=", "in", "is null", "is not null"]
    op: Any = draw(st.sampled_from(ops if column == "f4" else [*ops, *OPERATORS]))
    if op.startswith("is"):
        return ColumnTest(column, op, ())
    most = 7 if op == "in" else 1
    return ColumnTest(column, op, tuple(draw(st.lists(VALUES[column], min_size=1, max_size=most))))


tests = st.recursive(
    st.one_of(column_tests(), st.sampled_from([ALWAYS, NEVER])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda c: All(tuple(c))),
        st.lists(inner, max_size=3).map(lambda c: Any_(tuple(c))),
    ),
    max_leaves=5,
)
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
blocks = st.lists(
    st.tuples(st.lists(rows, max_size=4), st.lists(st.sampled_from(sorted(TYPES)), unique=True, max_size=5)),
    max_size=6,
)


@settings(max_examples=250, deadline=None)
@given(blocks, tests)
def test_pruning_never_drops_a_block_with_a_matching_row(
    contents: list[tuple[list[Row], list[str]]], test: Test
) -> None:
    index = BlockIndex([record(n, rows_, columns) for n, (rows_, columns) in enumerate(contents)])
    mask = index.prune(test, CODECS)
    assert mask.dtype == np.bool_
    assert mask.shape == (len(contents),)
    for kept, (rows_, _) in zip(mask, contents, strict=True):
        assert kept or not any(satisfies(row, test) for row in rows_)
    # An index that was asked before any change gives what a new one gives.
    assert (index.prune(test, CODECS) == mask).all()


@settings(max_examples=150, deadline=None)
@given(blocks, blocks, tests, st.sets(st.integers(0, 12)))
def test_an_index_changed_step_by_step_equals_one_made_at_once(
    first: list[tuple[list[Row], list[str]]],
    second: list[tuple[list[Row], list[str]]],
    test: Test,
    removed: set[int],
) -> None:
    old = [record(n, rows_, columns) for n, (rows_, columns) in enumerate(first)]
    new = [record(n + 4, rows_, columns) for n, (rows_, columns) in enumerate(second)]  # some ids occur in both
    index = BlockIndex(old)
    before = index.prune(test, CODECS)
    index.candidates(test, CODECS, 1)
    changed = index.with_blocks(new, removed)
    gone = removed | {r.data_file_id for r in new}
    whole = BlockIndex([*(r for r in old if r.data_file_id not in gone), *new])
    assert changed.records == whole.records
    assert (changed.prune(test, CODECS) == whole.prune(test, CODECS)).all()
    for name in ("data_file_id", "begin_snapshot", "end_snapshot", "min_row_id"):
        assert (changed.numbers(name) == whole.numbers(name)).all()
    assert (index.prune(test, CODECS) == before).all()


def test_one_block_among_many_is_singled_out_by_integers_floats_and_strings() -> None:
    records = [
        record(n, [{"f1": n, "f2": n / 2, "f5": f"{n:04}"}], ["f1", "f2", "f5"], min_row_id=n, max_row_id=n)
        for n in range(100)
    ]
    index = BlockIndex(records)
    for test in (
        ColumnTest("f1", "=", (42,)),
        ColumnTest("f2", "=", (21.0,)),
        ColumnTest("f5", "=", ("0042",)),
        ColumnTest("f5", "in", ("0042",)),
        ColumnTest("f5", "in", (*(f"0042{c}" for c in "abcdefgh"), "0042")),
        ColumnTest("f1", "in", (42, -1, -2, -3, -4, -5, 1000)),
        All((ColumnTest("f1", ">", (41,)), ColumnTest("f2", "<=", (21.0,)))),
        All((ColumnTest("f1", ">=", (42,)), ColumnTest("f5", "<", ("0043",)))),
    ):
        assert np.flatnonzero(index.prune(test, CODECS)).tolist() == [42], test
    assert index.with_row_id(42).tolist() == [42]


def test_nan_does_not_hide_the_other_values_of_its_block() -> None:
    index = BlockIndex([record(1, [{"f2": math.nan}, {"f2": 1.0}], ["f2"]), record(2, [{"f2": 2.0}], ["f2"])])
    assert index.prune(ColumnTest("f2", "<", (1.5,)), CODECS).tolist() == [True, False]
    assert index.prune(ColumnTest("f2", "=", (math.nan,)), CODECS).tolist() == [True, False]
    assert index.prune(ColumnTest("f2", ">", (1e300,)), CODECS).tolist() == [True, False]


def test_blocks_without_statistics_of_a_column_are_kept() -> None:
    index = BlockIndex([record(1), record(2, [{"f1": 1}], ["f1"]), record(3, [{"f5": "x"}], ["f5"])])
    assert index.prune(ColumnTest("f1", "=", (9,)), CODECS).tolist() == [True, False, True]
    assert index.prune(ColumnTest("f1", "is null"), CODECS).tolist() == [True, False, True]
    assert index.prune(ColumnTest("f1", "=", (9,)), {}).tolist() == [True, True, True]


@settings(max_examples=150, deadline=None)
@patch.object(prune, "_AT_ONCE", 2)  # so that a few blocks are several portions
@given(blocks, st.sampled_from(sorted(TYPES)), st.sets(st.integers(0, 5)))
def test_a_column_without_nulls_has_none_in_any_of_the_blocks(
    contents: list[tuple[list[Row], list[str]]], column: str, chosen: set[int]
) -> None:
    index = BlockIndex([record(n, rows_, columns) for n, (rows_, columns) in enumerate(contents)])
    among = [n for n in sorted(chosen) if n < len(contents)]
    clean = all(column in contents[n][1] and all(row.get(column) is not None for row in contents[n][0]) for n in among)
    assert index.may_hold_null(column, among) is not clean
    half = len(contents) // 2
    first = BlockIndex(index.records[:half])
    first.may_hold_null(column, [])
    later = first.with_blocks(index.records[half:])
    assert later.may_hold_null(column, among) is not clean
    last = later.with_blocks(index.records[:1], [record.data_file_id for record in index.records[1:2]])
    kept = [n for n in (0, *range(2, len(contents))) if n < len(contents)]
    clean = all(column in contents[n][1] and all(row.get(column) is not None for row in contents[n][0]) for n in kept)
    assert last.may_hold_null(column, range(len(last))) is not clean


def test_statistics_of_another_kind_than_the_column_has_now_are_not_used() -> None:
    index = BlockIndex([record(1, [{"f1": 1}], ["f1"]), record(2, [{"f5": "x"}], ["f5"])])
    assert index.prune(ColumnTest("f1", "=", ("z",)), {"f1": CODECS["f5"]}).tolist() == [True, True]
    assert index.prune(ColumnTest("f5", "=", (1,)), {"f5": CODECS["f1"]}).tolist() == [True, True]


def test_a_null_constant_matches_nothing() -> None:
    index = BlockIndex([record(1, [{"f1": None}], ["f1"]), record(2, [{"f1": 3}], ["f1"])])
    assert index.prune(ColumnTest("f1", "=", (None,)), CODECS).tolist() == [False, False]
    assert index.prune(ColumnTest("f1", "in", (None, 3)), CODECS).tolist() == [False, True]
    assert index.prune(ColumnTest("f1", "is null"), CODECS).tolist() == [True, False]
    assert index.prune(ColumnTest("f1", "is not null"), CODECS).tolist() == [False, True]


def test_candidates_are_visible_at_the_snapshot() -> None:
    records = [
        record(1, [{"f1": 1}], ["f1"], begin_snapshot=1, end_snapshot=5),
        record(2, [{"f1": 1}], ["f1"], begin_snapshot=5),
        record(3, [{"f1": 2}], ["f1"], begin_snapshot=5),
    ]
    index = BlockIndex(records)
    wanted = ColumnTest("f1", "=", (1,))
    assert [index.candidates(wanted, CODECS, s).tolist() for s in (0, 1, 4, 5, 9)] == [[], [0], [0], [1], [1]]
    for snapshot in (0, 1, 4, 5, 9):
        assert index.visible_at(snapshot).tolist() == [r.visible_at(snapshot) for r in records]
    assert index.record(3) == records[2]
    assert index.record(4) is None


def test_an_empty_index_answers() -> None:
    index = BlockIndex()
    assert index.candidates(ColumnTest("f5", "=", ("x",)), CODECS, 1).tolist() == []
    assert index.with_row_id(1).tolist() == []
    assert len(index.with_blocks([record(1)])) == 1
