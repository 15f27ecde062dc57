"""Pruning by column statistics: which of many sets of rows (blocks, or batches of a block) may hold matching rows.

The statistics of a column are extracted from the stored form of all sets into arrays, and a test is a few vectorised
comparisons of them. A set that may hold a matching row is never dropped: missing statistics count as a match.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import null_mask, truths
from indexlake.arrow.values import array_of, scalar_of
from indexlake.blocks.statistics import (
    BYTES_BOUNDS,
    CELL_DTYPE,
    CELL_SIZE,
    HAS_MAX,
    HAS_MIN,
    columns_of,
    header_of,
)
from indexlake.expr.test import INDEX_OPS, All, Any_, ColumnTest, Test
from indexlake.types import Codec
from indexlake.types.selection import as_mask

Mask = npt.NDArray[np.bool_]

_LOWEST = np.iinfo(np.int64).min
_HIGHEST = np.iinfo(np.int64).max
_FEW_VALUES = 4
_AT_ONCE = 2_000
"""The statistics of this many blocks fit into the processor's cache."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Whether a block has values and nulls in a column; both are true without statistics."""

    has_values: Mask
    has_nulls: Mask

    def keep(self, mask: Mask) -> _Counts:
        return _Counts(self.has_values[mask], self.has_nulls[mask])

    def extend(self, more: _Counts) -> _Counts:
        return _Counts(
            np.concatenate((self.has_values, more.has_values)),
            np.concatenate((self.has_nulls, more.has_nulls)),
        )


@dataclass(frozen=True, slots=True)
class _IntBounds:
    """Bounds of an integer column; an unknown bound is the lowest or highest integer there is."""

    counts: _Counts
    min: npt.NDArray[np.int64]
    max: npt.NDArray[np.int64]

    def keep(self, mask: Mask) -> _IntBounds:
        return _IntBounds(self.counts.keep(mask), self.min[mask], self.max[mask])

    def extend(self, more: _IntBounds) -> _IntBounds:
        return _IntBounds(
            self.counts.extend(more.counts),
            np.concatenate((self.min, more.min)),
            np.concatenate((self.max, more.max)),
        )

    def min_at_most(self, value: int, *, strictly: bool) -> Mask:
        return self.min < value if strictly else self.min <= value

    def max_at_least(self, value: int, *, strictly: bool) -> Mask:
        return self.max > value if strictly else self.max >= value

    def holds_any(self, values: Sequence[int]) -> Mask:
        wanted = np.array(sorted(values), np.int64)
        first = np.searchsorted(wanted, self.min, side="left")
        return first < np.searchsorted(wanted, self.max, side="right")


@dataclass(frozen=True, slots=True)
class _BytesBounds:
    """Bounds of a byte column; an unknown lower bound is the empty string, an unknown upper bound is null."""

    counts: _Counts
    min: pa.LargeBinaryArray
    max: pa.LargeBinaryArray

    def keep(self, mask: Mask) -> _BytesBounds:
        kept = as_mask(mask)
        return _BytesBounds(self.counts.keep(mask), self.min.filter(kept), self.max.filter(kept))

    def extend(self, more: _BytesBounds) -> _BytesBounds:
        return _BytesBounds(
            self.counts.extend(more.counts),
            pa.concat_arrays([self.min, more.min]),
            pa.concat_arrays([self.max, more.max]),
        )

    def min_at_most(self, value: bytes, *, strictly: bool) -> Mask:
        compare = pc.less if strictly else pc.less_equal
        return truths(compare(self.min, scalar_of(value, pa.large_binary())))

    def max_at_least(self, value: bytes, *, strictly: bool) -> Mask:
        compare = pc.greater if strictly else pc.greater_equal
        found, unknown = truths(compare(self.max, scalar_of(value, pa.large_binary()))), null_mask(self.max)
        return found if unknown is None else found | unknown

    def holds_any(self, values: Sequence[bytes]) -> Mask:
        wanted = sorted(values)
        found = (
            bisect_left(wanted, low) < (len(wanted) if high is None else bisect_right(wanted, high))
            for low, high in zip(self.min.to_pylist(), self.max.to_pylist(), strict=True)
        )
        return np.fromiter(found, np.bool_, len(self.min))


Bounds = _IntBounds | _BytesBounds


def prune(test: Test, codecs: Mapping[str, Codec], count: int, bounds_of: Callable[[str, str], Bounds]) -> Mask:
    """Return which of `count` sets of rows may hold a row that satisfies a test.

    `bounds_of` gives a column's bounds by kind. A column without codec is not used.
    """
    match test:
        case All(children):
            mask = np.ones(count, np.bool_)
            for child in children:
                mask &= prune(child, codecs, count, bounds_of)
            return mask
        case Any_(children):
            mask = np.zeros(count, np.bool_)
            for child in children:
                mask |= prune(child, codecs, count, bounds_of)
            return mask
        case ColumnTest(column, op, values):
            codec = codecs.get(column)
            if codec is not None:
                return _prune_column(bounds_of(column, codec.kind), codec, op, values)
    return np.ones(count, np.bool_)


