"""UUIDs (Arrow's ``arrow.uuid``): stored as their 16 bytes, which sort like them.

Text is parsed as in DuckDB: 32 hexadecimal digits in any case, dashes anywhere, with or without braces around it.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import pyarrow as pa

from indexlake.types.binaries import BytesCodec
from indexlake.types.codec import SqlValue

STORAGE = pa.binary(16)
_DIGITS = re.compile(r"[0-9a-fA-F]{32}")


def is_uuid(type: Any) -> bool:
    return isinstance(type, pa.UuidType)


def uuid_bytes(text: str) -> bytes | None:
    """Return the bytes of a UUID written as text, or None if it is not one."""
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    digits = inner.replace("-", "")
    return bytes.fromhex(digits) if _DIGITS.fullmatch(digits) else None


def as_uuids(array: Any) -> Any:
    """Return the UUIDs for an array of their bytes."""
    return pa.ExtensionArray.from_storage(pa.uuid(), array)


def uuids_of_text(array: Any) -> Any:
    """Return the UUIDs for an array of text.  Raises ``pa.ArrowInvalid`` naming the first that is not one."""
    values: list[bytes | None] = []
    for text in array.to_pylist():
        found = None if text is None else uuid_bytes(text)
        if found is None and text is not None:
            raise pa.ArrowInvalid(f"{text!r} is not a UUID")
        values.append(found)
    return as_uuids(pa.array(values, STORAGE))


def text_of_uuids(array: Any) -> Any:
    """Return the UUIDs of an array as text, in lower case with dashes."""
    return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())


class UuidCodec(BytesCodec):
    exact = frozenset((uuid.UUID, type(None)))

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self.storage = STORAGE

    def to_storage(self, array: Any) -> Any:
        return array.storage

    def from_storage(self, array: Any) -> Any:
        return as_uuids(array)

    def encode_one(self, value: Any) -> SqlValue:
        if isinstance(value, uuid.UUID):
            return value.bytes
        if isinstance(value, pa.UuidScalar):
            return self.encode_one(value.as_py())
        if isinstance(value, str) and (found := uuid_bytes(value)) is not None:
            return found
        if value is not None and not (type(value) is bytes and len(value) == STORAGE.byte_width):
            self.refuse(value, "give a uuid.UUID, or its 32 hexadecimal digits as text")
        return value

    def decode_one(self, value: SqlValue) -> Any:
        return None if value is None else uuid.UUID(bytes=value)  # type: ignore[arg-type]
