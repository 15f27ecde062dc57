"""Builds a key segment block by block, in memory that does not grow with the number of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree.merge import merged
from indexlake.indexes.btree.partial import partial_keys
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.btree.values import value_schema, value_sections
from indexlake.indexes.btree.writer import Entries, segment_content
from indexlake.indexes.keys import KeyColumn, hash_keys
from indexlake.indexes.kind import Content, Slots
from indexlake.indexes.spool import Spool
from indexlake.types import codec_for
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.schema import Field

RUN_BYTES = 4 << 20
"""When the blocks held have more bytes of keys than this and another begins, they are sorted and set aside."""

_NOTHING = np.zeros(0, np.int64)


class _Collector(ABC):
    """Collects keys and slots block by block.  Blocks set aside are merged at the end, so memory is bounded."""

    def __init__(self, *, ints: bool, lasting: bool) -> None:
        self._ints = ints
        self._lasting = lasting
        self._aside: list[Segment] = []
        self._next = 0
        self._begin()

    def _begin(self) -> None:
        self._first = self._next
        self._keys = [KeyColumn.from_keys([], ints=self._ints)]
        self._slots: list[Slots] = [_NOTHING]
        self._starts = [self._next]
        self._held = 0

    def _take(self, rows: int) -> Slots:
        """Return the slots of the next rows."""
        if self._held > RUN_BYTES and self._starts[-1] == self._next:
            self._put_aside()
        self._next += rows
        return np.arange(self._next - rows, self._next)

    def _hold(self, keys: KeyColumn, slots: Slots) -> None:
        self._keys.append(keys)
        self._slots.append(slots)
        self._held += keys.nbytes + slots.nbytes

    def end_block(self) -> None:
        self._starts.append(self._next)

    def keyed(self) -> tuple[KeyColumn, Slots]:
        """Return the keys of the rows without a null in their key, and their slots, in slot order.

        Only blocks that were not set aside are included; a single block never is.
        """
        if len(self._keys) > 1:
            self._keys = [KeyColumn.concat(self._keys)]
            self._slots = [np.concatenate(self._slots)]
        return self._keys[0], self._slots[0]

    def content(self) -> Content:
        if not self._aside:
            return self._content(filtered=self._lasting)
        self._put_aside()
        return merged([(each, range(len(each.starts) - 1)) for each in self._aside], filtered=self._lasting)

    def _put_aside(self) -> None:
        spool = Spool()
        for piece in self._content(filtered=False).pieces:
            spool.write(piece)
        self._aside.append(Segment(spool.as_file()))
        self._begin()

    @abstractmethod
    def _content(self, *, filtered: bool) -> Content:
        """Return a segment of the blocks that were not set aside."""

    def _entries(self) -> Entries:
        keys, slots = self.keyed()
        return Entries(keys, slots - self._first, [start - self._first for start in self._starts])


class Builder(_Collector):
    """Collects the keys of rows, and their columns if the index includes any.

    With ``hashed``, hashes are stored instead of keys, and rows with a null in a key of several columns are left out.
    """

    def __init__(
        self, key_fields: Sequence[Field], included: Sequence[Field], *, lasting: bool, hashed: bool = False
    ) -> None:
        self._codecs = [f.codec for f in key_fields]
        self._hashed = hashed
        self._schema = value_schema([*key_fields, *included]) if included else None
        ints = hashed or (len(self._codecs) == 1 and self._codecs[0].kind == "int")
        super().__init__(ints=ints, lasting=lasting)

    def _begin(self) -> None:
        super()._begin()
        self._partial = [KeyColumn.from_keys([], ints=False)]
        self._null_slots: list[Slots] = [_NOTHING]
        self._batches: list[pa.RecordBatch] = []

    def add(self, columns: Sequence[pa.Array]) -> None:
        parts = list(columns[: len(self._codecs)])
        slots = self._take(len(parts[0]))
        if self._schema is not None:
            self._batches.append(pa.RecordBatch.from_arrays(list(columns), schema=self._schema))
            self._held += self._batches[-1].nbytes
        missing = _any_null(parts)
        if missing is not None:
            self._null_slots.append(slots[missing])
            if self._has_partial:
                self._partial.append(partial_keys(self._codecs, [keep(part, pa.array(missing)) for part in parts]))
                self._held += self._partial[-1].nbytes
            parts, slots = [keep(part, pa.array(~missing)) for part in parts], slots[~missing]
        keys = KeyColumn.from_arrays(self._codecs, parts)
        self._hold(KeyColumn(ints=hash_keys(keys)) if self._hashed else keys, slots)

    @property
    def _has_partial(self) -> bool:
        return len(self._codecs) > 1 and not self._hashed

    def _content(self, *, filtered: bool) -> Content:
        entries = self._entries()
        incomplete = np.concatenate(self._null_slots) - self._first
        values = {} if self._schema is None else value_sections(self._batches, self._schema)
        if self._has_partial:
            entries = replace(entries, partial_keys=KeyColumn.concat(self._partial), partial_slots=incomplete)
        elif len(self._codecs) == 1:
            entries = replace(entries, nulls=incomplete)
        return segment_content(replace(entries, values=values), filtered=filtered)


class ElementBuilder(_Collector):
    """Collects the elements of lists: one entry for each element that is not null."""

    def __init__(self, field: Field, *, lasting: bool) -> None:
        self._codec = codec_for(field.type.value_type)
        super().__init__(ints=self._codec.kind == "int", lasting=lasting)

    def add(self, columns: Sequence[pa.Array]) -> None:
        lists = columns[0]
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
        elements, slots = lists.flatten(), np.repeat(self._take(len(lists)), lengths)
        missing = _any_null([elements])
        if missing is not None:
            elements, slots = keep(elements, pa.array(~missing)), slots[~missing]
        self._hold(KeyColumn.from_arrays([self._codec], [elements]), slots)

    def _content(self, *, filtered: bool) -> Content:
        return segment_content(self._entries(), filtered=filtered, repeated=True)


def _any_null(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Return which rows have a null in any of the columns, or None if none has."""
    found: npt.NDArray[np.bool_] | None = None
    for column in columns:
        if column.null_count:
            nulls = np.asarray(pc.is_null(column))
            found = nulls if found is None else found | nulls
    return found
