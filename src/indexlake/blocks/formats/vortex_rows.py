"""Reading a few rows of a Vortex file.

To read one row, Vortex reads the part of the file that the row is in: a split, or several of a local file, since each
scan has a fixed cost. Parts are kept as they are, compressed, and give further rows in a tenth of the time. For a local
file they are slices of its memory map.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import native_vortex
from indexlake.arrow.batch_size import BATCH_BYTES, batch_bytes
from indexlake.arrow.buffers import array_around
from indexlake.arrow.values import array_of
from indexlake.blocks.formats.batches import decoded
from indexlake.types import codec_for
from indexlake.types.python_rows import is_exact, python_dicts
from indexlake.types.uuids import is_uuid

_MOST_PARTS = 64
_PART_BYTES = 4 << 20


class RowScan:
    """Some columns, prepared for reading few rows; ``stored`` are their types in the file, ``logical`` users' types.

    ``ranges`` are the rows of each part; ``explained`` converts an error to the one to raise.
    """

    def __init__(
        self,
        file: Any,
        ranges: Sequence[tuple[int, int]],
        logical: pa.Schema,
        stored: pa.Schema,
        explained: Callable[[BaseException], BaseException],
    ) -> None:
        self._logical = logical
        self._explained = explained
        self._stored = pa.struct(list(stored))
        self._scalars = all(_has_scalars(field.type) for field in logical)
        self._exact = bool(logical.names) and all(is_exact(field.type) for field in logical)
        # Times are integers in the file, as in the catalog, and UUIDs are bytes.
        self._times = [
            (field.name, codec_for(field.type).decode_one)
            for field in logical
            if is_uuid(field.type)
            or pa.types.is_temporal(field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        ]
        self._floats = [field.name for field in logical if pa.types.is_floating(field.type)]
        self._ranges = ranges
        self._starts = [start for start, _ in ranges]
        self._scan = file.prepare(logical.names)
        self._parts: dict[int, Any] = {}  # by their numbers

    def row(self, position: int) -> dict[str, Any]:
        if not self._scalars:
            batch = next(self.batches(np.array([position], np.uint64)))
            return python_dicts(decoded(batch, self._logical))[0]
        row = self._scalar_rows([position])[0]
        for name, decode in self._times:
            if (value := row[name]) is not None:
                row[name] = decode(value)
        return row

    def exact_rows(self, positions: Sequence[int]) -> list[dict[str, Any]] | None:
        """Return some rows, or None if Python values of these columns might not be exact."""
        if not self._exact:
            return None
        rows = self._scalar_rows(positions)
        for name in self._floats:
            if any(row[name] != row[name] for row in rows):  # Python may change the bits of a NaN
                return None
        return rows

    def as_batch(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [array_of([row[field.name] for row in rows], field.type) for field in self._logical]
        return pa.RecordBatch.from_arrays(arrays, schema=self._logical)

    def batches(self, positions: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows at ascending positions, with the types of the file; one batch may span several parts."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in self._by_part(positions):
            more = batch_bytes(batch)
            if held and size + more > BATCH_BYTES:
                yield pa.concat_batches(held)
                held, size = [], 0
            held.append(batch)
            size += more
        if held:
            yield pa.concat_batches(held) if len(held) > 1 else held[0]

    def _by_part(self, positions: Any) -> Iterator[pa.RecordBatch]:
        cuts = np.searchsorted(positions, np.array([*self._starts[1:], self._ranges[-1][1]], np.uint64)).tolist()
        for number, (first, end) in enumerate(zip([0, *cuts], cuts, strict=False)):
            if first == end:
                continue
            places = positions[first:end] - np.uint64(self._starts[number])
            try:
                found = self._part(number).take(native_vortex.arrays.Array.from_arrow(array_around(places)))
                rows = found.to_arrow_array(arrow_type=self._stored, combine_chunks=True)
            except BaseException as error:  # a panic in Vortex is not an Exception
                raise self._explained(error) from None
            yield pa.RecordBatch.from_struct_array(rows)

    def _scalar_rows(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        rows = []
        try:
            for position in positions:
                number = bisect_right(self._starts, position) - 1
                rows.append(self._part(number).scalar_at(position - self._starts[number]).as_py())
        except BaseException as error:
            raise self._explained(error) from None
        return rows

    def _part(self, number: int) -> Any:
        part = self._parts.get(number)
        if part is None:
            start, end = self._ranges[number]
            part = self._scan.execute(start=start, stop=end).read_all()
            if len(self._parts) >= _MOST_PARTS:
                self._parts = {}
            self._parts[number] = part
        return part


def part_ranges(file: Any, size: int, *, mapped: bool) -> list[tuple[int, int]]:
    """Return the parts of a file of ``size`` bytes: its splits, joined in a mapped file as long as they are small."""
    most_rows = _PART_BYTES * len(file) // max(1, size) if mapped else 0
    ranges: list[tuple[int, int]] = []
    for start, end in file.splits():
        if ranges and end - ranges[-1][0] <= most_rows:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return ranges


def _has_scalars(type: Any) -> bool:
    """Return whether a single value read by Vortex is the Python value Arrow gives, or its integer."""
    return not pa.types.is_nested(type) or (
        not pa.types.is_map(type)
        and all(
            not pa.types.is_temporal(inner.type)
            and not pa.types.is_dictionary(inner.type)
            and not is_uuid(inner.type)
            and _has_scalars(inner.type)
            and _is_plain_name(inner.name)
            for inner in (type.field(index) for index in range(type.num_fields))
        )
    )


def _is_plain_name(name: str) -> bool:
    """Return whether Vortex leaves the name of a struct field as it is; it escapes quotes and some other characters."""
    return name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
