"""The kind "btree": sorted runs of keys behind a Bloom filter.  For a list column, the keys are the elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import ConstraintError, SchemaError
from indexlake.expr.test import ColumnTest, Test, conjuncts
from indexlake.indexes.btree.builder import Builder, ElementBuilder
from indexlake.indexes.btree.merge import merged
from indexlake.indexes.btree.probe import KeyProbe, key_probe, shown
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.keys import encode_key
from indexlake.indexes.kind import Content, IndexKind, SegmentBuilder, refuse_params
from indexlake.types import codec_for

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
        if any(_is_list(f) for f in fields):
            _check_list(fields, include, unique)
            return {}
        for field in fields:
            if not field.codec.ordered:
                raise SchemaError(
                    f"Column {field.name!r} is of type {field.type}, whose values have no order, so it cannot be in "
                    "the key of a btree index. It can be included: include=[…]."
                )
        return {}

    def hot_fields(self, fields: Sequence[Field]) -> Sequence[Field]:
        return () if _is_list(fields[0]) else fields

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> SegmentBuilder:
        keys = len(index.key_field_ids)
        if _is_list(fields[0]):
            return ElementBuilder(fields[0], lasting=lasting)
        return Builder(fields[:keys], fields[keys:], lasting=lasting)

    def open(self, index: Index, file: InputFile) -> Segment:
        return Segment(file)

    def merge(self, index: Index, inputs: Sequence[tuple[Segment, Sequence[int]]]) -> Content:
        return merged(inputs)

    def probe(self, index: Index, fields: Sequence[Field], test: Test) -> KeyProbe | None:
        keys = fields[: len(index.key_field_ids)]
        return _element_probe(keys[0], test) if _is_list(keys[0]) else key_probe(keys, test)

    def orders(
        self, index: Index, fields: Sequence[Field], order: Sequence[tuple[str, bool]], probe: KeyProbe | None = None
    ) -> bool:
        """Return whether `Segment.in_order` yields a probe's rows, or all, in this order of (file column, descending).

        Nulls come last.  Columns that the probe fixes to one value may be left out of the order.
        """
        keys = fields[: len(index.key_field_ids)]
        if _is_list(keys[0]) or len({descending for _, descending in order}) != 1:
            return False
        fixed = frozenset[str]() if probe is None else probe.fixed
        wanted = [column for column, _ in order if column not in fixed]
        sorted_by = [f for f in keys if f.column not in fixed][: len(wanted)]
        if [f.column for f in sorted_by] != wanted:
            return False
        return len(keys) == 1 or not order[0][1] or not any(f.nullable for f in sorted_by)


def _is_list(field: Field) -> bool:
    t = pa.types
    return bool(t.is_list(field.type) or t.is_large_list(field.type) or t.is_fixed_size_list(field.type))


def _check_list(fields: Sequence[Field], include: Sequence[Field], unique: bool) -> None:
    field = next(f for f in fields if _is_list(f))
    if len(fields) > 1:
        raise SchemaError(
            f"Column {field.name!r} is a list. A btree index on the elements of a list has no other column in its key."
        )
    if unique:
        raise SchemaError(f"Column {field.name!r} is a list. An index on the elements of a list cannot be unique.")
    if include:
        raise SchemaError(
            f"Column {field.name!r} is a list. An index on the elements of a list cannot include further columns."
        )
    if not codec_for(field.type.value_type).ordered:
        raise SchemaError(f"Column {field.name!r} is of type {field.type}: its elements have no order.")


def _element_probe(field: Field, test: Test) -> KeyProbe | None:
    codec = codec_for(field.type.value_type)
    for part in conjuncts(test):
        if isinstance(part, ColumnTest) and part.column == field.column and part.op == "contains":
            try:
                value = codec.canonical(codec.encode_constant(part.values[0]))
            except ConstraintError:
                continue
            return KeyProbe((f"{field.name} contains {shown(codec, value)}",), (encode_key([codec], [value]),))
    return None
