"""Which Arrow types a column may have.

Everything accepted here round-trips through every tier bit for bit.  What is refused is named, with its place inside a
nested type and with what to use instead.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexlake.arrow.buffers import parts_of
from indexlake.errors import SchemaError
from indexlake.types.text import NAMES
from indexlake.types.uuids import is_uuid

MAX_LEVELS = 20
MAX_LISTS = 8
"""How deeply a column may be nested, and how many of its levels may be lists or maps.

A table's rows may be in blocks of any format, so the limits apply to all of them.  Vortex reads 30 levels, a map
counting as two, and reserves twice the memory for every list inside a list: with 16 of them the process is aborted.
Arrow IPC and Parquet read more: lists that are 40 levels deep, maps that are 31.
"""

_MOST_LEVELS = 64  # for columns of tables created before there were limits


def check_supported(type: Any, column: str, *, old: bool = False) -> None:
    """Raise ``SchemaError`` unless a column may have this type.  ``old``: the column exists already.

    >>> check_supported(pa.list_(pa.int64()), "scores")
    """
    _check(type, column, column, 0)
    if old or not pa.types.is_nested(type):
        return
    levels, lists = _nesting(type)
    if levels > MAX_LEVELS:
        raise _too_deep(f"nests {levels} levels deep", column)
    if lists > MAX_LISTS:
        raise _too_deep(f"has {lists} lists or maps inside each other", column)


def _nesting(type: Any) -> tuple[int, int]:
    """Return the depth of nesting, and how many of the levels are lists or maps."""
    t = pa.types
    if not t.is_nested(type):
        return 0, 0
    found = [_nesting(field.type) for field in parts_of(type)]
    is_list = not t.is_struct(type) and not t.is_fixed_size_list(type)
    return 1 + max(levels for levels, _ in found), is_list + max(lists for _, lists in found)


def _too_deep(what: str, column: str) -> SchemaError:
    return SchemaError(
        f"Column {column!r} {what}. Blocks (Vortex, Parquet and Arrow IPC) hold columns of up to {MAX_LEVELS} levels, "
        f"of which up to {MAX_LISTS} are lists or maps. Flatten it, or store the inner part as JSON text.",
        column=column,
    )


def _check(type: Any, column: str, place: str, depth: int) -> None:
    def refuse(problem: str, advice: str) -> SchemaError:
        inside = "" if place == column else f" (at {place!r})"
        return SchemaError(
            f"Column {column!r}{inside} cannot have the type {type}: {problem}. {advice}.", column=column
        )

    if not isinstance(type, pa.DataType):
        raise SchemaError(
            f"Column {column!r} needs an Arrow type such as pa.int64() or pa.string(), got {type!r}.",
            column=column,
        )
    t = pa.types
    if depth > _MOST_LEVELS:
        raise _too_deep(f"nests more than {_MOST_LEVELS} levels deep", column)
    if isinstance(type, pa.BaseExtensionType) and not is_uuid(type):
        raise refuse(
            f"extension types are not supported ({type.extension_name})",
            f"Use its storage type {type.storage_type} (array.storage gives the values)",
        )
    if t.is_null(type):
        raise refuse("it can hold no value", "Name the type the values will have, for example pa.string()")
    if t.is_union(type):
        raise refuse("union types are not supported", "Use a struct with one nullable field for each case")
    if t.is_run_end_encoded(type):
        raise refuse(
            "run-end encoding is not a type of values",
            f"Use {type.value_type}: files compress runs by themselves",
        )
    if t.is_list_view(type) or t.is_large_list_view(type):
        raise refuse("list views are not supported", f"Use pa.list_ or pa.large_list of {type.value_type}")
    if t.is_interval(type):
        raise refuse("intervals have no fixed length and no order", "Use pa.duration, or a struct of integers")
    if t.is_dictionary(type):
        _check_dictionary(type, column, place, depth, refuse)
    elif t.is_struct(type):
        _check_struct(type, column, place, depth, refuse)
    elif t.is_map(type):
        if type.key_field.name == type.item_field.name:
            raise refuse(f"its keys and values have the same name, {type.key_field.name!r}", "Give them two names")
        _check(type.key_type, column, f"{place}.{type.key_field.name}", depth + 1)
        _check(type.item_type, column, f"{place}.{type.item_field.name}", depth + 1)
    elif t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        if t.is_fixed_size_list(type) and type.list_size < 1:
            raise refuse("a list of size 0 holds nothing", "Use a size of at least 1, or pa.list_")
        _check(type.value_type, column, f"{place}[]", depth + 1)
    elif t.is_fixed_size_binary(type):
        if type.byte_width < 1:
            raise refuse("a binary of width 0 holds nothing", "Use a width of at least 1, or pa.binary()")
    elif t.is_timestamp(type):
        if type.tz is not None and not _known_zone(type.tz):
            raise refuse(
                f"the time zone {type.tz!r} is unknown",
                'Use a name such as "UTC" or "Europe/Berlin", or "+02:00"',
            )
    elif not t.is_decimal(type) and type not in NAMES:
        raise refuse("this type is not supported", "Use one of the types listed under 'Types' in the documentation")


def _check_dictionary(type: Any, column: str, place: str, depth: int, refuse: Any) -> None:
    value = type.value_type
    if pa.types.is_nested(value) or pa.types.is_dictionary(value) or is_uuid(value):
        raise refuse("a dictionary may hold plain values only", f"Use the value type {value} itself")
    _check(value, column, place, depth + 1)


def _check_struct(type: Any, column: str, place: str, depth: int, refuse: Any) -> None:
    names = [field.name for field in type]
    if not names:
        raise refuse("a struct without fields holds nothing", "Give it a field, or use pa.bool_()")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(f"it has two fields named {twice[0]!r}", "Give every field of a struct its own name")
    for field in type:
        _check(field.type, column, f"{place}.{field.name}", depth + 1)


def _known_zone(zone: str) -> bool:
    try:
        pa.lib.string_to_tzinfo(zone)
    except Exception:  # whatever the zone library raises, the answer is the same
        return False
    return True
