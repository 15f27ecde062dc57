"""Tells which select each table and subquery is in, and which names mean common table expressions: sqlglot's scopes.

DuckDB's names are not case-sensitive but sqlglot's scopes are, so table names in the tree are put into lower case.
DuckDB statements that sqlglot does not treat as queries become selects of everything that their source provides.  A
tree with a select that no scope reaches is refused with a ``KeyError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

RECURRING = "recurring"


class Scopes:
    def __init__(self, tree: Any) -> None:
        for table in tree.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier):
                table.this.set("this", table.name.lower())
        for common in tree.find_all(exp.CTE):
            common.args["alias"].this.set("this", common.alias.lower())
        self._home: dict[int, Any] = {}
        self._common: dict[int, Any] = {}
        self._uses: dict[int, list[Any]] = {}
        whole = isinstance(tree, exp.Query)
        roots = [tree] if whole else [q for q in tree.find_all(exp.Query) if q.find_ancestor(exp.Query) is None]
        found = {id(scope.expression): scope for root in roots for scope in traverse_scope(root)}
        self._by_select = {id(select): found[id(select)] for select in tree.find_all(exp.Select)}
        for scope in found.values():
            self._home.update((id(node), scope) for node in (*scope.tables, *scope.derived_tables))
            # In parentheses, with an alias.
            alone = [scope.expression] if isinstance(scope.expression, exp.Table) else []
            for table in (*scope.tables, *alone):
                source = scope.cte_sources.get(table.name)
                common = None if source is None else source.expression.find_ancestor(exp.CTE)
                if common is not None and (not table.db or _is_recurring(table, common)):
                    self._common[id(table)] = common
                    self._uses.setdefault(id(common), []).append(table)

    def select_of(self, node: Any) -> Any:
        """Return the select whose ``from`` contains a table or subquery, or None if it is elsewhere."""
        home = self._home.get(id(node))
        return home.expression if home is not None and isinstance(home.expression, exp.Select) else None

    def common_table(self, table: Any) -> Any:
        """Return the common table expression that a table node names, or None for a real table."""
        return self._common.get(id(table))

    def uses(self, common: Any) -> Sequence[Any]:
        """Return the table nodes that name a common table expression."""
        return self._uses.get(id(common), ())

    def items(self, select: Any) -> list[Any]:
        """Return the items in the ``from`` of a select: tables in order, then subqueries and table functions."""
        return _items(self._by_select[id(select)])

    def outside(self, select: Any) -> set[str]:
        """Return the names of the items of all enclosing selects."""
        found: set[str] = set()
        scope = self._by_select[id(select)].parent
        while scope is not None:
            found |= {item.alias_or_name.lower() for item in _items(scope)}
            scope = scope.parent
        return found


def _is_recurring(table: Any, common: Any) -> bool:
    """Return whether a table is ``recurring.r`` in the recursive part of ``r``: everything that ``r`` has so far."""
    recursive = common.this.unnest().args.get("expression")
    node = table if table.db.lower() == RECURRING else None
    while node is not None and node is not recursive:
        node = node.parent
    return node is not None


def _items(scope: Any) -> list[Any]:
    return [*scope.tables, *scope.derived_tables, *scope.udtfs]


def with_selects(tree: Any) -> Any:
    """Return the tree with pivots, ``summarize`` and ``describe`` as selects that let nothing through."""
    for node in list(tree.find_all(exp.Pivot, exp.Summarize, exp.Describe)):
        source, common = node.this, node.find(exp.With)
        if source is None:
            continue  # a pivot after a table
        select = exp.Select(expressions=[exp.Star()], distinct=exp.Distinct())
        place = node
        while isinstance(place.parent, exp.Paren):
            place = place.parent
        made = exp.Subquery(this=select)
        if place is tree:
            tree = made
        else:
            place.replace(made)
        if isinstance(node, exp.Pivot):
            node.set("this", None)
            source.append("pivots", node)
        if isinstance(source, exp.Select | exp.SetOperation):
            source = exp.Subquery(this=source)
        select.from_(source, copy=False)
        if common is not None and common.parent is node:
            select.set(common.arg_key, common.pop())
    return tree
