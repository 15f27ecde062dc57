"""Translates necessary conditions into the filter languages of file formats.

A pushdown drops only rows (or row groups) for which the predicate is not true.  It says whether it is exact, in which
case the remaining rows need no recheck.  What a format cannot express is left out.  Vortex orders floats by IEEE's
total order (negative NaN first, -0.0 before 0.0) and stores times as integers; Parquet's statistics ignore NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.expr.compare import COMPARED
from indexlake.expr.conditions import Condition
from indexlake.expr.test import ALWAYS, INDEX_OPS, All, Any_, ColumnTest, Test
from indexlake.types.uuids import is_uuid

MAX_ALTERNATIVES = 32
_INT64_MAX = 2**63 - 1


class Pushed(NamedTuple):
    """An expression of the format, and whether it selects exactly the rows of the test."""

    expression: Any
    exact: bool


class Dialect(Protocol):
    """How a format expresses a test of one column, and combines such tests."""

    def column(self, test: ColumnTest, type: pa.DataType) -> Pushed | None: ...
    def all(self, parts: list[Any]) -> Any: ...
    def any(self, parts: list[Any]) -> Any: ...


def push(condition: Condition, schema: pa.Schema, dialect: Dialect) -> tuple[Any, bool] | None:
    """Return the condition in the format's language, or None if no part of it can be expressed."""
    if condition.test == ALWAYS:
        return None
    pushed = _push(condition.test, schema, dialect)
    return None if pushed is None else (pushed.expression, pushed.exact and condition.exact)


def _push(test: Test, schema: pa.Schema, dialect: Dialect) -> Pushed | None:
    if isinstance(test, ColumnTest):
        if test.op in INDEX_OPS:
            present = dialect.column(ColumnTest(test.column, "is not null"), pa.null())
            return None if present is None else Pushed(present.expression, False)
        type = schema.field(test.column).type
        return dialect.column(test, type.value_type if pa.types.is_dictionary(type) else type)
    parts = [_push(child, schema, dialect) for child in test.children]
    said = [part for part in parts if part is not None]
    exact = len(said) == len(parts) and all(part.exact for part in said)
    if isinstance(test, All):
        return Pushed(dialect.all([part.expression for part in said]), exact) if said else None
    if len(said) < len(parts):
        return None
    return Pushed(dialect.any([part.expression for part in said]), exact)


def _alternatives(test: ColumnTest, type: pa.DataType, dialect: Dialect) -> Pushed | None:
    """Express `in` as equalities, or as the range they are in if there are too many."""
    many = len(test.values) > MAX_ALTERNATIVES
    if many and any(value != value for value in test.values):
        return None
    if many:
        low, high = min(test.values), max(test.values)
        said: Test = All((ColumnTest(test.column, ">=", (low,)), ColumnTest(test.column, "<=", (high,))))
    else:
        said = Any_(tuple(ColumnTest(test.column, "=", (value,)) for value in test.values))
    pushed = _push(said, pa.schema([(test.column, type)]), dialect)
    return None if pushed is None else Pushed(pushed.expression, pushed.exact and not many)


class VortexDialect:
    """Vortex scan expressions on the types in which columns are written (`indexlake.types.vortex`)."""

    def __init__(self) -> None:
        import vortex
        import vortex.expr

        self.vx = vortex
        self.ve = vortex.expr

    def all(self, parts: list[Any]) -> Any:
        return self.ve.and_collect(parts)

    def any(self, parts: list[Any]) -> Any:
        return self.ve.or_collect(parts) if parts else self.ve.literal(self.vx.bool_(), False)

    def column(self, test: ColumnTest, type: pa.DataType) -> Pushed | None:
        column = self.ve.column(test.column)
        if test.op == "is null":
            return Pushed(self.ve.is_null(column), True)
        if test.op == "is not null":
            return Pushed(self.ve.is_not_null(column), True)
        if test.op == "in":
            return _alternatives(test, type, self)
        (value,) = test.values
        if type in (pa.float32(), pa.float64()):
            return self._float(column, test.op, value, self.vx.float_(type.bit_width, nullable=True))
        dtype = self._dtype(type)
        if dtype is None:
            return None
        if type == pa.uint64() and value > _INT64_MAX:  # a literal holds 63 bits only
            if test.op in ("<", "<="):
                return None
            return Pushed(self.ve.gt(column, self.ve.literal(dtype, _INT64_MAX)), False)
        return Pushed(self._compare(test.op, column, self.ve.literal(dtype, value)), True)

    def _compare(self, op: str, column: Any, literal: Any) -> Any:
        names = {"=": "eq", "<": "lt", "<=": "lt_eq", ">": "gt", ">=": "gt_eq"}
        return getattr(self.ve, names[op])(column, literal)

    def _dtype(self, type: pa.DataType) -> Any:
        vx, t = self.vx, pa.types
        if t.is_boolean(type):
            return vx.bool_(nullable=True)
        if t.is_signed_integer(type):
            return vx.int_(type.bit_width, nullable=True)
        if t.is_unsigned_integer(type):
            return vx.uint(type.bit_width, nullable=True)
        if t.is_string(type) or t.is_large_string(type) or type == pa.string_view():
            return vx.utf8(nullable=True)
        if t.is_binary(type) or t.is_large_binary(type) or t.is_fixed_size_binary(type) or type == pa.binary_view():
            return vx.binary(nullable=True)
        if is_uuid(type):
            return vx.binary(nullable=True)
        if t.is_temporal(type) and not t.is_interval(type):
            return vx.int_(type.bit_width, nullable=True)
        if t.is_decimal(type) and type.precision <= 38:
            return vx.decimal(precision=type.precision, scale=type.scale, nullable=True)
        return None

    def _float(self, column: Any, op: str, value: float, dtype: Any) -> Pushed:
        ve = self.ve

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


class ArrowDialect:
    """Arrow dataset filters, which Parquet readers take."""

    def all(self, parts: list[Any]) -> Any:
        return reduce(operator.and_, parts)

    def any(self, parts: list[Any]) -> Any:
        return reduce(operator.or_, parts) if parts else pc.scalar(False)

    def column(self, test: ColumnTest, type: pa.DataType) -> Pushed | None:
        field = pc.field(test.column)
        if test.op == "is null":
            return Pushed(field.is_null(), True)
        if test.op == "is not null":
            return Pushed(field.is_valid(), True)
        if not _filterable(type):
            return None
        if test.op == "in":
            return _alternatives(test, type, self)
        (value,) = test.values
        if pa.types.is_floating(type):
            return self._float(field, test.op, value, type)
        return Pushed(COMPARED[test.op](field, pa.scalar(value, type)), True)

    def _float(self, field: Any, op: str, value: float, type: pa.DataType) -> Pushed | None:
        """Return a filter that is never exact, and None for tests that NaN satisfies: statistics ignore NaN.

        If all numbers of a row group are the same, Arrow assumes that every row has that number.
        """
        if op in (">", ">=") or (op == "=" and math.isnan(value)):
            return None
        if math.isnan(value):
            return Pushed(field.is_valid(), False)
        return Pushed(COMPARED[op](field, pa.scalar(value, type)), False)


def _filterable(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_boolean(type)
        or t.is_integer(type)
        or type in (pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        or t.is_date32(type)
        or t.is_timestamp(type)
        or t.is_decimal128(type)
    )
