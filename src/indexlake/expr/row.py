"""The scalar path: an expression compiled to Python functions over one row, for work on single rows.

The same semantics as the Arrow evaluator, on the Python values that Arrow's `as_py()` gives.  Types and operators
that Python does not do exactly raise `NotCovered`, when compiling or at run time; the caller then evaluates a batch
of one row instead.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from indexlake.errors import ExpressionError
from indexlake.expr import functions, like, tree
from indexlake.expr.constants import EXACT, NotCovered, decimal_to_double, to_float32
from indexlake.expr.narrow import as_float32
from indexlake.expr.sqltype import (
    FLOATS,
    INT_RANGE,
    INTEGERS,
    NAIVE_TIMESTAMPS,
    PER_SECOND,
    TIMESTAMPS,
    SqlType,
)

Row = Mapping[str, Any]
Function = Callable[[Row, Any], Any]  # (row, constants) -> value

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_COVERED = INTEGERS | FLOATS | {"bool", "varchar", "blob", "date", "decimal"}
_COVERED |= {"timestamp_s", "timestamp_ms", "timestamp", "timestamptz"}


class RowPlan:
    """The compiled function of a tree, and how to make its constants from those of a Bound."""

    def __init__(self, root: tree.Node, types: list[SqlType]) -> None:
        self.types = types
        self.sets: list[tuple[str, Any]] = []
        self.function = self._compile(root)

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
        if node.type.kind not in _COVERED:
            raise NotCovered
        compiler = _COMPILERS.get(node.__class__)
        if compiler is None:
            raise NotCovered
        return compiler(self, node)

    def _set(self, kind: str, source: Any) -> int:
        self.sets.append((kind, source))
        return len(self.types) + len(self.sets) - 1


def natural_value(value: Any, type: SqlType) -> Any:
    """A constant as the Python value that `as_py()` would give."""
    if value is None:
        return None
    kind = type.kind
    if kind == "decimal":
        return EXACT.scaleb(decimal.Decimal(value), -type.scale)
    try:
        if kind == "date":
            return dt.date.fromordinal(value + _EPOCH_DAY)
        if kind in TIMESTAMPS and kind in _COVERED:
            moment = _EPOCH + dt.timedelta(microseconds=value * (1_000_000 // PER_SECOND[kind]))
            return moment.replace(tzinfo=dt.UTC) if kind == "timestamptz" else moment
    except (OverflowError, ValueError):
        raise NotCovered from None
    return value


def _column(plan: RowPlan, node: tree.Column) -> Function:
    name = node.name
    return lambda row, k: row[name]


def _constant(plan: RowPlan, node: tree.Constant) -> Function:
    slot = node.slot
    return lambda row, k: k[slot]


# -- comparisons -------------------------------------------------------------------------------------------


def _float_equal(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _float_less(a: float, b: float) -> bool:
    return a < b or (b != b and a == a)


_PLAIN: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FLOAT: dict[str, Callable[[Any, Any], bool]] = {
    "=": _float_equal,
    "<>": lambda a, b: not _float_equal(a, b),
    "<": _float_less,
    "<=": lambda a, b: not _float_less(b, a),
    ">": lambda a, b: _float_less(b, a),
    ">=": lambda a, b: not _float_less(a, b),
}


def _comparer(op: str, type: SqlType) -> Callable[[Any, Any], bool]:
    return _FLOAT[op] if type.kind in FLOATS else _PLAIN[op]


def _compare(plan: RowPlan, node: tree.Compare) -> Function:
    holds = _comparer(node.op, node.left.type)
    left, right = plan._compile(node.left), plan._compile(node.right)
    if isinstance(node.left, tree.Column) and isinstance(node.right, tree.Constant):
        name, slot = node.left.name, node.right.slot

        def against_constant(row: Row, k: Any) -> bool | None:
            a, b = row[name], k[slot]
            return None if a is None or b is None else holds(a, b)

        return against_constant

    def compare(row: Row, k: Any) -> bool | None:
        a, b = left(row, k), right(row, k)
        return None if a is None or b is None else holds(a, b)

    return compare


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


def _and(plan: RowPlan, node: tree.And) -> Function:
    parts = tuple(plan._compile(item) for item in node.items)

    def conjunction(row: Row, k: Any) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(row, k)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return conjunction


def _or(plan: RowPlan, node: tree.Or) -> Function:
    parts = tuple(plan._compile(item) for item in node.items)

    def disjunction(row: Row, k: Any) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(row, k)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return disjunction


def _not(plan: RowPlan, node: tree.Not) -> Function:
    child = plan._compile(node.child)

    def negation(row: Row, k: Any) -> bool | None:
        value = child(row, k)
        return None if value is None else not value

    return negation


def _is_null(plan: RowPlan, node: tree.IsNull) -> Function:
    if isinstance(node.child, tree.Column):  # of any type
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
                raise NotCovered  # Python's case mapping is not DuckDB's
            a, b, c = a.lower(), b.lower(), c.lower()
        parsed = like.parse_pattern(b, c)
        return not parsed.impossible and like.python_regex(parsed).match(a) is not None

    return matches


def _concat(plan: RowPlan, node: tree.Concat) -> Function:
    left, right = plan._compile(node.left), plan._compile(node.right)

    def concat(row: Row, k: Any) -> str | None:
        a, b = left(row, k), right(row, k)
        return None if a is None or b is None else a + b

    return concat


def _call(plan: RowPlan, node: tree.Call) -> Function:
    function = functions.FUNCTIONS[node.name].row
    if function is None:
        raise NotCovered
    apply = function
    arguments = tuple(plan._compile(argument) for argument in node.arguments)

    def call(row: Row, k: Any) -> Any:
        values = [argument(row, k) for argument in arguments]
        return None if None in values else apply(*values)

    return call


# -- numbers -----------------------------------------------------------------------------------------------


def _out_of_range(op: str, type: SqlType) -> ExpressionError:
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


def _arithmetic(plan: RowPlan, node: tree.Arithmetic) -> Function:
    left, right = plan._compile(node.left), plan._compile(node.right)
    op, type = node.op, node.of
    if type.kind == "double":
        apply = _FLOAT_OPS[op]
    elif type.kind in INTEGERS and {node.left.type.kind, node.right.type.kind} <= INTEGERS:
        apply = _checked(_INT_OPS[op], op, type)
    elif type.kind == "decimal" and op in ("+", "-", "*"):
        apply = _decimal_op(op, type)
    else:
        raise NotCovered

    def arithmetic(row: Row, k: Any) -> Any:
        a, b = left(row, k), right(row, k)
        return None if a is None or b is None else apply(a, b)

    return arithmetic


def _checked(apply: Callable[[Any, Any], Any], op: str, type: SqlType) -> Callable[[Any, Any], Any]:
    low, high = INT_RANGE[type.kind]

    def checked(a: int, b: int) -> int | None:
        result: int | None = apply(a, b)
        if result is not None and not low <= result <= high:
            raise _out_of_range(op, type)
        return result

    return checked


def _decimal_op(op: str, type: SqlType) -> Callable[[Any, Any], Any]:
    apply = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[op]
    limit, unit = decimal.Decimal(10) ** (type.width - type.scale), decimal.Decimal(1).scaleb(-type.scale)

    def compute(a: decimal.Decimal, b: decimal.Decimal) -> decimal.Decimal:
        result = apply(a, b)
        if not -limit < result < limit:
            raise _out_of_range(op, type)
        return result.quantize(unit, context=EXACT)

    return compute


def _negate(plan: RowPlan, node: tree.Negate) -> Function:
    child, type = plan._compile(node.child), node.type
    low, high = INT_RANGE.get(type.kind, (None, None))

    def negate(row: Row, k: Any) -> Any:
        value = child(row, k)
        if value is None:
            return None
        if type.kind == "decimal":
            return value.copy_negate() if value else value
        if low is not None and high is not None and not low <= -value <= high:
            raise _out_of_range("-", type)
        return -value

    return negate


def _cast(plan: RowPlan, node: tree.Cast) -> Function:
    if node.lenient:
        raise NotCovered
    child = plan._compile(node.child)
    convert = _converter(node.child.type, node.of)

    def cast(row: Row, k: Any) -> Any:
        value = child(row, k)
        return None if value is None else convert(value)

    return cast


def _converter(source: SqlType, target: SqlType) -> Callable[[Any], Any]:
    kind = target.kind
    if source.kind in INTEGERS:
        if kind in INTEGERS:
            return _range_checked(target)
        simple: dict[str, Callable[[Any], Any]] = {"double": float, "bool": bool, "varchar": str}
        if kind == "float":
            return as_float32
        if kind == "decimal":
            return _to_decimal(target)
        if kind in simple and source.kind != "hugeint":
            return simple[kind]
    if source.kind == "float" and kind == "double":
        return lambda value: value
    if source.kind == "double" and kind == "float":
        return _to_float
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


def _to_float(value: float) -> float:
    narrow = to_float32(value)
    if math.isinf(narrow) and not math.isinf(value):
        raise ExpressionError(f"{value!r} is out of range for FLOAT")
    return narrow


def _to_decimal(target: SqlType) -> Callable[[Any], Any]:
    limit, unit = (
        decimal.Decimal(10) ** (target.width - target.scale),
        decimal.Decimal(1).scaleb(-target.scale),
    )

    def convert(value: Any) -> decimal.Decimal:
        result = decimal.Decimal(value)
        if not -limit < result < limit:
            raise ExpressionError(f"{value} does not fit in {target}")
        return result.quantize(unit, context=EXACT)

    return convert


_COMPILERS: dict[type[tree.Node], Callable[[RowPlan, Any], Function]] = {
    tree.Column: _column,
    tree.Constant: _constant,
    tree.Cast: _cast,
    tree.Compare: _compare,
    tree.Distinct: _distinct,
    tree.And: _and,
    tree.Or: _or,
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
}
