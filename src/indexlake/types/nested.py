"""Lists, structs and maps: stored as one JSON text in UTF-8 for each value.

A struct is an object, a list an array, a map an array of pairs; leaves are written as their codecs encode them (strings
as JSON strings, other bytes in base64).  Values are read back bit for bit, but have no order.  Arrays are converted one
level at a time, with whole columns of leaves at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from itertools import chain
from json.encoder import encode_basestring
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.buffers import children_of, holds, nested_array, null_mask, python_bytes
from indexlake.errors import ConstraintError
from indexlake.types.codec import NULL, Codec, SqlValue, is_missing
from indexlake.types.floats import is_float

_LARGE = pa.large_binary()
_LISTS = (list, tuple)


class NestedCodec(Codec):
    """Base of the codecs of all nested types."""

    kind: Literal["int", "bytes"] = "bytes"
    ordered = False
    storage = _LARGE

    def encode(self, array: Any) -> list[SqlValue]:
        if isinstance(array, pa.ChunkedArray):
            return [value for chunk in array.chunks for value in self.encode(chunk)]
        rows = self.to_json(self._checked(array))
        return [None if row == NULL else row.encode() for row in rows]

    def to_storage(self, array: Any) -> Any:
        return pa.array(self.encode(array), _LARGE)

    def from_storage(self, array: Any) -> Any:
        texts = [b"null" if value is None else value for value in python_bytes(array)]
        return self.from_json(json.loads(b"[" + b",".join(texts) + b"]"))

    def encode_one(self, value: Any) -> SqlValue:
        if value is None:
            return None
        row = self.to_json_one(value)
        return None if row == NULL else row.encode()

    def decode_one(self, value: SqlValue) -> Any:
        return None if value is None else self.from_json_one(json.loads(value))  # type: ignore[arg-type]

    def _canonical_chunk(self, array: Any) -> Any:
        return pa.array(self.encode(array), pa.binary())

    def _foreign(self, value: Any) -> str:
        """Encode a value of another kind than ``as_py`` returns: an Arrow scalar, or one that ``same_as`` accepts."""
        if isinstance(value, pa.Scalar):
            if value.type != self.type:
                self.refuse(value, f"it is a scalar of type {value.type}")
            return self.to_json(self.checked_scalar(value))[0]
        if is_missing(value):
            self.refuse(value, "give None for a missing value")
        return self.to_json_one(self.same_as(value))

    def _child(self, codec: Codec, nullable: bool, value: Any, place: str) -> str:
        text = NULL if value is None else codec.to_json_one(value)
        if text == NULL and not nullable:
            raise ConstraintError(f"null is not allowed in {place} of a value of type {self.type}")
        return text


class ListCodec(NestedCodec):
    """list, large_list and fixed_size_list."""

    wanted = "a list"

    def __init__(self, type: Any, item: Codec) -> None:
        super().__init__(type)
        self.item = item
        self._size = type.list_size if pa.types.is_fixed_size_list(type) else None
        self._nullable = type.value_field.nullable

    def to_json(self, array: Any) -> list[str]:
        starts, stops, items = list_parts(array)
        return _array_texts(self.item.to_json(items), starts, stops, array)

    def from_json(self, values: list[Any]) -> Any:
        mask = _mask(values)
        if self._size is not None:
            empty = [None] * self._size
            flat = list(chain.from_iterable(empty if row is None else row for row in values))
            if len(flat) != self._size * len(values):
                raise ValueError(f"a list is not of size {self._size}")
            return nested_array(self.type, len(values), mask, [self.item.from_json(flat)])
        flat = list(chain.from_iterable(row for row in values if row is not None))
        offsets = offsets_of([0 if row is None else len(row) for row in values], self.type)
        return nested_array(self.type, len(values), mask, [self.item.from_json(flat)], offsets)

    def to_json_one(self, value: Any) -> str:
        if type(value) not in _LISTS:
            return self._foreign(value)
        if self._size is not None and len(value) != self._size:
            self.refuse(value, f"it has {len(value)} items, not {self._size}")
        return f"[{','.join([self._child(self.item, self._nullable, item, 'an item') for item in value])}]"

    def from_json_one(self, value: Any) -> Any:
        return None if value is None else [self.item.from_json_one(item) for item in value]

    def same_as(self, value: Any) -> Any:
        """Return ordered collections (sequences, arrays, series) as a list.  Text and bytes are refused."""
        if isinstance(value, str | bytes | bytearray | memoryview):
            self.refuse(value, "give a list; one item alone is [value]")
        if isinstance(value, Set):
            self.refuse(value, "a set has no order; give list(value) or sorted(value)")
        if isinstance(value, Mapping):
            self.refuse(value, "give a list, for example list(value.items()) or list(value)")
        ranks = value.ndim if isinstance(value, np.ndarray) else len(getattr(value, "shape", ())) == 1
        if ranks or isinstance(value, Sequence | pa.Array | pa.ChunkedArray):
            return list(value)
        return super().same_as(value)


class StructCodec(NestedCodec):
    wanted = "a dict"

    def __init__(self, type: Any, fields: Sequence[Codec]) -> None:
        super().__init__(type)
        self.fields = tuple((field.name, field.nullable, codec) for field, codec in zip(type, fields, strict=True))
        self._names = frozenset(field.name for field in type)
        keys = [encode_basestring(field.name).replace("%", "%%") for field in type]
        self._template = f"{{{','.join([f'{key}:%s' for key in keys])}}}"

    def to_json(self, array: Any) -> list[str]:
        columns = [codec.to_json(array.field(index)) for index, (_, _, codec) in enumerate(self.fields)]
        return _with_nulls([self._template % row for row in zip(*columns, strict=True)], array)

    def from_json(self, values: list[Any]) -> Any:
        nothing: dict[str, Any] = dict.fromkeys(self._names)
        rows = [nothing if row is None else row for row in values]
        children = [codec.from_json([row[name] for row in rows]) for name, _, codec in self.fields]
        return nested_array(self.type, len(values), _mask(values), children)

    def to_json_one(self, value: Any) -> str:
        if type(value) is not dict:
            return self._foreign(value)
        if not value.keys() <= self._names:
            unknown = sorted(map(repr, value.keys() - self._names))
            self.refuse(value, f"it has no field {unknown[0]}; its fields are {', '.join(self._field_names())}")
        return self._template % tuple(
            [self._child(codec, nullable, value.get(name), f"field {name!r}") for name, nullable, codec in self.fields]
        )

    def from_json_one(self, value: Any) -> Any:
        return None if value is None else {name: codec.from_json_one(value[name]) for name, _, codec in self.fields}

    def same_as(self, value: Any) -> Any:
        """Return mappings, named tuples, and tuples with a value for each field in order, as a dict."""
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, tuple):
            names = getattr(value, "_fields", self._field_names())
            if len(names) != len(value):
                self.refuse(value, f"it has {len(value)} values for {len(names)} fields; give a dict")
            return dict(zip(names, value, strict=True))
        return super().same_as(value)

    def _field_names(self) -> list[str]:
        return [name for name, _, _ in self.fields]


class MapCodec(NestedCodec):
    wanted = "a dict or a list of pairs"

    def __init__(self, type: Any, key: Codec, item: Codec) -> None:
        super().__init__(type)
        self.key = key
        self.item = item
        self._nullable = type.item_field.nullable

    def to_json(self, array: Any) -> list[str]:
        starts, stops, entries = list_parts(array)
        keys = self.key.to_json(entries.field(0))
        items = self.item.to_json(entries.field(1))
        pairs = [f"[{key},{item}]" for key, item in zip(keys, items, strict=True)]
        return _array_texts(pairs, starts, stops, array)

    def from_json(self, values: list[Any]) -> Any:
        flat = list(chain.from_iterable(row for row in values if row is not None))
        keys = self.key.from_json([pair[0] for pair in flat])
        items = self.item.from_json([pair[1] for pair in flat])
        if keys.null_count:
            raise ValueError("a key of a map is null")  # pyarrow would abort the process
        entries = nested_array(self.type.field(0).type, len(flat), None, [keys, items])
        offsets = offsets_of([0 if row is None else len(row) for row in values], self.type)
        return nested_array(self.type, len(values), _mask(values), [entries], offsets)

    def to_json_one(self, value: Any) -> str:
        pairs = value.items() if type(value) is dict else value
        if type(value) is not dict and (
            type(value) not in _LISTS or any(type(pair) not in _LISTS or len(pair) != 2 for pair in value)
        ):
            return self._foreign(value)
        keys = [self._child(self.key, False, key, "a key") for key, _ in pairs]
        items = [self._child(self.item, self._nullable, item, "a value") for _, item in pairs]
        known: list[Any] = [self.key.canonical(json.loads(key)) for key in keys] if is_float(self.key) else keys
        if len(set(known)) < len(known):
            self.refuse(value, "it has a key twice; a map has each key once")
        return f"[{','.join([f'[{key},{item}]' for key, item in zip(keys, items, strict=True)])}]"

    def same_as(self, value: Any) -> Any:
        return dict(value) if isinstance(value, Mapping) else super().same_as(value)

    def from_json_one(self, value: Any) -> Any:
        if value is None:
            return None
        return [(self.key.from_json_one(key), self.item.from_json_one(item)) for key, item in value]


def list_parts(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Any]:
    """Return start and stop of every row of a list, fixed-size list or map array, and the items they refer to.

    The items are only those of the slice; a null row may also have items, which are meaningless.
    """
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        starts = np.arange(len(array), dtype=np.int64) * size
        return starts, starts + size, array.values.slice(array.offset * size, len(array) * size)
    offsets = array.offsets.to_numpy()
    starts, stops = offsets[:-1], offsets[1:]
    first = int(offsets[0]) if len(offsets) else 0
    last = int(offsets[-1]) if len(offsets) else 0
    entries = _entries(array) if pa.types.is_map(array.type) else array.values
    return starts - first, stops - first, entries.slice(first, last - first)


def without_list_views(array: Any) -> Any:
    """Return the array with plain lists for list views, at any depth; pyarrow's own cast ignores their offsets."""
    if not holds(array.type, _is_list_view):
        return array
    array.validate(full=True)
    return _without_list_views(array)


