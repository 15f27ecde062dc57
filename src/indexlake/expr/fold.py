"""Turns parts of an expression without columns into constants, so that pruning, keys and pushdowns see their values.

`day >= current_date - interval 7 day` then compares a column with a constant.  A part that always raises is left alone:
it raises when, and only when, a row needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """Return the tree with its largest column-free parts replaced by constants, which are added to `slots`.

    `raises` tells whether evaluating a part without columns and parameters raises an error.
    """
    constant = tree.constant_nodes(root)

    def visit(node: tree.Node) -> tree.Node:
        if isinstance(node, (tree.Constant, tree.ConstantList, tree.Column)):
            return node
        if id(node) in constant and not raises(node):
            slots.append(Computed(node))
            return tree.Constant(len(slots) - 1, node.type)
        return tree.changed(node, once)

    done: dict[int, tree.Node] = {}

    def once(node: tree.Node) -> tree.Node:
        if id(node) not in done:  # so that shared parts stay shared
            done[id(node)] = visit(node)
        return done[id(node)]

    return once(root)


def varies(node: tree.Node, slots: Sequence[Slot | Computed]) -> bool:
    """Return whether the value of a tree without columns depends on parameters or on the moment."""
    return any(
        slots[part.slot].parameter is not None
        for part in tree.walk(node)
        if isinstance(part, (tree.Constant, tree.ConstantList))
    )
