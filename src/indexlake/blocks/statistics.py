"""Column statistics of a block: bounds and null counts, in the encoded and canonical form of `types.Codec`.

Bounds are sound, not always tight: long byte values are cut to 32 bytes, an upper bound is rounded up, and if there is
no short upper bound, there is none. In the canonical form, -0.0 equals 0.0 and NaN is the greatest float, so the bounds
of floats need no special case. Types without an order have counts only.

The stored form has one fixed-size cell per column after a header of column names, so that the block index can extract
one column from thousands of blocks without parsing the others.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import CorruptionError
from indexlake.types import Codec, SqlValue, codec_for

MAX_BOUND_BYTES = 32

_VERSION = 1
_HEADER = struct.Struct("<BHH")  # version, header size, column count
_CELL = struct.Struct("<BII")  # flags, null count, value count; two 8-byte bounds follow
_INT = struct.Struct("<q")
_SPAN = struct.Struct("<II")
CELL_SIZE = _CELL.size + 16

HAS_MIN, HAS_MAX, BYTES_BOUNDS, MIN_EXACT, MAX_EXACT = 1, 2, 4, 8, 16

CELL_DTYPE = np.dtype(
    {
        "names": ["flags", "null_count", "value_count", "min", "max"],
        "formats": ["u1", "<u4", "<u4", "<i8", "<i8"],
        "offsets": [0, 1, 5, 9, 17],
        "itemsize": CELL_SIZE,
    }
)


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What is known about the values of one column in one block.

    `min` and `max` bound every value that is not null. None means unknown if `value_count` is above zero, and "no
    value" if it is zero. An exact bound is itself a (canonical) value of the column.
    """

    min: SqlValue
    max: SqlValue
    null_count: int
    value_count: int
    min_exact: bool = True
    max_exact: bool = True

    def covers(self, found: ColumnStats) -> bool:
        """Return whether values with the statistics ``found`` have these counts and lie within these bounds."""
        counts = (self.null_count, self.value_count) == (found.null_count, found.value_count)
        pairs: list[tuple[Any, Any]] = [(self.min, found.min), (found.max, self.max)]
        return counts and all(low <= high for low, high in pairs if low is not None and high is not None)


def lower_bound(value: bytes) -> bytes:
    """Return the longest prefix that is kept, which is at or below `value`."""
    return value[:MAX_BOUND_BYTES]


def upper_bound(value: bytes) -> bytes | None:
    """Return a short value at or above `value`, or None if there is none."""
    if len(value) <= MAX_BOUND_BYTES:
        return value
    kept = value[:MAX_BOUND_BYTES].rstrip(b"\xff")
    if not kept:
        return None
    return kept[:-1] + bytes([kept[-1] + 1])


class _ColumnBuilder:
    """Running bounds and counts of one column."""

    __slots__ = ("codec", "max", "min", "null_count", "value_count")

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.min: Any = None
        self.max: Any = None
        self.null_count = 0
        self.value_count = 0

    def add(self, array: pa.Array) -> None:
        plain = array
        if pa.types.is_dictionary(array.type):
            plain = self.codec.to_storage(array)  # a null may hide in the dictionary
        nulls = plain.null_count
        self.null_count += nulls
        self.value_count += len(array) - nulls
        if not self.codec.ordered or nulls == len(array):
            return
        values: Any = self.codec.canonical_array(array)
        if self.codec.kind == "int":
            if nulls:
                values = values[np.asarray(plain.is_valid())]
            low, high = int(values.min()), int(values.max())
        else:
            if nulls:
                values = values.filter(plain.is_valid())
            bounds = pc.min_max(values)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        self.min = low if self.min is None or low < self.min else self.min
        self.max = high if self.max is None or high > self.max else self.max

    def finish(self) -> ColumnStats:
        low, high = self.min, self.max
        if isinstance(low, bytes):
            low, high = lower_bound(low), upper_bound(high)
        min_exact = low is not None and low == self.min
        max_exact = high is not None and high == self.max
        return ColumnStats(low, high, self.null_count, self.value_count, min_exact, max_exact)


class StatisticsBuilder:
    """Collects the statistics of a block while its batches pass by."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = {field.name: _ColumnBuilder(codec_for(field.type)) for field in schema}

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add one batch; columns that are not in the schema are ignored."""
        for name, builder in self._columns.items():
            column = batch.column(name)
            for array in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
                builder.add(array)

    def finish(self) -> dict[str, ColumnStats]:
        """Return the statistics of all batches so far, by column."""
        return {name: builder.finish() for name, builder in self._columns.items()}


def stats_to_bytes(stats: Mapping[str, ColumnStats]) -> bytes:
    """Return statistics in the form stored in the catalog."""
    names = b"".join(bytes([len(encoded)]) + encoded for encoded in (name.encode() for name in stats))
    header = _HEADER.pack(_VERSION, _HEADER.size + len(names), len(stats)) + names
    cells: list[bytes] = []
    tail = bytearray()
    for column in stats.values():
        flags = MIN_EXACT * column.min_exact | MAX_EXACT * column.max_exact
        bounds: list[bytes] = []
        for bit, bound in ((HAS_MIN, column.min), (HAS_MAX, column.max)):
            if bound is None:
                bounds.append(bytes(8))
                continue
            flags |= bit
            if isinstance(bound, bytes):
                flags |= BYTES_BOUNDS
                bounds.append(_SPAN.pack(len(tail), len(bound)))
                tail += bound
            else:
                bounds.append(_INT.pack(bound))
        cells.append(_CELL.pack(flags, column.null_count, column.value_count) + bounds[0] + bounds[1])
    return header + b"".join(cells) + bytes(tail)


def header_of(data: bytes) -> bytes:
    """Return the header; blocks with equal headers have equal columns in equal cells."""
    try:
        version, size, _ = _HEADER.unpack_from(data)
    except struct.error:
        raise _damaged() from None
    if version != _VERSION or len(data) < size:
        raise _damaged()
    return data[:size]


def columns_of(header: bytes) -> list[str]:
    """Return the column names of a header, in the order of the cells."""
    names: list[str] = []
    at = _HEADER.size
    while at < len(header):
        length = header[at]
        names.append(header[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return names


def stats_from_bytes(data: bytes) -> dict[str, ColumnStats]:
    """Return the statistics that `stats_to_bytes` has stored."""
    if not data:
        return {}
    header = header_of(data)
    names = columns_of(header)
    tail = len(header) + CELL_SIZE * len(names)
    if len(data) < tail:
        raise _damaged()
    stats: dict[str, ColumnStats] = {}
    for number, name in enumerate(names):
        at = len(header) + CELL_SIZE * number
        flags, null_count, value_count = _CELL.unpack_from(data, at)
        bounds: list[SqlValue] = []
        for bit, place in ((HAS_MIN, at + _CELL.size), (HAS_MAX, at + _CELL.size + 8)):
            if not flags & bit:
                bounds.append(None)
            elif flags & BYTES_BOUNDS:
                start, length = _SPAN.unpack_from(data, place)
                bounds.append(data[tail + start : tail + start + length])
            else:
                bounds.append(_INT.unpack_from(data, place)[0])
        stats[name] = ColumnStats(
            bounds[0], bounds[1], null_count, value_count, bool(flags & MIN_EXACT), bool(flags & MAX_EXACT)
        )
    return stats


def _damaged() -> CorruptionError:
    return CorruptionError(
        "the column statistics of a block cannot be read: the catalog record is damaged; restore the catalog"
    )
