"""Paths to fields inside nested columns: how they are written, found in a type, and applied to types and arrays.

A path is text with dots, ``"address.zip"``, or a sequence of names.  A list is entered by ``element``, the values of a
map by ``value``: ``"items.element.price"``.  A name that contains a dot is written in double quotes or as an item of a
sequence: ``'"a.b"'`` or ``("a.b",)``.  A *place* is a path resolved in a type: the child to take at each level.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from indexlake.arrow.buffers import children_of, nested_array, null_mask, parts_of, with_parts
from indexlake.errors import SchemaError
from indexlake.types.nested import list_parts, offsets_of

Path = str | Sequence[str]
Place = tuple[int, ...]

ELEMENT, VALUE = "element", "value"
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')


def parse(path: Path) -> tuple[str, ...]:
    """Return the names of a path; at least one."""
    if isinstance(path, str):
        return _parsed(path)
    names = tuple(path) if isinstance(path, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise _wrong(path)
    return names


def _parsed(text: str) -> tuple[str, ...]:
    names: list[str] = []
    at = 0
    while True:
        part = _PART.match(text, at)
        if part is None:
            raise _wrong(text)
        names.append(part[1].replace('""', '"') if part[1] is not None else part[2])
        at = part.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            raise _wrong(text)
        at += 1


def _wrong(path: object) -> SchemaError:
    return SchemaError(
        f"{path!r} does not name a column. Write a name, or a path such as 'address.zip' to a nested field; a name "
        "with a dot in it goes in double quotes, '\"a.b\"', or in a tuple, ('a.b',).",
        column=str(path),
    )


def shown(names: Sequence[str]) -> str:
    """Return the path as a person would write it."""
    return ".".join('"' + name.replace('"', '""') + '"' if re.search(r'[."]', name) else name for name in names)


def find(type: pa.DataType, names: Sequence[str], column: str) -> Place:
    """Return the place of a field inside a column's type; an error says which name is wrong and what there is."""
    place: list[int] = []
    inside = [column]
    for name in names:
        place.append(_child(type, name, inside))
        inside.append(name)
        type = parts_of(type)[place[-1]].type
    return tuple(place)


def _child(type: pa.DataType, name: str, inside: Sequence[str]) -> int:
    t = pa.types
    known: list[str]
    if t.is_struct(type):
        known = [field.name for field in type]
        if name in known:
            return known.index(name)
        folded = [n for n, own in enumerate(known) if own.lower() == name.lower()]
        if len(folded) == 1:
            return folded[0]
    elif t.is_map(type):
        known = [VALUE]
        if name.lower() == VALUE:
            return 1
        if name.lower() == "key":
            raise SchemaError(f"The keys of the map {shown(inside)!r} cannot be changed.", column=shown(inside))
    elif parts_of(type):
        known = [ELEMENT]
        if name.lower() == ELEMENT:
            return 0
    else:
        raise SchemaError(
            f"{shown(inside)!r} is of type {type}, which has no fields: there is no {shown([*inside, name])!r}.",
            column=shown(inside),
        )
    close = get_close_matches(name, known, 1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(map(repr, known))}."
    raise SchemaError(
        f"There is no field {name!r} in {shown(inside)!r} of type {type}. {hint}", column=shown([*inside, name])
    )


def type_at(type: pa.DataType, place: Place) -> pa.DataType:
    for index in place:
        type = parts_of(type)[index].type
    return type


def with_type_at(type: pa.DataType, place: Place, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with the type at a place changed; names, nullability and metadata around it stay."""
    if not place:
        return change(type)
    parts, index = parts_of(type), place[0]
    parts[index] = parts[index].with_type(with_type_at(parts[index].type, place[1:], change))
    return with_parts(type, parts)


def with_array_at(array: Any, type: pa.DataType, place: Place, change: Callable[[Any], Any]) -> Any:
    """Return the array, as ``type``, with its values at a place changed; everything around them stays bit for bit."""
    if not place:
        return change(array)
    t, index, mask = pa.types, place[0], null_mask(array)
    if t.is_struct(type):
        children = children_of(array)
        children[index] = with_array_at(children[index], type.field(index).type, place[1:], change)
        return nested_array(type, len(array), mask, children)
    starts, stops, items = list_parts(array)
    if t.is_map(type):
        values = with_array_at(items.field(1), type.item_type, place[1:], change)
        items = nested_array(type.field(0).type, len(items), None, [items.field(0), values])
    else:
        items = with_array_at(items, type.value_type, place[1:], change)
    offsets = None if t.is_fixed_size_list(type) else offsets_of(stops - starts, type)
    return nested_array(type, len(array), mask, [items], offsets)
