"""The Arrow evaluator, which is the authoritative one.

Evaluates a typed tree over one record batch with SQL's three-valued logic.  Works on whole columns; a value is an Arrow
array of the batch's length or, if it is the same for all rows, a scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.arrow.buffers import array_around, truths
from indexlake.arrow.values import FALSE, UNKNOWN, scalar_of
from indexlake.errors import ExpressionError
from indexlake.expr import arithmetic, casts, fallback, functions, like, tree
from indexlake.expr.broadcast import full
from indexlake.expr.compare import always, compare, distinct, is_in
from indexlake.expr.constants import NotCovered
from indexlake.expr.infinite import holds_infinite
from indexlake.expr.narrow import Members, Narrowed
from indexlake.expr.sqltype import FLOATS, to_arrow

Value = Any  # pa.Array | pa.Scalar


class Constants(Protocol):
    """The values of the constants of one Bound."""

    def scalar(self, slot: int) -> pa.Scalar: ...
    def members(self, node: tree.Node, child: tree.Node, source: int | list[int]) -> tuple[Members, pa.Array]: ...
    def narrowed(self, node: tree.Compare) -> Narrowed | None: ...


class Evaluation:
    """One evaluation of a tree over one batch.  Shared subtrees are computed once."""

    def __init__(self, rows: int, column: Callable[[str], pa.Array], constants: Constants) -> None:
        self.rows = rows
        self.column = column
        self.constants = constants
        self.done: dict[int | str, Value] = {}

    @classmethod
    def of(cls, batch: pa.RecordBatch, constants: Constants) -> Evaluation:
        return cls(batch.num_rows, batch.column, constants)

    def among(self, where: np.ndarray[Any, Any]) -> Evaluation:
        """Return the same evaluation for some of the rows only."""
        indices = array_around(where)
        return Evaluation(len(where), lambda name: self.done[name].take(indices), self.constants)

    def array(self, node: tree.Node) -> pa.Array:
        """Return the value of a node as an array of the batch's length."""
        value = self.value(node)
        return full(value, to_arrow(node.type), self.rows) if isinstance(value, pa.Scalar) else value

    def value(self, node: tree.Node) -> Value:
        key = id(node)
        found = self.done.get(key)
        if found is None:
            try:
                found = _EVALUATORS[node.__class__](self, node)
            except pa.ArrowException as error:
                raise ExpressionError(f"{_what(node)}: {error}") from None
            if isinstance(found, pa.ChunkedArray):
                found = found.combine_chunks()
            self.done[key] = found
        return found


def _what(node: tree.Node) -> str:
    if isinstance(node, tree.Arithmetic):
        return f"the result of `{node.op}` is out of range for {node.type}"
    if isinstance(node, tree.Negate):
        return f"the result of `-` is out of range for {node.type}"
    return f"cannot evaluate {type(node).__name__.lower()} in {node.type}"


def _column(run: Evaluation, node: tree.Column) -> Value:
    loaded = run.done.get(node.name)
    if loaded is None:
        loaded = run.done[node.name] = casts.load(run.column(node.name), node.type)
    return loaded


def _cast(run: Evaluation, node: tree.Cast) -> Value:
    return casts.cast(run.value(node.child), node.child.type, node.type, node.lenient)


def _compare(run: Evaluation, node: tree.Compare) -> Value:
    narrowed = run.constants.narrowed(node)
    if narrowed is None:
        return compare(node.op, run.value(node.left), run.value(node.right), node.left.type)
    column = run.value(narrowed.node)
    results = [compare(op, column, narrowed.scalar(value), narrowed.node.type) for op, value in narrowed.tests]
    if not results:
        return always(column, narrowed.every)
    return reduce(pc.and_ if narrowed.every else pc.or_, results)


def _is_truth(run: Evaluation, node: tree.IsTruth) -> Value:
    value = run.value(node.child)
    return pc.fill_null(value if node.truth else pc.invert(value), FALSE)


