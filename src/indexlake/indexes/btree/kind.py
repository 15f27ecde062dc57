"""The kind "btree": sorted runs of keys behind a Bloom filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from indexlake.errors import SchemaError
from indexlake.indexes.btree.builder import Builder
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.btree.writer import segment_content
from indexlake.indexes.keys import KeyColumn
from indexlake.indexes.kind import Content, IndexKind, refuse_include, refuse_params

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.schema import Field
    from indexlake.storage import InputFile


class BTree(IndexKind):
    name = "btree"

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        refuse_params(self.name, params, ())
        refuse_include(self.name, include)
        for field in fields:
            if not field.codec.ordered:
                raise SchemaError(f"Column {field.name!r} is of type {field.type}, whose values have no order.")
        return {}

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> Builder:
        return Builder(fields[: len(index.key_field_ids)], lasting=lasting)

    def open(self, index: Index, file: InputFile) -> Segment:
        return Segment(file)

    def merge(self, index: Index, inputs: Sequence[tuple[Segment, Sequence[int]]]) -> Content:
        starts = [0]
        keys, slots = [], []
        for segment, ordinals in inputs:
            old = np.array(segment.starts)
            shift = np.full(len(old) - 1, -1)
            for ordinal in ordinals:
                shift[ordinal] = starts[-1] - old[ordinal]
                starts.append(starts[-1] + int(old[ordinal + 1] - old[ordinal]))
            kept = np.zeros(len(shift), np.bool_)
            kept[list(ordinals)] = True
            every = segment.key_slots()
            blocks = np.searchsorted(old, every, "right") - 1
            here = np.flatnonzero(kept[blocks])
            keys.append(segment.keys().take(here))
            slots.append(every[here] + shift[blocks[here]])
        places = np.concatenate(slots)
        order = np.argsort(places, kind="stable")
        return segment_content(KeyColumn.concat(keys).take(order), places[order], starts)
