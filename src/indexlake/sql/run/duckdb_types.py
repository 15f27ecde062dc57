"""DuckDB's types by name: those that tables can hold and results can return, exactly and with their meaning.

Anything not on the list is refused by name, wherever it is inside a type: nothing is stored as another type that
happens to hold its bytes.
"""

from __future__ import annotations

from typing import Any

from indexlake.errors import ExpressionError, SchemaError

_HELD = frozenset({
    "boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "hugeint",
    "float", "double", "decimal", "varchar", "blob", "uuid", "date", "time", "time_ns", "timestamp", "timestamp_s",
    "timestamp_ms", "timestamp_ns", "timestamp with time zone", "list", "array", "struct", "map", "enum",
})  # fmt: skip
_INSTEAD = {
    "uhugeint": "UBIGINT, DECIMAL(38,0) or VARCHAR",
    "bignum": "DECIMAL(38,0) or VARCHAR",
    "time with time zone": "TIME, TIMESTAMPTZ or VARCHAR",
    "bit": "VARCHAR, for example '0101'",
    "geometry": "BLOB or VARCHAR",
    "json": "VARCHAR; -> and ->> and the JSON functions take text",
    "variant": "VARCHAR, or a STRUCT",
    "union": "a STRUCT with one field for each case",
    "interval": "BIGINT, or a duration column made in Python",
}
_OUTERMOST = {"hugeint": "DECIMAL(38,0), or BIGINT", "enum": "VARCHAR"}
"""Types that only whole columns can have, and what to use inside other types instead."""
_UNSHOWN = frozenset({"time with time zone", "bit", "bignum", "variant"})


def check_held(type: Any, column: str, *, declared: bool = False, inside: bool = False) -> None:
    """Refuse a column, declared or from a query, of a type that tables do not hold.

    ``inside``: it is a field of a struct.
    """
    for part, below in _parts(type, False):
        kind = _kind(part)
        if kind not in _HELD or (kind in _OUTERMOST and (inside or below)):
            instead = _OUTERMOST.get(kind) or _INSTEAD.get(kind, "VARCHAR")
            where = f"{type} holds {part}, which" if below else f"{part}"
            what = "is not a type that tables hold" + (" inside another" if kind in _OUTERMOST else "")
            advice = f"Use {instead}" if declared else f"Cast it in the query: use {instead}"
            raise SchemaError(f"Column {column!r}: {where} {what}. {advice}.", column=column)


def check_storable(type: Any, column: str) -> None:
    """Refuse a column of a query that no table could hold.  Intervals pass: some tables hold them as durations."""
    if str(type) != "INTERVAL":
        check_held(type, column)


def check_shown(type: Any, column: str) -> None:
    """Refuse a result column whose values cannot be returned."""
    for part, _ in _parts(type, False):
        if _kind(part) in _UNSHOWN:
            raise ExpressionError(
                f"Column {column!r} of the result is of type {type}, and no Arrow type holds a {part} as it is. "
                "Cast it to VARCHAR in the query."
            )


def is_hugeint_type(type: Any) -> bool:
    return str(type.id) == "hugeint"


def is_enum_type(type: Any) -> bool:
    return str(type.id) == "enum"


def _kind(type: Any) -> str:
    return "json" if str(type) == "JSON" else str(type.id)


def _parts(type: Any, inside: bool) -> list[tuple[Any, bool]]:
    """Return a type and all types inside it, each with whether it is inside."""
    found = [(type, inside)]
    if _kind(type) in ("list", "array", "struct", "map", "union"):
        for name, inner in type.children:
            if not isinstance(inner, int) and not (name == "" and _kind(type) == "union"):
                found += _parts(inner, True)
    return found
