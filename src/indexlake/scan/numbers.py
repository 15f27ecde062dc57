"""Numeric columns by slot, for searches that read few rows again and again.

Reading a single number costs as much as reading a few hundred together.  So once enough rows of a column have been
asked for, it is read whole and remembered while there is room: what block files hold never changes.  Only columns
without nulls are kept, and only types whose values, NaN aside, survive conversion to Python unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.open_files import Recent

READ_WHOLE = 512
"""A column is read whole once one in this many of its rows has been asked for."""

MOST_BYTES = 64 << 20
_MOST_COLUMNS = 4096

Column = npt.NDArray[Any]


class _Usage:
    """A column of some blocks: how many of its rows were asked for, and its values once it has been read whole."""

    __slots__ = ("asked", "blocks", "values")

    def __init__(self, blocks: Sequence[int]) -> None:
        self.blocks = blocks
        self.asked: float = 0
        self.values: Column | None = None


class Numbers:
    """Safe to share between threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._columns: Recent[_Usage] = Recent(_MOST_COLUMNS, most_bytes)

    def column(
        self, key: str, blocks: Sequence[int], slots: int, wanted: int, read: Callable[[], Column | None]
    ) -> Column | None:
        """Return the column ``key`` of these blocks, by slot, or None if it has not been worth reading so far.

        ``wanted`` of its ``slots`` are needed now.  ``read`` returns the column, or None if it cannot be kept.
        """
        known = self._columns.get(key)
        if known is None or known.blocks != blocks:
            known = _Usage(blocks)
            self._columns.put(key, known)
        if known.values is None:
            known.asked += wanted
            if known.asked * READ_WHOLE >= slots and slots * 8 <= self._most_bytes:
                values = read()
                if values is None:
                    known.asked = -np.inf
                else:
                    known.values = values
                    self._columns.put(key, known, values.nbytes)
        return known.values


def plain(type: pa.DataType) -> bool:
    """Return whether columns of this type can be kept."""
    return bool(pa.types.is_integer(type) or pa.types.is_float32(type) or pa.types.is_float64(type))


def numbers_of(array: pa.Array) -> Column | None:
    """Return the values of a column in memory, or None if it has nulls or is of another type."""
    return array.to_numpy() if plain(array.type) and not array.null_count else None