def _is_list_view(type: Any) -> bool:
    return bool(pa.types.is_list_view(type) or pa.types.is_large_list_view(type))


def _without_list_views(array: Any) -> Any:
    type, t = array.type, pa.types
    if not holds(type, _is_list_view) or t.is_map(type) or t.is_fixed_size_list(type):
        return array
    mask, length = null_mask(array), len(array)
    if t.is_struct(type):
        parts = [_without_list_views(part) for part in children_of(array)]
        own = pa.struct([field.with_type(part.type) for field, part in zip(type, parts, strict=True)])
        return nested_array(own, length, mask, parts)
    if _is_list_view(type):
        items, lengths = array.flatten(), array.value_lengths().fill_null(0).to_numpy()
    else:
        starts, stops, items = list_parts(array)
        lengths = stops - starts
    items = _without_list_views(items)
    wide = t.is_large_list(type) or t.is_large_list_view(type)
    own = (pa.large_list if wide else pa.list_)(type.value_field.with_type(items.type))
    return nested_array(own, length, mask, [items], offsets_of(lengths, own))


def _entries(array: Any) -> Any:
    """Return the key-value structs of a map array."""
    keys, items = array.keys, array.items
    return nested_array(array.type.field(0).type, len(keys), None, [keys, items])


def offsets_of(lengths: Sequence[int] | npt.NDArray[Any], type: Any) -> npt.NDArray[Any]:
    """Return the offsets of rows with these lengths, in the width of the list type."""
    wide = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=wide[1:])
    if pa.types.is_large_list(type):
        return wide
    if wide[-1] > 2**31 - 1:
        raise ConstraintError(f"One batch holds more than 2**31 items of {type}. Use smaller batches.")
    return wide.astype(np.int32)


def _mask(values: list[Any]) -> npt.NDArray[np.bool_] | None:
    mask = np.fromiter((value is None for value in values), np.bool_, len(values))
    return mask if mask.any() else None


def _array_texts(items: list[str], starts: npt.NDArray[Any], stops: npt.NDArray[Any], array: Any) -> list[str]:
    """Return JSON arrays of ranges of items; null where the array is null."""
    ranges = zip(starts.tolist(), stops.tolist(), strict=True)
    return _with_nulls([f"[{','.join(items[start:stop])}]" for start, stop in ranges], array)


def _with_nulls(rows: list[str], array: Any) -> list[str]:
    if (mask := null_mask(array)) is not None:
        for index in np.flatnonzero(mask).tolist():
            rows[index] = NULL
    return rows
