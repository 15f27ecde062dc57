"""Arithmetic and casts of the scalar path: DuckDB's results on Python numbers, dates and decimals.

For operations that Python does not do in exactly the same way, asking for the function raises `NotCovered`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from collections.abc import Callable
from typing import Any

from indexlake.errors import ExpressionError
from indexlake.expr.constant_casts import decimal_to_double, double_to_float
from indexlake.expr.constants import EXACT, NotCovered
from indexlake.expr.narrow import as_float32
from indexlake.expr.sqltype import INT_RANGE, INTEGERS, NAIVE_TIMESTAMPS, PER_SECOND, SqlType


def out_of_range(op: str, type: SqlType) -> ExpressionError:
    return ExpressionError(f"the result of `{op}` is out of range for {type}")


def _int_divide(a: int, b: int) -> int | None:
    if b == 0:
        return None
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _int_modulo(a: int, b: int) -> int | None:
    if b == 0:
        return None
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _float_divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _float_modulo(a: float, b: float) -> float:
    if b == 0 or math.isinf(a) or a != a or b != b:
        return math.nan
    return math.fmod(a, b)


_INT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": _int_divide,
    "%": _int_modulo,
}
_FLOAT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _float_divide,
    "//": lambda a, b: None if b == 0 else a / b,
    "%": _float_modulo,
}


def operation(op: str, type: SqlType) -> Callable[[Any, Any], Any]:
    """Return an arithmetic operator whose operands and result have the same type."""
    if type.kind == "double":
        return _FLOAT_OPS[op]
    if type.kind in INTEGERS:
        return _checked_op(_INT_OPS[op], op, type)
    if type.kind == "decimal" and op in ("+", "-", "*"):
        return _decimal_op(op, type)
    raise NotCovered


def _checked_op(apply: Callable[[Any, Any], Any], op: str, type: SqlType) -> Callable[[Any, Any], Any]:
    low, high = INT_RANGE[type.kind]

    def checked(a: int, b: int) -> int | None:
        result: int | None = apply(a, b)
        if result is not None and not low <= result <= high:
            raise out_of_range(op, type)
        return result

    return checked


def _limit_and_unit(type: SqlType) -> tuple[decimal.Decimal, decimal.Decimal]:
    return decimal.Decimal(10) ** (type.width - type.scale), decimal.Decimal(1).scaleb(-type.scale)


def _decimal_op(op: str, type: SqlType) -> Callable[[Any, Any], Any]:
    apply = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[op]
    limit, unit = _limit_and_unit(type)

    def compute(a: decimal.Decimal, b: decimal.Decimal) -> decimal.Decimal:
        result = apply(a, b)
        if not -limit < result < limit:
            raise out_of_range(op, type)
        return result.quantize(unit, context=EXACT)

    return compute


def converter(source: SqlType, target: SqlType) -> Callable[[Any], Any]:
    kind = target.kind
    if source.kind in INTEGERS:
        if kind in INTEGERS:
            return _range_checked(target)
        simple: dict[str, Callable[[Any], Any]] = {"double": float, "bool": bool, "varchar": str}
        if kind == "float" and source.kind != "hugeint":
            return as_float32
        if kind == "decimal":
            return _to_decimal(target)
        if kind in simple and source.kind != "hugeint":
            return simple[kind]
    if source.kind == "float" and kind == "double":
        return lambda value: value
    if source.kind == "double" and kind == "float":
        return double_to_float
    if source.kind == "bool" and kind in INTEGERS:
        return int
    if source.kind == "decimal" and kind == "decimal" and target.scale >= source.scale:
        return _to_decimal(target)
    if source.kind == "decimal" and kind == "double" and source.width <= 18:
        scale = source.scale
        return lambda value: decimal_to_double(int(EXACT.scaleb(value, scale)), scale)
    if source.kind == "date" and kind in NAIVE_TIMESTAMPS:
        return lambda value: dt.datetime(value.year, value.month, value.day)
    if source.kind == "date" and kind == "timestamptz":
        return lambda value: dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if source.kind in NAIVE_TIMESTAMPS and kind == "timestamptz" and source.kind != "timestamp_ns":
        return lambda value: value.replace(tzinfo=dt.UTC)
    if source.kind in NAIVE_TIMESTAMPS and kind in NAIVE_TIMESTAMPS and PER_SECOND[source.kind] <= PER_SECOND[kind]:
        return lambda value: value
    raise NotCovered


def _range_checked(target: SqlType) -> Callable[[Any], Any]:
    low, high = INT_RANGE[target.kind]

    def check(value: int) -> int:
        if not low <= value <= high:
            raise ExpressionError(f"{value} is out of range for {target}")
        return value

    return check


def _to_decimal(target: SqlType) -> Callable[[Any], Any]:
    limit, unit = _limit_and_unit(target)

    def convert(value: Any) -> decimal.Decimal:
        result = decimal.Decimal(value)
        if not -limit < result < limit:
            raise ExpressionError(f"{value} does not fit in {target}")
        return result.quantize(unit, context=EXACT)

    return convert
