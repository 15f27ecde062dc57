"""Types by name: every text that pyarrow prints for a type, at any nesting, and its short names.

``"int64"``, ``"timestamp[us, tz=UTC]"``, ``"list<item: string>"``, also without the name of the item, ``"str"``.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.types.text import plain_type

_NAME = re.compile(r"[a-z][a-z0-9_]*(?:\[[^\]<>]*\]|\([^)<>]*\))?")
_FIELD = re.compile(r"\s*([^:<>,\[\]()]*):\s*")
_ENTRY_NAME = re.compile(r"\s*\('([^']*)'\)")
_DICTIONARY = re.compile(r"\s*,\s*indices=")
_EXTENSION = re.compile(r"\s*arrow\.([a-z_]+)")
_ORDERED = re.compile(r"\s*,\s*ordered=([01])")
_LISTS = {"list": pa.list_, "large_list": pa.large_list}
_PRINTED = {
    "halffloat": pa.float16(),
    "date32[day]": pa.date32(),
    "date64[ms]": pa.date64(),
}


def named_type(text: str) -> Any:
    """The type of that name; ``SchemaError`` if there is none.

    >>> named_type("list<decimal128(10, 2)>")
    ListType(list<item: decimal128(10, 2)>)
    """
    reader = _Reader(text)
    try:
        found = reader.type()
        reader.end()
    except (ValueError, pa.ArrowException):
        raise SchemaError(
            f"{text!r} is not the name of a type. Give the name that pyarrow prints, such as 'int64', 'string', "
            "'timestamp[us, tz=UTC]', 'decimal128(10, 2)' or 'list<string>', or the type itself: pa.int64()."
        ) from None
    return found


def as_type(type: Any) -> Any:
    """A type that may be given by its name."""
    return named_type(type) if isinstance(type, str) else type


def is_type(value: Any) -> bool:
    """Whether it is a type or the name of one."""
    if not isinstance(value, str):
        return isinstance(value, pa.DataType)
    try:
        named_type(value)
    except SchemaError:
        return False
    return True


class _Reader:
    """Reads a text from left to right; ``ValueError`` where it is none."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._at = 0

    def end(self) -> None:
        if self._at != len(self._text):
            raise ValueError("something follows the type")

    def type(self) -> Any:
        name = self._match(_NAME)[0]
        if not self._next("<"):
            return _plain(name)
        found = self._nested(name)
        self._expect(">")
        if isinstance(found, pa.Field):  # of a list whose size follows
            self._expect("[")
            size = self._match(re.compile(r"\d+"))[0]
            self._expect("]")
            return pa.list_(found, int(size))
        return found

    def _nested(self, name: str) -> Any:
        if name == "struct":
            fields = [self._field()]
            while self._next(","):
                fields.append(self._field())
            return pa.struct(fields)
        if name == "map":
            return self._map()
        if name == "extension":
            return _plain(self._match(_EXTENSION)[1])
        if name == "dictionary":
            self._expect("values=")
            values = self.type()
            self._match(_DICTIONARY)
            indices = self.type()
            ordered = _ORDERED.match(self._text, self._at)
            if ordered is not None:
                self._at = ordered.end()
            return pa.dictionary(indices, values, ordered is not None and ordered[1] == "1")
        item = self._item()
        if name == "fixed_size_list":
            return item
        if name not in _LISTS:
            raise ValueError("no such type")
        return _LISTS[name](item)

    def _map(self) -> Any:
        key_type = self.type()
        key = self._entry_name("key")
        self._expect(",")
        self._skip()
        item_type = self.type()
        item_nullable = not self._not_null()
        item = self._entry_name("value")
        is_sorted = self._next(",")
        if is_sorted:
            self._expect("keys_sorted")
        return pa.map_(pa.field(key, key_type, False), pa.field(item, item_type, item_nullable), is_sorted)

    def _item(self) -> Any:
        named = _FIELD.match(self._text, self._at)
        if named is not None:
            return self._field()
        return pa.field("item", self.type(), not self._not_null())

    def _field(self) -> Any:
        name = self._match(_FIELD)[1]
        return pa.field(name, self.type(), not self._not_null())

    def _entry_name(self, default: str) -> str:
        found = _ENTRY_NAME.match(self._text, self._at)
        if found is None:
            return default
        self._at = found.end()
        return found[1]

    def _not_null(self) -> bool:
        return self._next("not null")

    def _skip(self) -> None:
        while self._text.startswith(" ", self._at):
            self._at += 1

    def _next(self, text: str) -> bool:
        """Whether that follows; then it is read."""
        place = self._at
        self._skip()
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        self._at = place
        return False

    def _expect(self, text: str) -> None:
        if not self._next(text):
            raise ValueError(f"{text!r} is missing")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError("no such type")
        self._at = found.end()
        return found


def _plain(name: str) -> Any:
    if name in _PRINTED:
        return _PRINTED[name]
    try:
        return plain_type(re.sub(r",\s*", ", ", name))
    except ValueError:
        return pa.type_for_alias(name)
