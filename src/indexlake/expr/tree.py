"""The typed tree of a bound expression: immutable nodes, every one with its SQL type.

Operands of a node already have the types that the node computes in (the binder adds the casts), so evaluators
need no type rules.  Constants are numbered: their values belong to one `Bound`, the tree to all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from indexlake.expr.sqltype import BOOL, VARCHAR, SqlType


@dataclass(frozen=True, slots=True, eq=False)
class Node(ABC):
    """Base of all nodes; compared by identity."""

    @property
    @abstractmethod
    def type(self) -> SqlType:
        """Of the value that the node gives."""

    def children(self) -> Iterator[Node]:
        for name in _field_names(self.__class__):
            yield from _nodes(getattr(self, name))


_names: dict[type[Node], tuple[str, ...]] = {}


def _field_names(kind: type[Node]) -> tuple[str, ...]:
    found = _names.get(kind)
    if found is None:
        found = _names[kind] = tuple(field.name for field in fields(kind))
    return found


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


@dataclass(frozen=True, slots=True, eq=False)
class Column(Node):
    name: str
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    """A value known when the parameters are: `slot` numbers it."""

    slot: int
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


@dataclass(frozen=True, slots=True, eq=False)
class ConstantList(Node):
    """A list parameter; the type is that of its elements."""

    slot: int
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Node):
    child: Node
    of: SqlType
    lenient: bool = False  # try_cast: null instead of an error

    @property
    def type(self) -> SqlType:
        return self.of


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
    """`child in (items)`, unknown where a null among the items may be the match."""

    child: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class InList(Predicate):
    """`child in $list`: DuckDB looks for the value among the elements; nulls among them never match."""

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
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


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
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


@dataclass(frozen=True, slots=True, eq=False)
class Field(Node):
    """One field of a struct."""

    child: Node
    name: str
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


@dataclass(frozen=True, slots=True, eq=False)
class Struct(Node):
    """A struct of its fields' values."""

    values: tuple[Node, ...]
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


@dataclass(frozen=True, slots=True, eq=False)
class Call(Node):
    """A function of the table in functions/."""

    name: str
    arguments: tuple[Node, ...]
    of: SqlType

    @property
    def type(self) -> SqlType:
        return self.of


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children():
        yield from walk(child)


def constant_nodes(root: Node) -> frozenset[int]:
    """The ids of all nodes of a tree under which there is no column."""
    found: set[int] = set()

    def visit(node: Node) -> bool:
        constant = [visit(child) for child in node.children()]
        if isinstance(node, Column) or not all(constant):
            return False
        found.add(id(node))
        return True

    visit(root)
    return frozenset(found)


def renamed(node: Node, names: dict[str, str]) -> Node:
    """The same tree with other column names."""
    if isinstance(node, Column):
        return Column(names.get(node.name, node.name), node.of)
    return replace(node, **{field.name: _renamed(getattr(node, field.name), names) for field in fields(node)})


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Node):
        return renamed(value, names)
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    return value
