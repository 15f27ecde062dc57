"""The block index: which blocks may hold what is asked for, by snapshot, row id or column statistics.

Everything is answered by a few vectorised comparisons over columnar arrays, so the cost hardly grows with
the number of blocks that do not qualify.  The arrays of a column are built when it is first asked for and
carried over to the next index when blocks come and go.  An index is immutable, and threads may share it.

Pruning never drops a block that may hold a matching row: what is not known counts as a match.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.blocks.block import BlockRecord
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

Mask = npt.NDArray[np.bool_]

_FOREVER = np.iinfo(np.int64).max
_LOWEST = np.iinfo(np.int64).min
_HIGHEST = np.iinfo(np.int64).max
_FEW_VALUES = 4


@dataclass(frozen=True, slots=True)
class _Counts:
    """Whether a block has values and nulls in a column; both true where nothing is known."""

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
        kept = pa.array(mask)
        return _BytesBounds(self.counts.keep(mask), self.min.filter(kept), self.max.filter(kept))

    def extend(self, more: _BytesBounds) -> _BytesBounds:
        return _BytesBounds(
            self.counts.extend(more.counts),
            pa.concat_arrays([self.min, more.min]),
            pa.concat_arrays([self.max, more.max]),
        )

    def min_at_most(self, value: bytes, *, strictly: bool) -> Mask:
        compare = pc.less if strictly else pc.less_equal
        return np.asarray(compare(self.min, pa.scalar(value, pa.large_binary())))

    def max_at_least(self, value: bytes, *, strictly: bool) -> Mask:
        compare = pc.greater if strictly else pc.greater_equal
        return np.asarray(pc.fill_null(compare(self.max, pa.scalar(value, pa.large_binary())), True))

    def holds_any(self, values: Sequence[bytes]) -> Mask:
        wanted = sorted(values)
        found = (
            bisect_left(wanted, low) < (len(wanted) if high is None else bisect_right(wanted, high))
            for low, high in zip(self.min.to_pylist(), self.max.to_pylist(), strict=True)
        )
        return np.fromiter(found, np.bool_, len(self.min))


_Bounds = _IntBounds | _BytesBounds


class BlockIndex:
    """An ordered collection of block records.  Masks and indices refer to that order."""

    def __init__(self, records: Iterable[BlockRecord] = ()) -> None:
        self.records: tuple[BlockRecord, ...] = tuple(records)
        self._numbers: dict[str, npt.NDArray[np.int64]] = {}
        self._bounds: dict[tuple[str, str], _Bounds] = {}
        self._by_id: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"BlockIndex({len(self.records)} blocks)"

    def record(self, data_file_id: int) -> BlockRecord | None:
        """The record of a block, or None if it is not in the index."""
        index = self.index_of(data_file_id)
        return None if index is None else self.records[index]

    def index_of(self, data_file_id: int) -> int | None:
        """Where in the order a block is, or None."""
        if self._by_id is None:
            self._by_id = {record.data_file_id: index for index, record in enumerate(self.records)}
        return self._by_id.get(data_file_id)

    def with_blocks(self, added: Sequence[BlockRecord], removed_ids: Collection[int] = ()) -> BlockIndex:
        """An index without the removed blocks and with the added ones at the end.

        An added block replaces the one of the same id.
        """
        kept = self.without(added, removed_ids)
        new = BlockIndex()
        fresh = BlockIndex(added)
        if kept.all():
            new.records = (*self.records, *added)
        else:
            new.records = (*compress(self.records, kept.tolist()), *added)
        # Other threads may be adding columns to this index meanwhile: copy the dictionaries first.
        for name, numbers in dict(self._numbers).items():
            new._numbers[name] = np.concatenate((numbers[kept], fresh.numbers(name)))
        for (column, kind), bounds in dict(self._bounds).items():
            old: Any = bounds.keep(kept)
            new._bounds[column, kind] = old.extend(fresh._bounds_of(column, kind)) if added else old
        return new

    def without(self, added: Sequence[BlockRecord], removed_ids: Collection[int] = ()) -> Mask:
        """The blocks that are neither removed nor replaced by an added one."""
        gone = {*removed_ids, *(record.data_file_id for record in added)}
        return ~np.isin(self.numbers("data_file_id"), np.fromiter(gone, np.int64, len(gone)))

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """One integer field of all records as an array; None, as in a live `end_snapshot`, is the highest."""
        array = self._numbers.get(name)
        if array is None:
            values = (getattr(record, name) for record in self.records)
            array = np.fromiter((_FOREVER if v is None else v for v in values), np.int64, len(self.records))
            self._numbers[name] = array
        return array

    def visible_at(self, snapshot_id: int, among: npt.NDArray[np.intp] | None = None) -> Mask:
        """The blocks that a reader at a snapshot reads; of all, or of those with some indices."""
        begin, end = self.numbers("begin_snapshot"), self.numbers("end_snapshot")
        if among is not None:
            begin, end = begin[among], end[among]
        return (begin <= snapshot_id) & (end > snapshot_id)

    def with_row_id(self, row_id: int) -> npt.NDArray[np.intp]:
        """The indices of blocks whose row-id bounds include a row id."""
        return np.flatnonzero((self.numbers("min_row_id") <= row_id) & (self.numbers("max_row_id") >= row_id))

    def candidates(self, test: Test, codecs: Mapping[str, Codec], snapshot_id: int) -> npt.NDArray[np.intp]:
        """The indices of blocks that are visible at a snapshot and may hold a row that satisfies a test."""
        found = np.flatnonzero(self.prune(test, codecs))
        return found[self.visible_at(snapshot_id, found)]

    def prune(self, test: Test, codecs: Mapping[str, Codec]) -> Mask:
        """The blocks that may hold a row that satisfies a test, by their column statistics.

        Columns are named as in the statistics (`f<field_id>`); a column without codec is not used.
        """
        match test:
            case All(children):
                mask = np.ones(len(self.records), np.bool_)
                for child in children:
                    mask &= self.prune(child, codecs)
                return mask
            case Any_(children):
                mask = np.zeros(len(self.records), np.bool_)
                for child in children:
                    mask |= self.prune(child, codecs)
                return mask
            case ColumnTest(column, op, values):
                codec = codecs.get(column)
                if codec is not None:
                    return self._prune_column(column, codec, op, values)
        return np.ones(len(self.records), np.bool_)

    def may_hold_null(self, column: str, among: Sequence[int]) -> bool:
        """Whether one of the blocks with these indices holds a null in a column, or nothing is known of it there."""
        known = 0
        for members, cells, _ in _cells([self.records[n].column_stats for n in among], column):
            if cells["null_count"].any():
                return True
            known += len(members)
        return known < len(among)

    def _prune_column(self, column: str, codec: Codec, op: str, values: tuple[Any, ...]) -> Mask:
        bounds = self._bounds_of(column, codec.kind)
        if op == "is null":
            return bounds.counts.has_nulls.copy()
        has_values = bounds.counts.has_values
        if op == "is not null" or op in INDEX_OPS or not codec.ordered:
            return has_values.copy()
        constants: list[Any] = [codec.canonical(codec.encode_constant(v)) for v in values if v is not None]
        if not constants:  # nothing equals, precedes or follows null
            return np.zeros(len(self.records), np.bool_)
        if op == "in" and len(constants) > _FEW_VALUES:
            return has_values & bounds.holds_any(constants)
        if op in ("=", "in"):
            mask = np.zeros(len(self.records), np.bool_)
            for value in constants:
                mask |= bounds.min_at_most(value, strictly=False) & bounds.max_at_least(value, strictly=False)
            return mask & has_values
        value = constants[0]
        if op in ("<", "<="):
            return has_values & bounds.min_at_most(value, strictly=op == "<")
        if op in (">", ">="):
            return has_values & bounds.max_at_least(value, strictly=op == ">")
        return has_values.copy()

    def _bounds_of(self, column: str, kind: str) -> _Bounds:
        bounds = self._bounds.get((column, kind))
        if bounds is None:
            bounds = _read_bounds([record.column_stats for record in self.records], column, kind)
            self._bounds[column, kind] = bounds
        return bounds


def _cells(stats: Sequence[bytes], column: str) -> Iterator[tuple[list[int], npt.NDArray[Any], int]]:
    """One column out of the statistics of many blocks: indices of blocks, their cells, where in them bytes begin.

    Blocks that lack the column are left out.
    """
    groups: dict[bytes, list[int]] = {}
    header, members = b"\x00", [0]  # no statistics start with zero
    for index, data in enumerate(stats):
        if data.startswith(header):
            members.append(index)
        elif data:
            header = header_of(data)
            members = groups.setdefault(header, [])
            members.append(index)
    for header, members in groups.items():
        names = columns_of(header)
        if column in names:
            at = len(header) + CELL_SIZE * names.index(column)
            cells = np.frombuffer(b"".join([stats[i][at : at + CELL_SIZE] for i in members]), CELL_DTYPE)
            yield members, cells, len(header) + CELL_SIZE * len(names)


def _read_bounds(stats: Sequence[bytes], column: str, kind: str) -> _Bounds:
    """Lift one column out of the statistics of many blocks; blocks that lack it know nothing about it."""
    counts = _Counts(np.ones(len(stats), np.bool_), np.ones(len(stats), np.bool_))
    int_min = np.full(len(stats), _LOWEST, np.int64)
    int_max = np.full(len(stats), _HIGHEST, np.int64)
    bytes_min: list[bytes] = [b""] * len(stats)
    bytes_max: list[bytes | None] = [None] * len(stats)
    for members, cells, tail in _cells(stats, column):
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
    return _BytesBounds(counts, pa.array(bytes_min, pa.large_binary()), pa.array(bytes_max, pa.large_binary()))
