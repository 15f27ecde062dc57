"""Parts of an expression without columns become constants, so that pruning, keys and pushdowns see their values.

`day >= current_date - interval 7 day` is then a comparison of a column with a constant.  A part that always raises
stays as it is: it raises when, and only where, a row needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from indexlake.expr import tree
from indexlake.expr.build import Slot
from indexlake.expr.sqltype import SqlType


@dataclass(frozen=True, slots=True)
class Computed:
    """A constant that is the value of a tree without columns."""

    node: tree.Node

    @property
    def target(self) -> SqlType:
        return self.node.type

    @property
    def parameter(self) -> None:
        return None


def fold(root: tree.Node, slots: list[Slot | Computed], raises: Callable[[tree.Node], bool]) -> tree.Node:
    """The tree with its largest parts without columns as constants, which are added to `slots`.

    `raises` says whether a part without columns and parameters has no value.
    """
    constant = tree.constant_nodes(root)

    def visit(node: tree.Node) -> tree.Node:
        if isinstance(node, (tree.Constant, tree.ConstantList, tree.Column)):
            return node
        if id(node) in constant and not raises(node):
            slots.append(Computed(node))
            return tree.Constant(len(slots) - 1, node.type)
        given = {field.name: getattr(node, field.name) for field in fields(node)}
        made = {name: inside(value) for name, value in given.items()}
        return node if all(made[name] is value for name, value in given.items()) else replace(node, **made)

    done: dict[int, tree.Node] = {}

    def inside(value: Any) -> Any:
        if isinstance(value, tree.Node):
            if id(value) not in done:  # shared parts stay shared
                done[id(value)] = visit(value)
            return done[id(value)]
        if not isinstance(value, tuple):
            return value
        items = tuple(inside(item) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items

    folded: tree.Node = inside(root)
    return folded


def varies(node: tree.Node, slots: Sequence[Slot | Computed]) -> bool:
    """Whether the value of a tree without columns depends on parameters or on the moment."""
    return any(
        slots[part.slot].parameter is not None
        for part in tree.walk(node)
        if isinstance(part, (tree.Constant, tree.ConstantList))
    )
