"""Arithmetic kernels: numbers with range checks, decimals, and date and time arithmetic.

Operands are Arrow arrays or scalars.  Nulls give null; a result out of the range of its type is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr import casts, fallback, intervals, tree
from indexlake.expr.broadcast import full
from indexlake.expr.constants import NotCovered
from indexlake.expr.infinite import holds_infinite
from indexlake.expr.sqltype import FLOATS, INTERVALS, TIMESTAMPS, to_arrow

Value = Any  # pa.Array | pa.Scalar


def negate(value: Value, node: tree.Negate, rows: int) -> Value:
    kind = node.type.kind
    if kind == "interval":
        return intervals.negate(full(value, intervals.TYPE, rows))
    if kind.startswith("uint"):
        if pc.any(pc.not_equal(value, pa.scalar(0, value.type))).as_py():
            raise ExpressionError(f"the result of `-` is out of range for {node.type}")
        return value
    if kind == "hugeint":
        return fallback.apply("-{0}", [value], [node.type], node.type, "`-` of HUGEINT")
    if kind == "decimal":
        return pc.negate(value).cast(value.type)
    return pc.call_function("negate_checked", [value])


def apply(left: Value, right: Value, node: tree.Arithmetic, rows: int) -> Value:
    """Return `left op right`; both already have the types that the node computes in."""
    kind = node.type.kind
    sides = {node.left.type.kind, node.right.type.kind}
    if sides & (TIMESTAMPS | INTERVALS | {"date", "time"}):
        return _time_arithmetic(node, left, right, rows)
    if kind == "hugeint":
        return _by_duckdb(node, left, right)
    if kind == "decimal":
        return _decimal_arithmetic(node, left, right, rows)
    if node.op in _CHECKED:
        name = _CHECKED[node.op]
        return pc.call_function(name.removesuffix("_checked") if kind in FLOATS else name, [left, right])
    if node.op == "/":
        return pc.divide(left, right)
    zero = pa.scalar(0, right.type)
    if node.op == "//":
        divisor = pc.if_else(pc.equal(right, zero), pa.scalar(None, right.type), right)
        return pc.call_function("divide" if kind in FLOATS else "divide_checked", [left, divisor])
    return _modulo(node, left, right, rows)


_CHECKED = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}


def _modulo(node: tree.Arithmetic, left: Value, right: Value, rows: int) -> Value:
    """Return the remainder with the sign of the dividend; for integers, null if the divisor is zero."""
    type = to_arrow(node.type)
    if isinstance(right, pa.Scalar) and right.is_valid and right.as_py() not in (0, -1) and isinstance(left, pa.Array):
        with np.errstate(all="ignore"):
            rest = np.fmod(pc.fill_null(left, 0).to_numpy(), right.as_py(), dtype=type.to_pandas_dtype())
        return pa.array(rest, type, mask=pc.is_null(left).to_numpy(zero_copy_only=False))
    dividend, divisor = full(left, type, rows), full(right, type, rows)
    mask = np.asarray(pc.or_(pc.is_null(dividend), pc.is_null(divisor)).to_numpy(zero_copy_only=False))
    numbers = pc.fill_null(dividend, 0).to_numpy()
    divisors = pc.fill_null(divisor, 1).to_numpy()
    if node.type.kind not in FLOATS:
        mask = mask | (divisors == 0)
        divisors = np.where(divisors == 0, divisors.dtype.type(1), divisors)
        if np.issubdtype(divisors.dtype, np.signedinteger):
            divisors = np.where(divisors == -1, divisors.dtype.type(1), divisors)
    with np.errstate(all="ignore"):
        return pa.array(np.fmod(numbers, divisors), type, mask=mask)


def _decimal_arithmetic(node: tree.Arithmetic, left: Value, right: Value, rows: int) -> Value:
    target = to_arrow(node.type)
    if node.op in ("//", "%"):
        return _integral_decimal(node, left, right, target, rows)
    if node.op == "*" and left.type.precision + right.type.precision >= 76:
        return _by_duckdb(node, left, right)
    sides = [left, right]
    digits = [side.type.precision for side in sides]
    if (sum(digits) if node.op == "*" else max(digits)) >= 38:
        sides = [side.cast(pa.decimal256(side.type.precision, side.type.scale)) for side in sides]
    name = {"+": "add", "-": "subtract", "*": "multiply"}[node.op]
    return pc.call_function(name, sides).cast(target)


def _integral_decimal(node: tree.Arithmetic, left: Value, right: Value, target: Any, rows: int) -> Value:
    if node.op == "%" and node.type.width <= 18:
        first, second = full(left, target, rows), full(right, target, rows)
        mask = np.asarray(pc.or_(pc.is_null(first), pc.is_null(second)).to_numpy(zero_copy_only=False))
        dividend, divisor = casts.unscaled(first), casts.unscaled(second)
        mask = mask | (divisor == 0)
        return casts.from_unscaled(np.fmod(dividend, np.where(mask, 1, divisor)), target, mask)
    return _by_duckdb(node, left, right)


def _by_duckdb(node: tree.Arithmetic, left: Value, right: Value) -> Value:
    types = [node.left.type, node.right.type]
    return fallback.apply(f"{{0}} {node.op} {{1}}", [left, right], types, node.type, f"`{node.op}` of {node.type}")


def _time_arithmetic(node: tree.Arithmetic, left: Value, right: Value, rows: int) -> Value:
    kinds = (node.left.type.kind, node.right.type.kind)
    if any(isinstance(side, pa.Scalar) and not side.is_valid for side in (left, right)):
        return pa.scalar(None, to_arrow(node.type))
    if holds_infinite(left, node.left.type) or holds_infinite(right, node.right.type):
        return _by_duckdb(node, left, right)
    if set(kinds) <= {"date", "int32"}:
        days = pc.call_function(_CHECKED[node.op], [_days(left), _days(right)])
        return days if node.type.kind == "int64" else days.cast(pa.int32()).cast(pa.date32())
    if node.type.kind == "interval" or "interval" in kinds:
        try:
            return _interval_arithmetic(node, left, right, rows)
        except NotCovered:
            return _by_duckdb(node, left, right)
    if "time" in kinds:
        return _by_duckdb(node, left, right)
    sides = zip((left, right), kinds, strict=True)
    moments = [side.cast(pa.timestamp("us")) if kind == "date" else side for side, kind in sides]
    return pc.call_function(_CHECKED[node.op], moments)


def _interval_arithmetic(node: tree.Arithmetic, left: Value, right: Value, rows: int) -> Value:
    sign = -1 if node.op == "-" else 1
    pair = [
        (full(side, to_arrow(part.type), rows), part.type.kind)
        for side, part in ((left, node.left), (right, node.right))
    ]
    kinds = [kind for _, kind in pair]
    if kinds == ["interval", "interval"]:
        return intervals.add(pair[0][0], pair[1][0], sign)
    if kinds[0] == kinds[1]:
        if kinds[0] == "timestamptz" and any(_before_1970_by_microseconds(side) for side, _ in pair):
            raise NotCovered
        return intervals.between(pair[0][0], pair[1][0])
    (span, _), (other, kind) = sorted(pair, key=lambda each: each[1] != "interval")
    if kind == "int64" and node.op == "*":
        return intervals.multiply(span, other)
    if kind == "date" or kind in TIMESTAMPS:
        moments = other.cast(pa.timestamp("us")) if kind == "date" else other
        return intervals.shift(moments, span, sign)
    raise NotCovered


def _before_1970_by_microseconds(moments: pa.Array) -> bool:
    """DuckDB's time zone calendar counts in milliseconds and rounds such moments in its own way."""
    counts = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy()
    return bool(((counts < 0) & (counts % 1000 != 0)).any())


def _days(value: Value) -> Value:
    return (value.cast(pa.int32()) if value.type == pa.date32() else value).cast(pa.int64())
