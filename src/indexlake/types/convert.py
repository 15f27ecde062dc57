"""One exact conversion between the types in which values are held, and mapping over the leaves of nested types.

``convert`` turns an array of one type into another with the same values: dictionaries and plain values, views and plain
strings, moments and their integers, decimals of another width; also inside nested types.  Converting there and back
gives the same array, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import (
    children_of,
    chunks,
    fields_of,
    fixed_array,
    fixed_values,
    holds,
    nested_array,
    null_mask,
    parts_of,
    with_parts,
)
from indexlake.errors import ConstraintError
from indexlake.types import codec_for
from indexlake.types.decimals import with_width
from indexlake.types.dictionaries import DictionaryCodec
from indexlake.types.hugeint import HELD_AS, HUGEINT, UHUGEINT, WIDE
from indexlake.types.nested import list_parts, offsets_of
from indexlake.types.uuids import as_uuids, is_uuid

_Mask = npt.NDArray[np.bool_] | None


def mapped_leaves(type: Any, leaf: Callable[[Any], Any], nullable: Callable[[Any], bool] | None = None) -> Any:
    """Return a type with `leaf` applied to every non-nested type inside it; dictionaries are replaced by their values.

    ``nullable`` determines whether a field inside it may be null; without it, that stays unchanged.
    """

    def field(inner: Any) -> Any:
        may_be_null = inner.nullable if nullable is None else nullable(inner)
        return pa.field(inner.name, mapped_leaves(inner.type, leaf, nullable), may_be_null)

    if pa.types.is_dictionary(type):
        return mapped_leaves(type.value_type, leaf, nullable)
    parts = [field(inner) for inner in parts_of(type)]
    return with_parts(type, parts) if parts else leaf(type)


def without_view(type: Any) -> Any:
    """Return a leaf type that pyarrow can select rows of, which it cannot do with string and binary views."""
    if pa.types.is_string_view(type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(type) else type


def checked_cast(array: Any, type: Any) -> Any:
    """Apply Arrow's checked cast; decimals of 32 and 64 bits via 128 bits, as Arrow's rescaling overflows."""
    source, target = array.type, type
    if holds(source, _is_narrow_decimal):
        source = mapped_leaves(source, _wide_decimal)
    if holds(target, _is_narrow_decimal):
        target = mapped_leaves(target, _wide_decimal)
    if source is array.type and target is type:
        return array.cast(type)
    return array.cast(source).cast(target).cast(type)


def _is_narrow_decimal(type: Any) -> bool:
    return bool(pa.types.is_decimal(type) and type.bit_width < 128)


def _wide_decimal(type: Any) -> Any:
    return pa.decimal128(type.precision, type.scale) if _is_narrow_decimal(type) else type


def shown_type(type: Any) -> Any:
    """Return a type from DuckDB as users get it: 128-bit numbers as decimals, JSON as text, plain booleans."""
    return mapped_leaves(type, _shown_leaf) if holds(type, lambda t: _shown_leaf(t) != t) else type


def _shown_leaf(type: Any) -> Any:
    if type == HUGEINT:
        return HELD_AS
    if type == UHUGEINT:
        return WIDE
    if isinstance(type, pa.Bool8Type):
        return pa.bool_()
    return pa.string() if isinstance(type, pa.JsonType) else type


def in_files(type: Any) -> Any:
    """Return a leaf type as files hold it: without views, and a UUID as its bytes."""
    return type.storage_type if is_uuid(type) else without_view(type)


def _has_required(type: Any) -> bool:
    """Return whether any field inside the type, at any depth, is not nullable."""
    return any(not field.nullable or _has_required(field.type) for field in fields_of(type))


def _has_empty_slice(array: Any) -> bool:
    """Return whether a child is an empty slice with an offset, which other readers of Arrow's memory cannot handle."""
    return any((not len(child) and child.offset) or _has_empty_slice(child) for child in children_of(array))


