"""The conditions of a select that concern one table only, and whether they can be applied to its rows in advance.

A condition in ``where`` can be applied to a table's rows unless an outer join may replace them with nulls; even then it
can, if nulls do not satisfy it.  A condition in ``on`` can be applied to the sides that its join does not preserve.
``asof`` and positional joins choose rows by their neighbours, so nothing is applied there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from indexlake.errors import ExpressionError
from indexlake.expr.dialect import expression_dialect
from indexlake.expr.parse import parse
from indexlake.sql.plan.calls import VOLATILE, is_call
from indexlake.sql.plan.derived_tables import DerivedTables


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A condition on the columns of one table, as text that names nothing else."""

    text: str
    parameters: tuple[str, ...]
    rejects_nulls: bool  # may only be used if it is not true for a row of nulls


class JoinTree:
    """The ``from`` of one select as a tree of joins, which tells what may be applied to each of our tables."""

    def __init__(self, select: Any, derived: DerivedTables) -> None:
        self.nullable: set[int] = set()
        self.blocked: set[int] = set()
        self.merged: dict[str, bool] = {}  # columns of `using` -> whether all of their joins are inner joins
        self.conditions: list[tuple[Any, list[tuple[Any, bool]]]] = []  # of `on`, and the tables it may apply to
        first = select.args.get("from_") or select.args.get("from")
        self.leaves: list[Any] = [] if first is None else self._tree(first.this, select.args.get("joins"))
        found = {id(leaf): derived.find(leaf) for leaf in self.leaves}
        self.columns = {key: columns for key, place in found.items() if place is not None for _, columns in [place]}
        self.origin = {key: id(place[0]) for key, place in found.items() if place is not None}
        self.tables = [leaf for leaf in self.leaves if id(leaf) in self.columns]
        self.aliases = {leaf.alias_or_name.lower() for leaf in self.leaves}
        self.outside = derived.scopes.outside(select)
        if any(leaf.args.get("sample") or leaf.args.get("pivots") for leaf in self.leaves) or select.args.get("sample"):
            self.blocked |= {id(leaf) for leaf in self.leaves}

    def _tree(self, first: Any, joins: Any = None) -> list[Any]:
        """Return the leaves of an item and of everything joined with it, in order."""
        is_group = isinstance(first, exp.Subquery) and isinstance(first.this, exp.Table) and not first.alias
        left = self._tree(first.this) if is_group else [first]
        for join in (*(first.args.get("joins") or ()), *(joins or ())):
            right = self._tree(join.this)
            self._join(join, left, right)
            left = left + right
        return left

    def _join(self, join: Any, left: list[Any], right: list[Any]) -> None:
        method, side, kind = (str(join.args.get(k) or "").upper() for k in ("method", "side", "kind"))
        everyone = {id(leaf) for leaf in [*left, *right]}
        inner = not side and kind in ("", "INNER", "CROSS")
        for name in join.args.get("using") or ():
            key = name.name.lower()
            self.merged[key] = self.merged.get(key, True) and inner and not method
        if method in ("ASOF", "POSITIONAL"):
            self.blocked |= everyone if method == "POSITIONAL" or side else {id(leaf) for leaf in right}
            if side in ("RIGHT", "FULL"):
                self.nullable |= everyone
            return
        if method and method != "NATURAL":
            self.blocked |= everyone
            return
        condition = join.args.get("on")
        asked: list[Any] = []
        if inner or kind == "SEMI":
            asked = [*left, *right]
        elif kind == "ANTI" or side == "LEFT":
            asked = right
        elif side == "RIGHT":
            asked = left
        elif side != "FULL":
            self.blocked |= everyone  # an unknown kind of join
        if condition is not None and asked:
            places = [(leaf, id(leaf) in self.nullable) for leaf in asked if id(leaf) not in self.blocked]
            self.conditions.append((condition, places))
        if side in ("LEFT", "FULL"):
            self.nullable |= {id(leaf) for leaf in right}
        if side in ("RIGHT", "FULL"):
            self.nullable |= {id(leaf) for leaf in left}