def _prune_column(bounds: Bounds, codec: Codec, op: str, values: tuple[Any, ...]) -> Mask:
    if op == "is null":
        return bounds.counts.has_nulls.copy()
    has_values = bounds.counts.has_values
    if op == "is not null" or op in INDEX_OPS or not codec.ordered:
        return has_values.copy()
    constants: list[Any] = [codec.canonical(codec.encode_constant(v)) for v in values if v is not None]
    if not constants:  # nothing equals, precedes or follows null
        return np.zeros(len(has_values), np.bool_)
    if op == "in" and len(constants) > _FEW_VALUES:
        return has_values & bounds.holds_any(constants)
    if op in ("=", "in"):
        mask = np.zeros(len(has_values), np.bool_)
        for value in constants:
            mask |= bounds.min_at_most(value, strictly=False) & bounds.max_at_least(value, strictly=False)
        return mask & has_values
    value = constants[0]
    if op in ("<", "<="):
        return has_values & bounds.min_at_most(value, strictly=op == "<")
    if op in (">", ">="):
        return has_values & bounds.max_at_least(value, strictly=op == ">")
    return has_values.copy()


def cells_of(stats: Sequence[bytes], column: str) -> Iterator[tuple[list[int], npt.NDArray[Any], int]]:
    """Extract one column from the statistics of many blocks, leaving out blocks that lack it.

    Yields indices of blocks, their cells, and the offset in their statistics where bytes begin.
    """
    for header, members in _by_header(stats):
        names = columns_of(header)
        if column in names:
            at = len(header) + CELL_SIZE * names.index(column)
            cells = np.frombuffer(b"".join([stats[i][at : at + CELL_SIZE] for i in members]), CELL_DTYPE)
            yield members, cells, len(header) + CELL_SIZE * len(names)


def nulls_of(stats: Sequence[bytes]) -> dict[str, Mask]:
    """Return, for each column in any block's statistics, which blocks hold a null or lack statistics of it."""
    found: dict[str, Mask] = defaultdict(lambda: np.ones(len(stats), np.bool_))
    for n in range(0, len(stats), _AT_ONCE):
        some = stats[n : n + _AT_ONCE]
        tables: list[tuple[Any, dict[str, npt.NDArray[Any]] | None]]
        tables = [(slice(n, n + len(some)), _table(some, header_of(some[0])) if some[0] else None)]
        if tables[0][1] is None:
            groups = _by_header(some)
            tables = [(np.array(at) + n, _table([some[i] for i in at], header)) for header, at in groups]
        for places, table in tables:
            for name, cells in (table or {}).items():
                found[name][places] = cells["null_count"] > 0
    return dict(found)


def _table(stats: Sequence[bytes], header: bytes) -> dict[str, npt.NDArray[Any]] | None:
    """Return the cells of each column, or None if the statistics do not all begin with that header."""
    names = columns_of(header)
    parts = [("header", f"V{len(header)}"), ("cells", CELL_DTYPE, (len(names),))]
    size = len(header) + CELL_SIZE * len(names)
    joined = b"".join([data[:size] for data in stats])
    if len(joined) != size * len(stats):
        return None
    rows = np.frombuffer(joined, parts)
    if (rows["header"] != np.void(header)).any():
        return None
    return dict(zip(names, rows["cells"].T, strict=True))


def _by_header(stats: Sequence[bytes]) -> Iterable[tuple[bytes, list[int]]]:
    """Group the indices of blocks by the header of their statistics, which lists the columns."""
    groups: dict[bytes, list[int]] = {}
    header, members = b"\x00", [0]  # no statistics start with zero
    for index, data in enumerate(stats):
        if data.startswith(header):
            members.append(index)
        elif data:
            header = header_of(data)
            members = groups.setdefault(header, [])
            members.append(index)
    return groups.items()


def read_bounds(stats: Sequence[bytes], column: str, kind: str) -> Bounds:
    """Extract one column from the statistics of many blocks; blocks that lack it get unknown bounds."""
    counts = _Counts(np.ones(len(stats), np.bool_), np.ones(len(stats), np.bool_))
    int_min = np.full(len(stats), _LOWEST, np.int64)
    int_max = np.full(len(stats), _HIGHEST, np.int64)
    bytes_min: list[bytes] = [b""] * len(stats)
    bytes_max: list[bytes | None] = [None] * len(stats)
    for members, cells, tail in cells_of(stats, column):
        counts.has_values[members] = cells["value_count"] > 0
        counts.has_nulls[members] = cells["null_count"] > 0
        flags = cells["flags"]
        of_bytes = (flags & BYTES_BOUNDS) != 0
        known_min, known_max = (flags & HAS_MIN) != 0, (flags & HAS_MAX) != 0
        if kind == "int":
            places = np.array(members)
            ours = known_min & ~of_bytes
            int_min[places[ours]] = cells["min"][ours]
            ours = known_max & ~of_bytes
            int_max[places[ours]] = cells["max"][ours]
        else:
            for known, name, bounds in ((known_min, "min", bytes_min), (known_max, "max", bytes_max)):
                spans = np.ascontiguousarray(cells[name]).view("<u4").reshape(-1, 2)
                starts = (spans[:, 0] + np.uint32(tail)).tolist()
                ends = (spans[:, 0] + spans[:, 1] + np.uint32(tail)).tolist()
                use = (known & of_bytes).tolist()
                for index, start, end, used in zip(members, starts, ends, use, strict=True):
                    if used:
                        bounds[index] = stats[index][start:end]
    if kind == "int":
        return _IntBounds(counts, int_min, int_max)
    return _BytesBounds(counts, array_of(bytes_min, pa.large_binary()), array_of(bytes_max, pa.large_binary()))
