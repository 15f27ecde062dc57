"""Chooses the version of an operator that fits its operands: DuckDB's overloads and the types of decimal results."""

from __future__ import annotations

from indexlake.expr.coercion import decimal_shape, implicit_cost
from indexlake.expr.sqltype import (
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    HUGEINT,
    INT32,
    INT64,
    INT64_WIDTH,
    INTERVAL,
    MAX_WIDTH,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
)

DECIMAL = SqlType("decimal")  # width and scale depend on the operands
INTEGER_TYPES = (
    *(SqlType("int8"), SqlType("int16"), INT32, INT64, HUGEINT),
    *(SqlType("uint8"), SqlType("uint16"), SqlType("uint32"), SqlType("uint64")),
)
NUMBERS = (*INTEGER_TYPES, FLOAT, DOUBLE, DECIMAL)

Signature = tuple[tuple[SqlType, ...], SqlType]


def _same(types: tuple[SqlType, ...]) -> list[Signature]:
    return [((type, type), type) for type in types]


_MOMENTS = (TIMESTAMP, TIMESTAMPTZ)
_SPANS = (INTERVAL, DURATION)
# An interval or duration moves a point in time; added to a date it gives a timestamp.
_SHIFTS: list[Signature] = [
    *(((DATE, span), TIMESTAMP) for span in _SPANS),
    *(((moment, span), moment) for moment in _MOMENTS for span in _SPANS),
    ((TIME, INTERVAL), TIME),
]

_OPERATORS: dict[str, list[Signature]] = {
    "+": [
        *_same(NUMBERS),
        ((DATE, INT32), DATE),
        ((INT32, DATE), DATE),
        *_same(_SPANS),
        *_SHIFTS,
        *(((right, left), result) for (left, right), result in _SHIFTS),
        ((DATE, TIME), TIMESTAMP),
        ((TIME, DATE), TIMESTAMP),
    ],
    "-": [
        *_same(NUMBERS),
        ((DATE, DATE), INT64),
        ((DATE, INT32), DATE),
        *(((moment, moment), INTERVAL) for moment in _MOMENTS),
        *_same(_SPANS),
        *_SHIFTS,
    ],
    "*": [
        *_same(NUMBERS),
        *(((INTERVAL, number), INTERVAL) for number in (DOUBLE, INT64)),
        *(((number, INTERVAL), INTERVAL) for number in (DOUBLE, INT64)),
    ],
    "/": [*_same((FLOAT, DOUBLE)), ((INTERVAL, DOUBLE), INTERVAL)],
    "//": _same((*INTEGER_TYPES, FLOAT, DOUBLE)),
    "%": _same(NUMBERS),
}

NEGATION: list[Signature] = [((type,), type) for type in (*NUMBERS, *_SPANS)]


def choose(signatures: list[Signature], operands: tuple[SqlType, ...]) -> Signature | None:
    """Return the cheapest signature that the operands convert to, or None if none fits or two fit equally well."""
    best: list[Signature] = []
    lowest: int | None = None
    for signature in signatures:
        if len(signature[0]) != len(operands):
            continue
        total = 0
        for operand, wanted in zip(operands, signature[0], strict=True):
            cost = implicit_cost(operand, wanted)
            if cost is None:
                break
            total += cost
        else:
            if lowest is None or total < lowest:
                lowest, best = total, [signature]
            elif total == lowest:
                best.append(signature)
    return best[0] if len(best) == 1 else None


def arithmetic(op: str, left: SqlType, right: SqlType) -> tuple[SqlType, SqlType, SqlType] | None:
    """Return the types of both operands and the result of an operator, or None if it is not defined for them."""
    chosen = choose(_OPERATORS[op], (left, right))
    if chosen is None:
        return None
    (left_type, right_type), result = chosen
    if result.kind == "decimal":
        return _decimal_multiply(left, right) if op == "*" else _decimal_add(left, right, op == "%")
    return left_type, right_type, result


def _shapes(left: SqlType, right: SqlType) -> tuple[tuple[int, int], tuple[int, int]]:
    first, second = decimal_shape(left), decimal_shape(right)
    assert first is not None
    assert second is not None
    return first, second


def _decimal_add(left: SqlType, right: SqlType, modulo: bool) -> tuple[SqlType, SqlType, SqlType]:
    shapes = _shapes(left, right)
    scale = max(shape[1] for shape in shapes)
    widest = max(shape[0] for shape in shapes)
    width = max(scale + max(shape[0] - shape[1] for shape in shapes), widest)
    if modulo and width > MAX_WIDTH:
        return DOUBLE, DOUBLE, DOUBLE
    if not modulo:
        width += 1
        if width > INT64_WIDTH and widest <= INT64_WIDTH:
            width = INT64_WIDTH
    type = SqlType("decimal", min(width, MAX_WIDTH), scale)
    return type, type, type


def _decimal_multiply(left: SqlType, right: SqlType) -> tuple[SqlType, SqlType, SqlType] | None:
    shapes = _shapes(left, right)
    scale = shapes[0][1] + shapes[1][1]
    width = shapes[0][0] + shapes[1][0]
    if scale > MAX_WIDTH:
        return None
    if width > INT64_WIDTH and max(shape[0] for shape in shapes) <= INT64_WIDTH and scale < INT64_WIDTH:
        width = INT64_WIDTH
    width = min(width, MAX_WIDTH)
    sides = [SqlType("decimal", *shape) for shape in shapes]
    return sides[0], sides[1], SqlType("decimal", width, scale)
