"""Decimals: the unscaled integer up to 18 digits, else its big-endian bytes with the sign bit flipped.

Both forms sort like the values, since all values of a column have the same scale.
"""

from __future__ import annotations

from abc import abstractmethod
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.buffers import fixed_array, fixed_values, null_mask
from indexlake.errors import ConstraintError
from indexlake.types.binaries import BytesCodec
from indexlake.types.codec import Codec, SqlValue
from indexlake.types.hugeint import HELD_AS, LEAST, MOST
from indexlake.types.integers import Int64Codec, is_integer

SMALL_PRECISION = 18
"""Decimals of up to this many digits fit a 64-bit integer."""

_EXACT = Context(prec=100, Emin=-999_999, Emax=999_999, traps=[Inexact, InvalidOperation])
_HALF = Decimal("0.5")


class DecimalCodec(Codec):
    """Base of the codecs of decimals, whether stored as integers or as bytes."""

    exact = frozenset((Decimal, int, type(None)))
    wanted = "a Decimal or an int"

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self.most = 10**type.precision - 1
        self.least = -self.most
        self.too_large = f"it needs more than the {type.precision} digits of the column"

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is not Decimal and type(value) is not int:
            return None if value is None else self.encode_other(value)
        return self._encoded(self.unscaled(value))

    def same_as(self, value: Any) -> Any:
        """Return another kind of exact number as one of the two accepted types."""
        if is_integer(value):
            return index(value)
        if isinstance(value, Decimal):
            return Decimal(value)
        if isinstance(value, float | np.floating):
            self.refuse(value, "a float has no exact decimal digits; give Decimal(str(value))")
        return super().same_as(value)

    def decode_one(self, value: SqlValue) -> Any:
        return None if value is None else _EXACT.scaleb(Decimal(self._unscaled(value)), -self.type.scale)

    @abstractmethod
    def _encoded(self, number: int) -> SqlValue: ...

    @abstractmethod
    def _unscaled(self, value: Any) -> int: ...

    def unscaled(self, value: Decimal | int) -> int:
        """Return the unscaled integer that Arrow stores for a decimal value; refuse to lose digits."""
        scale = self.type.scale
        number: int
        if isinstance(value, int):
            number, rest = (value * 10**scale, 0) if scale >= 0 else divmod(value, 10**-scale)
            if rest:
                self.refuse(value, f"it has more digits than the scale {scale} keeps")
        else:
            if not value.is_finite():
                self.refuse(value, "decimals have no NaN and no infinity")
            if value and value.adjusted() + scale > len(str(self.most)):
                number = self.most + 1  # refused below, without computing a huge integer
            else:
                number = self._shifted(value, scale)
        if not self.least <= number <= self.most:
            self.refuse(value, self.too_large)
        return number

    def _shifted(self, value: Decimal, scale: int) -> int:
        try:
            shifted = _EXACT.scaleb(value, scale)
        except DecimalException:
            shifted = _HALF
        number = int(shifted)
        if number != shifted:
            self.refuse(value, f"it has more digits than the scale {scale} keeps")
        return number


class SmallDecimalCodec(DecimalCodec, Int64Codec):
    def to_storage(self, array: Any) -> Any:
        if (words := self.type.bit_width // 64) > 1:
            _check_fits(self.type, fixed_values(array, np.int64, words).reshape(-1, words), null_mask(array))
        return with_width(array, pa.int64())

    def from_storage(self, array: Any) -> Any:
        return with_width(array, self.type)

    def _encoded(self, number: int) -> SqlValue:
        return number

    def _unscaled(self, value: Any) -> int:
        return value  # type: ignore[no-any-return]


class LargeDecimalCodec(DecimalCodec, BytesCodec):
    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self._size = type.bit_width // 8
        self._shift = 1 << (type.bit_width - 1)
        self.storage = pa.binary(self._size)

    def to_storage(self, array: Any) -> Any:
        return fixed_array(self._reverse(array, 0), self.storage, null_mask(array), len(array))

    def from_storage(self, array: Any) -> Any:
        return fixed_array(self._reverse(array, -1), self.type, null_mask(array), len(array))

    def _encoded(self, number: int) -> SqlValue:
        found: bytes = (number + self._shift).to_bytes(self._size, "big")
        return found

    def _unscaled(self, value: Any) -> int:
        number: int = int.from_bytes(value, "big") - self._shift
        return number

    def _reverse(self, array: Any, sign_byte: int) -> npt.NDArray[np.uint8]:
        """Convert little-endian to big-endian or back, flipping the sign bit in ``sign_byte`` of the result."""
        rows = fixed_values(array, np.uint8, self._size).reshape(-1, self._size)
        reversed_rows = np.ascontiguousarray(rows[:, ::-1])
        reversed_rows[:, sign_byte] ^= 0x80
        return reversed_rows


class HugeintCodec(LargeDecimalCodec):
    """Of a HUGEINT column, whose values may be any 128-bit integers."""

    def __init__(self) -> None:
        super().__init__(HELD_AS)
        self.least, self.most = LEAST, MOST
        self.too_large = "it is outside the range of HUGEINT, -2^127 to 2^127 - 1"

    def __reduce__(self) -> tuple[Any, ...]:
        return HugeintCodec, ()

    def checked_scalar(self, value: Any) -> Any:
        return pa.repeat(value, 1)


def with_width(array: Any, type: Any) -> Any:
    """Return decimals, or their unscaled integers, with the width of ``type``, by sign extension or truncation only."""
    words, wanted = array.type.bit_width // 64, type.bit_width // 64
    values = fixed_values(array, np.int64 if words else np.int32, words or 1).reshape(-1, words or 1)
    if 0 < wanted < words:
        return fixed_array(values.view(f"V{8 * wanted}")[:, 0], type, null_mask(array), len(array))
    kept: npt.NDArray[Any] = values[:, : wanted or 1].astype(np.int64 if wanted else np.int32, copy=False)
    if wanted > kept.shape[1]:
        kept = np.hstack((kept, np.repeat(kept[:, -1:] >> 63, wanted - kept.shape[1], axis=1)))
    return fixed_array(kept, type, null_mask(array), len(array))


def _check_fits(type: Any, limbs: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_] | None) -> None:
    """Refuse values that exceed the precision that their array claims, since their high words would be lost."""
    lost = (limbs[:, 1:] != (limbs[:, :1] >> 63)).any(axis=1)
    if mask is not None:
        lost &= ~mask
    if lost.any():
        raise ConstraintError(f"A value needs more than the {type.precision} digits of its type {type}.")