def convert(array: Any, type: Any, hidden: _Mask = None) -> Any:
    """Convert an array or chunked array to exactly ``type``.

    ``hidden`` marks the rows below a null parent, whose values are meaningless.
    """
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([convert(chunk, type) for chunk in chunks(array)], type)
    source, t = array.type, pa.types
    if not len(array) and array.offset:
        array = pa.nulls(0, source)
    if source.equals(type, check_metadata=True) and not _has_required(type) and not _has_empty_slice(array):
        return array
    if isinstance(source, pa.BaseExtensionType):
        return _integer(array.storage, type) if t.is_decimal(type) else convert(array.storage, type)
    if is_uuid(type):
        return as_uuids(convert(array, type.storage_type))
    if t.is_dictionary(source):
        return convert(_codec(source).decode_array(array), type)
    if t.is_dictionary(type):
        return _codec(type).encode_array(convert(array, type.value_type))
    if t.is_nested(type):
        return _convert_nested(array, type, hidden)
    if t.is_temporal(source) != t.is_temporal(type):
        return array.view(type)  # between a moment and its integer
    if t.is_fixed_size_binary(type):
        return array.cast(pa.binary()).cast(type)
    if t.is_decimal(type):
        return with_width(array, type)
    return array.cast(type)


def _convert_nested(array: Any, type: Any, hidden: _Mask) -> Any:
    mask, length, t = null_mask(array), len(array), pa.types
    below = mask if hidden is None else hidden if mask is None else mask | hidden
    if t.is_struct(type):
        children = [_child(array.field(index), field, below) for index, field in enumerate(type)]
        return nested_array(type, length, mask, children)
    starts, stops, items = list_parts(array)
    lengths = stops - starts
    child = _child(items, type.field(0), None if below is None else np.repeat(below, lengths))
    offsets = None if t.is_fixed_size_list(type) else offsets_of(lengths, type)
    return nested_array(type, length, mask, [child], offsets)


def _child(array: Any, field: Any, hidden: _Mask) -> Any:
    """Convert a child; if it is required, nulls hidden by a null parent are replaced by values."""
    child = convert(array, field.type, hidden)
    if field.nullable or child.null_count == 0:
        return child
    mask = null_mask(child)
    if hidden is None or (mask is not None and (mask & ~hidden).any()):
        raise ConstraintError(f"A value of the required field {field.name!r} ({field.type}) is null.")
    return _without_nulls(child)


def _without_nulls(array: Any) -> Any:
    """Return the array with arbitrary values in place of nulls."""
    type, length, t = array.type, len(array), pa.types
    if t.is_struct(type):
        return nested_array(type, length, None, children_of(array))
    if t.is_nested(type):
        starts, stops, items = list_parts(array)
        offsets = None if t.is_fixed_size_list(type) else offsets_of(stops - starts, type)
        return nested_array(type, length, None, [items], offsets)
    codec = codec_for(type)
    stored = codec.to_storage(array)
    return codec.from_storage(pc.fill_null(stored, _any_value(stored)))


def _any_value(stored: Any) -> Any:
    """Return some encoded value: one of the array's own, else zero or an empty one."""
    if stored.null_count < len(stored):
        return stored.drop_null()[0]
    if stored.type == pa.int64():
        return pa.scalar(0)
    fixed = pa.types.is_fixed_size_binary(stored.type)
    return pa.scalar(bytes(stored.type.byte_width if fixed else 0), stored.type)


def _integer(array: Any, type: Any) -> Any:
    """Convert DuckDB's 128-bit integers, whose bits are those of a decimal without fraction."""
    if type == HELD_AS:
        return array.view(type)
    words = np.zeros((len(array), 4), np.int64)
    words[:, :2] = fixed_values(array, np.int64, 2).reshape(-1, 2)
    return fixed_array(words, type, null_mask(array), len(array))


def _codec(type: Any) -> DictionaryCodec:
    codec = codec_for(type)
    assert isinstance(codec, DictionaryCodec)
    return codec
