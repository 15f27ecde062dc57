"""The names of types in SQL text, as in `cast(x as decimal(9, 2)[])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from indexlake.expr.sqltype import SqlType, array_of, list_of, map_of, struct_of

_SAME = (
    *("float", "double", "varchar", "blob", "uuid", "date", "time", "time_ns", "interval"),
    *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz"),
)
_TYPES = {
    **{name: name for name in _SAME},
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "utinyint": "uint8",
    "usmallint": "uint16",
    "uint": "uint32",
    "ubigint": "uint64",
    "int128": "hugeint",
    "text": "varchar",
    "char": "varchar",
    "bpchar": "varchar",
    "nvarchar": "varchar",
    "varbinary": "blob",
    "binary": "blob",
    "timestampntz": "timestamp",
    "datetime": "timestamp",
}


def type_of(syntax: Any, fail: Callable[[str], NoReturn]) -> SqlType:
    """Return the type that a piece of syntax names; `fail` is called with the problem if it names none."""
    name = syntax.this.name.lower() if hasattr(syntax.this, "name") else str(syntax.this).lower()
    if name == "decimal":
        digits = [part.name for part in syntax.expressions] or ["18", "3"]
        width, scale = ((*map(int, digits), 0)[:2]) if all(map(str.isdigit, digits)) else (0, 0)
        if not (1 <= width <= 38 and 0 <= scale <= width):
            fail(f"DECIMAL({width},{scale}) is not a type; the width is 1 to 38, the scale at most the width")
        return SqlType("decimal", width, scale)
    if name in ("array", "list", "map", "struct") and syntax.expressions:
        return _nested(name, syntax, fail)
    if name not in _TYPES:
        fail(f"a cast to {syntax.sql(dialect='duckdb')} is not supported")
    return SqlType(_TYPES[name])


def _nested(name: str, syntax: Any, fail: Callable[[str], NoReturn]) -> SqlType:
    if name == "struct":
        if any(field.key != "columndef" for field in syntax.expressions):
            fail(f"a cast to {syntax.sql(dialect='duckdb')} is not supported")
        fields = [(field.this.name, type_of(field.args["kind"], fail)) for field in syntax.expressions]
        return struct_of(tuple(name for name, _ in fields), tuple(type for _, type in fields))
    parts = [type_of(part, fail) for part in syntax.expressions]
    if name == "map":
        return map_of(parts[0], parts[1])
    sizes = syntax.args.get("values")
    return array_of(parts[0], int(sizes[0].name)) if sizes else list_of(parts[0])
