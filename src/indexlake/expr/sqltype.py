"""SQL types of expressions.

Arrow columns are mapped to a small set of SQL types; literals have types of their own (an integer literal adapts to the
other operand, a string literal to anything).  Durations are counts of time, as Arrow stores them; intervals have
months, days and microseconds, as in SQL.  Both are DuckDB's INTERVAL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from indexlake.types.hugeint import LEAST, MOST, is_hugeint
from indexlake.types.uuids import STORAGE, is_uuid

MAX_WIDTH = 38
INT64_WIDTH = 18


@dataclass(frozen=True, slots=True)
class SqlType:
    """One SQL type.

    `width`/`scale` belong to decimals, `literal` to integer literals; `parts` are the types inside a list, array,
    struct or map, `names` the fields of a struct, and `width` also the length of an array.
    """

    kind: str
    width: int = 0
    scale: int = 0
    literal: int | None = None
    parts: tuple[SqlType, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.spelled(_name, lambda field: field if field.isidentifier() else quoted(field))

    def spelled(self, name: Callable[[SqlType], str], field: Callable[[str], str]) -> str:
        """Return the type in SQL, with `name` spelling the types without parts and `field` the fields of structs."""
        parts = [part.spelled(name, field) for part in self.parts]
        if self.kind == "list":
            return f"{parts[0]}[]"
        if self.kind == "array":
            return f"{parts[0]}[{self.width}]"
        if self.kind == "map":
            return f"MAP({parts[0]}, {parts[1]})"
        if self.kind == "struct":
            fields = (f"{field(each)} {part}" for each, part in zip(self.names, parts, strict=True))
            return f"STRUCT({', '.join(fields)})"
        return name(self)


def _name(type: SqlType) -> str:
    if type.kind == "decimal":
        return f"DECIMAL({type.width},{type.scale})"
    return _NAMES.get(type.kind, type.kind.upper())


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def list_of(part: SqlType) -> SqlType:
    return SqlType("list", parts=(part,))


def array_of(part: SqlType, length: int) -> SqlType:
    return SqlType("array", width=length, parts=(part,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    return SqlType("map", parts=(key, value))


def struct_of(names: tuple[str, ...], parts: tuple[SqlType, ...]) -> SqlType:
    return SqlType("struct", parts=parts, names=names)


_NAMES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "bool": "BOOLEAN",
    "int_literal": "integer literal",
    "string_literal": "string literal",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "timestamptz_ns": "TIMESTAMP WITH TIME ZONE (nanoseconds)",
    "duration": "INTERVAL",
    "duration_ns": "INTERVAL (nanoseconds)",
    "null": '"NULL"',
    "nested": "nested",
}

NULL = SqlType("null")
BOOL = SqlType("bool")
INT32 = SqlType("int32")
INT64 = SqlType("int64")
UINT64 = SqlType("uint64")
HUGEINT = SqlType("hugeint")
FLOAT = SqlType("float")
DOUBLE = SqlType("double")
VARCHAR = SqlType("varchar")
BLOB = SqlType("blob")
UUID = SqlType("uuid")
DATE = SqlType("date")
TIME = SqlType("time")
TIMESTAMP = SqlType("timestamp")
TIMESTAMPTZ = SqlType("timestamptz")
INTERVAL = SqlType("interval")
DURATION = SqlType("duration")
STRING_LITERAL = SqlType("string_literal")
NESTED = SqlType("nested")

INT_RANGE: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "hugeint": (LEAST, MOST),
}
INTEGERS = frozenset(INT_RANGE)
FLOATS = frozenset({"float", "double"})
NUMERIC = INTEGERS | FLOATS | {"decimal"}
NAIVE_TIMESTAMPS = frozenset({"timestamp_s", "timestamp_ms", "timestamp", "timestamp_ns"})
ZONED_TIMESTAMPS = frozenset({"timestamptz", "timestamptz_ns"})
TIMESTAMPS = NAIVE_TIMESTAMPS | ZONED_TIMESTAMPS
DURATIONS = frozenset({"duration", "duration_ns"})
INTERVALS = DURATIONS | {"interval"}
NESTED_KINDS = frozenset({"list", "array", "struct", "map"})

_PLAIN: dict[str, pa.DataType] = {  # each is the only Arrow type with its id
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
}
_COUNTS: dict[str, pa.DataType] = {
    "time": pa.time64("us"),
    "time_ns": pa.time64("ns"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp": pa.timestamp("us"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "duration": pa.duration("us"),
    "duration_ns": pa.duration("ns"),
}
_ARROW: dict[str, pa.DataType] = {
    **_PLAIN,
    **_COUNTS,
    "hugeint": pa.decimal128(38, 0),
    "string_literal": pa.string(),
    "uuid": STORAGE,
    "interval": pa.month_day_nano_interval(),
}
PER_UNIT = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
PER_SECOND: dict[str, int] = {kind: PER_UNIT[type.unit] for kind, type in _COUNTS.items()}
"""Units per second of the types that are counts of time."""


@lru_cache(maxsize=1024)
def to_arrow(type: SqlType) -> pa.DataType:
    """Return the Arrow type of values of an SQL type during evaluation."""
    if type.kind == "decimal":
        return (
            pa.decimal128(type.width, type.scale) if type.width <= MAX_WIDTH else pa.decimal256(type.width, type.scale)
        )
    if type.kind == "int_literal":
        return to_arrow(normal(type))
    if type.kind in NESTED_KINDS:
        parts = [to_arrow(part) for part in type.parts]
        if type.kind == "struct":
            return pa.struct(list(zip(type.names, parts, strict=True)))
        if type.kind == "map":
            return pa.map_(*parts)
        return pa.list_(parts[0], type.width) if type.kind == "array" else pa.list_(parts[0])
    return _ARROW[type.kind]


_FIXED_IDS: dict[int, str] = {
    **{type.id: kind for kind, type in _PLAIN.items()},
    pa.lib.Type_HALF_FLOAT: "float",
    pa.lib.Type_LARGE_STRING: "varchar",
    pa.lib.Type_STRING_VIEW: "varchar",
    pa.lib.Type_LARGE_BINARY: "blob",
    pa.lib.Type_BINARY_VIEW: "blob",
    pa.lib.Type_FIXED_SIZE_BINARY: "blob",
    pa.lib.Type_DATE64: "date",
    pa.lib.Type_TIME32: "time",
}


@lru_cache(maxsize=1024)
def from_arrow(type: pa.DataType) -> SqlType:
    """Return the SQL type of an Arrow type; types unknown to SQL are `NESTED`, and support only `is null`."""
    kind = _FIXED_IDS.get(type.id)
    if kind is not None:
        return SqlType(kind)
    if is_uuid(type):
        return UUID
    if pa.types.is_dictionary(type):
        return from_arrow(type.value_type)
    if pa.types.is_decimal(type):
        scale = max(type.scale, 0)
        return SqlType("decimal", max(type.precision - min(type.scale, 0), scale), scale)
    if pa.types.is_timestamp(type):
        if type.tz is not None:
            return SqlType("timestamptz_ns" if type.unit == "ns" else "timestamptz")
        return SqlType({"s": "timestamp_s", "ms": "timestamp_ms", "us": "timestamp"}.get(type.unit, "timestamp_ns"))
    if pa.types.is_time(type):
        return SqlType("time_ns" if type.unit == "ns" else "time")
    if pa.types.is_duration(type):
        return SqlType("duration_ns" if type.unit == "ns" else "duration")
    if type == pa.month_day_nano_interval():
        return INTERVAL
    return _nested_from_arrow(type)


def of_column(field: Any) -> SqlType:
    """Return the SQL type of a column, given its Arrow field or its table field."""
    return HUGEINT if is_hugeint(field) else from_arrow(field.type)


def _nested_from_arrow(type: pa.DataType) -> SqlType:
    if pa.types.is_struct(type):
        fields = [type.field(index) for index in range(type.num_fields)]
        parts = tuple(from_arrow(field.type) for field in fields)
        made = struct_of(tuple(field.name for field in fields), parts)
    elif pa.types.is_map(type):
        made = map_of(from_arrow(type.key_type), from_arrow(type.item_type))
    elif pa.types.is_fixed_size_list(type):
        made = array_of(from_arrow(type.value_type), type.list_size)
    elif hasattr(type, "value_type") and (pa.types.is_list(type) or pa.types.is_large_list(type) or _is_view(type)):
        made = list_of(from_arrow(type.value_type))
    else:
        return NESTED
    return made if made.parts and NESTED not in made.parts else NESTED


def _is_view(type: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type) or pa.types.is_large_list_view(type))


def int_literal(value: int) -> SqlType:
    return SqlType("int_literal", literal=value)


def literal_type(value: int) -> SqlType:
    """Return the type of an integer literal that nothing else determines (2147483648 is BIGINT, so is its negative)."""
    if -(2**31) < value < 2**31:
        return INT32
    if -(2**63) <= value < 2**63:
        return INT64
    return HUGEINT


def normal(type: SqlType) -> SqlType:
    """Return the type of a value when no other operand determines the type of its literal."""
    if type.kind == "string_literal":
        return VARCHAR
    if type.literal is not None:
        return literal_type(type.literal)
    if type.parts:
        return replace(type, parts=tuple(map(normal, type.parts)))
    return type
