"""Arrow types in Vortex files.

Vortex 0.90 has no fixed-size binary, UUID, duration, 32- and 64-bit decimals or dictionary type, returns strings,
binaries and lists in another layout, refuses nulls in required fields even below a null struct, and panics on times and
timestamps outside its calendar (24:00:00, the year 20000), so dates and times are written as integers.

``to_vortex`` turns an array into one that can be written; ``convert`` turns what was read into an array of exactly the
logical type again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.convert import convert, mapped_leaves
from indexlake.types.uuids import is_uuid

_DECIMAL128_DIGITS = 38


def vortex_type(type: Any) -> Any:
    """Return the Arrow type in which values of ``type`` are written to a Vortex file."""
    return mapped_leaves(type, _vortex_leaf)


def _vortex_leaf(type: Any) -> Any:
    t = pa.types
    if t.is_temporal(type):
        return pa.int64() if type.bit_width == 64 else pa.int32()
    if t.is_fixed_size_binary(type) or is_uuid(type):
        return pa.binary()
    if t.is_decimal(type) and type.precision <= _DECIMAL128_DIGITS:
        return pa.decimal128(type.precision, type.scale)
    return type


def to_vortex(array: Any) -> Any:
    """Return an array (or chunked array) in a form that Vortex can store, of type ``vortex_type(array.type)``."""
    return convert(array, vortex_type(array.type))
