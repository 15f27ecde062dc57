"""Types by name: every text that pyarrow prints for a type, at any nesting, and its short names.

``"int64"``, ``"timestamp[us, tz=UTC]"``, ``"list<item: string>"``, also without the name of the item, ``"str"``.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.types.text import plain_type

_NAME = r"[a-z][a-z0-9_]*(?:\[[^\]<>]*\]|\([^)<>]*\))?"
_FIELD = r"\s*([^:<>,\[\]()]*):\s*"
_LISTS = {"list": pa.list_, "large_list": pa.large_list}
_PRINTED = {
    "halffloat": pa.float16(),
    "date32[day]": pa.date32(),
    "date64[ms]": pa.date64(),
}
_MEANT = {
    "tinyint": "int8", "smallint": "int16", "int": "int64", "integer": "int64", "bigint": "int64",
    "real": "float32", "number": "float64", "numeric": "decimal128(18, 2)", "decimal": "decimal128(18, 2)",
    "text": "string", "varchar": "string", "char": "string", "json": "string", "blob": "binary", "bytes": "binary",
    "date": "date32", "time": "time64[us]", "datetime": "timestamp[us]", "timestamp": "timestamp[us]",
    "timestamptz": "timestamp[us, tz=UTC]", "list": "list<string>", "array": "list<string>",
}  # fmt: skip
"""Names of types in other languages, and our names for them."""


def named_type(text: str) -> Any:
    """Return the type with that name.  Raises ``SchemaError`` if there is none.

    >>> named_type("list<decimal128(10, 2)>")
    ListType(list<item: decimal128(10, 2)>)
    """
    reader = _Reader(text.strip())
    try:
        found = reader.type()
        reader.expect("$")
    except (ValueError, KeyError, pa.ArrowException):
        meant = meant_type(text)
        raise SchemaError(
            f"{text!r} is not the name of a type. {f'Write {meant!r}, or give' if meant else 'Give'} the name that "
            "pyarrow prints, such as 'int64', 'string', 'timestamp[us, tz=UTC]', 'decimal128(10, 2)' or "
            "'list<string>', or the type itself: pa.int64()."
        ) from None
    return found


def meant_type(given: Any) -> str | None:
    """Return the name of the type that a name in another language or a class of Python probably means, if any."""
    if isinstance(given, type):
        return {str: "string", float: "float64", bool: "bool"}.get(given) or _MEANT.get(given.__name__.lower())
    name, _, digits = str(given).strip().lower().partition("(")
    if name in ("decimal", "numeric") and is_type(decimal := f"decimal128({digits}"):
        return decimal
    return _MEANT.get(name)


def as_type(type: Any) -> Any:
    """Return a type that may be given by name."""
    return named_type(type) if isinstance(type, str) else type


def is_type(value: Any) -> bool:
    """Return whether it is a type or the name of one."""
    if not isinstance(value, str):
        return isinstance(value, pa.DataType)
    try:
        named_type(value)
    except SchemaError:
        return False
    return True


class _Reader:
    """Reads a type name from left to right; raises ``ValueError`` if it is not one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self) -> Any:
        name = self.expect(_NAME)[0]
        if not self._next(" *<"):
            return _plain(name)
        found = self._nested(name)
        self.expect(" *>")
        if isinstance(found, pa.Field):  # the item of a list whose size follows
            return pa.list_(found, int(self.expect(r" *\[(\d+) *\]")[1]))
        return found

    def _nested(self, name: str) -> Any:
        if name == "struct":
            fields = [self._field(_FIELD)]
            while self._next(" *,"):
                fields.append(self._field(_FIELD))
            return pa.struct(fields)
        if name == "map":
            key = self._entry("key", nullable=False)
            self.expect(" *, *")
            item = self._entry("value")
            is_sorted = self._next(" *,") is not None
            if is_sorted:
                self.expect(" *keys_sorted")
            return pa.map_(key, item, is_sorted)
        if name == "extension":
            return _plain(self.expect(r"\s*arrow\.([a-z_]+)")[1])
        if name == "dictionary":
            self.expect(" *values=")
            values = self.type()
            self.expect(r"\s*,\s*indices=")
            indices = self.type()
            ordered = self._next(r"\s*,\s*ordered=([01])")
            return pa.dictionary(indices, values, ordered is not None and ordered[1] == "1")
        item = self._field(f"(?:{_FIELD})?")
        return item if name == "fixed_size_list" else _LISTS[name](item)

    def _entry(self, name: str, nullable: bool = True) -> Any:
        """Read the key or the value of a map; if it has a different name, that follows."""
        type = self.type()
        nullable = nullable and not self._next(" *not null")
        other = self._next(r"\s*\('([^']*)'\)")
        return pa.field(name if other is None else other[1], type, nullable)

    def _field(self, pattern: str) -> Any:
        name = self.expect(pattern)[1]
        return pa.field("item" if name is None else name, self.type(), not self._next(" *not null"))

    def _next(self, pattern: str) -> re.Match[str] | None:
        """Read what the pattern matches here, or return None."""
        found = re.compile(pattern).match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def expect(self, pattern: str) -> re.Match[str]:
        found = self._next(pattern)
        if found is None:
            raise ValueError("no such type")
        return found


def _plain(name: str) -> Any:
    if name in _PRINTED:
        return _PRINTED[name]
    try:
        return plain_type(re.sub(r",\s*", ", ", name))
    except ValueError:
        return pa.type_for_alias(name)
