"""Decimals: the unscaled integer up to 18 digits, else its big-endian bytes with the sign bit flipped.

Both sort as the values do, since all values of a column have the same scale.
"""

from __future__ import annotations

from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import ConstraintError
from indexlake.types.binaries import BytesCodec
from indexlake.types.buffers import fixed_array, fixed_values, null_mask
from indexlake.types.codec import Codec, SqlValue
from indexlake.types.integers import Int64Codec, is_integer

SMALL_PRECISION = 18
"""Decimals of up to this many digits fit a 64-bit integer."""

_EXACT = Context(prec=100, Emin=-999_999, Emax=999_999, traps=[Inexact, InvalidOperation])
_HALF = Decimal("0.5")
_NONE = type(None)


class SmallDecimalCodec(Int64Codec):
    exact = frozenset((Decimal, int, _NONE))
    wanted = "a Decimal or an int"

    def to_storage(self, array: Any) -> Any:
        words = self.type.bit_width // 64
        mask = null_mask(array)
        if words == 0:
            values = fixed_values(array, np.int32).astype(np.int64)
        else:
            limbs = fixed_values(array, np.int64, words).reshape(-1, words)
            values = limbs[:, 0]
            _check_fits(self.type, limbs, mask)
        return fixed_array(values, pa.int64(), mask, len(array))

    def from_storage(self, array: Any) -> Any:
        values = fixed_values(array, np.int64)
        words = self.type.bit_width // 64
        if words == 0:
            values = values.astype(np.int32)
        elif words > 1:
            limbs = np.empty((len(values), words), np.int64)
            limbs[:, 0] = values
            limbs[:, 1:] = (values >> 63)[:, None]
            values = limbs
        return fixed_array(values, self.type, null_mask(array), len(array))

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is not Decimal and type(value) is not int:
            return None if value is None else self.encode_other(value)
        return unscaled(self, value)

    def same_as(self, value: Any) -> Any:
        same = _decimal(self, value)
        return super().same_as(value) if same is None else same

    def decode_one(self, value: SqlValue) -> Any:
        if value is None:
            return None
        return _EXACT.scaleb(Decimal(value), -self.type.scale)  # type: ignore[arg-type]


class LargeDecimalCodec(BytesCodec):
    exact = frozenset((Decimal, int, _NONE))
    wanted = "a Decimal or an int"

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self._size = type.bit_width // 8
        self._shift = 1 << (type.bit_width - 1)
        self.storage = pa.binary(self._size)

    def to_storage(self, array: Any) -> Any:
        return fixed_array(self._reverse(array, 0), self.storage, null_mask(array), len(array))

    def from_storage(self, array: Any) -> Any:
        return fixed_array(self._reverse(array, -1), self.type, null_mask(array), len(array))

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is not Decimal and type(value) is not int:
            return None if value is None else self.encode_other(value)
        found: bytes = (unscaled(self, value) + self._shift).to_bytes(self._size, "big")
        return found

    def same_as(self, value: Any) -> Any:
        same = _decimal(self, value)
        return super().same_as(value) if same is None else same

    def decode_one(self, value: SqlValue) -> Any:
        if value is None:
            return None
        number = int.from_bytes(value, "big") - self._shift  # type: ignore[arg-type]
        return _EXACT.scaleb(Decimal(number), -self.type.scale)

    def _reverse(self, array: Any, sign_byte: int) -> npt.NDArray[np.uint8]:
        """Little-endian to big-endian or back; the sign bit, in ``sign_byte`` of the result, is flipped."""
        rows = fixed_values(array, np.uint8, self._size).reshape(-1, self._size)
        reversed_rows = np.ascontiguousarray(rows[:, ::-1])
        reversed_rows[:, sign_byte] ^= 0x80
        return reversed_rows


def _decimal(codec: Codec, value: Any) -> Decimal | int | None:
    """Another kind of exact number as one of the two that are taken; None if it is none."""
    if is_integer(value):
        return index(value)
    if isinstance(value, Decimal):
        return Decimal(value)
    if isinstance(value, float | np.floating):
        codec.refuse(value, "a float has no exact decimal digits; give Decimal(str(value))")
    return None


def unscaled(codec: Codec, value: Decimal | int) -> int:
    """The integer that Arrow keeps for a decimal value; refused when digits would be lost."""
    scale = codec.type.scale
    limit: int = 10**codec.type.precision
    number: int
    if isinstance(value, int):
        number, rest = (value * 10**scale, 0) if scale >= 0 else divmod(value, 10**-scale)
        if rest:
            codec.refuse(value, f"it has more digits than the scale {scale} keeps")
    else:
        if not value.is_finite():
            codec.refuse(value, "decimals have no NaN and no infinity")
        if value and value.adjusted() + scale > codec.type.precision:
            number = limit  # refused below, without computing a huge integer
        else:
            number = _shifted(codec, value, scale)
    if not -limit < number < limit:
        codec.refuse(value, f"it needs more than the {codec.type.precision} digits of the column")
    return number


def _shifted(codec: Codec, value: Decimal, scale: int) -> int:
    try:
        shifted = _EXACT.scaleb(value, scale)
    except DecimalException:
        shifted = _HALF
    number = int(shifted)
    if number != shifted:
        codec.refuse(value, f"it has more digits than the scale {scale} keeps")
    return number


def _check_fits(type: Any, limbs: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_] | None) -> None:
    """An array may claim a precision that its values exceed; the high words would be lost."""
    if limbs.shape[1] == 1:
        return
    lost = (limbs[:, 1:] != (limbs[:, :1] >> 63)).any(axis=1)
    if mask is not None:
        lost &= ~mask
    if lost.any():
        raise ConstraintError(f"A value needs more than the {type.precision} digits of its type {type}.")
