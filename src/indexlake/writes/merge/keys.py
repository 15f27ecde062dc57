"""The ``on`` values of a source as keys, and which of its rows have each of them.

Values of the source are compared in the type of the table's column. That is exact: a value that this type cannot hold
equals nothing in the column. NaN equals itself, -0.0 equals 0.0, NULL equals nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from indexlake.arrow import kernels as pc
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import KeyColumn
from indexlake.schema import Field
from indexlake.types import Codec, codec_for
from indexlake.types.convert import checked_cast, mapped_leaves, without_view

if TYPE_CHECKING:
    from indexlake.writes.merge.on import On
    from indexlake.writes.merge.source import Source

PAIRS = 65_536
"""How many pairs of rows are handled at a time."""


def plain_type(f: Field) -> pa.DataType:
    """Return the type of a column's values, without dictionary or view."""
    return mapped_leaves(f.type, without_view)


def exactly(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return the values in another type, with NULL for those that it cannot hold exactly."""
    if array.type == type:
        return array
    if pt.is_integer(array.type) and pt.is_decimal(type):
        array = array.cast(pa.decimal128(20, 0))  # Arrow refuses types that are too small for some values
    elif pt.is_float16(array.type):
        array = array.cast(pa.float32())
    try:
        cast = checked_cast(array, type)
        if pt.is_null(array.type) or pt.is_decimal(array.type) or pt.is_decimal(type):
            return cast  # Arrow changes no digit, but converting back may need more digits than the type has
        same = pc.equal(cast.cast(array.type), array)
        if pt.is_floating(type):
            same = pc.or_(same, pc.is_nan(array))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) < 2:
            return pa.nulls(len(array), type)
        if pt.is_integer(array.type) and pt.is_integer(type) and (fitting := _in_range(array, type)) is not None:
            return exactly(fitting, type)
        half = len(array) // 2
        return pa.concat_arrays([exactly(array.slice(0, half), type), exactly(array.slice(half), type)])
    return cast if pc.all(same).as_py() is not False else pc.if_else(same, cast, None)


def _in_range(array: pa.Array, type: pa.DataType) -> pa.Array | None:
    """Replace integers outside the range of a type by NULL; return None if there are none."""
    bits = type.bit_width - pt.is_signed_integer(type)
    low, high = (-(1 << bits) if pt.is_signed_integer(type) else 0), (1 << bits) - 1
    own = array.type.bit_width - pt.is_signed_integer(array.type)
    inside = None
    if low > (-(1 << own) if pt.is_signed_integer(array.type) else 0):
        inside = pc.greater_equal(array, pa.scalar(low, array.type))
    if high < (1 << own) - 1:
        below = pc.less_equal(array, pa.scalar(high, array.type))
        inside = below if inside is None else pc.and_(inside, below)
    return None if inside is None or pc.all(inside).as_py() is not False else pc.if_else(inside, array, None)


def keys_of(arrays: Sequence[pa.Array], fields: Sequence[Field]) -> tuple[npt.NDArray[np.int64] | None, KeyColumn]:
    """Return the rows without NULL (None: all) and their keys, for columns in the plain types of some fields."""
    codecs: list[Codec] = [codec_for(plain_type(f)) for f in fields]
    present: Any = None
    for array in arrays:
        if array.null_count:
            valid = np.asarray(array.is_valid())
            present = valid if present is None else present & valid
    if present is None:
        return None, KeyColumn.from_arrays(codecs, list(arrays))
    rows = np.flatnonzero(present)
    return rows, KeyColumn.from_arrays(codecs, [array.take(pa.array(rows)) for array in arrays])


class SourceKeys:
    """The ``on`` values of a source, and which of its rows have each of them."""

    def __init__(self, source: Source, on: On) -> None:
        self._source = source
        self._on = on
        self.column, self.rows = self._keys(on.pairs)  # of the rows without NULL, and their numbers
        self.set = KeySet(self.column)

    def _keys(self, pairs: Sequence[tuple[Field, str]]) -> tuple[KeyColumn, npt.NDArray[np.int64]]:
        fields = [f for f, _ in pairs]
        parts: list[KeyColumn] = []
        numbers: list[npt.NDArray[np.int64]] = []
        for start, batch in self._source.batches(list(dict.fromkeys(column for _, column in pairs))):
            rows, keys = keys_of([exactly(batch.column(column), plain_type(f)) for f, column in pairs], fields)
            parts.append(keys)
            numbers.append(start + (np.arange(batch.num_rows) if rows is None else rows))
        if not parts:
            return keys_of([pa.nulls(0, plain_type(f)) for f in fields], fields)[1], np.zeros(0, np.int64)
        return KeyColumn.concat(parts) if len(parts) > 1 else parts[0], np.concatenate(numbers)

    def primary(self, count: int) -> KeyColumn:
        """Return the distinct keys made of the first ``count`` columns."""
        return self.set.keys if count == len(self._on.pairs) else KeySet(self._keys(self._on.pairs[:count])[0]).keys

    def find(self, arrays: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows that have a partner, given the table's columns, and the numbers of their keys."""
        present, keys = keys_of(arrays, self._on.fields)
        indices, numbers = self.set.find(keys)
        return (indices if present is None else present[indices]), numbers

    def pairs(
        self, indices: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield (index, source row) of all pairs, some at a time."""
        starts = self.set.starts
        counts = starts[numbers + 1] - starts[numbers]
        if not len(counts):
            return
        if int(counts.max()) == 1:
            for at in range(0, len(indices), PAIRS):
                yield indices[at : at + PAIRS], self.rows[self.set.order[starts[numbers[at : at + PAIRS]]]]
            return
        ends = np.cumsum(counts)
        for at in range(0, int(ends[-1]), PAIRS):
            flat = np.arange(at, min(at + PAIRS, int(ends[-1])))
            which = np.searchsorted(ends, flat, "right")
            within = flat - (ends[which] - counts[which])
            yield indices[which], self.rows[self.set.order[starts[numbers[which]] + within]]

    def bounds(self, n: int, few: int) -> tuple[list[Any] | None, Any, Any] | None:
        """Return (the distinct values of column n if they are few, minimum, maximum); None: Python cannot hold them."""
        f, column = self._on.pairs[n]
        if not _is_python(plain_type(f)):
            return None
        values: set[Any] | None = set()
        low = high = None
        try:
            for _, batch in self._source.batches([column]):
                array = exactly(batch.column(column), plain_type(f))
                if values is not None:
                    values.update(pc.unique(array).drop_null().to_pylist())
                    values = values if len(values) <= few else None
                ends = pc.min_max(array).as_py()
                if ends["min"] is not None:
                    low = ends["min"] if low is None else min(low, ends["min"])
                    high = ends["max"] if high is None else max(high, ends["max"])
        except (ValueError, OverflowError):  # times outside the range of Python's datetime
            return None
        return (None if values is None else list(values)), low, high


def _is_python(type: pa.DataType) -> bool:
    """Return whether Python values of a type are exact, and ordered as SQL orders them."""
    naive = pt.is_timestamp(type) and type.tz is None and type.unit != "ns"
    kinds = (pt.is_integer, pt.is_boolean, pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
    return naive or pt.is_date32(type) or any(kind(type) for kind in kinds)
