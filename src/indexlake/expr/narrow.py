"""Turns a comparison of a widened value with a constant into comparisons in the narrow type.

`cast(x as wide) op c` is equivalent to one or two comparisons of `x` itself, because widening preserves the order. That
is faster to evaluate, and statistics, keys and pushdowns need a constant of the column's own type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.values import array_of
from indexlake.expr import tree
from indexlake.expr.coercion import decimal_shape
from indexlake.expr.compare import MIRRORED
from indexlake.expr.constant_casts import to_float32
from indexlake.expr.constants import DAY_SECONDS, to_scalar
from indexlake.expr.infinite import is_infinite
from indexlake.expr.sqltype import (
    FLOATS,
    INT_RANGE,
    INTEGERS,
    MAX_WIDTH,
    PER_SECOND,
    TIMESTAMPS,
    SqlType,
    to_arrow,
)

Tests = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Comparisons of `node` with constants of its own type: all of the tests if `every`, else any of them.

    Without tests, the comparison is `every` for each value, and unknown for null.
    """

    node: tree.Node
    tests: Tests
    every: bool

    def scalar(self, value: Any) -> pa.Scalar:
        return to_scalar(value, self.node.type)


@dataclass(frozen=True, slots=True)
class Members:
    """The constants that `node` may equal, in its own type and without nulls; `null`: there was a null as well."""

    node: tree.Node
    values: list[Any]
    null: bool

    def array(self) -> pa.Array:
        type, values = self.node.type, self.values
        if type.kind in ("decimal", "hugeint"):
            values = [to_scalar(value, type) for value in values]
        return array_of(values, to_arrow(type))


def members(child: tree.Node, values: list[Any]) -> Members:
    """Return the constants of an `in` list, converted to the type under a widening cast where possible."""
    present = [value for value in values if value is not None]
    null = len(present) < len(values)
    if not isinstance(child, tree.Cast) or child.lenient:
        return Members(child, present, null)
    inner = child.child
    if inner.type.kind in INTEGERS and child.type.kind in INTEGERS and _factor(inner.type, child.type) == 1:
        low, high = INT_RANGE[inner.type.kind]
        return Members(inner, [value for value in present if low <= value <= high], null)
    narrowed = [narrow(child, "=", value) for value in present]
    if all(each is not None and each.node is inner and len(each.tests) <= 1 for each in narrowed):
        return Members(inner, [each.tests[0][1] for each in narrowed if each is not None and each.tests], null)
    return Members(child, present, null)


def sides(node: tree.Compare) -> tuple[tree.Node, str, tree.Constant] | None:
    """Return the comparison turned so that the constant is on the right, or None if there is no constant."""
    if isinstance(node.right, tree.Constant):
        return node.left, node.op, node.right
    if isinstance(node.left, tree.Constant):
        return node.right, MIRRORED[node.op], node.left
    return None


def narrow(widened: tree.Node, op: str, value: Any) -> Narrowed | None:
    """Return the comparison without the casts around its left side, or None if there is no equivalent."""
    if not isinstance(widened, tree.Cast) or widened.lenient or value is None or is_infinite(value, widened.type):
        return None
    bounds = _preimage(widened.child.type, widened.type, value)
    if bounds is None:
        return None
    tests, every = bounds_tests(op, *bounds)
    child = widened.child
    if isinstance(child, tree.Cast) and len(tests) == 1:
        deeper = narrow(child, *tests[0])
        if deeper is not None:
            return deeper
    return Narrowed(child, tests, every)


def bounds_tests(op: str, low: Any, high: Any) -> tuple[Tests, bool]:
    """Return tests for `op c`, given the least value whose image is >= c and the greatest whose image is <= c."""
    if op not in ("=", "<>"):
        bound = low if op in ("<", ">=") else high
        return ((), op in ("<", ">")) if bound is None else (((op, bound),), True)
    hit = low is not None and high is not None and _ordered(low, high)
    if op == "=":
        if not hit:
            return (), False
        return ((("=", low),), True) if _same(low, high) else (((">=", low), ("<=", high)), True)
    if not hit:
        return (), True
    return ((("<>", low),), True) if _same(low, high) else ((("<", low), (">", high)), False)


