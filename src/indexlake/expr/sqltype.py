"""SQL types of expressions and DuckDB's rules for combining them.

Arrow columns are seen through a small set of SQL types; literals carry their own types (an integer literal
adapts to the other operand, a string literal to anything).  The rules follow DuckDB 1.5: implicit casts have
costs, comparisons use the larger of two types, decimals grow so that values fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

MAX_WIDTH = 38
INT64_WIDTH = 18


@dataclass(frozen=True, slots=True)
class SqlType:
    """One SQL type.  `width`/`scale` belong to decimals, `literal` to integer literals."""

    kind: str
    width: int = 0
    scale: int = 0
    literal: int | None = None

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"DECIMAL({self.width},{self.scale})"
        return _NAMES.get(self.kind, self.kind.upper())


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
    "interval_ns": "INTERVAL (nanoseconds)",
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
DATE = SqlType("date")
TIME = SqlType("time")
TIMESTAMP = SqlType("timestamp")
TIMESTAMPTZ = SqlType("timestamptz")
INTERVAL = SqlType("interval")
STRING_LITERAL = SqlType("string_literal")
NESTED = SqlType("nested")

INT_RANGE: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "hugeint": (-(10**38) + 1, 10**38 - 1),
}
INTEGERS = frozenset(INT_RANGE)
FLOATS = frozenset({"float", "double"})
NUMERIC = INTEGERS | FLOATS | {"decimal"}
NAIVE_TIMESTAMPS = frozenset({"timestamp_s", "timestamp_ms", "timestamp", "timestamp_ns"})
ZONED_TIMESTAMPS = frozenset({"timestamptz", "timestamptz_ns"})
TIMESTAMPS = NAIVE_TIMESTAMPS | ZONED_TIMESTAMPS
INTERVALS = frozenset({"interval", "interval_ns"})

# Units per second of the types that are counts of time.
PER_SECOND = {
    "timestamp_s": 1,
    "timestamp_ms": 1_000,
    "timestamp": 1_000_000,
    "timestamp_ns": 1_000_000_000,
    "timestamptz": 1_000_000,
    "timestamptz_ns": 1_000_000_000,
    "interval": 1_000_000,
    "interval_ns": 1_000_000_000,
    "time": 1_000_000,
    "time_ns": 1_000_000_000,
}

_ARROW: dict[str, pa.DataType] = {
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
    "hugeint": pa.decimal128(38, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "string_literal": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "time_ns": pa.time64("ns"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp": pa.timestamp("us"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "interval": pa.duration("us"),
    "interval_ns": pa.duration("ns"),
}


@lru_cache(maxsize=1024)
def to_arrow(type: SqlType) -> pa.DataType:
    """The Arrow type that values of an SQL type have while they are evaluated."""
    if type.kind == "decimal":
        return (
            pa.decimal128(type.width, type.scale) if type.width <= MAX_WIDTH else pa.decimal256(type.width, type.scale)
        )
    if type.kind == "int_literal":
        return to_arrow(normal(type))
    return _ARROW[type.kind]


_FIXED_IDS = {
    pa.lib.Type_NA: "null",
    pa.lib.Type_BOOL: "bool",
    pa.lib.Type_INT8: "int8",
    pa.lib.Type_INT16: "int16",
    pa.lib.Type_INT32: "int32",
    pa.lib.Type_INT64: "int64",
    pa.lib.Type_UINT8: "uint8",
    pa.lib.Type_UINT16: "uint16",
    pa.lib.Type_UINT32: "uint32",
    pa.lib.Type_UINT64: "uint64",
    pa.lib.Type_HALF_FLOAT: "float",
    pa.lib.Type_FLOAT: "float",
    pa.lib.Type_DOUBLE: "double",
    pa.lib.Type_STRING: "varchar",
    pa.lib.Type_LARGE_STRING: "varchar",
    pa.lib.Type_STRING_VIEW: "varchar",
    pa.lib.Type_BINARY: "blob",
    pa.lib.Type_LARGE_BINARY: "blob",
    pa.lib.Type_BINARY_VIEW: "blob",
    pa.lib.Type_FIXED_SIZE_BINARY: "blob",
    pa.lib.Type_DATE32: "date",
    pa.lib.Type_DATE64: "date",
    pa.lib.Type_TIME32: "time",
}


@lru_cache(maxsize=1024)
def from_arrow(type: pa.DataType) -> SqlType:
    """How SQL sees an Arrow type; nested and unknown types are `NESTED`: only `is null` works on them."""
    kind = _FIXED_IDS.get(type.id)
    if kind is not None:
        return SqlType(kind)
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
        return SqlType("interval_ns" if type.unit == "ns" else "interval")
    return NESTED


def int_literal(value: int) -> SqlType:
    return SqlType("int_literal", literal=value)


def literal_type(value: int) -> SqlType:
    """The type an integer literal has when nothing else asks for another (2147483648 is BIGINT, so is its negative)."""
    if -(2**31) < value < 2**31:
        return INT32
    if -(2**63) <= value < 2**63:
        return INT64
    return HUGEINT


def normal(type: SqlType) -> SqlType:
    """The type of a value once no other operand can shape its literal."""
    if type.kind == "string_literal":
        return VARCHAR
    if type.literal is not None:
        return literal_type(type.literal)
    return type


_DECIMAL_WIDTHS = {
    "null": 0,
    "bool": 1,
    "int8": 3,
    "uint8": 3,
    "int16": 5,
    "uint16": 5,
    "int32": 10,
    "uint32": 10,
    "int64": 19,
    "uint64": 20,
    "hugeint": 38,
}


def decimal_shape(type: SqlType) -> tuple[int, int] | None:
    """Width and scale of the decimal that holds every value of the type; None if there is none."""
    type = normal(type)
    if type.kind == "decimal":
        return type.width, type.scale
    width = _DECIMAL_WIDTHS.get(type.kind)
    return None if width is None else (width, 0)


_TARGET_COST = {
    "int64": 101,
    "int32": 102,
    "hugeint": 103,
    "double": 104,
    "decimal": 105,
    "timestamp_ns": 119,
    "timestamp": 120,
    "timestamp_ms": 121,
    "timestamp_s": 122,
    "timestamptz": 123,
    "timestamptz_ns": 124,
    "varchar": 149,
    "nested": 160,
}

_WIDER_FLOATS = ("float", "double", "decimal")
_IMPLICIT: dict[str, frozenset[str]] = {
    "int8": frozenset({"int16", "int32", "int64", "hugeint", *_WIDER_FLOATS}),
    "int16": frozenset({"int32", "int64", "hugeint", *_WIDER_FLOATS}),
    "int32": frozenset({"int64", "hugeint", *_WIDER_FLOATS}),
    "int64": frozenset({"hugeint", *_WIDER_FLOATS}),
    "uint8": frozenset({"uint16", "uint32", "uint64", "int16", "int32", "int64", "hugeint", *_WIDER_FLOATS}),
    "uint16": frozenset({"uint32", "uint64", "int32", "int64", "hugeint", *_WIDER_FLOATS}),
    "uint32": frozenset({"uint64", "int64", "hugeint", *_WIDER_FLOATS}),
    "uint64": frozenset({"hugeint", *_WIDER_FLOATS}),
    "hugeint": frozenset(_WIDER_FLOATS),
    "float": frozenset({"double"}),
    "decimal": frozenset({"float", "double"}),
    "date": TIMESTAMPS,
    "timestamp_s": frozenset({"timestamp", "timestamp_ms", "timestamp_ns"}),
    "timestamp_ms": frozenset({"timestamp", "timestamp_ns"}),
    "timestamp_ns": frozenset({"timestamp", "timestamptz_ns"}),
    "timestamp": frozenset({"timestamp_ns", "timestamptz", "timestamptz_ns"}),
    "timestamptz": frozenset({"timestamptz_ns"}),
    "interval": frozenset({"interval_ns"}),
    "time": frozenset({"time_ns"}),
}


def implicit_cost(source: SqlType, target: SqlType) -> int | None:
    """DuckDB's price of an implicit cast; None where only an explicit cast may convert."""
    cost = _TARGET_COST.get(target.kind, 110)
    if source.kind == "null":
        return cost
    if source.kind == "string_literal":
        if target.kind == "decimal" and target.width == 0:
            return None
        return 1 if target.kind == "varchar" else 20
    if source.literal is not None:
        own = literal_type(source.literal)
        if own.kind == target.kind:
            return 0
        if target.kind in INTEGERS and fits(source.literal, target.kind):
            return cost - 90
        return implicit_cost(own, target)
    if source.kind == target.kind:
        return 0
    return cost if target.kind in _IMPLICIT.get(source.kind, ()) else None