def conjuncts_of(select: Any, joins: JoinTree) -> Iterator[tuple[int, list[Conjunct], bool]]:
    """Yield for each of our tables in the select: its conjuncts, and whether these are all of ``where``."""
    where = select.args.get("where")
    parts = list(_flat(where.this)) if where is not None else []
    for table in joins.tables:
        nullable = id(table) in joins.nullable
        asked = [] if id(table) in joins.blocked else [_conjunct(part, table, joins, nullable) for part in parts]
        of_where = [c for c in asked if c is not None]
        of_joins = [
            _conjunct(part, table, joins, nullable)
            for condition, places in joins.conditions
            for leaf, nullable in places
            if leaf is table
            for part in _flat(condition)
        ]
        whole = sum(not c.rejects_nulls for c in of_where) == len(parts)
        yield id(table), [*of_where, *(c for c in of_joins if c is not None)], whole


def _flat(condition: Any) -> Iterator[Any]:
    rest = [condition]
    while rest:
        one = rest.pop()
        if isinstance(one, exp.And):
            rest += [one.expression, one.this]
        elif isinstance(one, exp.Paren) and isinstance(one.this, exp.And | exp.Paren):
            rest.append(one.this)
        else:
            yield one


def _conjunct(part: Any, table: Any, joins: JoinTree, nullable: bool) -> Conjunct | None:
    """Return the condition as text about this table alone, or None if it involves anything else."""
    columns = list(part.find_all(exp.Column))
    if not columns or not all(_is_of(column, table, joins) for column in columns):
        return None
    if any(True for _ in part.find_all(exp.Query, exp.Window, exp.PositionalColumn, exp.Star, exp.Rand, exp.Uuid)):
        return None
    if any(is_call(node, *VOLATILE) for node in part.find_all(exp.Func)):
        return None
    own = exp.Paren(this=part.copy())  # wrapped, so that a bare column can be replaced as well
    alias = table.alias_or_name.lower()
    visible = joins.columns[id(table)]
    for column in list(own.find_all(exp.Column)):
        if column.args.get("table") is not None and column.args["table"].name.lower() == alias:
            column.set("table", None)
            column.set("db", None)
        first = column.parts[0]
        if visible[first.name.lower()].lower() != first.name.lower():
            first.replace(exp.to_identifier(visible[first.name.lower()], quoted=True))
    own = own.this
    text = own.sql(dialect=expression_dialect())
    if not _means(text, own):
        return None
    names = (str(node.name) for node in own.find_all(exp.Placeholder))
    return Conjunct(text, tuple(dict.fromkeys(names)), nullable)


def _is_of(column: Any, table: Any, joins: JoinTree) -> bool:
    """Return whether a column reference can only mean a column of this table."""
    visible = joins.columns[id(table)]
    parts = [p.name.lower() for p in column.parts]
    alias = table.alias_or_name.lower()

    if len(parts) == 2 and parts[0] in joins.aliases:
        named = sum(leaf.alias_or_name.lower() == alias for leaf in joins.leaves)
        return parts[0] == alias and parts[1] in visible and named == 1
    if len(parts) == 3 and parts[0] not in joins.aliases and parts[1] == alias and table.args.get("db") is not None:
        return parts[0] == table.args["db"].name.lower() and parts[2] in visible
    if len(parts) > 1 and (parts[0] in joins.aliases | joins.outside or parts[1] in joins.aliases):
        return False
    if parts[0] not in visible:
        return False
    if parts[0] in joins.merged:
        return joins.merged[parts[0]]
    return sum(parts[0] in joins.columns[id(leaf)] for leaf in joins.tables) <= 1


def _means(text: str, tree: Any) -> bool:
    """Return whether the text generated from a tree parses to the same tree."""
    try:
        return bool(parse(text).tree == tree)
    except ExpressionError:
        return False
