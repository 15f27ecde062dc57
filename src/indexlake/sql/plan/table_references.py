"""Determines what each table of a query has to provide: its columns, a predicate, a limit.

Works on names alone and errs on the side of more: a scan may return columns and rows that the query does not use, never
fewer.  DuckDB evaluates the whole query over what the scans return, so nothing here decides an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from indexlake.schema import ROW_ID, TableSchema
from indexlake.schema.table_schema import FUNCTIONS_WITHOUT_PARENTHESES
from indexlake.sql.plan.calls import is_call
from indexlake.sql.plan.conjuncts import Conjunct, JoinTree, conjuncts_of
from indexlake.sql.plan.derived_tables import DerivedTables
from indexlake.sql.plan.query import ParsedQuery, Reference
from indexlake.sql.plan.row_ids import NAME, names_row_id
from indexlake.sql.plan.scopes import Scopes


@dataclass(frozen=True, slots=True)
class Pushed:
    """For one reference: the columns to read, spelt as in the table, and conditions that may apply to its rows."""

    columns: tuple[str, ...]
    row_id: bool
    conjuncts: tuple[Conjunct, ...]
    all_of_where: bool  # nothing else remains of the query's `where`


def analyse(query: ParsedQuery, schemas: Sequence[TableSchema]) -> tuple[Pushed, ...]:
    """Return what may be pushed into the scan of each reference, in their order."""
    by_name = names_row_id(query.fragment)
    if query.scopes is None:
        return tuple(Pushed(schema.names, by_name and NAME not in schema.by_name, (), False) for schema in schemas)
    names = _Names(query.tree, query.scopes)
    columns_of = {
        id(r.node): {NAME: ROW_ID, **_visible(r.node, schema), ROW_ID: ROW_ID}
        for r, schema in zip(query.references, schemas, strict=True)
    }
    derived = DerivedTables(lambda node: columns_of.get(id(node)), query.scopes)
    found: dict[int, list[Conjunct]] = {}
    complete: dict[int, bool] = {}
    for select in query.tree.find_all(exp.Select):
        joins = JoinTree(select, derived)
        for leaf, conjuncts, whole in conjuncts_of(select, joins):
            found.setdefault(joins.origin[leaf], []).extend(conjuncts)
            if leaf in columns_of:
                complete[leaf] = whole
    result = []
    for reference, schema in zip(query.references, schemas, strict=True):
        columns, row_id = _columns(names, reference, schema)
        row_id = row_id or (by_name and NAME not in schema.by_name)
        key = id(reference.node)
        result.append(Pushed(columns, row_id, tuple(found.get(key, ())), complete.get(key, False)))
    return tuple(result)


def _visible(node: Any, schema: TableSchema) -> dict[str, str]:
    """Return a table's columns by their names in the query: ``t as a(x, y)`` renames the first ones."""
    names = [*(name.lower() for name in node.alias_column_names), *schema.names[len(node.alias_column_names) :]]
    shown = [(name.lower(), f.name) for name, f in zip(names, schema.fields, strict=False)]
    return {name: own for name, own in shown if sum(name == other for other, _ in shown) == 1}


def _columns(names: _Names, reference: Reference, schema: TableSchema) -> tuple[tuple[str, ...], bool]:
    select = names.scopes.select_of(reference.node)
    wanted = None if select is None or _renamed(reference.node) else names.of(select, reference.alias.lower())
    if wanted is None:
        return schema.names, any(i.name.lower() == ROW_ID for i in names.identifiers)
    return tuple(n for n in schema.names if n.lower() in wanted), ROW_ID in wanted


def asked_names(tree: Any, scopes: Scopes, node: Any) -> set[str] | None:
    """Return the names, in lower case, that a query may use of a source other than our tables; None: all of them."""
    select = scopes.select_of(node)
    return None if select is None or _renamed(node) else _Names(tree, scopes).of(select, node.alias_or_name.lower())


def _renamed(node: Any) -> bool:
    """Return whether the query renames the columns or turns them into rows."""
    return bool(node.args.get("pivots") or node.alias_column_names)


