"""Arrow arrays as numpy values and back, bit for bit.

Slices are respected.  Null slots keep whatever bits they hold, so callers carry the null mask alongside the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def chunks(array: Any) -> Iterator[Any]:
    """Yield the plain arrays of an array or chunked array."""
    if isinstance(array, pa.ChunkedArray):
        yield from array.chunks
    else:
        yield array


def fields_of(type: Any) -> list[Any]:
    """Return the fields inside a nested type; none for other types."""
    return [type.field(index) for index in range(type.num_fields)]


def holds(type: Any, kind: Callable[[Any], bool]) -> bool:
    """Return whether a type, or one inside it, is of some kind."""
    return kind(type) or any(holds(field.type, kind) for field in fields_of(type))


def parts_of(type: Any) -> list[Any]:
    """Return the fields that a struct, a map (key and value) or a list consists of; none for other types."""
    t = pa.types
    if t.is_map(type):
        return [type.key_field, type.item_field]
    plain_list = t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type)
    return fields_of(type) if plain_list or t.is_struct(type) else []


def with_parts(type: Any, parts: list[Any]) -> Any:
    """Return the same kind of nested type with other fields."""
    t = pa.types
    if t.is_struct(type):
        return pa.struct(parts)
    if t.is_map(type):
        return pa.map_(parts[0].with_nullable(False), parts[1], type.keys_sorted)
    if t.is_fixed_size_list(type):
        return pa.list_(parts[0], type.list_size)
    return pa.large_list(parts[0]) if t.is_large_list(type) else pa.list_(parts[0])


def children_of(array: Any) -> list[Any]:
    """Return the arrays inside a nested array; none for other arrays."""
    t = pa.types
    if t.is_struct(array.type):
        return [array.field(index) for index in range(array.type.num_fields)]
    if t.is_map(array.type):
        return [array.keys, array.items]
    return [array.values] if t.is_nested(array.type) else []


def fixed_values(array: Any, dtype: npt.DTypeLike, per_row: int = 1) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array, without copying; ``per_row`` elements of ``dtype`` for each row."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.empty(0, dtype)
    item = np.dtype(dtype).itemsize * per_row
    return np.frombuffer(buffer, dtype, len(array) * per_row, array.offset * item)


def null_mask(array: Any) -> npt.NDArray[np.bool_] | None:
    """Return a mask that is true where the array is null, or None if nothing is."""
    if array.null_count == 0:
        return None
    return truths(array.is_null())


def truths(array: Any) -> npt.NDArray[np.bool_]:
    """Return the values of a boolean array; its own ``to_numpy`` would import pandas."""
    if len(array) == 0:
        return np.empty(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


def validity(mask: npt.NDArray[np.bool_] | None) -> Any:
    """Return the validity bitmap of a null mask, or None if nothing is null."""
    if mask is None:
        return None
    return pa.py_buffer(np.packbits(~mask, bitorder="little"))


def array_around(values: npt.NDArray[Any]) -> Any:
    """Return what ``pa.array`` makes of NumPy's numbers, without importing pandas."""
    return fixed_array(values, pa.from_numpy_dtype(values.dtype), None, len(values))


def fixed_array(values: npt.NDArray[Any], type: Any, mask: npt.NDArray[np.bool_] | None, length: int) -> Any:
    """Return a fixed-width array of ``type`` around the bytes of ``values``."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(type, length, [validity(mask), data])


def nested_array(
    type: Any, length: int, mask: npt.NDArray[np.bool_] | None, children: list[Any], offsets: Any = None
) -> Any:
    """Return a list, fixed-size list, struct or map array of exactly ``type``: names, nullability and metadata."""
    buffers = [validity(mask)]
    if offsets is not None:
        buffers.append(pa.py_buffer(np.ascontiguousarray(offsets)))
    return pa.Array.from_buffers(type, length, buffers, children=children)


def python_ints(array: Any) -> list[int | None]:
    """Return an int64 array as Python integers."""
    values: list[int | None] = fixed_values(array, np.int64).tolist()
    mask = null_mask(array)
    if mask is not None:
        for index in np.flatnonzero(mask).tolist():
            values[index] = None
    return values


def python_bytes(array: Any) -> list[bytes | None]:
    """Return a binary, large binary or fixed-size binary array as Python bytes."""
    values: list[bytes | None] = array.to_pylist()
    return values
