"""The scalar path: an expression compiled to Python functions of one row, for work on single rows.

It has the same semantics as the Arrow evaluator, on the Python values that Arrow's `as_py()` returns.  Types and
operators that Python does not handle exactly raise `NotCovered`, when compiling or at run time; the caller then
evaluates a batch of one row instead.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from indexlake.expr import functions, like, tree
from indexlake.expr.compare import COMPARED
from indexlake.expr.constants import EPOCH_DAY, EXACT, NotCovered
from indexlake.expr.row_values import converter, operation, out_of_range
from indexlake.expr.sqltype import FLOATS, INT_RANGE, INTEGERS, NUMERIC, PER_SECOND, TIMESTAMPS, SqlType

Row = Mapping[str, Any]
Function = Callable[[Row, Any], Any]  # (row, constants) -> value

_EPOCH = dt.datetime(1970, 1, 1)
_COVERED = INTEGERS | FLOATS | {"bool", "varchar", "blob", "date", "decimal", "uuid"}
_COVERED |= {"timestamp_s", "timestamp_ms", "timestamp", "timestamptz"}
_CONTAINERS = {"list", "struct", "map"}  # their parts may be covered
_CARRIERS = (tree.Column, tree.Constant, tree.Field, tree.Call)


class RowPlan:
    """The compiled function of a tree, and how to derive its constants from those of a Bound."""

    def __init__(self, root: tree.Node, types: list[SqlType]) -> None:
        self.types = types
        self.sets: list[tuple[str, Any]] = []
        function = self._compile(root)
        # Arrow has no 128-bit integer, so such a value is a decimal.
        self.function = _strict(function, decimal.Decimal) if root.type.kind == "hugeint" else function

    def constants(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        natural: list[Any] = [
            tuple(natural_value(item, type) for item in value)
            if isinstance(value, tuple)
            else natural_value(value, type)
            for value, type in zip(values, self.types, strict=True)
        ]
        for kind, source in self.sets:
            items = natural[source] if kind == "list" else [natural[slot] for slot in source]
            present = [item for item in items if item is not None]
            nan = any(item != item for item in present)
            natural.append((frozenset(present), nan, kind != "list" and len(present) < len(items)))
        return tuple(natural)

    def _compile(self, node: tree.Node) -> Function:
        kind = node.type.kind
        if kind not in _COVERED and not (kind in _CONTAINERS and isinstance(node, _CARRIERS)):
            raise NotCovered
        compiler = _COMPILERS.get(node.__class__)
        if compiler is None:
            raise NotCovered
        return compiler(self, node)

    def _set(self, kind: str, source: Any) -> int:
        self.sets.append((kind, source))
        return len(self.types) + len(self.sets) - 1


def _strict(child: Function, apply: Callable[[Any], Any]) -> Function:
    """Apply a function to a value, returning null for null."""

    def applied(row: Row, k: Any) -> Any:
        value = child(row, k)
        return None if value is None else apply(value)

    return applied


def _strict_pair(left: Function, right: Function, apply: Callable[[Any, Any], Any]) -> Function:
    """Apply a function to two values, returning null if either is null."""

    def applied(row: Row, k: Any) -> Any:
        a, b = left(row, k), right(row, k)
        return None if a is None or b is None else apply(a, b)

    return applied


def natural_value(value: Any, type: SqlType) -> Any:
    """Return a constant as the Python value that `as_py()` would give."""
    if value is None:
        return None
    kind = type.kind
    if kind in _CONTAINERS:
        return value.as_py()
    if kind == "uuid":
        return uuid.UUID(bytes=value)
    if kind == "decimal":
        return EXACT.scaleb(decimal.Decimal(value), -type.scale)
    try:
        if kind == "date":
            return dt.date.fromordinal(value + EPOCH_DAY)
        if kind in TIMESTAMPS and kind in _COVERED:
            moment = _EPOCH + dt.timedelta(microseconds=value * (1_000_000 // PER_SECOND[kind]))
            return moment.replace(tzinfo=dt.UTC) if kind == "timestamptz" else moment
    except (OverflowError, ValueError):
        raise NotCovered from None
    return value


def _column(plan: RowPlan, node: tree.Column) -> Function:
    name = node.name
    if node.type.kind == "hugeint":  # it is a decimal in the row, whose arithmetic would round
        return _strict(lambda row, k: row[name], int)
    return lambda row, k: row[name]


def _constant(plan: RowPlan, node: tree.Constant) -> Function:
    slot = node.slot
    return lambda row, k: k[slot]


# -- comparisons -------------------------------------------------------------------------------------------


def _float_equal(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _float_less(a: float, b: float) -> bool:
    return a < b or (b != b and a == a)


_FLOAT: dict[str, Callable[[Any, Any], bool]] = {
    "=": _float_equal,
    "<>": lambda a, b: not _float_equal(a, b),
    "<": _float_less,
    "<=": lambda a, b: not _float_less(b, a),
    ">": lambda a, b: _float_less(b, a),
    ">=": lambda a, b: not _float_less(a, b),
}


def _comparer(op: str, type: SqlType) -> Callable[[Any, Any], bool]:
    if type.kind in _CONTAINERS:
        raise NotCovered
    return _FLOAT[op] if type.kind in FLOATS else COMPARED[op]


def _compare(plan: RowPlan, node: tree.Compare) -> Function:
    holds = _comparer(node.op, node.left.type)
    left, right = plan._compile(node.left), plan._compile(node.right)
    if isinstance(node.left, tree.Column) and isinstance(node.right, tree.Constant):
        name, slot = node.left.name, node.right.slot

        def against_constant(row: Row, k: Any) -> bool | None:
            a, b = row[name], k[slot]
            return None if a is None or b is None else holds(a, b)

        return against_constant
    return _strict_pair(left, right, holds)


def _distinct(plan: RowPlan, node: tree.Distinct) -> Function:
    same = _comparer("=", node.left.type)
    left, right, negated = plan._compile(node.left), plan._compile(node.right), node.negated

    def distinct(row: Row, k: Any) -> bool:
        a, b = left(row, k), right(row, k)
        equal = (a is None and b is None) if a is None or b is None else same(a, b)
        return equal is negated

    return distinct


def _in(plan: RowPlan, node: tree.In) -> Function:
    if not all(isinstance(item, tree.Constant) for item in node.items):
        raise NotCovered
    slots = [item.slot for item in node.items if isinstance(item, tree.Constant)]
    return _membership(plan, node.child, plan._set("items", slots))


def _in_list(plan: RowPlan, node: tree.InList) -> Function:
    return _membership(plan, node.child, plan._set("list", node.items.slot))


def _membership(plan: RowPlan, child: tree.Node, index: int) -> Function:
    value = plan._compile(child)

    def among(row: Row, k: Any) -> bool | None:
        a = value(row, k)
        if a is None:
            return None
        items, nan, null = k[index]
        if a in items or (nan and a != a):
            return True
        return None if null else False

    return among


# -- logic -------------------------------------------------------------------------------------------------


def _junction(plan: RowPlan, node: tree.And | tree.Or) -> Function:
    parts = tuple(plan._compile(item) for item in node.items)
    decisive = isinstance(node, tree.Or)

    def junction(row: Row, k: Any) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            value: bool | None = part(row, k)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return junction


def _not(plan: RowPlan, node: tree.Not) -> Function:
    return _strict(plan._compile(node.child), operator.not_)


def _is_null(plan: RowPlan, node: tree.IsNull) -> Function:
    if isinstance(node.child, tree.Column):  # possible for a column of any type
        name = node.child.name
        return lambda row, k: row[name] is None
    child = plan._compile(node.child)
    return lambda row, k: child(row, k) is None


def _is_truth(plan: RowPlan, node: tree.IsTruth) -> Function:
    child, truth = plan._compile(node.child), node.truth
    return lambda row, k: child(row, k) is truth


def _case(plan: RowPlan, node: tree.Case) -> Function:
    branches = tuple((plan._compile(condition), plan._compile(value)) for condition, value in node.branches)
    default = plan._compile(node.default)

    def case(row: Row, k: Any) -> Any:
        for condition, value in branches:
            if condition(row, k) is True:
                return value(row, k)
        return default(row, k)

    return case


# -- text --------------------------------------------------------------------------------------------------


def _like(plan: RowPlan, node: tree.Like) -> Function:
    value, pattern = plan._compile(node.child), plan._compile(node.pattern)
    escape = plan._compile(node.escape) if node.escape is not None else lambda row, k: ""
    insensitive = node.insensitive

    def matches(row: Row, k: Any) -> bool | None:
        a, b, c = value(row, k), pattern(row, k), escape(row, k)
        if a is None or b is None or c is None:
            return None
        if insensitive:
            if not (a.isascii() and b.isascii()):
                raise NotCovered  # Python's case mapping differs from DuckDB's
            a, b, c = a.lower(), b.lower(), c.lower()
        parsed = like.parse_pattern(b, c)
        return not parsed.impossible and like.python_regex(parsed).match(a) is not None

    return matches


def _concat(plan: RowPlan, node: tree.Concat) -> Function:
    return _strict_pair(plan._compile(node.left), plan._compile(node.right), operator.add)


def _call(plan: RowPlan, node: tree.Call) -> Function:
    function = functions.FUNCTIONS[node.name]
    if function.row is None:
        raise NotCovered
    apply = function.row(node)
    arguments = tuple(plan._compile(argument) for argument in node.arguments)
    if not function.strict:
        return lambda row, k: apply(*[argument(row, k) for argument in arguments])

    def call(row: Row, k: Any) -> Any:
        values = []
        for argument in arguments:
            value = argument(row, k)
            if value is None:
                return None
            values.append(value)
        return apply(*values)

    return call


def _field(plan: RowPlan, node: tree.Field) -> Function:
    return _strict(plan._compile(node.child), operator.itemgetter(node.name))


# -- numbers -----------------------------------------------------------------------------------------------


def _arithmetic(plan: RowPlan, node: tree.Arithmetic) -> Function:
    left, right = plan._compile(node.left), plan._compile(node.right)
    if not {node.left.type.kind, node.right.type.kind} <= NUMERIC:
        raise NotCovered
    return _strict_pair(left, right, operation(node.op, node.type))


def _negate(plan: RowPlan, node: tree.Negate) -> Function:
    type = node.type
    low, high = INT_RANGE.get(type.kind, (None, None))

    def negate(value: Any) -> Any:
        if type.kind == "decimal":
            return value.copy_negate() if value else value
        if low is not None and high is not None and not low <= -value <= high:
            raise out_of_range("-", type)
        return -value

    return _strict(plan._compile(node.child), negate)


def _cast(plan: RowPlan, node: tree.Cast) -> Function:
    if node.lenient:
        raise NotCovered
    return _strict(plan._compile(node.child), converter(node.child.type, node.type))


_COMPILERS: dict[type[tree.Node], Callable[[RowPlan, Any], Function]] = {
    tree.Column: _column,
    tree.Constant: _constant,
    tree.Cast: _cast,
    tree.Compare: _compare,
    tree.Distinct: _distinct,
    tree.And: _junction,
    tree.Or: _junction,
    tree.Not: _not,
    tree.IsNull: _is_null,
    tree.IsTruth: _is_truth,
    tree.In: _in,
    tree.InList: _in_list,
    tree.Like: _like,
    tree.Concat: _concat,
    tree.Negate: _negate,
    tree.Arithmetic: _arithmetic,
    tree.Case: _case,
    tree.Call: _call,
    tree.Field: _field,
}
