"""Selects that a scan can answer alone: columns of one table, a predicate, an order, a limit.

Such a query needs no DuckDB at all.  For other queries of one table, this module says how many rows they can need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from indexlake.schema import TableSchema
from indexlake.sql.plan.calls import is_call, is_row_by_row
from indexlake.sql.plan.query import ParsedQuery
from indexlake.sql.plan.table_references import Pushed
from indexlake.types.marks import cast_type, is_shown_as_held

_CLAUSES = {"expressions", "from_", "from", "where", "order", "limit", "offset"}
MOST_SORTED = 100_000
"""Up to this many rows are sorted here; more are left to DuckDB, which can sort on disk."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of rows, either a literal or a parameter."""

    number: int | None
    parameter: str | None

    def value(self, parameters: Mapping[str, Any]) -> int | None:
        found = self.number if self.parameter is None else parameters.get(self.parameter)
        return found if type(found) is int and found >= 0 else None


@dataclass(frozen=True, slots=True)
class PlainSelect:
    columns: tuple[tuple[str, str], ...] | None  # of the table, and their names in the result; None: not plain
    order: tuple[tuple[str, str], ...] | None  # None: something other than plain columns in their usual order
    limit: Amount | None
    offset: Amount | None
    count: str | None = None  # the result is the row count, under this name


def plain_select(query: ParsedQuery, schema: TableSchema, pushed: Pushed) -> PlainSelect | None:
    """Return the query as a plain select of one table, or None if it is anything else."""
    tree = query.tree
    if not isinstance(tree, exp.Select) or len(query.references) != 1 or not pushed.all_of_where:
        return None
    if not tree.expressions or any(value for key, value in tree.args.items() if key not in _CLAUSES):
        return None
    reference = query.references[0]
    first = tree.args.get("from_") or tree.args.get("from")
    if (
        first is None
        or first.this is not reference.node
        or any(value for key, value in reference.node.args.items() if key not in ("this", "db", "alias", "when"))
        or reference.node.alias_column_names
    ):
        return None
    if (name := _count(tree)) is not None:
        return PlainSelect((), (), None, None, name)
    if not all(is_row_by_row(item) for item in tree.expressions):
        return None
    clauses = [tree.args.get(name) for name in ("limit", "offset")]
    limit, offset = (None if clause is None else _amount(clause) for clause in clauses)
    if [limit is None, offset is None] != [clause is None for clause in clauses]:
        return None
    columns = None if pushed.row_id else _columns(tree, schema, reference.alias.lower())
    order = _order(tree, schema, reference.alias.lower(), columns)
    return PlainSelect(columns, order, limit, offset)


def _count(tree: Any) -> str | None:
    """Return the name of the result if the query is just ``count(*)``, else None."""
    if len(tree.expressions) != 1 or any(tree.args.get(name) for name in ("order", "limit", "offset")):
        return None
    item = tree.expressions[0]
    call = item.this if isinstance(item, exp.Alias) else item
    if not isinstance(call, exp.Anonymous) or not is_call(call, "count") or len(call.expressions) != 1:
        return None
    if not isinstance(call.expressions[0], exp.Star) or any(call.expressions[0].args.values()):
        return None
    return str(item.alias) if isinstance(item, exp.Alias) else "count_star()"


def _amount(clause: Any) -> Amount | None:
    """Return the number of a ``limit`` or ``offset``, or None if it is anything but a number."""
    value = clause.expression
    if any(v for k, v in clause.args.items() if k != "expression"):
        return None
    if isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit():
        return Amount(int(value.this), None)
    if isinstance(value, exp.Placeholder):
        return Amount(None, str(value.name))
    return None


def _columns(tree: Any, schema: TableSchema, alias: str) -> tuple[tuple[str, str], ...] | None:
    found: list[tuple[str, str]] = []
    for item in tree.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        is_star = isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
        if is_star:
            star = item if isinstance(item, exp.Star) else item.this
            if any(star.args.values()) or (star is not item and item.table.lower() != alias):
                return None
            found += [(name, name) for name in schema.names]
            continue
        name = _column(inner, schema, alias)
        if name is None:
            return None
        found.append((name, item.alias if isinstance(item, exp.Alias) else name))
    if not all(is_shown_as_held(schema.field(name)) for name, _ in found):
        return None
    names = [name.lower() for _, name in found]
    return tuple(found) if len(set(names)) == len(names) else None


def _column(node: Any, schema: TableSchema, alias: str) -> str | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("db") is not None:
        return None
    if node.table and node.table.lower() != alias:
        return None
    f = schema.by_name.get(node.name.lower())
    return None if f is None else f.name


def _order(
    tree: Any, schema: TableSchema, alias: str, columns: tuple[tuple[str, str], ...] | None
) -> tuple[tuple[str, str], ...] | None:
    clause = tree.args.get("order")
    if clause is None:
        return ()
    result_names = {new.lower() for old, new in columns or () if old.lower() != new.lower()}
    found = []
    for item in clause.expressions:
        name = _column(item.this, schema, alias)
        if name is None or item.args.get("nulls_first") or item.args.get("with_fill"):
            return None
        if not item.this.table and name.lower() in result_names:
            return None  # a result column takes precedence over a table column of the same name
        if not schema.field(name).codec.ordered or cast_type(schema.field(name)) is not None:
            return None
        found.append((name, "desc" if item.args.get("desc") else "asc"))
    return tuple(found)
