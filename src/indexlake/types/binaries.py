"""Strings and binaries: stored as their bytes, which sort like the values (strings by code point)."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Literal

import pyarrow as pa

from indexlake.arrow import batch_size
from indexlake.errors import ConstraintError
from indexlake.types.codec import NULL, Codec, SqlValue

_SMALL = pa.binary()
_LARGE = pa.large_binary()
_NONE = type(None)


def _base64(data: bytes) -> str:
    return f'"{b2a_base64(data, newline=False).decode()}"'


class BytesCodec(Codec):
    """Base of the codecs of all types stored as bytes."""

    kind: Literal["int", "bytes"] = "bytes"
    json_text = staticmethod(_base64)
    json_value: Callable[[Any], SqlValue] | None = staticmethod(a2b_base64)

    def _canonical_chunk(self, array: Any) -> Any:
        stored = self.to_storage(array)
        if stored.type == _SMALL:
            return stored
        try:
            return stored.cast(_SMALL)
        except pa.ArrowInvalid:
            raise ConstraintError(
                f"One batch holds more than 2 GiB of {self.type} values. Pass smaller batches."
            ) from None

    def _sized(self, data: bytes) -> bytes:
        if len(data) > batch_size.VALUE_BYTES:
            raise ConstraintError(batch_size.too_large(len(data)))
        return data


class BinaryCodec(BytesCodec):
    exact = frozenset((bytes, _NONE))
    wanted = "bytes"

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self.storage = _SMALL if type == _SMALL else _LARGE

    def to_storage(self, array: Any) -> Any:
        return array if self.type == self.storage else array.cast(self.storage)

    def from_storage(self, array: Any) -> Any:
        return array if self.type == self.storage else array.cast(self.type)

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is bytes:
            return self._sized(value)
        return None if value is None else self.encode_other(value)

    def same_as(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray) or (isinstance(value, memoryview) and value.itemsize == 1):
            return bytes(value)
        if isinstance(value, str):
            self.refuse(value, "give bytes: value.encode()")
        return super().same_as(value)

    def decode_one(self, value: SqlValue) -> Any:
        return value


class FixedBinaryCodec(BinaryCodec):
    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self.storage = type
        self._size = type.byte_width

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is bytes and len(value) == self._size:
            return value
        return None if value is None else self.encode_other(value)

    def same_as(self, value: Any) -> Any:
        if type(value) is bytes:
            self.refuse(value, f"it has {len(value):,} bytes, not {self._size:,}")
        return super().same_as(value)


class StringCodec(BytesCodec):
    exact = frozenset((str, _NONE))
    wanted = "a str"

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self.storage = _SMALL if type == pa.string() else _LARGE
        self._plain = pa.string() if type == pa.string() else pa.large_string()

    def to_storage(self, array: Any) -> Any:
        return array.cast(self._plain).cast(self.storage)

    def from_storage(self, array: Any) -> Any:
        return array.cast(self._plain).cast(self.type)  # checks that the bytes are UTF-8

    def encode_one(self, value: Any) -> SqlValue:
        if type(value) is str:
            try:
                data = value.encode()
            except UnicodeEncodeError as error:
                self.refuse(value, f"it is not valid Unicode ({error.reason} at position {error.start})")
            return self._sized(data)
        return None if value is None else self.encode_other(value)

    def same_as(self, value: Any) -> Any:
        if isinstance(value, str):
            return str.__str__(value)  # for an enumeration: its value, not its name
        if isinstance(value, bytes | bytearray):
            self.refuse(value, "give text: value.decode()")
        return super().same_as(value)

    def decode_one(self, value: SqlValue) -> Any:
        return None if value is None else value.decode()  # type: ignore[union-attr]

    # Inside nested values a string is a JSON string and need not be converted to bytes.

    json_text = staticmethod(lambda data: encode_basestring(data.decode()))
    json_value = staticmethod(str.encode)

    def to_json(self, array: Any) -> list[str]:
        texts = array.to_numpy(zero_copy_only=False).tolist()
        return [NULL if text is None else encode_basestring(text) for text in texts]

    def from_json(self, values: list[Any]) -> Any:
        return pa.array(values, self.type)

    def from_json_one(self, value: Any) -> Any:
        return value
