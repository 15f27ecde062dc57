"""Steps: how the values of a column become those of the column that replaced it.

When a column changes in what it holds, it is not rewritten.  The new column records the steps that lead to it from the
old one, and older values are read from the old column through them.  A step works on types and on Arrow arrays; it is
stored in the catalog as text and keeps its meaning forever.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from indexlake.arrow.buffers import children_of, fields_of, nested_array, null_mask
from indexlake.errors import CatalogError
from indexlake.schema.field_path import Place, with_array_at, with_type_at
from indexlake.schema.widening import widened
from indexlake.types import SqlValue, codec_for, type_from_text, type_to_text


@dataclass(frozen=True, slots=True)
class Widen:
    """Gives the values at a place a wider type."""

    place: Place
    type: pa.DataType

    def type_after(self, type: pa.DataType) -> pa.DataType:
        return with_type_at(type, self.place, lambda _: self.type)

    def apply(self, array: Any) -> Any:
        return with_array_at(array, self.type_after(array.type), self.place, lambda values: widened(values, self.type))


class _OfStruct(ABC):
    """Gives the struct at a place other fields."""

    __slots__ = ()
    place: Place

    @abstractmethod
    def _struct(self, fields: list[pa.Field]) -> list[pa.Field]:
        """Return the fields afterwards."""

    def _columns(self, columns: list[Any], count: int) -> list[Any]:
        """Return the fields' values in ``count`` structs."""
        return columns

    def type_after(self, type: pa.DataType) -> pa.DataType:
        return with_type_at(type, self.place, lambda struct: pa.struct(self._struct(fields_of(struct))))

    def apply(self, array: Any) -> Any:
        def change(structs: Any) -> Any:
            type, count = pa.struct(self._struct(fields_of(structs.type))), len(structs)
            return nested_array(type, count, null_mask(structs), self._columns(children_of(structs), count))

        return with_array_at(array, self.type_after(array.type), self.place, change)


@dataclass(frozen=True, slots=True)
class AddField(_OfStruct):
    """Adds a field at the end of the struct at a place; existing values get the default."""

    place: Place
    name: str
    type: pa.DataType
    nullable: bool
    default: SqlValue

    def _struct(self, fields: list[pa.Field]) -> list[pa.Field]:
        return [*fields, pa.field(self.name, self.type, self.nullable)]

    def _columns(self, columns: list[Any], count: int) -> list[Any]:
        return [*columns, repeated(self.type, self.default, count)]


@dataclass(frozen=True, slots=True)
class DropField(_OfStruct):
    """Removes a field from the struct at a place."""

    place: Place
    index: int

    def _struct(self, fields: list[Any]) -> list[Any]:
        return fields[: self.index] + fields[self.index + 1 :]

    def _columns(self, columns: list[Any], count: int) -> list[Any]:
        return self._struct(columns)


@dataclass(frozen=True, slots=True)
class RenameField(_OfStruct):
    """Renames a field of the struct at a place."""

    place: Place
    index: int
    name: str

    def _struct(self, fields: list[pa.Field]) -> list[pa.Field]:
        return [f.with_name(self.name) if n == self.index else f for n, f in enumerate(fields)]


Step = Widen | AddField | DropField | RenameField

_KINDS: dict[str, type[Step]] = {"widen": Widen, "add": AddField, "drop": DropField, "rename": RenameField}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def steps_to_text(steps: Sequence[Step]) -> str | None:
    return json.dumps([_to_json(step) for step in steps]) if steps else None


def steps_from_text(text: str | None) -> tuple[Step, ...]:
    return tuple(_from_json(**record) for record in json.loads(text)) if text else ()


def _to_json(step: Step) -> dict[str, Any]:
    record = {"do": _NAMES[type(step)], **{f.name: getattr(step, f.name) for f in fields(step)}}
    for name, write in (("type", type_to_text), ("default", value_to_json)):
        if name in record:
            record[name] = write(record[name])
    return record


def _from_json(do: str, place: list[int], **record: Any) -> Step:
    if do not in _KINDS:
        raise CatalogError(f"The catalog holds a change of a column that this IndexLake does not know: {do!r}.")
    for name, read in (("type", type_from_text), ("default", value_from_json)):
        if name in record:
            record[name] = read(record[name])
    return _KINDS[do](place=tuple(place), **record)


def value_to_json(value: SqlValue) -> int | str | None:
    """Return an encoded value for JSON, with bytes in base64."""
    return value if value is None or isinstance(value, int) else base64.b64encode(value).decode()


def value_from_json(value: int | str | None) -> SqlValue:
    return base64.b64decode(value) if isinstance(value, str) else value


def repeated(type: pa.DataType, value: SqlValue, count: int) -> Any:
    """Return an array of the type with one encoded value repeated ``count`` times."""
    codec = codec_for(type)
    if pa.types.is_dictionary(type) or pa.types.is_nested(type):
        return codec.decode([value] * count)
    return pa.repeat(codec.decode([value])[0], count)
