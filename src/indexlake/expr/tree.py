"""The typed tree of a bound expression: immutable nodes, each with its SQL type.

The operands of a node already have the types in which the node computes (the binder adds the casts), so evaluators need
no type rules.  Constants are numbered: their values belong to one `Bound`, the tree is shared by all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from indexlake.expr.sqltype import BOOL, VARCHAR, SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Base of all nodes; compared by identity.  `type` is the type of the value, a field in nodes that store it."""

    if TYPE_CHECKING:

        @property
        def type(self) -> SqlType: ...

    def fields(self) -> dict[str, Any]:
        names: tuple[str, ...] = self.__match_args__
        return {name: getattr(self, name) for name in names}

    def children(self) -> Iterator[Node]:
        return _nodes(tuple(self.fields().values()))


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


@dataclass(frozen=True, slots=True, eq=False)
class Column(Node):
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    """A value that is known once the parameters are; `slot` is its number."""

    slot: int
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class ConstantList(Node):
    """A list parameter; the type is that of its elements."""

    slot: int
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Node):
    child: Node
    type: SqlType
    lenient: bool = False  # try_cast: null instead of an error


@dataclass(frozen=True, slots=True, eq=False)
class Predicate(Node):
    """Base of the nodes that are true, false or unknown."""

    @property
    def type(self) -> SqlType:
        return BOOL


@dataclass(frozen=True, slots=True, eq=False)
class Compare(Predicate):
    op: str  # = <> < <= > >=
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(Predicate):
    left: Node
    right: Node
    negated: bool  # is not distinct from


@dataclass(frozen=True, slots=True, eq=False)
class And(Predicate):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or(Predicate):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(Predicate):
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class IsNull(Predicate):
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class IsTruth(Predicate):
    """`child is true` / `child is false`."""

    child: Node
    truth: bool


@dataclass(frozen=True, slots=True, eq=False)
class In(Predicate):
    """`child in (items)`; unknown if only a null among the items could match."""

    child: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class InList(Predicate):
    """`child in $list`: DuckDB searches the value among the elements; nulls among them never match."""

    child: Node
    items: ConstantList


@dataclass(frozen=True, slots=True, eq=False)
class Like(Predicate):
    child: Node
    pattern: Node
    escape: Node | None
    insensitive: bool


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic(Node):
    op: str  # + - * / // %
    left: Node
    right: Node
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Negate(Node):
    child: Node

    @property
    def type(self) -> SqlType:
        return self.child.type


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Node):
    left: Node
    right: Node

    @property
    def type(self) -> SqlType:
        return VARCHAR


@dataclass(frozen=True, slots=True, eq=False)
class Case(Node):
    branches: tuple[tuple[Node, Node], ...]
    default: Node
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Field(Node):
    child: Node
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Struct(Node):
    """A struct made of the values of its fields."""

    values: tuple[Node, ...]
    type: SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Call(Node):
    """A call of one of the functions in functions/."""

    name: str
    arguments: tuple[Node, ...]
    type: SqlType


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children():
        yield from walk(child)


def constant_nodes(root: Node) -> frozenset[int]:
    """Return the ids of all nodes of a tree that have no column below them."""
    found: set[int] = set()

    def visit(node: Node) -> bool:
        constant = [visit(child) for child in node.children()]
        if isinstance(node, Column) or not all(constant):
            return False
        found.add(id(node))
        return True

    visit(root)
    return frozenset(found)


def changed(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with changed children, or the node itself if none has changed."""
    given = node.fields()
    made = {name: _changed(value, change) for name, value in given.items()}
    return node if all(made[name] is value for name, value in given.items()) else replace(node, **made)


def _changed(value: Any, change: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return change(value)
    if not isinstance(value, tuple):
        return value
    items = tuple(_changed(item, change) for item in value)
    return value if all(new is old for new, old in zip(items, value, strict=True)) else items


def renamed(node: Node, names: dict[str, str]) -> Node:
    """Return the tree with other column names."""
    if isinstance(node, Column):
        return Column(names.get(node.name, node.name), node.type)
    return changed(node, lambda child: renamed(child, names))
