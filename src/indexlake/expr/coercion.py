"""DuckDB's rules for combining SQL types: implicit casts have costs, decimals grow so that values fit.

`combine` is the type of a result that is either of two values, `comparison_type` the one in which they are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from indexlake.expr.sqltype import (
    DURATIONS,
    INT_RANGE,
    INTEGERS,
    INTERVALS,
    MAX_WIDTH,
    NESTED_KINDS,
    NUMERIC,
    TIMESTAMPS,
    SqlType,
    array_of,
    list_of,
    literal_type,
    map_of,
    normal,
    struct_of,
)

_DECIMAL_WIDTHS = {"null": 0, "bool": 1}
_DECIMAL_WIDTHS |= {kind: min(len(str(high)), MAX_WIDTH) for kind, (_, high) in INT_RANGE.items()}


def decimal_shape(type: SqlType) -> tuple[int, int] | None:
    """Return width and scale of the decimal that holds every value of the type, or None if there is none."""
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
    "duration": 112,
    "duration_ns": 113,
    "nested": 160,
}


def _wider(kind: str) -> list[str]:
    """Return the other integer types that hold every value of this one."""
    least, most = INT_RANGE[kind]
    return [other for other, (low, high) in INT_RANGE.items() if other != kind and low <= least and most <= high]


_IMPLICIT: dict[str, frozenset[str]] = {
    **{kind: frozenset({*_wider(kind), "float", "double", "decimal"}) for kind in INTEGERS},
    "float": frozenset({"double"}),
    "decimal": frozenset({"float", "double"}),
    "date": TIMESTAMPS,
    "timestamp_s": frozenset({"timestamp", "timestamp_ms", "timestamp_ns"}),
    "timestamp_ms": frozenset({"timestamp", "timestamp_ns"}),
    "timestamp_ns": frozenset({"timestamp", "timestamptz_ns"}),
    "timestamp": frozenset({"timestamp_ns", "timestamptz", "timestamptz_ns"}),
    "timestamptz": frozenset({"timestamptz_ns"}),
    "duration": frozenset({"duration_ns", "interval"}),
    "duration_ns": frozenset({"interval"}),
    "time": frozenset({"time_ns"}),
}


def implicit_cost(source: SqlType, target: SqlType) -> int | None:
    """Return DuckDB's cost of an implicit cast, or None if the cast has to be explicit."""
    cost = _TARGET_COST.get(target.kind, 110)
    if source.kind == "null":
        return cost
    if source.kind == "string_literal":
        if target.kind == "decimal" and target.width == 0:
            return None
        return 1 if target.kind == "varchar" else 20 + (target.kind in DURATIONS)
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
    """Return the smallest type that both convert to implicitly, or None."""
    if left.kind == right.kind:
        return _combine_equal(left, right)
    if {left.kind, right.kind} == {"list", "array"}:
        part = combine(left.parts[0], right.parts[0])
        return None if part is None else list_of(part)
    for adapts in ("null", "string_literal"):
        if adapts in (left.kind, right.kind):
            return normal(right if left.kind == adapts else left)
    there, back = implicit_cost(left, right), implicit_cost(right, left)
    if there is not None and (back is None or there < back):
        return _grown(left, right) if right.kind == "decimal" else right
    if back is not None:
        return _grown(right, left) if left.kind == "decimal" else left
    if left.literal is not None or right.literal is not None:
        return combine(normal(left), normal(right))
    if left.kind in INTEGERS and right.kind in INTEGERS:
        both = {*_wider(left.kind)} & {*_wider(right.kind)}
        return SqlType(next(kind for kind in INT_RANGE if kind in both))
    if "bool" in (left.kind, right.kind) and INTEGERS & {left.kind, right.kind}:
        return right if left.kind == "bool" else left
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
    if left.kind in NESTED_KINDS:
        return _combine_nested(left, right)
    return normal(left)