def fits(value: int, kind: str) -> bool:
    low, high = INT_RANGE[kind]
    return low <= value <= high


def combine(left: SqlType, right: SqlType) -> SqlType | None:
    """The smallest type that both convert to implicitly; None if there is none."""
    if left.kind == right.kind:
        return _combine_equal(left, right)
    if left.kind == "null":
        return normal(right)
    if right.kind == "null":
        return normal(left)
    if left.kind == "string_literal":
        return normal(right)
    if right.kind == "string_literal":
        return normal(left)
    there, back = implicit_cost(left, right), implicit_cost(right, left)
    if there is not None and (back is None or there < back):
        return _grown(left, right) if right.kind == "decimal" else right
    if back is not None:
        return _grown(right, left) if left.kind == "decimal" else left
    if left.literal is not None or right.literal is not None:
        return combine(normal(left), normal(right))
    if left.kind in INTEGERS and right.kind in INTEGERS:
        return _combine_signed_unsigned({left.kind, right.kind})
    if left.kind == "bool" and right.kind in INTEGERS:
        return right
    if right.kind == "bool" and left.kind in INTEGERS:
        return left
    return None


def _combine_equal(left: SqlType, right: SqlType) -> SqlType | None:
    if left.kind == "int_literal":
        return combine(normal(left), normal(right))
    if left.kind == "decimal":
        whole = max(left.width - left.scale, right.width - right.scale)
        scale = max(left.scale, right.scale)
        limit = MAX_WIDTH if max(left.width, right.width) <= MAX_WIDTH else 76
        if whole + scale > limit:
            scale = limit - whole
        return SqlType("decimal", whole + scale, scale)
    return normal(left)


