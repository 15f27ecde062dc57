"""Columns of numbers by slot, for searches that read few rows again and again.

A number that is read by itself costs as much as some hundred that are read together.  So where one in so many rows of
a segment has been asked for, the column is read whole and remembered, as far as there is room: what block files hold
never changes.  Only numbers without nulls, which Python values tell exactly but for NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.open_files import Recent

READ_WHOLE = 512
"""All numbers are read when one in so many has been asked for."""

MOST_BYTES = 64 << 20
_MOST_COLUMNS = 4096

Column = npt.NDArray[Any]


class _Known:
    """A column of some blocks: how many rows were asked for, and its numbers as soon as they are worth it."""

    __slots__ = ("asked", "blocks", "values")

    def __init__(self, blocks: Sequence[int]) -> None:
        self.blocks = blocks
        self.asked: float = 0
        self.values: Column | None = None


class Numbers:
    """Safe to share between threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._columns: Recent[_Known] = Recent(_MOST_COLUMNS, most_bytes)

    def column(
        self, key: str, blocks: Sequence[int], slots: int, wanted: int, read: Callable[[], Column | None]
    ) -> Column | None:
        """The column ``key`` of a segment that has these blocks, where so many of its slots are wanted.

        None: not at hand.  ``read`` gives it, or None if it is no column of plain numbers.
        """
        known = self._columns.get(key)
        if known is None or known.blocks != blocks:
            known = _Known(blocks)
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
    """Whether columns of the type are kept."""
    return bool(pa.types.is_integer(type) or pa.types.is_float32(type) or pa.types.is_float64(type))


def numbers_of(array: pa.Array) -> Column | None:
    """The numbers of a column in memory; None: it has nulls, or other values."""
    return array.to_numpy() if plain(array.type) and not array.null_count else None
