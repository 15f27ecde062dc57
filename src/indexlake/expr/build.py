"""Builds typed nodes from typed nodes: determines the types in which operators and functions compute.

Casts that DuckDB adds implicitly are added explicitly, so evaluators need no type rules.  Meaningless combinations are
refused with an error that names the operands.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from indexlake.display import counted
from indexlake.errors import ExpressionError
from indexlake.expr import overloads, tree
from indexlake.expr.coercion import castable, combine, comparison_type
from indexlake.expr.names import field_place
from indexlake.expr.sqltype import (
    BLOB,
    BOOL,
    DOUBLE,
    FLOATS,
    NESTED_KINDS,
    NULL,
    TIMESTAMPTZ,
    VARCHAR,
    SqlType,
    list_of,
    normal,
    struct_of,
)

if TYPE_CHECKING:
    from indexlake.expr.functions import Function

Casts = tuple[tuple[SqlType, bool], ...]  # each with its target type and whether it is lenient
MOMENT = "moment of the statement"  # the parameter that every expression has


@dataclass(frozen=True, slots=True)
class Slot:
    """How one constant is obtained: a literal value or a parameter, of type `source`, and the casts applied to it."""

    value: Any
    parameter: int | str | None
    source: SqlType
    casts: Casts
    beside: str = ""  # what it is compared with, for errors

    @property
    def target(self) -> SqlType:
        return self.casts[-1][0]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(tree.Node):
    """A literal or parameter whose final type no operator has determined yet; exists only while binding."""

    value: Any
    parameter: int | str | None
    source: SqlType
    casts: Casts = ()

    @property
    def type(self) -> SqlType:
        return self.casts[-1][0] if self.casts else self.source


class Builder:
    """Builds the nodes of one expression and numbers its constants."""

    def __init__(self, text: str, functions: Mapping[str, Function]) -> None:
        self.text = text
        self.functions = functions
        self.slots: list[Slot] = []

    def fail(self, problem: str) -> NoReturn:
        raise ExpressionError(f"{problem} (in `{self.text}`)", text=self.text) from None

    # -- constants and casts -------------------------------------------------------------------------------

    def coerce(self, node: tree.Node, target: SqlType, beside: tree.Node | None = None) -> tree.Node:
        """Return the node as a value of another type: constants are converted at once, anything else gets a cast."""
        made = self.cast(node, target, False)
        if not isinstance(made, Leaf):
            return made
        other = "" if beside is None else described(beside)
        self.slots.append(Slot(made.value, made.parameter, made.source, made.casts, other))
        return tree.Constant(len(self.slots) - 1, target)

    def cast(self, node: tree.Node, target: SqlType, lenient: bool) -> tree.Node:
        """Return a cast that the text asks for."""
        if not castable(node.type, target):
            self.fail(f"there is no cast from {described(node)} to {target}")
        if isinstance(node, Leaf):
            return Leaf(node.value, node.parameter, node.source, (*node.casts, (target, lenient)))
        return node if node.type == target else tree.Cast(node, target, lenient)

    def present(self, type: SqlType) -> tree.Node:
        """Return the moment of the statement."""
        return Leaf(None, MOMENT, TIMESTAMPTZ, () if type == TIMESTAMPTZ else ((type, False),))

    def constant_list(self, key: int | str, type: SqlType) -> tree.ConstantList:
        self.slots.append(Slot(None, key, NULL, ((type, False),)))
        return tree.ConstantList(len(self.slots) - 1, type)

    def truth(self, node: tree.Node) -> tree.Node:
        if node.type.kind in NESTED_KINDS or not castable(node.type, BOOL):
            self.fail(f"{described(node)} is neither true nor false; compare it with something")
        return self.coerce(node, BOOL)

    # -- operators -----------------------------------------------------------------------------------------

    def common(self, left: tree.Node, right: tree.Node, equality: bool, verb: str) -> SqlType:
        type = comparison_type(left.type, right.type, equality)
        if type is None or "nested" in (left.type.kind, right.type.kind):
            self.fail(f"cannot {verb} {described(left)} with {described(right)}; add a cast")
        return normal(type)

    def compare(self, op: str, left: tree.Node, right: tree.Node) -> tree.Node:
        type = self.common(left, right, op in ("=", "<>"), "compare")
        return tree.Compare(op, self.coerce(left, type, beside=right), self.coerce(right, type, beside=left))

    def distinct(self, left: tree.Node, right: tree.Node, negated: bool) -> tree.Node:
        type = self.common(left, right, True, "compare")
        return tree.Distinct(self.coerce(left, type), self.coerce(right, type), negated)

    def between(self, child: tree.Node, low: tree.Node, high: tree.Node) -> tree.Node:
        type = self.common(child, low, False, "compare")
        upper = comparison_type(type, high.type, False)
        if upper is None or upper.kind == "nested":
            self.fail(f"cannot compare {type} with {high.type}; add a cast")
        shared = self.coerce(child, upper)
        return tree.And(
            (
                tree.Compare(">=", shared, self.coerce(low, upper, beside=child)),
                tree.Compare("<=", shared, self.coerce(high, upper, beside=child)),
            )
        )

    def among(self, child: tree.Node, items: Sequence[tree.Node]) -> tree.Node:
        """Return `child in (items)`."""
        type = child.type
        for item in items:
            found = comparison_type(type, item.type, True)
            if found is None or found.kind == "nested":
                self.fail(f"cannot mix {child.type} and {item.type} in one `in` list; add a cast")
            type = found
        type = normal(type)
        value = self.coerce(child, type)
        members = tuple(self.coerce(item, type, beside=child) for item in items)
        if type.kind in NESTED_KINDS or type.kind == "interval":
            return tree.Or(tuple(tree.Compare("=", value, member) for member in members))
        return tree.In(value, members)

    def among_parameter(self, child: tree.Node, key: int | str, elements: list[SqlType]) -> tree.Node:
        """Return `child in $list`."""
        type = child.type
        for element in elements:
            found = comparison_type(type, element, True)
            if found is None or found.kind == "nested":
                self.fail(f"cannot look for {child.type} in parameter ${key}, a list of {element}")
            type = found
        type = normal(type)
        if type.kind in NESTED_KINDS or type.kind == "interval":
            return self.call("list_contains", [Leaf(None, key, list_of(type)), child])
        return tree.InList(self.coerce(child, type), self.constant_list(key, type))

    def negation(self, node: tree.Node) -> tree.Node:
        if node.type.kind == "null":
            return node
        chosen = overloads.choose(overloads.NEGATION, (node.type,))
        if chosen is None:
            self.fail(f"`-` is not defined for {node.type}; add a cast")
        target = chosen[0][0]
        return tree.Negate(self.coerce(node, normal(node.type) if target.kind == "decimal" else target))

    def arithmetic(self, op: str, left: tree.Node, right: tree.Node) -> tree.Node:
        if left.type.kind == "null" and right.type.kind == "null":
            return left
        for side, other in ((left, right), (right, left)):
            if side.type.kind == "null" and other.type.kind == "decimal":
                return self.coerce(Leaf(None, None, NULL), other.type)
        types = overloads.arithmetic(op, left.type, right.type)
        if types is None:
            self.fail(f"`{op}` is not defined for {described(left)} and {described(right)}; add a cast")
        divisor = self.coerce(right, types[1])
        if op == "%" and types[2] == DOUBLE and not {left.type.kind, right.type.kind} & FLOATS:
            # Decimals too wide for DECIMAL are computed as DOUBLE, but a zero divisor still gives null.
            zero = tree.Compare("=", divisor, self.coerce(Leaf(0.0, None, DOUBLE), DOUBLE))
            divisor = tree.Case(((zero, self.coerce(Leaf(None, None, NULL), DOUBLE)),), divisor, DOUBLE)
        return tree.Arithmetic(op, self.coerce(left, types[0]), divisor, types[2])

    def concat(self, left: tree.Node, right: tree.Node) -> tree.Node:
        """Return `left || right`: text of anything, or lists."""
        sides = (left, right)
        if any(side.type.kind in ("list", "array") for side in sides):
            if any(side.type.kind == "null" for side in sides):
                return Leaf(None, None, NULL)
            both = self.call("list_concat", sides)
            missing = [tree.IsNull(self.coerce(side, normal(side.type))) for side in sides]
            return self.case([(tree.Or(tuple(missing)), Leaf(None, None, NULL))], both)
        for side in sides:
            if side.type.kind == "nested" or side.type == BLOB:
                self.fail(f"`||` is not supported for {side.type}")
        return tree.Concat(self.coerce(left, VARCHAR), self.coerce(right, VARCHAR))

    def case(self, branches: Sequence[tuple[tree.Node, tree.Node]], default: tree.Node) -> tree.Node:
        type = default.type
        for _, value in branches:
            found = combine(type, value.type)
            if found is None or found.kind == "nested":
                self.fail(f"the branches of `case` are {type} and {value.type}; add a cast")
            type = found
        type = normal(type)
        pairs = tuple((condition, self.coerce(value, type)) for condition, value in branches)
        return tree.Case(pairs, self.coerce(default, type), type)

    # -- parts of nested values ----------------------------------------------------------------------------

    def field(self, node: tree.Node, name: str) -> tree.Node:
        type = node.type
        if type.kind != "struct":
            self.fail(f'{described(node)} is not a struct and has no field "{name}"')
        place = field_place(name, type.names)
        if place is None:
            near = difflib.get_close_matches(name, type.names, 1, 0.5)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            self.fail(f'{described(node)} has no field "{name}"{hint} The fields are: {", ".join(type.names)}')
        if isinstance(node, Leaf):
            node = self.coerce(node, normal(type))
        return tree.Field(node, type.names[place], type.parts[place])

    def element(self, node: tree.Node, index: tree.Node) -> tree.Node:
        """Return `node[index]`."""
        if node.type.kind == "struct":
            return self.call("struct_extract", [node, index])
        return self.call("map_extract_value" if node.type.kind == "map" else "list_extract", [node, index])

    def struct(self, names: Sequence[str], values: Sequence[tree.Node]) -> tree.Node:
        if len({name.lower() for name in names}) < len(names):
            self.fail("a struct has two fields with the same name")
        types = tuple(normal(value.type) for value in values)
        bound = tuple(self.coerce(value, type) for value, type in zip(values, types, strict=True))
        return tree.Struct(bound, struct_of(tuple(names), types))

    # -- functions -----------------------------------------------------------------------------------------

    def call(self, name: str, arguments: Sequence[tree.Node]) -> tree.Node:
        function = self.functions.get(name)
        if function is None:
            near = difflib.get_close_matches(name, self.functions, 1, 0.7)
            hint = f"; did you mean {near[0]}()?" if near else ""
            self.fail(f"there is no function {name}(){hint}")
        least, most = function.arities()
        if len(arguments) < least or (most is not None and len(arguments) > most):
            self.fail(f"{name}() takes {function.takes}; {counted(len(arguments), 'argument')} given")
        if function.expand is not None:
            expanded = function.expand(self, list(arguments))
            if expanded is not None:
                return expanded
        operands = tuple(argument.type for argument in arguments)
        chosen = function.choose(operands, tuple(_literal(argument) for argument in arguments))
        if chosen is None:
            self.fail(self._mismatch(name, function, arguments))
        types, result = chosen
        bound = tuple(self.coerce(argument, type) for argument, type in zip(arguments, types, strict=True))
        return tree.Call(function.name, bound, result)

    def _mismatch(self, name: str, function: Function, arguments: Sequence[tree.Node]) -> str:
        given = ", ".join(str(argument.type) for argument in arguments)
        for place, argument in enumerate(arguments):
            if not function.accepts(place, argument.type, len(arguments)):
                which = f"argument {place + 1} is {described(argument)}"
                return f"{name}({given}) is not defined: {which}; {name} takes {function.takes}"
        return f"{name}({given}) is not defined; {name} takes {function.takes}"


def _literal(node: tree.Node) -> Any:
    """Return the value of a literal, which may decide on types, or None for anything else."""
    return node.value if isinstance(node, Leaf) and node.parameter is None else None


_SHOWN = ("int_literal", "string_literal", "bool", "double")


def described(node: tree.Node) -> str:
    """Return how errors refer to a node."""
    if isinstance(node, tree.Column):
        return f'column "{node.name}" ({node.type})'
    if isinstance(node, Leaf):
        if node.parameter is not None and node.parameter != MOMENT:
            return f"parameter ${node.parameter} ({normal(node.type)})"
        return f"{node.value!r} ({normal(node.type)})" if node.source.kind in _SHOWN else str(normal(node.type))
    return str(node.type)
