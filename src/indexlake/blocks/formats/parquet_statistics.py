"""What a Parquet file's own statistics say about its row groups, in the form of the block statistics.

They bound every value but NaN, so a test that NaN may satisfy only asks for a value (`weakened`). Types for which the
file's order or its encoding is not the column's own have counts only.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.blocks.statistics import ColumnStats, stats_to_bytes
from indexlake.expr.test import All, Any_, ColumnTest, Test
from indexlake.types import Codec


def statistics_of(metadata: Any, place: int | None, column: str, codec: Codec) -> list[bytes]:
    """Return the statistics of a column in each row group, for `prune.read_bounds`; empty where nothing is known."""
    groups = range(metadata.num_row_groups)
    if place is None:
        return [b""] * len(groups)
    return [_in_group(metadata.row_group(group).column(place).statistics, column, codec) for group in groups]


def _in_group(known: Any, column: str, codec: Codec) -> bytes:
    if known is None or not known.has_null_count:
        return b""
    low, high = _bounds(known, codec) if known.has_min_max else (None, None)
    return stats_to_bytes({column: ColumnStats(low, high, known.null_count, known.num_values)})


def _bounds(known: Any, codec: Codec) -> tuple[Any, Any]:
    t, type = pa.types, codec.type
    if type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return known.min_raw, known.max_raw  # encoded as they are; without decoding a text that may have been cut
    if type in (pa.float32(), pa.float64(), pa.date32()) or t.is_timestamp(type):
        found = known.min_raw, known.max_raw
    elif t.is_boolean(type) or t.is_integer(type) or t.is_decimal128(type):
        found = known.min, known.max
    else:
        return None, None
    low, high = (codec.canonical(codec.encode_constant(bound)) for bound in found)
    return low, high


def weakened(test: Test, schema: pa.Schema) -> Test:
    """Return a condition that is necessary for a test although NaN is not within the bounds."""
    if isinstance(test, ColumnTest):
        if not pa.types.is_floating(schema.field(test.column).type):
            return test
        above = test.op in (">", ">=") or any(value != value for value in test.values)
        return ColumnTest(test.column, "is not null") if above else test
    children = tuple(weakened(child, schema) for child in test.children)
    return All(children) if isinstance(test, All) else Any_(children)
