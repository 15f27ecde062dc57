"""Single rows of a Vortex block, each in one or two microseconds.

The rows of a file lie in stretches.  One that has been asked for is kept as it lies in the memory map of the file,
compressed, which costs no memory; of files that are not mapped nothing is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats.batches import decoded
from indexlake.types import codec_for
from indexlake.types.python_rows import is_exact, python_dicts
from indexlake.types.uuids import is_uuid

if TYPE_CHECKING:
    from indexlake.blocks.formats import Positions

_KEPT = 256
_FEW_STRETCHES = 8
"""Rows of up to so many stretches are taken from each, which costs 25 µs; a scan for them costs 200 µs."""


class VortexRows:
    """Some columns of an open file.  Errors of Vortex become what ``explained`` makes of them."""

    def __init__(
        self, file: Any, columns: pa.Schema, *, mapped: bool, explained: Callable[[BaseException], BaseException]
    ) -> None:
        self._columns = columns
        self._explained = explained
        self._scalars = all(_has_scalars(field.type) for field in columns)
        # Times are integers in the file, as they are in the catalog, and UUIDs bytes.
        self._times = [
            (field.name, codec_for(field.type).decode_one)
            for field in columns
            if is_uuid(field.type)
            or pa.types.is_temporal(field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        ]
        self._type = pa.struct(list(columns))
        self._exact = bool(columns.names) and all(is_exact(field.type) for field in columns)
        self._floats = [field.name for field in columns if pa.types.is_floating(field.type)]
        self._scan = file.to_repeated_scan(columns.names)
        self._starts = [0, *(end for _, end in file.splits())]
        self._stretches: dict[int, Any] | None = {} if mapped else None

    def rows(self, positions: Sequence[int]) -> list[dict[str, Any]] | None:
        """Some rows; None: Python values of these columns might not be exactly what is there."""
        if not self._exact:
            return None
        try:
            rows = [self._scalar(position) for position in positions]
        except BaseException as error:
            raise self._explained(error) from None
        for name in self._floats:
            if any(row[name] != row[name] for row in rows):  # Python may change the bits of a NaN
                return None
        return rows

    def as_batch(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_struct_array(pa.array(rows, self._type))

    def row(self, position: int) -> dict[str, Any]:
        if not self._scalars:
            return python_dicts(self.batch(position))[0]
        try:
            row: dict[str, Any] = self._scalar(position)
        except BaseException as error:
            raise self._explained(error) from None
        for name, decode in self._times:
            if (value := row[name]) is not None:
                row[name] = decode(value)
        return row

    def batch(self, position: int) -> pa.RecordBatch:
        try:
            rows = self._scan.execute(row_range=(position, position + 1)).read_all().to_arrow_array()
        except BaseException as error:
            raise self._explained(error) from None
        return decoded(pa.RecordBatch.from_struct_array(rows), self._columns)

    def taken(self, positions: Positions, stored: pa.Schema) -> Iterator[pa.RecordBatch] | None:
        """Rows at ascending positions in their stored types; None: a scan reads them faster."""
        if self._stretches is None:
            return None
        bounds = np.searchsorted(positions, np.array(self._starts, np.uint64)).tolist()
        there = [n for n in range(len(bounds) - 1) if bounds[n] < bounds[n + 1]]
        if len(there) > _FEW_STRETCHES:
            return None
        return (self._taken(n, positions[bounds[n] : bounds[n + 1]], pa.struct(list(stored))) for n in there)

    def _taken(self, number: int, positions: Positions, type: Any) -> pa.RecordBatch:
        import vortex

        try:
            places = vortex.array(pa.array(positions - np.uint64(self._starts[number])))
            rows = self._stretch(number).take(places).to_arrow_array(arrow_type=type, combine_chunks=True)
        except BaseException as error:
            raise self._explained(error) from None
        return pa.RecordBatch.from_struct_array(rows)

    def _scalar(self, position: int) -> Any:
        if self._stretches is None:
            return self._scan.scalar_at(position).as_py()
        number = bisect_right(self._starts, position) - 1
        return self._stretch(number).scalar_at(position - self._starts[number]).as_py()

    def _stretch(self, number: int) -> Any:
        assert self._stretches is not None
        found = self._stretches.get(number)
        if found is None:
            found = self._scan.execute(row_range=(self._starts[number], self._starts[number + 1])).read_all()
            if len(self._stretches) >= _KEPT:
                self._stretches.clear()
            self._stretches[number] = found
        return found


def _has_scalars(type: Any) -> bool:
    """Whether a single value of this type read by Vortex is the Python value Arrow gives, or its integer."""
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
    """Vortex gives names of struct fields as it would print them: quotes and some other characters escaped."""
    return name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