class _Names:
    """Finds which column names a select may use of one of its sources.  None: all of them."""

    def __init__(self, tree: Any, scopes: Scopes) -> None:
        self.scopes = scopes
        self._known: dict[tuple[int, str], set[str] | None] = {}
        self.identifiers = list(tree.find_all(exp.Identifier))

    def of(self, select: Any, alias: str) -> set[str] | None:
        key = (id(select), alias)
        if key not in self._known:
            self._known[key] = None  # a cycle uses everything
            self._known[key] = self._of(select, alias)
        return self._known[key]

    def _of(self, select: Any, alias: str) -> set[str] | None:
        if any(str(j.args.get("method") or "").upper() == "NATURAL" for j in select.find_all(exp.Join)):
            return None
        if any(True for _ in select.find_all(exp.Pivot)):
            return None
        names: set[str] = set()
        star = False
        for node in select.walk():
            if isinstance(node, exp.Star):
                if not is_call(node.parent, "count") and _nearest_select(node) is select:
                    qualifier = node.parent.args.get("table") if isinstance(node.parent, exp.Column) else None
                    if qualifier is None or qualifier.name.lower() == alias:
                        if _projection_of(node, select) is None:
                            return None
                        star = True
            elif isinstance(node, exp.PositionalColumn) or is_call(node, "columns"):
                if _nearest_select(node) is select:
                    return None
            elif isinstance(node, exp.Column):
                asked = _possible_names(node, alias)
                if asked is None:
                    return None
                names |= asked
            elif isinstance(node, exp.Identifier):
                if not isinstance(node.parent, exp.Column | exp.Table | exp.TableAlias) and node.arg_key != "alias":
                    names.add(node.name.lower())
            elif isinstance(node, exp.Var):
                names.add(node.name.lower())
            elif isinstance(node, exp.Func) and node.sql_name().lower() in FUNCTIONS_WITHOUT_PARENTHESES:
                names.add(node.sql_name().lower())
        if star:
            requested = self._requested(select)
            if requested is None:
                return None
            names |= requested
        return names

    def _requested(self, select: Any) -> set[str] | None:
        """Return the output columns of a select that anything outside of it names, or None for all."""
        if (
            select.args.get("distinct")
            or select.args.get("group")
            or any(e.args.get("rename") or e.args.get("replace") for e in select.expressions)
        ):
            return None
        parent = select.parent
        if isinstance(parent, exp.Exists):
            return set()
        places: Sequence[Any] = [parent]
        if isinstance(parent, exp.CTE):
            common: Any = parent.parent
            if common.args.get("recursive") or parent.alias_column_names:
                return None
            places = self.scopes.uses(parent)
            if not places:
                return None  # what names it is not visible here
        names: set[str] = set()
        for place in places:
            user = self.scopes.select_of(place)
            found = None if user is None or _renamed(place) else self.of(user, place.alias_or_name.lower())
            if found is None:
                return None
            names |= found
        return names


def _possible_names(column: Any, alias: str) -> set[str] | None:
    """Return the names that a column reference may mean in the source ``alias``, or None if it means the whole row."""
    parts = [p.name.lower() for p in column.parts if not isinstance(p, exp.Star)]
    if len(parts) == 1:
        return None if parts[0] == alias and not isinstance(column.this, exp.Star) else {parts[0]}
    asked = {parts[0]}  # possibly a struct, even if another source has that name
    if parts[0] == alias:
        asked.add(parts[1])
    if parts[1] == alias:  # after the namespace
        if len(parts) == 2:
            return None
        asked.add(parts[2])
    elif len(parts) > 3 and parts[2] == alias:  # after the database, too
        asked.add(parts[3])
    return asked


def _nearest_select(node: Any) -> Any:
    return node.find_ancestor(exp.Select)


def _projection_of(star: Any, select: Any) -> Any:
    """Return the select item if it is just this star, or None if the star is inside an expression."""
    item = star if star.parent is select else star.parent
    return item if item.parent is select and item.arg_key == "expressions" else None
