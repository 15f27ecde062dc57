"""Floats: widened to 64 bits, then stored as an integer with the bits rearranged into the order of the values.

``-NaN < -inf < … < -0.0 < 0.0 < … < inf < NaN``.  Every bit is kept, including NaN payloads (the processor's own
widening would turn signalling NaNs into quiet ones, so NaNs are widened by hand).
"""

from __future__ import annotations

import struct
from decimal import Decimal
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.buffers import fixed_array, fixed_values, null_mask
from indexlake.errors import ConstraintError
from indexlake.types.codec import Codec, SqlValue
from indexlake.types.integers import Int64Codec, is_integer

_LOW_BITS = 2**63 - 1
INFINITY = 0x7FF0_0000_0000_0000
NEGATIVE_INFINITY = ~INFINITY
NEGATIVE_ZERO = -1
"""The encoded form of -0.0; that of 0.0 is 0."""
NAN = 0x7FF8_0000_0000_0000
"""The canonical encoded form of every NaN: greater than all numbers."""

_DOUBLE = struct.Struct("=d")
_BITS = struct.Struct("=q")


class FloatCodec(Int64Codec):
    wanted = "a float"

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self._float = np.dtype(type.to_pandas_dtype())
        self._bits = np.dtype(f"u{self._float.itemsize}")
        self._integers = 2 << np.finfo(self._float).nmant  # all integers up to it are exact
        self._narrow = struct.Struct(f"={self._float.char}") if type.bit_width < 64 else None
        if self._narrow is None:
            self.exact = frozenset((float, None.__class__))

    def to_storage(self, array: Any) -> Any:
        ordered = _flip(_widen(fixed_values(array, self._bits), self._float))
        return fixed_array(ordered, pa.int64(), null_mask(array), len(array))

    def from_storage(self, array: Any) -> Any:
        values = _narrow(_flip(fixed_values(array, np.int64)), self._float)
        return fixed_array(values, self.type, null_mask(array), len(array))

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is float and value == value:
            if self._narrow is not None:
                try:
                    value = self._narrow.unpack(self._narrow.pack(value))[0]
                except OverflowError:
                    self.refuse(value, "it is outside the range of the type")
        elif type(value) is not int or not -self._integers <= value <= self._integers:
            return None if value is None else self.encode_other(value)
        bits: int = _BITS.unpack(_DOUBLE.pack(value))[0]
        return bits if bits >= 0 else bits ^ _LOW_BITS

    def encode_constant(self, value: Any) -> SqlValue:
        try:
            return self.encode_one(value)
        except ConstraintError:  # beyond the range of the type
            return INFINITY if value > 0 else NEGATIVE_INFINITY

    def decode_one(self, value: SqlValue) -> Any:
        if value is None:
            return None
        return _DOUBLE.unpack(_BITS.pack(value if value >= 0 else value ^ _LOW_BITS))[0]  # type: ignore[operator]

    def canonical(self, value: SqlValue) -> SqlValue:
        if value == -1:
            return 0
        if value is None or NEGATIVE_INFINITY <= value <= INFINITY:  # type: ignore[operator]
            return value
        return NAN

    def _canonical_chunk(self, array: Any) -> npt.NDArray[np.int64]:
        values = _flip(_widen(fixed_values(array, self._bits), self._float))
        values[values == -1] = 0
        values[(values > INFINITY) | (values < NEGATIVE_INFINITY)] = NAN
        return values

    def encode_other(self, value: Any) -> SqlValue:
        if type(value) is float:  # NaN, whose bits are kept
            found: SqlValue = self.storage_values(self.to_storage(pa.array([value], self.type)))[0]
            return found
        return super().encode_other(value)

    def same_as(self, value: Any) -> Any:
        if type(value) is int:
            self.refuse(value, f"only integers up to {self._integers} are exact in it")
        if is_integer(value):
            return index(value)
        if isinstance(value, float | np.floating):
            same = float(value)
            if same != value and value == value:
                self.refuse(value, "it has more digits than a float keeps; give float(value)")
            return same
        if isinstance(value, Decimal):
            self.refuse(value, "a float does not keep decimal digits; give float(value)")
        return super().same_as(value)


def _flip(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Convert bits of doubles to integers in value order, or back: the function is its own inverse."""
    flipped: npt.NDArray[np.int64] = bits ^ ((bits >> 63) & _LOW_BITS)
    return flipped


def _widen(raw: npt.NDArray[Any], float: np.dtype[Any]) -> npt.NDArray[np.int64]:
    size, mantissa = 8 * float.itemsize, np.finfo(float).nmant
    if size == 64:
        same: npt.NDArray[np.int64] = raw.view(np.int64)
        return same
    narrow = raw.view(float)
    with np.errstate(all="ignore"):
        wide: npt.NDArray[np.int64] = narrow.astype(np.float64).view(np.int64)
    nan = np.isnan(narrow)
    if nan.any():
        odd = raw[nan].astype(np.int64)
        sign = (odd >> (size - 1)) << 63
        payload = (odd & ((1 << mantissa) - 1)) << (52 - mantissa)
        wide[nan] = sign | INFINITY | payload
    return wide


def _narrow(bits: npt.NDArray[np.int64], float: np.dtype[Any]) -> npt.NDArray[Any]:
    size, mantissa = 8 * float.itemsize, np.finfo(float).nmant
    if size == 64:
        return bits
    wide, unsigned = bits.view(np.float64), np.dtype(f"u{float.itemsize}")
    with np.errstate(all="ignore"):
        raw: npt.NDArray[Any] = wide.astype(float).view(unsigned)
    nan = np.isnan(wide)
    if nan.any():
        odd = bits[nan]
        sign = (odd < 0).astype(np.int64) << (size - 1)
        exponent = ((1 << (size - 1 - mantissa)) - 1) << mantissa
        payload = (odd >> (52 - mantissa)) & ((1 << mantissa) - 1)
        raw[nan] = (sign | exponent | payload).astype(unsigned)
    return raw


def is_float(codec: Codec) -> bool:
    """Return whether a codec encodes floats, directly or as the values of a dictionary."""
    kind = codec.type.value_type if pa.types.is_dictionary(codec.type) else codec.type
    return bool(pa.types.is_floating(kind))
