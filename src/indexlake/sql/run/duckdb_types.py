"""DuckDB's types by name: how tables hold them and results show them, exactly and with their meaning.

Types that Arrow does not have are held as another type with a mark (see ``types.marks``).  Anything not on the list is
refused by name, wherever it is inside a type: nothing is stored as another type that happens to hold its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from indexlake.errors import ExpressionError, SchemaError
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.run.held_forms import TAG, held
from indexlake.types.convert import mapped_leaves, shown_type

_HELD = frozenset({
    "boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "hugeint",
    "float", "double", "decimal", "varchar", "blob", "uuid", "date", "time", "time_ns", "timestamp", "timestamp_s",
    "timestamp_ms", "timestamp_ns", "timestamp with time zone", "list", "array", "struct", "map",
})  # fmt: skip
_AS_TEXT = frozenset({"enum", "json", "bit", "bignum", "uhugeint", "time with time zone", "interval"})
"""Types that a table holds as text, which DuckDB casts there and back."""
_INSTEAD = {
    "geometry": "BLOB, for WKB",
    "variant": "VARCHAR, or a STRUCT",
    "union": "a STRUCT with one field for each case",
}
_UNSHOWN = frozenset({"time with time zone", "bit", "bignum", "variant"})
"""Types that Arrow does not have: results contain them as text."""


def check_held(type: Any, column: str, *, declared: bool = False, inside: bool = False) -> None:
    """Refuse a column, declared or from a query, of a type that tables do not hold.

    ``inside``: it is a field of a struct, which cannot have a mark.
    """
    for part, below in _parts(type, False):
        kind = _kind(part)
        if kind not in _HELD | _AS_TEXT and (below or not _is_outermost(part)):
            where = f"{type} holds {part}, which" if below else f"{part}"
            instead = _INSTEAD.get(kind, "VARCHAR")
            what = "is not a type that tables hold" + (" inside another" if kind in ("union", "geometry") else "")
            advice = f"Use {instead}" if declared else f"Cast it in the query: use {instead}"
            raise SchemaError(f"Column {column!r}: {where} {what}. {advice}.", column=column)
    if inside and is_marked(type):
        raise SchemaError(
            f"Column {column!r}: a field of type {type} cannot be added to an existing column. Add a column instead.",
            column=column,
        )


def check_shown(columns: Sequence[tuple[str, Any]]) -> None:
    """Refuse result columns whose values cannot be returned."""
    for name, type in columns:
        if is_unshown(type):
            raise ExpressionError(
                f"Column {name!r} of the result is of type {type}, and no Arrow type holds it as it is. Cast it to "
                "VARCHAR in the query."
            )


def is_unshown(type: Any) -> bool:
    """Return whether Arrow has no type for the values, or for parts of them."""
    return any(_kind(part) in _UNSHOWN for part, _ in _parts(type, False))


def is_marked(type: Any) -> bool:
    """Return whether a table holds another type instead, at least for a part of it."""
    return _is_outermost(type) or any(
        _kind(part) in _AS_TEXT or _kind(part) == "hugeint" for part, _ in _parts(type, False)
    )


def is_cast(type: Any) -> bool:
    """Return whether a result has another type, which SQL has to convert back."""
    return is_marked(type) and not is_hugeint_type(type) and _kind(type) != "union"


def _is_outermost(type: Any) -> bool:
    """Return whether a table holds it by way of an expression that is not a cast, and so only as a whole column."""
    if _kind(type) == "union":
        return TAG not in [name.lower() for name in members(type)]
    return str(type) == "GEOMETRY"


def members(type: Any) -> list[str]:
    """Return the names of the members of a UNION."""
    return [name for name, _ in type.children[1:]] if _kind(type) == "union" else []


def held_form(type: Any, value: str, *, stored: bool = True) -> str:
    """Return the expression for a value as a table holds it or as a result shows it."""
    name = held_name(type) if stored or not _is_outermost(type) else "VARCHAR"
    before, after = held(str(type), name, members(type) if stored else ())
    return f"{before}{value}{after}"


def is_held_otherwise(type: Any) -> bool:
    """Return whether results have another Arrow type than the one that a table holds."""
    return _is_outermost(type) or any(_kind(part) in ("interval", "uhugeint") for part, _ in _parts(type, False))


def held_name(type: Any) -> str:
    """Return DuckDB's name of the type that a table holds instead."""
    kind = _kind(type)
    if kind in _AS_TEXT or kind == "variant":
        return "VARCHAR"
    if kind == "hugeint":
        return "DECIMAL(38,0)"
    if kind == "list":
        return f"{held_name(_child(type, 0))}[]"
    if kind == "array":
        return f"{held_name(_child(type, 0))}[{type.children[1][1]}]"
    if kind == "map":
        return f"MAP({held_name(_child(type, 0))}, {held_name(_child(type, 1))})"
    if kind == "struct":
        return f"STRUCT({', '.join(f'{quoted(name)} {held_name(inner)}' for name, inner in type.children)})"
    if kind == "union":
        inner = "".join(f", {quoted(name)} {held_name(own)}" for name, own in type.children[1:])
        return f"STRUCT({TAG} VARCHAR{inner})"
    return "BLOB" if kind == "geometry" else str(type)


def held_type(shown: pa.DataType) -> pa.DataType:
    """Return the same for an Arrow type, as DuckDB returns it."""
    return mapped_leaves(shown, _held_leaf)


def _held_leaf(type: pa.DataType) -> pa.DataType:
    type = shown_type(type)
    return pa.string() if pa.types.is_interval(type) or isinstance(type, pa.OpaqueType) else type


def is_hugeint_type(type: Any) -> bool:
    return str(type.id) == "hugeint"


def is_enum_type(type: Any) -> bool:
    return str(type.id) == "enum"


def _kind(type: Any) -> str:
    return "json" if str(type) == "JSON" else str(type.id)


def _child(type: Any, place: int) -> Any:
    return type.children[place][1]


def _parts(type: Any, inside: bool) -> Iterator[tuple[Any, bool]]:
    """Yield a type and all types inside it, each with whether it is inside."""
    yield type, inside
    if _kind(type) in ("list", "array", "struct", "map", "union"):
        for name, inner in type.children:
            if not isinstance(inner, int) and not (name == "" and _kind(type) == "union"):
                yield from _parts(inner, True)
