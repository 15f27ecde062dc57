"""Column statistics: sound bounds, exact counts."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.blocks.statistics import (
    MAX_BOUND_BYTES,
    ColumnStats,
    StatisticsBuilder,
    stats_from_bytes,
    stats_to_bytes,
)
from indexlake.errors import CorruptionError
from indexlake.types import codec_for

long_bytes = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda n, tail: b"\xff" * n + tail, st.integers(28, 40), st.binary(max_size=8)),
    st.builds(lambda n, tail: b"a" * n + tail, st.integers(28, 40), st.binary(max_size=8)),
)
columns: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=40)),
    (pa.binary(), long_bytes),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "\U0010ffff" * 12])),
    (pa.decimal128(30, 2), st.decimals(min_value=-(10**20), max_value=10**20, places=2)),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bounds_hold_for_every_value_and_counts_are_exact(data: st.DataObject) -> None:
    type_, values = data.draw(st.sampled_from(columns))
    batches = data.draw(st.lists(st.lists(st.none() | values, max_size=12), max_size=3))
    schema = pa.schema([("f1", type_)])
    builder = StatisticsBuilder(schema)
    for rows in batches:
        builder.add(pa.record_batch([pa.array(rows, type_)], schema=schema))
    stats = builder.finish()["f1"]
    codec = codec_for(type_)
    everything = [v for rows in batches for v in rows]
    present: list[Any] = [codec.canonical(codec.encode_one(v)) for v in everything if v is not None]
    assert stats.null_count == everything.count(None)
    assert stats.value_count == len(present)
    if not present or not codec.ordered:
        assert (stats.min, stats.max) == (None, None)
        return
    low: Any = stats.min
    high: Any = stats.max
    assert low <= min(present)
    assert high is None or high >= max(present)
    assert stats.min_exact == (low == min(present))
    assert stats.max_exact == (high == max(present))
    if codec.kind == "int":
        assert (low, high) == (min(present), max(present))
    else:
        assert len(low) <= MAX_BOUND_BYTES
        assert high is None or len(high) <= MAX_BOUND_BYTES


bound = st.none() | st.integers(-(2**63), 2**63 - 1)
byte_bound = st.none() | st.binary(max_size=32)
counts = st.integers(0, 2**32 - 1)
column_stats = st.one_of(
    st.builds(ColumnStats, bound, bound, counts, counts, st.booleans(), st.booleans()),
    st.builds(ColumnStats, byte_bound, byte_bound, counts, counts, st.booleans(), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.integers(1, 999).map(lambda n: f"f{n}"), column_stats, max_size=6))
def test_statistics_round_trip_through_the_catalog(stats: dict[str, ColumnStats]) -> None:
    assert stats_from_bytes(stats_to_bytes(stats)) == stats


def stats_of(type_: pa.DataType, values: list[Any]) -> ColumnStats:
    builder = StatisticsBuilder(pa.schema([("f1", type_)]))
    builder.add(pa.table({"f1": pa.chunked_array([pa.array(values, type_)])}))
    return builder.finish()["f1"]


def test_nan_is_the_greatest_float_and_both_zeros_are_one() -> None:
    codec = codec_for(pa.float64())
    stats = stats_of(pa.float64(), [1.0, math.nan, -0.0])
    assert stats.min == codec.canonical(codec.encode_one(0.0))
    assert stats.max == codec.canonical(codec.encode_one(math.nan))
    assert stats_of(pa.float64(), [math.nan]) == stats_of(pa.float64(), [-math.nan])


def test_a_long_upper_bound_is_rounded_up_and_unknown_when_it_is_all_ff() -> None:
    assert stats_of(pa.binary(), [b"a" * 50]) == ColumnStats(b"a" * 32, b"a" * 31 + b"b", 0, 1, False, False)
    assert stats_of(pa.binary(), [b"a" + b"\xff" * 50]).max == b"b"
    assert stats_of(pa.binary(), [b"\xff" * 33]) == ColumnStats(b"\xff" * 32, None, 0, 1, False, False)
    assert stats_of(pa.binary(), [b"\xff" * 32]) == ColumnStats(b"\xff" * 32, b"\xff" * 32, 0, 1)


def test_an_all_null_and_an_empty_column_have_no_bounds() -> None:
    assert stats_of(pa.int64(), [None, None]) == ColumnStats(None, None, 2, 0, False, False)
    assert stats_of(pa.string(), []) == ColumnStats(None, None, 0, 0, False, False)


def test_a_null_inside_a_dictionary_counts_as_null() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, None], pa.int8()), pa.array(["x", None]))
    builder = StatisticsBuilder(pa.schema([("f1", array.type)]))
    builder.add(pa.record_batch({"f1": array}))
    assert builder.finish()["f1"] == ColumnStats(b"x", b"x", 3, 1)


def test_a_column_without_order_has_counts_only() -> None:
    assert stats_of(pa.list_(pa.int64()), [[1], None]) == ColumnStats(None, None, 1, 1, False, False)


def test_damaged_statistics_are_reported() -> None:
    good = stats_to_bytes({"f1": ColumnStats(1, 2, 0, 2)})
    for data in (good[:3], b"\x09" + good[1:], good[:-1]):
        with pytest.raises(CorruptionError, match="column statistics of a block cannot be read"):
            stats_from_bytes(data)
