"""Arrow types in Vortex files.

Vortex 0.90 has no fixed-size binary, UUID, duration, 32- and 64-bit decimals or dictionary type, gives strings,
binaries and lists back in another layout, refuses nulls in required fields even below a null struct, and
panics on times and timestamps that its calendar cannot show (24:00:00, the year 20000): dates and times are
written as the integers they are.

``to_vortex`` turns an array into what can be written; ``convert`` turns what was read into an array of exactly the
logical type again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.types.convert import convert, mapped_leaves
from indexlake.types.uuids import is_uuid

_DECIMAL128_DIGITS = 38


def vortex_type(type: Any) -> Any:
    """The Arrow type in which values of ``type`` are written to a Vortex file."""
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
    """An array (or chunked array) as Vortex can hold it; its type is ``vortex_type(array.type)``."""
    return convert(array, vortex_type(array.type))