def _grown(source: SqlType, target: SqlType) -> SqlType:
    shape = decimal_shape(source)
    assert shape is not None
    if shape[0] > target.width - target.scale:
        return SqlType("decimal", min(shape[0] + target.scale, max(MAX_WIDTH, target.width)), target.scale)
    return target


def _combine_signed_unsigned(kinds: set[str]) -> SqlType:
    if kinds & {"int64", "uint64"}:
        return HUGEINT
    if kinds & {"int32", "uint32"}:
        return INT64
    if kinds & {"int16", "uint16"}:
        return INT32
    return SqlType("int16")


_SCORE_ORDER = (
    *("null", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "hugeint"),
    *("decimal", "float", "double", "time", "time_ns", "date", "timestamp_s", "timestamp_ms", "timestamp"),
    *(
        "timestamptz",
        "timestamp_ns",
        "timestamptz_ns",
        "interval",
        "interval_ns",
        "varchar",
        "blob",
        "nested",
    ),
)
_SCORES = {kind: score for score, kind in enumerate(_SCORE_ORDER)}
_SCORES["timestamptz"] = _SCORES["timestamp"]


def comparison_type(left: SqlType, right: SqlType, equality: bool) -> SqlType | None:
    """The type in which two values are compared; equality forces one where order would ask for a cast."""
    result = combine(left, right)
    if result is None:
        if not equality:
            return None
        left_score, right_score = (0 if t.literal is not None else _SCORES.get(t.kind, 99) for t in (left, right))
        result = right if left_score < right_score else left
        result = normal(result)
    if result.kind == "decimal":
        shapes = [decimal_shape(left), decimal_shape(right)]
        if None in shapes:
            return result
        known = [shape for shape in shapes if shape is not None]
        scale = max(shape[1] for shape in known)
        width = max(scale + max(shape[0] - shape[1] for shape in known), *(shape[0] for shape in known))
        limit = MAX_WIDTH if all(shape[0] <= MAX_WIDTH for shape in known) else 76
        return SqlType("decimal", min(width, limit), scale)
    if result.kind == "varchar":  # text is read as what it is compared with
        for side in (left, right):
            if side.kind not in ("varchar", "string_literal", "null"):
                result = normal(side)
    if not (castable(left, result) and castable(right, result)):
        return None
    return result


_TEMPORAL = TIMESTAMPS | INTERVALS | {"date", "time", "time_ns"}


def castable(source: SqlType, target: SqlType) -> bool:
    """Whether a cast exists at all."""
    source, target = normal(source), normal(target)
    if {source.kind, target.kind} & INTERVALS and "varchar" in (source.kind, target.kind):
        return False
    if source.kind == target.kind or "null" in (source.kind, target.kind):
        return True
    if "varchar" in (source.kind, target.kind):
        return "nested" not in (source.kind, target.kind)
    if "nested" in (source.kind, target.kind):
        return False
    numbers = [type.kind in NUMERIC or type.kind == "bool" for type in (source, target)]
    if any(numbers):
        return all(numbers)
    if "blob" in (source.kind, target.kind):
        return source.kind == target.kind
    kinds = {source.kind, target.kind}
    if kinds & INTERVALS:
        return kinds <= INTERVALS
    if target.kind in ("time", "time_ns"):
        return source.kind != "date"
    return source.kind not in ("time", "time_ns")
