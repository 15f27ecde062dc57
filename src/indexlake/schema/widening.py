"""Widening: which type a column may be changed to so that it holds every value it held, and the conversion to it.

Only exact conversions are allowed.  Some types are wider in resolution but narrower in range (``timestamp[us]`` to
``timestamp[ns]``); ``limits`` says which values fit, and the commit that widens such a column checks them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.types import check_supported, codec_for
from indexlake.types.convert import checked_cast, convert
from indexlake.types.hugeint import is_hugeint

_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_EXACT_BITS = {16: 11, 32: 24, 64: 53}  # integers up to this many bits are exact in a float of this width
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_OTHERWISE = "lake.sql('alter table … alter … type …') computes every value anew"
_INFINITE_DAY = (1 << 31) - 1  # SQL's infinity, which would become an ordinary day as a timestamp


def check_widening(column: str, old: pa.DataType, new: Any) -> None:
    """Refuse a change that is not a widening, saying which ones are possible."""
    check_supported(new, column)
    if old == new:
        raise SchemaError(f"Column {column!r} is already of type {old}.", column=column)
    if not _widens(old, new):
        raise SchemaError(
            f"Column {column!r} of type {old} cannot become {new}: not every {old} value fits {new} exactly. "
            f"{_possible(column, old)}",
            column=column,
        )


def widened(array: Any, type: pa.DataType) -> Any:
    """Return the array in the wider type."""
    if pa.types.is_dictionary(array.type):
        return convert(array, type)
    return checked_cast(array, type)


def limits(f: Any, to: Any) -> tuple[Any, Any] | None:
    """Return the least and greatest encoded value of one column that another can hold; None: all fit."""
    t, old, new = pa.types, f.type, to.type
    if is_hugeint(f):
        few = t.is_decimal(new) and new.precision - new.scale < 39 and not is_hugeint(to)
        return (codec_for(old).encode_one(1 - 10**38), codec_for(old).encode_one(10**38 - 1)) if few else None
    if t.is_date32(old) and t.is_timestamp(new):
        factor = _DAY * _UNITS[new.unit]
        if new.unit in ("s", "ms"):
            return 1 - _INFINITE_DAY, _INFINITE_DAY - 1
    elif (t.is_timestamp(old) and t.is_timestamp(new)) or (t.is_duration(old) and t.is_duration(new)):
        factor = _UNITS[new.unit] // _UNITS[old.unit]
    else:
        return None
    return -(-_LEAST // factor), _MOST // factor


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    t = pa.types
    if t.is_dictionary(old):
        return bool(old.value_type == new)
    if t.is_integer(old):
        return _integer_widens(old, new)
    if t.is_floating(old):
        return bool(t.is_floating(new) and new.bit_width > old.bit_width)
    if t.is_decimal(old) and t.is_decimal(new):
        more = new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        return bool(more and new.bit_width >= old.bit_width)
    if t.is_date32(old):
        return bool(t.is_date64(new) or (t.is_timestamp(new) and new.tz is None))
    if t.is_timestamp(old) and t.is_timestamp(new):
        return bool(old.tz == new.tz and _finer(old, new))
    for kind in (t.is_time, t.is_duration):
        if kind(old) and kind(new):
            return _finer(old, new)
    if t.is_string(old):
        return bool(t.is_large_string(new))
    return bool(t.is_binary(old) and t.is_large_binary(new))


def _integer_widens(old: pa.DataType, new: pa.DataType) -> bool:
    t = pa.types
    signed = t.is_signed_integer(old)
    bits = old.bit_width - 1 if signed else old.bit_width  # of the greatest value
    if t.is_signed_integer(new):
        return bool(new.bit_width - 1 >= bits)
    if t.is_unsigned_integer(new):
        return bool(not signed and new.bit_width > bits)
    if t.is_floating(new):
        return bool(bits <= _EXACT_BITS[new.bit_width])
    if t.is_decimal(new):
        return bool(new.scale >= 0 and new.precision - new.scale >= len(str(1 << bits)))
    return False


def _finer(old: pa.DataType, new: pa.DataType) -> bool:
    return _UNITS[new.unit] > _UNITS[old.unit]


def _possible(column: str, old: pa.DataType) -> str:
    t = pa.types
    if t.is_nested(old):
        return f"To widen a field inside it, name the field: '{column}.…'."
    if t.is_integer(old):
        wider = "a wider integer, a float that holds it exactly or a decimal with enough digits"
    elif t.is_floating(old):
        wider = "a float with more bits"
    elif t.is_decimal(old):
        wider = "a decimal with at least as many digits before and after the point"
    elif t.is_date32(old):
        wider = "a timestamp without time zone, or date64"
    elif t.is_timestamp(old) or t.is_time(old) or t.is_duration(old):
        wider = "the same kind with a finer unit" + (" and the same time zone" if t.is_timestamp(old) else "")
    elif t.is_string(old):
        wider = "large_string"
    elif t.is_binary(old):
        wider = "large_binary"
    elif t.is_dictionary(old):
        wider = f"its value type, {old.value_type}"
    else:
        return f"It cannot be widened: {_OTHERWISE}."
    return f"It can become {wider}; for anything else {_OTHERWISE}."
