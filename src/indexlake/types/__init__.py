"""Column types: which ones are supported, their text in the catalog, and how their values are stored there.

The guarantee: a value that goes in comes out bit for bit the same and with the same Arrow type, from every tier.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types import pickling as _pickling  # noqa: F401 (fixes what pyarrow loses in pickles)
from indexlake.types.binaries import BinaryCodec, FixedBinaryCodec, StringCodec
from indexlake.types.codec import Codec, SqlValue
from indexlake.types.decimals import SMALL_PRECISION, HugeintCodec, LargeDecimalCodec, SmallDecimalCodec
from indexlake.types.dictionaries import DictionaryCodec
from indexlake.types.floats import FloatCodec
from indexlake.types.hugeint import is_hugeint
from indexlake.types.integers import BooleanCodec, IntegerCodec, UnsignedCodec
from indexlake.types.nested import ListCodec, MapCodec, StructCodec
from indexlake.types.support import check_supported
from indexlake.types.temporals import TemporalCodec
from indexlake.types.text import type_from_text, type_to_text
from indexlake.types.uuids import UuidCodec, is_uuid
from indexlake.types.validity import check_values, holds_null

__all__ = [
    "HUGEINTS",
    "Codec",
    "SqlValue",
    "check_supported",
    "check_values",
    "codec_for",
    "codec_of",
    "holds_null",
    "type_from_text",
    "type_to_text",
]

_plain: dict[Any, Codec] = {}
_nested: dict[str, Codec] = {}
HUGEINTS = HugeintCodec()


def codec_for(type: Any) -> Codec:
    """Return the codec of a supported type.

    >>> codec_for(pa.uint64()).encode_one(2**63)
    0
    """
    codec = _plain.get(type) if not pa.types.is_nested(type) else None
    if codec is None:
        # Types compare equal even if metadata or names inside them differ, so nested types are looked up by their text.
        check_supported(type, "values", old=True)
        text = type_to_text(type)
        codec = _nested.get(text)
        if codec is None:
            codec = _nested[text] = _build(type)
        if not pa.types.is_nested(type):
            _plain[type] = codec
    return codec


def codec_of(field: Any) -> Codec:
    """Return the codec of a column, given its Arrow or table field."""
    return HUGEINTS if is_hugeint(field) else codec_for(field.type)


def _build(type: Any) -> Codec:
    t = pa.types
    if t.is_boolean(type):
        return BooleanCodec(type)
    if t.is_uint64(type):
        return UnsignedCodec(type)
    if t.is_integer(type):
        return IntegerCodec(type)
    if t.is_floating(type):
        return FloatCodec(type)
    if t.is_decimal(type):
        return SmallDecimalCodec(type) if type.precision <= SMALL_PRECISION else LargeDecimalCodec(type)
    if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type):
        return StringCodec(type)
    if t.is_fixed_size_binary(type):
        return FixedBinaryCodec(type)
    if t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type):
        return BinaryCodec(type)
    if is_uuid(type):
        return UuidCodec(type)
    if t.is_dictionary(type):
        return DictionaryCodec(type, codec_for(type.value_type))
    if t.is_struct(type):
        return StructCodec(type, [codec_for(field.type) for field in type])
    if t.is_map(type):
        return MapCodec(type, codec_for(type.key_type), codec_for(type.item_type))
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        return ListCodec(type, codec_for(type.value_type))
    return TemporalCodec(type)
