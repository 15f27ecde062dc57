"""The kind "hash": for equality on all its columns, in 12 bytes a row however long the keys are.

A segment is a sorted run, like those of the kind "btree" but of the 64-bit hashes of keys, and without a filter.
Different keys may have the same hash, so rows found have to be compared.  Rows with a null in their key are not in it,
except that an index on one column knows in which rows the column is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indexlake.errors import SchemaError
from indexlake.indexes.btree.builder import Builder
from indexlake.indexes.btree.merge import merged
from indexlake.indexes.btree.probe import KeyProbe, key_probe
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.keys import hash_key
from indexlake.indexes.kind import Content, IndexKind, refuse_include, refuse_params, refuse_unique

if TYPE_CHECKING:
    from indexlake.expr.test import Test
    from indexlake.indexes.index import Index
    from indexlake.schema import Field
    from indexlake.storage import InputFile


class HashIndex(IndexKind):
    name = "hash"

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        refuse_params(self.name, params, ())
        refuse_unique(self.name, unique)
        refuse_include(self.name, include)
        for field in fields:
            if not field.codec.ordered:
                raise SchemaError(f"Column {field.name!r} is of type {field.type}, which a hash index cannot look up.")
        return {}

    def hot_fields(self, fields: Sequence[Field]) -> Sequence[Field]:
        return fields

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> Builder:
        return Builder(fields, (), lasting=False, hashed=True)

    def open(self, index: Index, file: InputFile) -> Segment:
        return Segment(file)

    def merge(self, index: Index, inputs: Sequence[tuple[Segment, Sequence[int]]]) -> Content:
        return merged(inputs, filtered=False)

    def probe(self, index: Index, fields: Sequence[Field], test: Test) -> KeyProbe | None:
        probe = key_probe(fields, test)
        if probe is None or not (probe.keys or probe.nulls):
            return None
        return replace(probe, keys=tuple(sorted({hash_key(key) for key in probe.keys})), exact=probe.nulls)