def _combine_nested(left: SqlType, right: SqlType) -> SqlType | None:
    """Combine the types inside; fields of structs are matched by name, elements by position."""
    others = right.parts
    if left.kind == "struct":
        places = {name.lower(): place for place, name in enumerate(right.names)}
        if len(places) != len(left.names) or {name.lower() for name in left.names} != set(places):
            return None
        others = tuple(right.parts[places[name.lower()]] for name in left.names)
    parts = [combine(part, other) for part, other in zip(left.parts, others, strict=True)]
    found = tuple(part for part in parts if part is not None)
    if len(found) < len(parts):
        return None
    if left.kind == "struct":
        return struct_of(left.names, found)
    if left.kind == "map":
        return map_of(found[0], found[1])
    return array_of(found[0], left.width) if left.kind == "array" and left.width == right.width else list_of(found[0])


def _grown(source: SqlType, target: SqlType) -> SqlType:
    shape = decimal_shape(source)
    assert shape is not None
    if shape[0] > target.width - target.scale:
        return SqlType("decimal", min(shape[0] + target.scale, max(MAX_WIDTH, target.width)), target.scale)
    return target


_SCORE_ORDER = (
    *("null", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "hugeint"),
    *("decimal", "float", "double", "time", "time_ns", "date", "timestamp_s", "timestamp_ms", "timestamp"),
    *("timestamptz", "timestamp_ns", "timestamptz_ns", "interval", "duration", "duration_ns"),
    *("varchar", "blob", "struct", "list", "map", "array", "nested"),
)
_SCORES = {kind: score for score, kind in enumerate(_SCORE_ORDER)}
_SCORES["timestamptz"] = _SCORES["timestamp"]


def combine_all(types: Sequence[SqlType]) -> SqlType | None:
    """Return the smallest type that all of them convert to implicitly, or None."""
    found: SqlType | None = types[0]
    for other in types[1:]:
        found = combine(found, other) if found is not None else None
    return found


def comparison_type(left: SqlType, right: SqlType, equality: bool) -> SqlType | None:
    """Return the type in which two values are compared; equality forces one where an ordering would require a cast."""
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
    if result.kind == "varchar":  # text is converted to the type it is compared with
        for side in (left, right):
            if side.kind not in ("varchar", "string_literal", "null"):
                result = normal(side)
    if not (castable(left, result) and castable(right, result)):
        return None
    return result


def castable(source: SqlType, target: SqlType) -> bool:
    """Return whether there is a cast at all."""
    source, target = normal(source), normal(target)
    if "nested" in (source.kind, target.kind):
        return source.kind in ("null", target.kind)
    if "null" in (source.kind, target.kind) or "varchar" in (source.kind, target.kind):
        return True
    if source.parts or target.parts:
        return _castable_inside(source, target)
    if source.kind == target.kind:
        return True
    numbers = [type.kind in NUMERIC or type.kind == "bool" for type in (source, target)]
    if any(numbers):
        return all(numbers)
    kinds = {source.kind, target.kind}
    if kinds & {"blob", "uuid"}:
        return False
    if kinds & INTERVALS:
        return kinds <= INTERVALS
    if target.kind in ("time", "time_ns"):
        return source.kind != "date"
    return source.kind not in ("time", "time_ns")


def _castable_inside(source: SqlType, target: SqlType) -> bool:
    lists = ("list", "array")
    if source.kind in lists and target.kind in lists:
        same = "list" in (source.kind, target.kind) or source.width == target.width
        return same and castable(source.parts[0], target.parts[0])
    if source.kind != target.kind:
        return False
    if source.kind == "map":
        return all(castable(part, other) for part, other in zip(source.parts, target.parts, strict=True))
    have = {name.lower(): part for name, part in zip(source.names, source.parts, strict=True)}
    want = {name.lower(): part for name, part in zip(target.names, target.parts, strict=True)}
    return have.keys() == want.keys() and all(castable(part, want[name]) for name, part in have.items())
