"""Makes a key segment from the rows of one block after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree.partial import partial_keys
from indexlake.indexes.btree.values import value_schema, value_sections
from indexlake.indexes.btree.writer import Entries, segment_content
from indexlake.indexes.keys import KeyColumn
from indexlake.indexes.kind import Content, Slots
from indexlake.types import codec_for
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.schema import Field

_NOTHING = np.zeros(0, np.int64)


class Builder:
    """Collects the keys of the rows, and their columns where the index includes some."""

    def __init__(self, key_fields: Sequence[Field], included: Sequence[Field], *, lasting: bool) -> None:
        self._codecs = [f.codec for f in key_fields]
        self._lasting = lasting
        self._schema = value_schema([*key_fields, *included]) if included else None
        ints = len(self._codecs) == 1 and self._codecs[0].kind == "int"
        self._keys = [KeyColumn.from_keys([], ints=ints)]
        self._slots: list[Slots] = [_NOTHING]
        self._partial = [KeyColumn.from_keys([], ints=False)]
        self._null_slots: list[Slots] = [_NOTHING]
        self._batches: list[pa.RecordBatch] = []
        self._starts = [0]
        self._next = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        parts = list(columns[: len(self._codecs)])
        slots = np.arange(self._next, self._next + len(parts[0]))
        self._next += len(slots)
        if self._schema is not None:
            self._batches.append(pa.RecordBatch.from_arrays(list(columns), schema=self._schema))
        missing = _any_null(parts)
        if missing is not None:
            self._null_slots.append(slots[missing])
            if len(parts) > 1:
                self._partial.append(partial_keys(self._codecs, [keep(part, pa.array(missing)) for part in parts]))
            parts, slots = [keep(part, pa.array(~missing)) for part in parts], slots[~missing]
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
        return segment_content(self.entries(), filtered=self._lasting)

    def entries(self) -> Entries:
        """What goes into the segment."""
        keys, slots = self.keyed()
        incomplete = np.concatenate(self._null_slots)
        several = len(self._codecs) > 1
        return Entries(
            keys,
            slots,
            self._starts,
            KeyColumn.concat(self._partial) if several else None,
            incomplete if several else _NOTHING,
            _NOTHING if several else incomplete,
            {} if self._schema is None else value_sections(self._batches, self._schema),
        )


class ElementBuilder:
    """Collects the elements of lists: an entry for each that is not null."""

    def __init__(self, field: Field, *, lasting: bool) -> None:
        self._codec = codec_for(field.type.value_type)
        self._lasting = lasting
        self._keys = [KeyColumn.from_keys([], ints=self._codec.kind == "int")]
        self._slots: list[Slots] = [_NOTHING]
        self._starts = [0]
        self._next = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        lists = columns[0]
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
        elements, slots = lists.flatten(), np.repeat(np.arange(self._next, self._next + len(lists)), lengths)
        self._next += len(lists)
        missing = _any_null([elements])
        if missing is not None:
            elements, slots = keep(elements, pa.array(~missing)), slots[~missing]
        self._keys.append(KeyColumn.from_arrays([self._codec], [elements]))
        self._slots.append(slots)

    def end_block(self) -> None:
        self._starts.append(self._next)

    def content(self) -> Content:
        entries = Entries(KeyColumn.concat(self._keys), np.concatenate(self._slots), self._starts)
        return segment_content(entries, filtered=self._lasting, repeated=True)


def _any_null(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null in one of the columns; None: no row."""
    found: npt.NDArray[np.bool_] | None = None
    for column in columns:
        if column.null_count:
            nulls = np.asarray(pc.is_null(column))
            found = nulls if found is None else found | nulls
    return found