def _in(run: Evaluation, node: tree.In) -> Value:
    slots = [item.slot for item in node.items if isinstance(item, tree.Constant)]
    members, items = run.constants.members(node, node.child, slots)
    unknown: Value = UNKNOWN if members.null else FALSE
    child = run.array(members.node)
    result = pc.or_kleene(_among(child, items, members.node), unknown)
    others = [item for item in node.items if not isinstance(item, tree.Constant)]
    for other in others:
        result = pc.or_kleene(result, compare("=", run.array(node.child), run.value(other), node.child.type))
    # If the value is null, the result is unknown whatever the list contains.
    return pc.if_else(pc.is_valid(child), result, UNKNOWN)


def _in_list(run: Evaluation, node: tree.InList) -> Value:
    members, items = run.constants.members(node, node.child, node.items.slot)
    return _among(run.array(members.node), items, members.node)


def _among(values: pa.Array, items: pa.Array, node: tree.Node) -> Value:
    return is_in(values, items, node.type) if len(items) else always(values, False)


def _like(run: Evaluation, node: tree.Like) -> Value:
    values = run.array(node.child)
    pattern = run.value(node.pattern)
    escape = scalar_of("", pa.string()) if node.escape is None else run.value(node.escape)
    if not isinstance(escape, pa.Scalar):
        raise ExpressionError("the escape of `like` must be a constant")
    if not escape.is_valid:
        return UNKNOWN
    if node.insensitive:
        values, pattern = pc.utf8_lower(values), pc.utf8_lower(pattern)
        escape = pc.utf8_lower(escape)
    if isinstance(pattern, pa.Scalar):
        if not pattern.is_valid:
            return UNKNOWN
        return like.match(values, like.parse_pattern(pattern.as_py(), escape.as_py()))
    return like.match_each(values, pattern, escape.as_py())


def _concat(run: Evaluation, node: tree.Concat) -> Value:
    sides = [run.value(node.left), run.value(node.right)]
    if any(side.type == pa.large_string() for side in sides):
        sides = [side.cast(pa.large_string()) for side in sides]
    return pc.binary_join_element_wise(*sides, pa.scalar("", sides[0].type))


def _case(run: Evaluation, node: tree.Case) -> Value:
    """Evaluate a case.  Each branch is computed only for the rows that take it, so an unused value cannot fail."""
    rows = run.rows
    if rows == 0:
        return pa.nulls(0, to_arrow(node.type))
    if not fallible(node):
        return _plain_case(run, node)
    remaining = np.ones(rows, dtype=bool)
    choice = np.full(rows, len(node.branches), dtype=np.int64)
    for index, (condition, _) in enumerate(node.branches):
        if not remaining.any():
            break
        taken = _selected(run, condition, remaining)
        choice[taken] = index
        remaining &= ~taken
    values = [value for _, value in node.branches] + [node.default]
    used = np.unique(choice)
    if len(used) == 1:
        return run.value(values[used[0]])
    parts, places = [], []
    type = to_arrow(node.type)
    for index in used:
        where = np.flatnonzero(choice == index)
        part = _branch(run, values[index], where)
        parts.append(part if part.type == type else part.cast(type))
        places.append(where)
    order = np.empty(rows, dtype=np.int64)
    order[np.concatenate(places)] = np.arange(rows)
    return pa.concat_arrays(parts).take(pa.array(order))


def _plain_case(run: Evaluation, node: tree.Case) -> Value:
    type = to_arrow(node.type)
    result = _typed(run.value(node.default), type)
    for condition, value in reversed(node.branches):
        truth = pc.fill_null(run.value(condition), FALSE)
        result = pc.if_else(truth, _typed(run.value(value), type), result)
    return result


def _typed(value: Value, type: pa.DataType) -> Value:
    return value if value.type == type else value.cast(type)


