"""How values of an Arrow type are stored in the catalog database.

Every column of a hot row is a 64-bit integer or a byte string, in SQLite and PostgreSQL alike.  A ``Codec`` converts
Arrow arrays and Python values to that form and back: to the same type, bit for bit, and, if ``ordered``, in the same
order (floats: NaN is the greatest once ``canonical``).

A Python value is stored exactly, or refused with advice on what to give instead.  Each codec has a fast path for the
Python type of its values, and accepts the few others with the same meaning (subclasses, numpy and Arrow scalars).
Nothing is guessed: a string is not a list of characters, a number is not a timestamp, ``True`` is not 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.buffers import chunks, python_bytes, python_ints
from indexlake.arrow.values import array_of
from indexlake.errors import CatalogError, ConstraintError

SqlValue = int | bytes | None

# The exceptions that pyarrow raises for a Python value that does not fit a type.
CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError, LookupError)
NULL = "null"


class Codec(ABC):
    """Encodes one type.  Immutable and shared between threads; get it from ``codec_for``."""

    type: Any
    kind: Literal["int", "bytes"]
    ordered: bool = True
    storage: Any  # the Arrow type of the encoded values
    exact: frozenset[type] = frozenset()  # Python types that pyarrow converts in the same way
    wanted: str  # what to give, for error messages
    json_text: Callable[[Any], str]  # returns an encoded value as JSON
    json_value: Callable[[Any], SqlValue] | None = None  # returns parsed JSON encoded; None: unchanged

    def __init__(self, type: Any) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"codec_for({self.type})"

    def __reduce__(self) -> tuple[Any, ...]:
        from indexlake.types import codec_for

        return codec_for, (self.type,)

    def encode(self, array: Any) -> list[SqlValue]:
        """Return the encoded values of an Arrow array or chunked array of this type."""
        parts = [self.storage_values(self.to_storage(self._checked(chunk))) for chunk in chunks(array)]
        if len(parts) == 1:
            return parts[0]
        return [value for part in parts for value in part]

    def decode(self, values: Sequence[SqlValue]) -> Any:
        """Return an Arrow array of exactly this type."""
        try:
            return self.from_storage(array_of(values, self.storage))
        except CONVERSION_ERRORS as error:
            raise CatalogError(
                f"The catalog holds a value that is not a valid {self.type} ({error}). Something other than indexlake "
                "changed the inline table: restore the catalog from a backup."
            ) from None

    def array(self, values: Sequence[Any]) -> Any:
        """Return an Arrow array of Python values, following the same rules as ``encode_one``."""
        if {type(value) for value in values} <= self.exact:
            try:
                return array_of(values, self.type)
            except CONVERSION_ERRORS:
                pass  # encode them one by one below, to name the value
        return self.decode([self.encode_one(value) for value in values])

    @abstractmethod
    def encode_one(self, value: Any) -> SqlValue:
        """Return the encoded form of one Python value.  Raises ``ConstraintError`` if the column cannot hold it."""

    def encode_constant(self, value: Any) -> SqlValue:
        """Return a constant of a predicate in the form used by expressions, which for moments is Arrow's integer."""
        return self.encode_one(value)

    @abstractmethod
    def decode_one(self, value: SqlValue) -> Any:
        """Return the value as ``Scalar.as_py`` does.  Raises ``ConstraintError`` if Python cannot represent it."""

    def show_one(self, value: SqlValue) -> Any:
        """Return the Python value for a message, or text if Python cannot represent it."""
        try:
            return self.decode_one(value)
        except ConstraintError:
            return f"{self.type} {value!r}"

    def canonical(self, value: SqlValue) -> SqlValue:
        """Return the encoded form shared by all values that compare equal (-0.0 and 0.0, all NaNs)."""
        return value

    def canonical_array(self, array: Any) -> npt.NDArray[np.int64] | Any:
        """Return encoded and canonical values: int64 numpy, or an Arrow ``binary`` array.

        Null slots are arbitrary in the numpy form and null in the binary form.  The numpy form may be a read-only view
        of the array.
        """
        parts = [self._canonical_chunk(self._checked(chunk)) for chunk in chunks(array)]
        if len(parts) == 1:
            return parts[0]
        if self.kind == "int":
            return np.concatenate(parts) if parts else np.empty(0, np.int64)
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    @abstractmethod
    def _canonical_chunk(self, array: Any) -> Any: ...

    @abstractmethod
    def to_storage(self, array: Any) -> Any:
        """Return the encoded values as an Arrow array of type ``storage``."""

    @abstractmethod
    def from_storage(self, array: Any) -> Any:
        """Invert ``to_storage``."""

    def storage_values(self, array: Any) -> list[SqlValue]:
        """Return a storage array as Python values."""
        return python_ints(array) if self.kind == "int" else python_bytes(array)  # type: ignore[return-value]

    # Inside nested values everything is JSON: text when encoding, parsed objects when decoding.

    def to_json(self, array: Any) -> list[str]:
        """Return the JSON text of every value, ``null`` for nulls."""
        text = self.json_text
        return [NULL if value is None else text(value) for value in self.storage_values(self.to_storage(array))]

    def from_json(self, values: list[Any]) -> Any:
        """Return an array of this type from parsed JSON."""
        if (read := self.json_value) is not None:
            values = [None if value is None else read(value) for value in values]
        return self.from_storage(pa.array(values, self.storage))

    def to_json_one(self, value: Any) -> str:
        encoded = self.encode_one(value)
        return NULL if encoded is None else self.json_text(encoded)

    def from_json_one(self, value: Any) -> Any:
        return self.decode_one(value if value is None or self.json_value is None else self.json_value(value))

    def refuse(self, value: Any, reason: object = None) -> NoReturn:
        """Raise the error for a value that this type cannot hold."""
        try:
            shown = repr(value[:80] if isinstance(value, str | bytes) else value)
        except Exception:  # too deep, a moment beyond Python, or a class of the caller's
            shown = "a value that cannot be shown"
        if len(shown) > 80:
            shown = f"{shown[:77]}..."
        because = f": {reason}" if reason else ""
        raise ConstraintError(f"{shown} ({type(value).__name__}) is not a value of type {self.type}{because}") from None

    def encode_other(self, value: Any) -> SqlValue:
        """Return the encoded form of a value whose Python type has no fast path."""
        if isinstance(value, pa.Scalar):
            return self.encode_scalar(value)
        if is_missing(value):
            self.refuse(value, "give None for a missing value")
        return self.encode_one(self.same_as(value))

    def encode_scalar(self, value: Any) -> SqlValue:
        """Encode an Arrow scalar: directly if it is of this type, otherwise as its Python value."""
        if not value.is_valid:
            return None
        if value.type == self.type:
            return self.encode(self.checked_scalar(value))[0]
        try:
            shown = value.as_py()
            whole = not pa.types.is_temporal(value.type) or pa.scalar(shown, value.type).equals(value)
        except CONVERSION_ERRORS:
            whole = False
        if not whole:  # beyond Python's calendar, or finer
            self.refuse(value, f"give a scalar of type {self.type}")
        return self.encode_one(shown)

    def checked_scalar(self, value: Any) -> Any:
        """Return an array of one Arrow scalar of this type, after checking that it is valid for it."""
        from indexlake.types.validity import problem_of

        array = pa.repeat(value, 1)
        if (problem := problem_of(array)) is not None:
            self.refuse(value, problem)
        return array

    def same_as(self, value: Any) -> Any:
        """Return the same value in the Python type with the fast path.  Raises ``ConstraintError`` if there is none."""
        self.refuse(value, f"give {self.wanted}")

    def _checked(self, array: Any) -> Any:
        if array.type is not self.type and array.type != self.type:
            raise ConstraintError(f"Expected values of type {self.type}, got an array of type {array.type}.")
        return array


def is_missing(value: Any) -> bool:
    """Return whether it is one of the markers for missing values of pandas or numpy."""
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))
    )
