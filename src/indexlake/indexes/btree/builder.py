"""Makes a key segment from the rows of one block after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree.writer import segment_content
from indexlake.indexes.keys import KeyColumn
from indexlake.indexes.kind import Content, Slots
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.schema import Field


class Builder:
    """Collects the keys of the rows."""

    def __init__(self, key_fields: Sequence[Field], *, lasting: bool) -> None:
        self._codecs = [f.codec for f in key_fields]
        self._lasting = lasting
        ints = len(self._codecs) == 1 and self._codecs[0].kind == "int"
        self._keys = [KeyColumn.from_keys([], ints=ints)]
        self._slots: list[Slots] = [np.zeros(0, np.int64)]
        self._starts = [0]
        self._next = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        parts = list(columns[: len(self._codecs)])
        rows = len(parts[0])
        slots = np.arange(self._next, self._next + rows)
        self._next += rows
        missing = _any_null(parts)
        if missing is not None:
            there = pa.array(~missing)
            parts = [keep(part, there) for part in parts]
            slots = slots[~missing]
        self._keys.append(KeyColumn.from_arrays(self._codecs, parts))
        self._slots.append(slots)

    def end_block(self) -> None:
        self._starts.append(self._next)

    def keyed(self) -> tuple[KeyColumn, Slots]:
        """The keys of the rows without a null in their key, in the order of their slots, and those slots."""
        self._keys = [KeyColumn.concat(self._keys)]
        self._slots = [np.concatenate(self._slots)]
        return self._keys[0], self._slots[0]

    def content(self) -> Content:
        return segment_content(*self.keyed(), self._starts, filtered=self._lasting)


def _any_null(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null in one of the columns; None: no row."""
    found: npt.NDArray[np.bool_] | None = None
    for column in columns:
        if column.null_count:
            nulls = np.asarray(pc.is_null(column))
            found = nulls if found is None else found | nulls
    return found
