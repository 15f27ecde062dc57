"""Booleans and integers: stored as one 64-bit integer, in the order of the values."""

from __future__ import annotations

from decimal import Decimal
from operator import index
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import fixed_values
from indexlake.types.codec import Codec, SqlValue

_SIGN = -(2**63)
_INT64 = pa.int64()
_NONE = type(None)


class Int64Codec(Codec):
    """Base of the codecs of all types stored as one integer."""

    kind: Literal["int", "bytes"] = "int"
    storage = _INT64
    json_text = staticmethod(str)

    def _canonical_chunk(self, array: Any) -> npt.NDArray[np.int64]:
        return fixed_values(self.to_storage(array), np.int64)


class BooleanCodec(Int64Codec):
    exact = frozenset((bool, _NONE))
    wanted = "True or False"

    def to_storage(self, array: Any) -> Any:
        return array.cast(pa.uint8()).cast(_INT64)

    def from_storage(self, array: Any) -> Any:
        return array.cast(pa.bool_())

    def encode_one(self, value: Any) -> SqlValue:
        if value is True:
            return 1
        if value is False:
            return 0
        return None if value is None else self.encode_other(value)

    def same_as(self, value: Any) -> Any:
        return bool(value) if isinstance(value, np.bool_) else super().same_as(value)

    def decode_one(self, value: SqlValue) -> Any:
        return None if value is None else bool(value)


class IntegerCodec(Int64Codec):
    """int8 to int64 and uint8 to uint32."""

    exact = frozenset((int, _NONE))
    wanted = "an int"

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        bits = type.bit_width
        signed = pa.types.is_signed_integer(type)
        self._low = -(2 ** (bits - 1)) if signed else 0
        self._high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1

    def to_storage(self, array: Any) -> Any:
        return array if self.type is _INT64 else array.cast(_INT64)

    def from_storage(self, array: Any) -> Any:
        return array.cast(self.type)

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is int and self._low <= value <= self._high:
            return value
        return None if value is None else self.encode_other(value)

    def decode_one(self, value: SqlValue) -> Any:
        return value

    def same_as(self, value: Any) -> Any:
        if type(value) is int:
            self._out_of_range(value)
        if is_integer(value):
            return index(value)
        if isinstance(value, float | Decimal | np.floating):
            if not _is_whole(value):
                self.refuse(value, "it is not a whole number")
            if isinstance(value, Decimal) and not self._low <= value <= self._high:
                self._out_of_range(value)  # before int(), which takes hours for 1E+999999
            return int(value)
        return super().same_as(value)

    def _out_of_range(self, value: Any) -> NoReturn:
        self.refuse(value, f"it is outside {self._low} to {self._high}")


class UnsignedCodec(IntegerCodec):
    """uint64: shifted down by 2**63, so that signed integers have the order of the values."""

    def to_storage(self, array: Any) -> Any:
        return pc.bit_wise_xor(array.view(_INT64), pa.scalar(_SIGN, _INT64))

    def from_storage(self, array: Any) -> Any:
        return pc.bit_wise_xor(array, pa.scalar(_SIGN, _INT64)).view(self.type)

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is int and 0 <= value <= self._high:
            return value + _SIGN
        return None if value is None else self.encode_other(value)

    def decode_one(self, value: SqlValue) -> Any:
        return None if value is None else value - _SIGN  # type: ignore[operator]


def is_integer(value: Any) -> bool:
    """Return whether it is an integer by type, including subclasses and numpy's, but not bools and time spans."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    return isinstance(value, np.integer) and not isinstance(value, np.timedelta64)


def _is_whole(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return bool(value == value // 1)
