"""Translates necessary conditions into Vortex's filter language.

A pushdown drops only rows for which the predicate is not true.  It says whether it is exact, in which case the
remaining rows need no recheck.  What Vortex cannot express is left out.  It orders floats by IEEE's total order
(negative NaN first, -0.0 before 0.0) and stores times as integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from indexlake.arrow import native_vortex as vx
from indexlake.expr.conditions import Condition
from indexlake.expr.test import ALWAYS, INDEX_OPS, All, Any_, ColumnTest, Test
from indexlake.types.hugeint import HELD_AS
from indexlake.types.uuids import is_uuid

MAX_ALTERNATIVES = 32
_INT64_MAX = 2**63 - 1


class Pushed(NamedTuple):
    """An expression, and whether it selects exactly the rows of the test."""

    expression: Any
    exact: bool


def push(condition: Condition, schema: pa.Schema) -> tuple[Any, bool] | None:
    """Return the condition in Vortex's language, or None if no part of it can be expressed."""
    if condition.test == ALWAYS:
        return None
    pushed = _push(condition.test, schema)
    return None if pushed is None else (pushed.expression, pushed.exact and condition.exact)


def _push(test: Test, schema: pa.Schema) -> Pushed | None:
    if isinstance(test, ColumnTest):
        if test.op in INDEX_OPS:
            present = _column(ColumnTest(test.column, "is not null"), pa.null())
            return None if present is None else Pushed(present.expression, False)
        type = schema.field(test.column).type
        return _column(test, type.value_type if pa.types.is_dictionary(type) else type)
    parts = [_push(child, schema) for child in test.children]
    said = [part for part in parts if part is not None]
    exact = len(said) == len(parts) and all(part.exact for part in said)
    if isinstance(test, All):
        return Pushed(vx.expr.and_collect([part.expression for part in said]), exact) if said else None
    if len(said) < len(parts):
        return None
    either = (
        vx.expr.or_collect([part.expression for part in said]) if said else vx.expr.literal(vx.dtype.bool_(), False)
    )
    return Pushed(either, exact)


def _alternatives(test: ColumnTest, type: pa.DataType) -> Pushed | None:
    """Express `in` as equalities, or as the range they are in if there are too many."""
    many = len(test.values) > MAX_ALTERNATIVES
    if many and any(value != value for value in test.values):
        return None
    if many:
        low, high = min(test.values), max(test.values)
        said: Test = All((ColumnTest(test.column, ">=", (low,)), ColumnTest(test.column, "<=", (high,))))
    else:
        said = Any_(tuple(ColumnTest(test.column, "=", (value,)) for value in test.values))
    pushed = _push(said, pa.schema([(test.column, type)]))
    return None if pushed is None else Pushed(pushed.expression, pushed.exact and not many)


def _column(test: ColumnTest, type: pa.DataType) -> Pushed | None:
    column = vx.expr.column(test.column)
    if test.op == "is null":
        return Pushed(vx.expr.is_null(column), True)
    if test.op == "is not null":
        return Pushed(vx.expr.is_not_null(column), True)
    if test.op == "in":
        return _alternatives(test, type)
    (value,) = test.values
    if type in (pa.float32(), pa.float64()):
        return _float(column, test.op, value, vx.dtype.float_(type.bit_width, nullable=True))
    dtype = _dtype(type)
    if dtype is None:
        return None
    if type == pa.uint64() and value > _INT64_MAX:  # a literal holds 63 bits only
        if test.op in ("<", "<="):
            return None
        return Pushed(vx.expr.gt(column, vx.expr.literal(dtype, _INT64_MAX)), False)
    return Pushed(_compare(test.op, column, vx.expr.literal(dtype, value)), True)


def _compare(op: str, column: Any, literal: Any) -> Any:
    names = {"=": "eq", "<": "lt", "<=": "lt_eq", ">": "gt", ">=": "gt_eq"}
    return getattr(vx.expr, names[op])(column, literal)


def _dtype(type: pa.DataType) -> Any:
    t = pa.types
    if t.is_boolean(type):
        return vx.dtype.bool_(nullable=True)
    if t.is_signed_integer(type):
        return vx.dtype.int_(type.bit_width, nullable=True)
    if t.is_unsigned_integer(type):
        return vx.dtype.uint(type.bit_width, nullable=True)
    if t.is_string(type) or t.is_large_string(type) or type == pa.string_view():
        return vx.dtype.utf8(nullable=True)
    if t.is_binary(type) or t.is_large_binary(type) or t.is_fixed_size_binary(type) or type == pa.binary_view():
        return vx.dtype.binary(nullable=True)
    if is_uuid(type):
        return vx.dtype.binary(nullable=True)
    if t.is_temporal(type) and not t.is_interval(type):
        return vx.dtype.int_(type.bit_width, nullable=True)
    if t.is_decimal(type) and type.precision <= 38 and type != HELD_AS:  # of which files may have 39 digits
        return vx.dtype.decimal(precision=type.precision, scale=type.scale, nullable=True)
    return None


def _float(column: Any, op: str, value: float, dtype: Any) -> Pushed:
    ve = vx.expr

    def is_(comparison: Callable[[Any, Any], Any], bound: float) -> Any:
        return comparison(column, ve.literal(dtype, bound))

    nan = ve.or_(is_(ve.gt, math.inf), is_(ve.lt, -math.inf))
    number = ve.and_(is_(ve.gt_eq, -math.inf), is_(ve.lt_eq, math.inf))
    if math.isnan(value):
        never = ve.and_(nan, number)
        made = {"=": nan, ">=": nan, "<": number, "<=": ve.is_not_null(column), ">": never}[op]
    elif op == "=":
        made = ve.or_(is_(ve.eq, 0.0), is_(ve.eq, -0.0)) if value == 0 else is_(ve.eq, value)
    elif op in ("<", "<="):
        below = is_(ve.lt, value or -0.0) if op == "<" else is_(ve.lt_eq, value or 0.0)
        made = ve.and_(below, is_(ve.gt_eq, -math.inf))
    else:
        above = is_(ve.gt, value or 0.0) if op == ">" else is_(ve.gt_eq, value or -0.0)
        made = ve.or_(above, is_(ve.lt, -math.inf))
    return Pushed(made, True)
