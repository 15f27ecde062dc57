"""Dictionary types: stored as their values, dictionary-encoded again when read.

Type, index type and ``ordered`` flag are preserved; the dictionary contains the values that occur, each once (in value
order if ``ordered``).  A batch with more distinct values than the index type can number cannot be built: ``decode``
raises ``ConstraintError``; decode fewer rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import ConstraintError
from indexlake.types.codec import Codec, SqlValue

TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text with few distinct values, for readers that accept any encoding of a column's values."""


def is_text(type: Any) -> bool:
    """Return whether the values of a type are text, whatever their encoding."""
    t = pa.types
    if t.is_dictionary(type):
        return is_text(type.value_type)
    return bool(t.is_string(type) or t.is_large_string(type) or t.is_string_view(type))


def as_text_dictionary(array: Any) -> Any:
    """Return text as `TEXT` without comparing it: if it is not a dictionary yet, each row gets its own entry."""
    if array.type == TEXT:
        return array
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary.cast(pa.string()))
    indices = pa.array(np.arange(len(array), dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, array.cast(pa.string()))


class DictionaryCodec(Codec):
    def __init__(self, type: Any, values: Codec) -> None:
        super().__init__(type)
        self.values = values
        self.kind = values.kind
        self.ordered = values.ordered
        self.storage = values.storage
        self.exact = values.exact
        self.json_text = values.json_text
        self.json_value = values.json_value

    def array(self, values: Sequence[Any]) -> Any:
        return self.encode_array(self.values.array(values))

    def encode_array(self, array: Any) -> Any:
        """Return plain values as an array of this dictionary type."""
        return self.from_storage(self.values.to_storage(array))

    def decode_array(self, array: Any) -> Any:
        """Return the plain values of an array of this dictionary type."""
        return self.values.from_storage(self.to_storage(array))

    def to_storage(self, array: Any) -> Any:
        try:
            return self.values.to_storage(array.dictionary).take(array.indices)
        except pa.ArrowInvalid:
            raise ConstraintError(
                f"One batch of {len(array):,} rows of {self.type} holds more than 2 GiB when its values are written "
                "out. Give smaller batches."
            ) from None

    def from_storage(self, array: Any) -> Any:
        encoded = array.dictionary_encode()
        distinct, indices = encoded.dictionary, encoded.indices
        if self.type.ordered and len(distinct) > 1:
            order = pc.sort_indices(distinct)
            indices = pc.sort_indices(order).take(indices)  # the inverse permutation gives each value's rank
            distinct = distinct.take(order)
        try:
            indices = indices.cast(self.type.index_type)
        except pa.ArrowInvalid:
            raise ConstraintError(
                f"One batch holds {len(distinct)} distinct values, more than the index type of {self.type} "
                "can number. Read smaller batches, or use a wider index type such as int32."
            ) from None
        dictionary = self.values.from_storage(distinct)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=self.type.ordered)

    def encode_one(self, value: Any) -> SqlValue:
        return self.values.encode_one(value)

    def encode_constant(self, value: Any) -> SqlValue:
        return self.values.encode_constant(value)

    def decode_one(self, value: SqlValue) -> Any:
        return self.values.decode_one(value)

    def canonical(self, value: SqlValue) -> SqlValue:
        return self.values.canonical(value)

    def _canonical_chunk(self, array: Any) -> Any:
        return self.values.canonical_array(self.decode_array(array))
