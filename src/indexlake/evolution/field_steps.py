"""Steps: how the values of a column become those of the column that took its place.

A column that changes in what it holds is not rewritten.  The new column records the steps that lead to it from the
old one, and values that are older than it are read from the old one through them.  A step works on types and on Arrow
arrays; it is stored in the catalog as text and means the same for ever.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indexlake.errors import CatalogError
from indexlake.evolution.field_path import Place, with_array_at, with_type_at
from indexlake.evolution.widening import widened
from indexlake.types import SqlValue, codec_for, type_from_text, type_to_text
from indexlake.types.buffers import nested_array, null_mask


@dataclass(frozen=True, slots=True)
class Widen:
    """The values at a place get a wider type."""

    place: Place
    type: pa.DataType

    def type_after(self, type: pa.DataType) -> pa.DataType:
        return with_type_at(type, self.place, lambda _: self.type)

    def apply(self, array: Any) -> Any:
        return with_array_at(array, self.type_after(array.type), self.place, lambda values: widened(values, self.type))

    def to_json(self) -> dict[str, Any]:
        return {"do": "widen", "place": self.place, "type": type_to_text(self.type)}


@dataclass(frozen=True, slots=True)
class AddField:
    """The struct at a place gets one more field, at its end; what was there before takes the default."""

    place: Place
    name: str
    type: pa.DataType
    nullable: bool
    default: SqlValue

    def type_after(self, type: pa.DataType) -> pa.DataType:
        return with_type_at(type, self.place, self._struct)

    def _struct(self, type: pa.DataType) -> pa.DataType:
        return pa.struct([*_fields(type), pa.field(self.name, self.type, self.nullable)])

    def apply(self, array: Any) -> Any:
        def add(structs: Any) -> Any:
            values = repeated(self.type, self.default, len(structs))
            return nested_array(self._struct(structs.type), len(structs), null_mask(structs),
                                [*_children(structs), values])  # fmt: skip

        return with_array_at(array, self.type_after(array.type), self.place, add)

    def to_json(self) -> dict[str, Any]:
        return {"do": "add", "place": self.place, "name": self.name, "type": type_to_text(self.type),
                "nullable": self.nullable, "default": value_to_json(self.default)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DropField:
    """The struct at a place loses a field."""

    place: Place
    index: int

    def type_after(self, type: pa.DataType) -> pa.DataType:
        return with_type_at(type, self.place, self._struct)

    def _struct(self, type: pa.DataType) -> pa.DataType:
        return pa.struct([f for n, f in enumerate(_fields(type)) if n != self.index])

    def apply(self, array: Any) -> Any:
        def drop(structs: Any) -> Any:
            kept = [c for n, c in enumerate(_children(structs)) if n != self.index]
            return nested_array(self._struct(structs.type), len(structs), null_mask(structs), kept)

        return with_array_at(array, self.type_after(array.type), self.place, drop)

    def to_json(self) -> dict[str, Any]:
        return {"do": "drop", "place": self.place, "index": self.index}


@dataclass(frozen=True, slots=True)
class RenameField:
    """A field of the struct at a place gets another name."""

    place: Place
    index: int
    name: str

    def type_after(self, type: pa.DataType) -> pa.DataType:
        return with_type_at(type, self.place, self._struct)

    def _struct(self, type: pa.DataType) -> pa.DataType:
        return pa.struct([f.with_name(self.name) if n == self.index else f for n, f in enumerate(_fields(type))])

    def apply(self, array: Any) -> Any:
        def rename(structs: Any) -> Any:
            return nested_array(self._struct(structs.type), len(structs), null_mask(structs), _children(structs))

        return with_array_at(array, self.type_after(array.type), self.place, rename)

    def to_json(self) -> dict[str, Any]:
        return {"do": "rename", "place": self.place, "index": self.index, "name": self.name}


Step = Widen | AddField | DropField | RenameField


def steps_to_text(steps: Sequence[Step]) -> str | None:
    return json.dumps([step.to_json() for step in steps]) if steps else None


def steps_from_text(text: str | None) -> tuple[Step, ...]:
    return tuple(_step(record) for record in json.loads(text)) if text else ()


def _step(record: dict[str, Any]) -> Step:
    place = tuple(record["place"])
    match record["do"]:
        case "widen":
            return Widen(place, type_from_text(record["type"]))
        case "add":
            default = value_from_json(record["default"])
            return AddField(place, record["name"], type_from_text(record["type"]), record["nullable"], default)
        case "drop":
            return DropField(place, record["index"])
        case "rename":
            return RenameField(place, record["index"], record["name"])
    raise CatalogError(f"The catalog holds a change of a column that this IndexLake does not know: {record['do']!r}.")


def value_to_json(value: SqlValue) -> int | str | None:
    """An encoded value in JSON: bytes in base64."""
    return value if value is None or isinstance(value, int) else base64.b64encode(value).decode()


def value_from_json(value: int | str | None) -> SqlValue:
    return base64.b64decode(value) if isinstance(value, str) else value


def repeated(type: pa.DataType, value: SqlValue, count: int) -> Any:
    """One encoded value, ``count`` times, as an array of the type."""
    codec = codec_for(type)
    if pa.types.is_dictionary(type) or pa.types.is_nested(type):
        return codec.decode([value] * count)
    return pa.repeat(codec.decode([value])[0], count)


def _fields(type: pa.DataType) -> list[pa.Field]:
    return [type.field(n) for n in range(type.num_fields)]


def _children(structs: Any) -> list[Any]:
    return [structs.field(n) for n in range(structs.type.num_fields)]
