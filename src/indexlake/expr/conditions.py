"""From a bound predicate to its necessary conditions (test.py).

The condition for a node to be true and the condition for it to be false are separate; `not` swaps them, so unknown is
never mistaken for either.  Each result says whether it is exact, that is, satisfied by no other rows.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from indexlake.errors import IndexLakeError
from indexlake.expr import geometries, like, tree
from indexlake.expr.compare import NEGATED
from indexlake.expr.constants import EXACT
from indexlake.expr.functions import FUNCTIONS
from indexlake.expr.functions.space import MEETING
from indexlake.expr.infinite import is_infinite
from indexlake.expr.narrow import Narrowed, bounds_tests, members, narrow, sides
from indexlake.expr.sqltype import FLOATS, INT_RANGE, PER_SECOND, PER_UNIT, SqlType, from_arrow
from indexlake.expr.test import ALWAYS, NEVER, ColumnTest, Op, Test, all_of, any_of


class Condition(NamedTuple):
    """A test, and whether it is exact: satisfied by no other rows than those it was made for."""

    test: Test
    exact: bool


UNKNOWN = Condition(ALWAYS, False)
IMPOSSIBLE = Condition(NEVER, True)
CERTAIN = Condition(ALWAYS, True)


class Source(Protocol):
    """The parts of a Bound that conditions need."""

    values: tuple[Any, ...]

    def narrowed(self, node: tree.Compare) -> Narrowed | None: ...
    def is_constant(self, node: tree.Node) -> bool: ...
    def truth_of(self, node: tree.Node) -> bool | None: ...
    def column_type(self, name: str) -> pa.DataType: ...


def condition(node: tree.Node, wanted: bool, source: Source) -> Condition:
    """Return a condition that holds for every row for which the node is `wanted`."""
    if source.is_constant(node):
        try:
            return CERTAIN if source.truth_of(node) is wanted else IMPOSSIBLE
        except IndexLakeError:
            return UNKNOWN
    rule = _RULES.get(node.__class__)
    return _not_null(node) if rule is None else rule(node, wanted, source)


def _column(node: tree.Column, wanted: bool, source: Source) -> Condition:
    return Condition(ColumnTest(node.name, "=", (wanted,)), True) if node.type.kind == "bool" else _not_null(node)


def _not(node: tree.Not, wanted: bool, source: Source) -> Condition:
    return condition(node.child, not wanted, source)


def _junction(node: tree.And | tree.Or, wanted: bool, source: Source) -> Condition:
    return _joined([condition(item, wanted, source) for item in node.items], isinstance(node, tree.And) is wanted)


def _joined(parts: list[Condition], every: bool) -> Condition:
    """Return the conjunction (if ``every``) or the disjunction of the conditions."""
    tests = [part.test for part in parts]
    return Condition(all_of(tests) if every else any_of(tests), all(part.exact for part in parts))


def _is_null(node: tree.IsNull, wanted: bool, source: Source) -> Condition:
    if isinstance(node.child, tree.Column):
        return Condition(ColumnTest(node.child.name, "is null" if wanted else "is not null"), True)
    return UNKNOWN if wanted else _not_null(node.child)


def _is_truth(node: tree.IsTruth, wanted: bool, source: Source) -> Condition:
    return condition(node.child, node.truth, source) if wanted else UNKNOWN


def _compare(node: tree.Compare, wanted: bool, source: Source) -> Condition:
    turned = sides(node)
    if turned is None:
        return _not_null(node)
    side, op, constant = turned
    value = source.values[constant.slot]
    if value is None:
        return IMPOSSIBLE
    if not wanted:
        op = NEGATED[op]
    return _against(side, op, value, source.narrowed(node), wanted, source)


def _against(
    side: tree.Node, op: str, value: Any, narrowed: Narrowed | None, wanted: bool, source: Source
) -> Condition:
    if isinstance(side, tree.Column):
        return column_tests(side, op, value, source)
    if narrowed is not None and isinstance(narrowed.node, tree.Column):
        column = narrowed.node
        if not narrowed.tests:
            return Condition(ColumnTest(column.name, "is not null"), True) if narrowed.every is wanted else IMPOSSIBLE
        tests = [(op if wanted else NEGATED[op], constant) for op, constant in narrowed.tests]
        return _joined([column_tests(column, *each, source) for each in tests], narrowed.every is wanted)
    if isinstance(side, tree.Cast) and isinstance(side.child, tree.Column) and not side.lenient:
        loose = _around(side.child.type, side.type, op, value)
        if loose is not None:
            parts = [column_tests(side.child, each, constant, source) for each, constant in loose]
            return Condition(all_of([part.test for part in parts]), False)
    return _not_null(side)


def column_tests(column: tree.Column, op: str, value: Any, source: Source) -> Condition:
    """Return `column op value` (a constant of the column's SQL type) as tests with values of its Arrow type."""
    type, name = source.column_type(column.name), column.name
    if pa.types.is_dictionary(type):
        type = type.value_type
    if op == "<>":
        either = _joined([column_tests(column, each, value, source) for each in ("<", ">")], False)
        return either if either.exact else Condition(ColumnTest(name, "is not null"), False)
    stored = _stored(type, column.type, op, value)
    if stored is None:
        return Condition(ColumnTest(name, "is not null"), False)
    tests, every = stored
    if not tests:
        return Condition(ColumnTest(name, "is not null"), True) if every else IMPOSSIBLE
    made = [ColumnTest(name, each, (constant,)) for each, constant in tests]  # type: ignore[arg-type]
    return Condition(all_of(list(made)), True)


def equalities(node: tree.Node | None, schema: pa.Schema) -> tuple[tuple[str, int], ...]:
    """Return columns and the slots of constants they must equal, as far as stated directly: for point look-ups."""
    if isinstance(node, tree.And):
        return tuple(found for item in node.items for found in equalities(item, schema))
    turned = sides(node) if isinstance(node, tree.Compare) and node.op == "=" else None
    if turned is None or not isinstance(turned[0], tree.Column):
        return ()
    name = turned[0].name
    return ((name, turned[2].slot),) if _as_stored(schema.field(name).type) else ()


def _as_stored(type: pa.DataType) -> bool:
    """Return whether a constant of the SQL type is also a value of the Arrow type without conversion."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    kind = from_arrow(type).kind
    others = (pa.float32(), pa.float64(), pa.date32())
    return kind in ("bool", "varchar", "uuid") or pa.types.is_integer(type) or type in others


def _stored(type: pa.DataType, sql: SqlType, op: str, value: Any) -> tuple[tuple[tuple[str, Any], ...], bool] | None:
    """Convert a constant of the SQL type to the form and unit of the Arrow type; None if that is not possible."""
    same = (((op, value),), True)
    kind = sql.kind
    if _as_stored(type):
        return same
    if kind == "hugeint":
        return ((op, decimal.Decimal(value)),), True
    if kind == "decimal":
        if type.scale < 0:
            return None
        return ((op, EXACT.scaleb(decimal.Decimal(value), -sql.scale)),), True
    if kind == "blob":
        if not pa.types.is_fixed_size_binary(type) or len(value) == type.byte_width:
            return same
        return ((), False) if op == "=" else None
    if kind in PER_SECOND and kind != "date":
        factor, rest = divmod(PER_SECOND[kind], PER_UNIT[type.unit])
        if rest or (factor > 1 and is_infinite(value, sql)):
            return None
        low, high = INT_RANGE["int32" if pa.types.is_time32(type) else "int64"]
        first, last = -(-value // factor), value // factor
        return bounds_tests(op, None if first > high else max(first, low), None if last < low else min(last, high))
    return None


def _around(source: SqlType, target: SqlType, op: str, value: float) -> list[tuple[str, Any]] | None:
    """Return bounds with some slack for a decimal that is compared as a float."""
    if source.kind != "decimal" or target.kind not in FLOATS or not math.isfinite(value):
        return None
    slack = abs(Fraction(value)) / 2 ** (48 if target.kind == "double" else 20)
    limit = 10**source.width - 1
    low = math.floor((Fraction(value) - slack) * 10**source.scale) - 1
    high = math.ceil((Fraction(value) + slack) * 10**source.scale) + 1
    bounds: list[tuple[str, Any]] = []
    if op in ("=", ">", ">=") and low > -limit:
        bounds.append((">=", min(low, limit)))
    if op in ("=", "<", "<=") and high < limit:
        bounds.append(("<=", max(high, -limit)))
    return bounds or None


def _distinct(node: tree.Distinct, wanted: bool, source: Source) -> Condition:
    turned = sides(tree.Compare("=", node.left, node.right))
    if turned is None:
        return UNKNOWN
    side, _, constant = turned
    value = source.values[constant.slot]
    same = node.negated is wanted  # whether the row must be equal, with null counting as a value
    if value is None:
        return _is_null(tree.IsNull(side), same, source)
    if not same:
        return UNKNOWN
    return _equal(side, value, source)


def _in(node: tree.In, wanted: bool, source: Source) -> Condition:
    if not all(isinstance(item, tree.Constant) for item in node.items):
        return _not_null(node.child)
    values = [source.values[item.slot] for item in node.items if isinstance(item, tree.Constant)]
    present = [value for value in values if value is not None]
    if not wanted and len(present) < len(values):
        return IMPOSSIBLE
    return _among(node.child, present, wanted, source)


def _in_list(node: tree.InList, wanted: bool, source: Source) -> Condition:
    return _among(node.child, list(source.values[node.items.slot]), wanted, source)


def _among(child: tree.Node, values: list[Any], wanted: bool, source: Source) -> Condition:
    if not wanted:
        return _not_null(child)
    if not values:
        return IMPOSSIBLE
    found = members(child, list(dict.fromkeys(values)))
    if isinstance(found.node, tree.Column) and _as_stored(source.column_type(found.node.name)):
        if not found.values:
            return IMPOSSIBLE
        op: Op = "=" if len(found.values) == 1 else "in"
        return Condition(ColumnTest(found.node.name, op, tuple(found.values)), True)
    parts = [_equal(child, value, source) for value in dict.fromkeys(values)]
    singles: dict[str, list[Any]] = {}
    others: list[Test] = []
    for part in parts:
        if isinstance(part.test, ColumnTest) and part.test.op == "=":
            singles.setdefault(part.test.column, []).append(part.test.values[0])
        else:
            others.append(part.test)
    tests: list[Test] = [
        ColumnTest(name, "=" if len(each) == 1 else "in", tuple(each)) for name, each in singles.items()
    ]
    return Condition(any_of(tests + others), all(part.exact for part in parts))


def _equal(child: tree.Node, value: Any, source: Source) -> Condition:
    return _against(child, "=", value, narrow(child, "=", value), True, source)


def _like(node: tree.Like, wanted: bool, source: Source) -> Condition:
    if not isinstance(node.pattern, tree.Constant) or not isinstance(node.escape, (tree.Constant, type(None))):
        return _not_null(node)
    pattern = source.values[node.pattern.slot]
    escape = "" if node.escape is None else source.values[node.escape.slot]
    if pattern is None or escape is None:
        return IMPOSSIBLE
    try:
        parsed = like.parse_pattern(pattern, escape)
    except IndexLakeError:
        return UNKNOWN
    if not isinstance(node.child, tree.Column) or not wanted or node.insensitive:
        return _not_null(node.child)
    if parsed.impossible:
        return IMPOSSIBLE
    if parsed.exact is not None:
        return column_tests(node.child, "=", parsed.exact, source)
    if not parsed.prefix:
        return _not_null(node.child)
    parts = [column_tests(node.child, ">=", parsed.prefix, source)]
    after = successor(parsed.prefix)
    if after is not None:
        parts.append(column_tests(node.child, "<", after, source))
    kinds = tuple(kind for kind, _ in parsed.parts)
    return Condition(all_of([part.test for part in parts]), kinds == ("text", like.ANY))


def successor(prefix: str) -> str | None:
    """Return the least text greater than every text with this prefix, or None if there is none."""
    for end in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[end]) + 1
        if code == 0xD800:
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[:end] + chr(code)
    return None


def _call(node: tree.Call, wanted: bool, source: Source) -> Condition:
    if wanted and node.name == "list_contains":
        return _list_contains(node, source)
    return _near(node, source) if wanted and node.name in MEETING else _not_null(node)


def _near(node: tree.Call, source: Source) -> Condition:
    """Return the condition that the column's box meets the constant geometry's, widened by the distance."""
    first, second, *distance = node.arguments
    column, *constants = (first, second, *distance) if isinstance(first, tree.Column) else (second, first, *distance)
    slots = [part.slot for part in constants if isinstance(part, tree.Constant)]
    if not isinstance(column, tree.Column) or len(slots) < len(constants):
        return _not_null(node)
    values = [source.values[slot] for slot in slots]
    if None in values:
        return IMPOSSIBLE
    try:
        box = geometries.box_of(values[0])
    except IndexLakeError:  # the row that needs it will raise
        return _not_null(node)
    if box is None or not all(reach >= 0 for reach in values[1:]):
        return IMPOSSIBLE
    if not all(map(math.isfinite, box)):
        return _not_null(node)
    for reach in values[1:]:
        box = geometries.widened(box, reach)
    return Condition(ColumnTest(column.name, "meets", box), False)


def _list_contains(node: tree.Call, source: Source) -> Condition:
    """Return the condition for `list_contains(column, constant)`, if elements are compared as they are stored."""
    lists, sought = node.arguments
    if isinstance(lists, tree.Cast) and lists.type.parts == lists.child.type.parts:
        lists = lists.child  # from an array to a list
    if not isinstance(lists, tree.Column) or not isinstance(sought, tree.Constant):
        return _not_null(node)
    value = source.values[sought.slot]
    if value is None:
        return IMPOSSIBLE
    element = source.column_type(lists.name).value_type
    stored = _stored(element, sought.type, "=", value) if from_arrow(element) == sought.type else None
    if stored is None:
        return _not_null(node)
    tests, _ = stored
    if not tests:
        return IMPOSSIBLE
    return Condition(ColumnTest(lists.name, "contains", (tests[0][1],)), False)


_STRICT = (tree.Cast, tree.Negate, tree.Arithmetic, tree.Concat, tree.Field, tree.Compare, tree.Like)


def _not_null(node: tree.Node) -> Condition:
    """Return only that those columns are not null that would make the node null."""
    names: dict[str, None] = {}
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, tree.Column):
            names[part.name] = None
        elif isinstance(part, _STRICT) or (isinstance(part, tree.Call) and FUNCTIONS[part.name].strict):
            pending.extend(part.children())
        elif isinstance(part, (tree.In, tree.InList)):
            pending.append(part.child)
    return Condition(all_of([ColumnTest(name, "is not null") for name in names]), False)


_RULES: dict[type[tree.Node], Callable[[Any, bool, Source], Condition]] = {
    tree.Column: _column,
    tree.Not: _not,
    tree.And: _junction,
    tree.Or: _junction,
    tree.IsNull: _is_null,
    tree.IsTruth: _is_truth,
    tree.Compare: _compare,
    tree.Distinct: _distinct,
    tree.In: _in,
    tree.InList: _in_list,
    tree.Like: _like,
    tree.Call: _call,
    tree.Case: lambda node, wanted, source: UNKNOWN,
}
