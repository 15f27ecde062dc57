"""Functions of lists, structs and maps.  Elements are numbered from 1; a negative number counts from the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.expr import tree
from indexlake.expr.broadcast import full, rows_of
from indexlake.expr.build import Builder, Leaf
from indexlake.expr.coercion import combine, combine_all, implicit_cost
from indexlake.expr.constants import NotCovered
from indexlake.expr.functions.function import Function, Row, Signature, constant, same_for_all
from indexlake.expr.sqltype import (
    BOOL,
    FLOATS,
    INT32,
    INT64,
    INTEGERS,
    NULL,
    UINT64,
    VARCHAR,
    SqlType,
    list_of,
    map_of,
    normal,
    to_arrow,
)

LISTS = ("list", "array")
_SIMPLE = INTEGERS | {"varchar", "bool", "date", "blob"}  # types that Python compares as SQL does
Types = tuple[SqlType, ...]
Literals = tuple[Any, ...]


def _whole(type: SqlType) -> bool:
    return implicit_cost(type, INT64) is not None


def element_of(type: SqlType) -> SqlType | None:
    return type.parts[0] if type.kind in LISTS else NULL if type.kind == "null" else None


# -- elements ----------------------------------------------------------------------------------------------


def _extract_types(operands: Types, literals: Literals) -> Signature | None:
    if not _whole(operands[1]):
        return None
    element = element_of(operands[0])
    if element is not None:
        return (list_of(element), INT64), element
    return ((VARCHAR, INT64), VARCHAR) if operands[0].kind in ("varchar", "string_literal") else None


def _extract(values: list[Any], call: tree.Call) -> Any:
    lists, index = values
    if call.arguments[0].type.kind != "list" or isinstance(lists, pa.Scalar):
        raise NotCovered
    offsets = lists.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    null = pc.is_null(lists).to_numpy(zero_copy_only=False)
    if isinstance(index, pa.Scalar):
        places = np.full(len(lists), index.as_py(), dtype=np.int64)
    else:
        null = null | pc.is_null(index).to_numpy(zero_copy_only=False)
        places = pc.fill_null(index, 0).to_numpy()
    steps = np.where(places > 0, places - 1, lengths + places)
    missing = null | (places == 0) | (steps < 0) | (steps >= lengths)
    return lists.values.take(pa.array(np.where(missing, 0, offsets[:-1] + steps), mask=missing))


def _extract_row(call: tree.Call) -> Row:
    text = call.arguments[0].type.kind == "varchar"

    def extract(items: Any, place: int) -> Any:
        index = place - 1 if place > 0 else len(items) + place
        found = place != 0 and 0 <= index < len(items)
        return items[index] if found else ("" if text else None)

    return extract


def _slice_types(operands: Types, literals: Literals) -> Signature | None:
    if not all(_whole(operand) for operand in operands[1:]):
        return None
    bounds = (INT64,) * (len(operands) - 1)
    element = element_of(operands[0])
    if element is not None:
        return (list_of(element), *bounds), list_of(element)
    if operands[0].kind in ("varchar", "string_literal") and len(bounds) == 2:
        return (VARCHAR, *bounds), VARCHAR
    return None


def _slice_row(items: Any, first: int, last: int, step: int = 1) -> Any:
    if step != 1:
        raise NotCovered
    size = len(items)
    start = max(first if first >= 0 else size + first + 1, 1)
    end = min(last if last >= 0 else size + last + 1, size)
    return items[start - 1 : end] if start <= end else items[:0]


# -- membership --------------------------------------------------------------------------------------------


def _contains_types(result: SqlType) -> Any:
    def resolve(operands: Types, literals: Literals) -> Signature | None:
        element = element_of(operands[0])
        if element is None:
            return None
        common = combine(element, operands[1])
        return None if common is None else ((list_of(normal(common)), normal(common)), result)

    return resolve


def _contains_row(call: tree.Call) -> Row:
    if call.arguments[1].type.kind in FLOATS:
        return lambda items, value: any(item == value or (item != item and value != value) for item in items)
    if call.arguments[1].type.kind not in _SIMPLE:
        raise NotCovered
    return lambda items, value: value in items


def _contains(builder: Builder, arguments: list[tree.Node]) -> tree.Node | None:
    kind = arguments[0].type.kind
    if kind in LISTS:
        return builder.call("list_contains", arguments)
    return builder.call("map_contains", arguments) if kind == "map" else None


def _substring_test(values: list[Any], call: tree.Call) -> Any:
    return pc.match_substring(values[0], constant(values[1]))


# -- maps --------------------------------------------------------------------------------------------------


def _map_types(result: Any) -> Any:
    def resolve(operands: Types, literals: Literals) -> Signature | None:
        given = operands[0]
        if given.kind != "map":
            return None
        if len(operands) == 1:
            return (given,), result(given)
        key = combine(given.parts[0], operands[1])
        return None if key is None else ((map_of(normal(key), given.parts[1]), normal(key)), result(given))

    return resolve


def _value_row(call: tree.Call) -> Row:
    if call.arguments[1].type.kind not in _SIMPLE:
        raise NotCovered
    return lambda entries, wanted: next((value for key, value in entries if key == wanted), None)


def _key_row(call: tree.Call) -> Row:
    if call.arguments[1].type.kind not in _SIMPLE:
        raise NotCovered
    return lambda entries, wanted: any(key == wanted for key, _ in entries)


# -- building ----------------------------------------------------------------------------------------------


def _list_types(operands: Types, literals: Literals) -> Signature | None:
    element = combine_all(operands)
    if element is None or element.kind == "nested":
        return None
    return (normal(element),) * len(operands), list_of(normal(element))


def _list_value(values: list[Any], call: tree.Call) -> Any:
    rows = rows_of(*values)
    element = to_arrow(call.type.parts[0])
    together = pa.concat_arrays([full(value, element, rows).cast(element) for value in values])
    order = np.arange(len(values) * rows).reshape(len(values), rows).T.ravel()
    offsets = np.arange(0, len(values) * rows + 1, len(values), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), together.take(pa.array(order)))


def _empty_list(builder: Builder, arguments: list[tree.Node]) -> tree.Node | None:
    if arguments:
        return None
    nothing = list_of(NULL)
    return builder.coerce(Leaf(pa.scalar([], to_arrow(nothing)), None, nothing), nothing)


def _struct_field(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    name = arguments[1]
    if not isinstance(name, Leaf) or not isinstance(name.value, str):
        builder.fail("the field of a struct is written as text: s['field']")
    return builder.field(arguments[0], name.value)


def _concat_types(operands: Types, literals: Literals) -> Signature | None:
    found = combine_all(operands)
    element = None if found is None else element_of(found)
    return None if element is None else ((list_of(normal(element)),) * len(operands), list_of(normal(element)))


def _appended_types(list_place: int) -> Any:
    def resolve(operands: Types, literals: Literals) -> Signature | None:
        element = element_of(operands[list_place])
        both = combine(element, operands[1 - list_place]) if element is not None else None
        if both is None:
            return None
        types = [normal(both), normal(both)]
        types[list_place] = list_of(normal(both))
        return tuple(types), list_of(normal(both))

    return resolve


def _length_types(operands: Types, literals: Literals) -> Signature | None:
    element = element_of(operands[0])
    if element is not None and operands[0].kind != "null":
        return (list_of(element),), INT64
    return ((VARCHAR,), INT64) if implicit_cost(operands[0], VARCHAR) is not None else None


def _length(values: list[Any], call: tree.Call) -> Any:
    kernel = pc.utf8_length if call.arguments[0].type.kind == "varchar" else pc.list_value_length
    return kernel(values[0]).cast(pa.int64())


# fmt: off
FUNCTIONS = (
    Function(
        "length", "text or a list", "how many characters or elements there are", resolve=_length_types, arity=(1, 1),
        kernel=_length, row=same_for_all(len), synonyms=("len", "char_length", "character_length"),
    ),
    Function(
        "array_length", "list", "how many elements there are", arity=(1, 1),
        resolve=lambda types, literals: _length_types(types, literals) if types[0].kind in LISTS else None,
        kernel=_length, row=same_for_all(len),
    ),
    Function(
        "list_extract", "list or text, place", "the element, null if there is none; also `list[place]`",
        resolve=_extract_types, arity=(2, 2), kernel=_extract, row=_extract_row,
        synonyms=("list_element", "array_extract"),
    ),
    Function(
        "list_slice", "list or text, first, last[, step]", "a part, both ends included; also `list[first:last]`",
        resolve=_slice_types, arity=(3, 4), row=same_for_all(_slice_row), synonyms=("array_slice",),
    ),
    Function(
        "list_contains", "list, value", "whether the value is an element; also `value in list`",
        resolve=_contains_types(BOOL), arity=(2, 2), row=_contains_row,
        synonyms=("array_contains", "list_has", "array_has", "has"),
    ),
    Function(
        "contains", "text, text; or a list or map and a value",
        "whether the second is a part of the first, an element or a key", (((VARCHAR, VARCHAR), BOOL),), arity=(2, 2),
        expand=_contains, kernel=_substring_test, row=same_for_all(lambda text, part: part in text),
    ),
    Function(
        "list_position", "list, value", "the place of the value, null if it is not in the list",
        resolve=_contains_types(INT32), arity=(2, 2), strict=False,
        synonyms=("list_indexof", "array_position", "array_indexof"),
    ),
    Function(
        "list_value", "values", "a list of them; also `[a, b]`", resolve=_list_types, arity=(0, None),
        expand=_empty_list, kernel=_list_value, strict=False, synonyms=("list_pack",),
    ),
    Function(
        "list_concat", "lists", "one list of all elements; nulls are left out; also `a || b`", resolve=_concat_types,
        arity=(1, None), strict=False, synonyms=("list_cat", "array_concat", "array_cat"),
    ),
    Function(
        "list_append", "list, value", "the list with the value at its end", resolve=_appended_types(0), arity=(2, 2),
        strict=False, synonyms=("array_append",),
    ),
    Function(
        "list_prepend", "value, list", "the list with the value at its beginning", resolve=_appended_types(1),
        arity=(2, 2), strict=False,
    ),
    Function(
        "array_to_string", "list, separator", "the elements as one text", arity=(2, 2),
        resolve=lambda types, literals: ((types[0], VARCHAR), VARCHAR)
        if types[0].kind in LISTS and implicit_cost(types[1], VARCHAR) is not None else None,
    ),
    Function(
        "struct_extract", "struct, name", "a field; also `struct.field` and `struct['field']`", arity=(2, 2),
        expand=_struct_field,
    ),
    Function(
        "map_extract_value", "map, key", "the value, null if there is none; also `map[key]`",
        resolve=_map_types(lambda given: given.parts[1]), arity=(2, 2), row=_value_row,
    ),
    Function(
        "map_extract", "map, key", "a list of the value, empty if there is none",
        resolve=_map_types(lambda given: list_of(given.parts[1])), arity=(2, 2), synonyms=("element_at",),
    ),
    Function(
        "map_contains", "map, key", "whether the map has the key", resolve=_map_types(lambda given: BOOL), arity=(2, 2),
        row=_key_row,
    ),
    Function(
        "map_keys", "map", "a list of the keys", resolve=_map_types(lambda given: list_of(given.parts[0])), arity=(1, 1)
    ),
    Function(
        "map_values", "map", "a list of the values", resolve=_map_types(lambda given: list_of(given.parts[1])),
        arity=(1, 1),
    ),
    Function(
        "cardinality", "map", "how many entries the map has", resolve=_map_types(lambda given: UINT64), arity=(1, 1),
        row=same_for_all(len),
    ),
)
# fmt: on