def _ordered(low: Any, high: Any) -> bool:
    return bool(low <= high) or _same(low, high)


def _same(low: Any, high: Any) -> bool:
    return bool(low == high) or (low != low and high != high)


def _preimage(source: SqlType, target: SqlType, value: Any) -> tuple[Any, Any] | None:
    if source.kind == "float" and target.kind == "double":
        return _float_bounds(value)
    domain = _domain(source)
    if domain is None:
        return None
    if source.kind == "hugeint" and target.kind in FLOATS:
        return None  # DuckDB rounds halves of it, each by itself
    if source.kind in INTEGERS and target.kind in FLOATS:
        return _rounded_bounds(value, target.kind, *domain)
    factor = _factor(source, target)
    if factor is None:
        return None
    low, high = -(-value // factor), value // factor
    return (
        None if low > domain[1] else max(low, domain[0]),
        None if high < domain[0] else min(high, domain[1]),
    )


def _domain(source: SqlType) -> tuple[int, int] | None:
    if source.kind in INTEGERS:
        return INT_RANGE[source.kind]
    if source.kind == "decimal":
        return -(10**source.width) + 1, 10**source.width - 1
    if source.kind == "date":
        return INT_RANGE["int32"]
    if source.kind in PER_SECOND:
        return INT_RANGE["int64"]
    return None


def _factor(source: SqlType, target: SqlType) -> int | None:
    """Return the factor by which the cast multiplies the stored integer, or None if it does more than that."""
    if source.kind in INTEGERS and target.kind in INTEGERS:
        (low, high), (least, most) = INT_RANGE[source.kind], INT_RANGE[target.kind]
        return 1 if least <= low and high <= most else None
    if target.kind == "decimal":
        shape = decimal_shape(source)
        if shape is None or target.scale < shape[1]:
            return None
        # A cast to a decimal that may be too small for the value can fail, so it must not be left out.
        roomy = target.width - target.scale >= shape[0] - shape[1] or target.width == MAX_WIDTH
        return int(10 ** (target.scale - shape[1])) if roomy else None
    if source.kind == "date" and target.kind in TIMESTAMPS:
        return DAY_SECONDS * PER_SECOND[target.kind]
    if source.kind in PER_SECOND and target.kind in PER_SECOND:
        both = (source.kind in TIMESTAMPS) == (target.kind in TIMESTAMPS)
        ratio, rest = divmod(PER_SECOND[target.kind], PER_SECOND[source.kind])
        return ratio if both and not rest else None
    return None


def _float_bounds(value: float) -> tuple[float | None, float | None]:
    if math.isnan(value) or to_float32(value) == value:
        return value, value
    near = np.float32(to_float32(value))
    if float(near) < value:
        return float(np.nextafter(near, np.float32(np.inf))), float(near)
    return float(near), float(np.nextafter(near, np.float32(-np.inf)))


def _rounded_bounds(value: float, kind: str, low: int, high: int) -> tuple[int | None, int | None]:
    """Return the bounds of integers compared with a float; many of them may round to the same float."""
    if math.isnan(value):
        return None, high
    image = float if kind == "double" else as_float32
    return _first(lambda x: image(x) >= value, low, high), _last(lambda x: image(x) <= value, low, high)


def as_float32(value: int) -> float:
    if -(2**63) <= value < 2**63:
        return float(np.int64(value).astype(np.float32))
    return float(np.uint64(value).astype(np.float32)) if 0 <= value < 2**64 else to_float32(float(value))


def _first(holds: Any, low: int, high: int) -> int | None:
    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _last(holds: Any, low: int, high: int) -> int | None:
    after = _first(lambda x: not holds(x), low, high)
    return high if after is None else after - 1 if after > low else None