def _selected(run: Evaluation, condition: tree.Node, remaining: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if remaining.all() or not fallible(condition):
        truth = pc.fill_null(run.array(condition), FALSE)
        chosen: np.ndarray[Any, Any] = truths(truth) & remaining
        return chosen
    where = np.flatnonzero(remaining)
    truth = pc.fill_null(_branch(run, condition, where), FALSE)
    taken = np.zeros(len(remaining), dtype=bool)
    taken[where] = truths(truth)
    return taken


def _branch(run: Evaluation, node: tree.Node, where: np.ndarray[Any, Any]) -> pa.Array:
    if not fallible(node):
        return run.array(node).take(array_around(where))
    for part in tree.walk(node):
        if isinstance(part, tree.Column):
            run.value(part)
    return run.among(where).array(node)


def fallible(node: tree.Node) -> bool:
    """Return whether evaluating the node may raise for some row."""
    for part in tree.walk(node):
        if isinstance(part, tree.Arithmetic) and not (part.type.kind in FLOATS or part.op == "/"):
            return True
        if isinstance(part, (tree.Negate, tree.Call)):
            return True
        if isinstance(part, tree.Cast) and casts.fallible(part.child.type, part.type):
            return True
    return False


def _call(run: Evaluation, node: tree.Call) -> Value:
    function = functions.FUNCTIONS[node.name]
    values = [run.value(argument) for argument in node.arguments]
    if function.strict and any(isinstance(value, pa.Scalar) and not value.is_valid for value in values):
        return pa.scalar(None, to_arrow(node.type))
    types = [argument.type for argument in node.arguments]
    infinite = any(holds_infinite(value, type) for value, type in zip(values, types, strict=True))
    if function.kernel is not None and not infinite:
        # A kernel needs at least one array.  It raises NotCovered for an argument that has to be constant, so try each.
        forms = [values]
        if all(isinstance(value, pa.Scalar) for value in values):
            forms = [
                [*values[:place], full(value, to_arrow(types[place]), run.rows), *values[place + 1 :]]
                for place, value in enumerate(values)
            ]
        for given in forms:
            try:
                result = function.kernel(given, node)
            except NotCovered:
                continue
            exact = node.type.kind == "varchar" or result.type == to_arrow(node.type)
            return result if exact else result.cast(to_arrow(node.type))
        values = forms[0]
    return fallback.apply(function.template(len(values)), values, types, node.type, f"{node.name}()")


def _field(run: Evaluation, node: tree.Field) -> Value:
    value = run.array(node.child)
    return pc.struct_field(value, [node.child.type.names.index(node.name)])


def _struct(run: Evaluation, node: tree.Struct) -> Value:
    values = [run.array(value).cast(to_arrow(value.type)) for value in node.values]
    return pa.StructArray.from_arrays(values, names=list(node.type.names))


_EVALUATORS: dict[type[tree.Node], Callable[[Evaluation, Any], Value]] = {
    tree.Column: _column,
    tree.Constant: lambda run, node: run.constants.scalar(node.slot),
    tree.Cast: _cast,
    tree.Compare: _compare,
    tree.Distinct: lambda run, node: distinct(
        run.value(node.left), run.value(node.right), node.left.type, node.negated
    ),
    tree.And: lambda run, node: reduce(pc.and_kleene, map(run.value, node.items)),
    tree.Or: lambda run, node: reduce(pc.or_kleene, map(run.value, node.items)),
    tree.Not: lambda run, node: pc.invert(run.value(node.child)),
    tree.IsNull: lambda run, node: pc.is_null(run.value(node.child)),
    tree.IsTruth: _is_truth,
    tree.In: _in,
    tree.InList: _in_list,
    tree.Like: _like,
    tree.Concat: _concat,
    tree.Negate: lambda run, node: arithmetic.negate(run.value(node.child), node, run.rows),
    tree.Arithmetic: lambda run, node: arithmetic.apply(run.value(node.left), run.value(node.right), node, run.rows),
    tree.Case: _case,
    tree.Field: _field,
    tree.Struct: _struct,
    tree.Call: _call,
}
