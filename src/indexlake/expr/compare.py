"""Comparison kernels with DuckDB's order: NaN equals itself and is the greatest, -0.0 equals 0.0, text by bytes.

Operands are Arrow arrays or scalars of one SQL type.  Nulls give null.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.arrow.values import FALSE, TRUE, UNKNOWN, scalar_of
from indexlake.expr import fallback, intervals
from indexlake.expr.broadcast import full, rows_of
from indexlake.expr.sqltype import BOOL, FLOATS, NESTED_KINDS, SqlType

_KERNELS = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The same comparisons for Python values."""
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def compare(op: str, left: Any, right: Any, type: SqlType) -> Any:
    """Return `left op right` as a boolean array (or scalar, if both are scalars)."""
    if type.kind in FLOATS:
        return _compare_floats(op, left, right)
    if type.kind == "null":
        return UNKNOWN
    if type.kind in NESTED_KINDS:
        return fallback.apply(f"{{0}} {op} {{1}}", [left, right], [type, type], BOOL, f"`{op}` of {type}")
    if type.kind == "interval":
        rows = rows_of(left, right)
        held = intervals.compare(op, full(left, intervals.TYPE, rows), full(right, intervals.TYPE, rows))
        return held[0] if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar) else held
    return pc.call_function(_KERNELS[op], [left, right])


def _compare_floats(op: str, left: Any, right: Any) -> Any:
    if isinstance(left, pa.Scalar) and not isinstance(right, pa.Scalar):
        return _compare_floats(MIRRORED[op], right, left)
    if isinstance(right, pa.Scalar) and not isinstance(left, pa.Scalar):
        value = right.as_py()
        if value is None:
            return pa.nulls(len(left), pa.bool_())
        return _compare_with_nan(op, left) if math.isnan(value) else _compare_with_number(op, left, right)
    if op in ("<>", ">=", "<="):
        return pc.invert(_compare_floats(NEGATED[op], left, right))
    if op == ">":
        left, right = right, left
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if op == "=":
        return pc.or_(pc.equal(left, right), pc.and_(left_nan, right_nan))
    return pc.or_(pc.less(left, right), pc.and_(pc.invert(left_nan), right_nan))


def _compare_with_number(op: str, left: Any, right: pa.Scalar) -> Any:
    if op in (">", ">=", "<>"):
        return pc.invert(pc.call_function(_KERNELS[NEGATED[op]], [left, right]))
    return pc.call_function(_KERNELS[op], [left, right])


def _compare_with_nan(op: str, left: Any) -> Any:
    nan = pc.is_nan(left)
    if op in ("=", ">="):
        return nan
    if op in ("<", "<>"):
        return pc.invert(nan)
    return always(left, op == "<=")


def always(like: Any, truth: bool) -> Any:
    """Return `truth` where `like` has a value, and null where it is null."""
    valid = pc.is_valid(like)
    return pc.if_else(valid, TRUE if truth else FALSE, UNKNOWN)


def distinct(left: Any, right: Any, type: SqlType, negated: bool) -> Any:
    """Return `is [not] distinct from`, which is never null."""
    differs = compare("<>", left, right, type)
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    result = pc.or_(pc.fill_null(differs, FALSE), one_null)
    return pc.invert(result) if negated else result


def is_in(values: Any, items: Any, type: SqlType) -> Any:
    """Return whether each value is among `items` (an array without nulls); null where the value is null."""
    if type.kind in FLOATS:
        zero = scalar_of(0.0, values.type)
        found = pc.is_in(pc.add(values, zero), value_set=pc.add(items, zero))
        if pc.any(pc.is_nan(items)).as_py():
            found = pc.or_(found, pc.is_nan(values))
    else:
        if items.type != values.type:
            items = items.cast(values.type)
        found = pc.is_in(values, value_set=items)
    return pc.if_else(pc.is_valid(values), found, UNKNOWN)
