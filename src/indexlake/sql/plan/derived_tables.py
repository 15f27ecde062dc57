"""Subqueries and common table expressions that pass on the rows of one table, so that conditions can pass through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from indexlake.sql.plan.calls import is_row_by_row
from indexlake.sql.plan.scopes import Scopes

Columns = Mapping[str, str]
"""Visible names, in lower case, and the table columns they stand for."""

_ROWWISE = {"expressions", "from_", "from", "where", "order"}


class DerivedTables:
    """``columns_of`` returns the columns of our tables; ``scopes`` resolves common table expressions."""

    def __init__(self, columns_of: Callable[[Any], Columns | None], scopes: Scopes) -> None:
        self._columns_of = columns_of
        self.scopes = scopes

    def find(self, leaf: Any) -> tuple[Any, Columns] | None:
        """Return the table whose rows a source passes on, and its columns by name there; None if it does more."""
        columns = self._columns_of(leaf)
        if columns is not None:
            return leaf, columns
        if leaf.args.get("pivots") or leaf.args.get("sample") or leaf.alias_column_names:
            return None
        if isinstance(leaf, exp.Subquery):
            return self._through(leaf.this)
        cte = self.scopes.common_table(leaf)
        if cte is None or len(self.scopes.uses(cte)) != 1 or cte.alias_column_names:
            return None
        return None if cte.parent.args.get("recursive") else self._through(cte.this)

    def _through(self, select: Any) -> tuple[Any, Columns] | None:
        if not isinstance(select, exp.Select) or any(v for k, v in select.args.items() if k not in _ROWWISE):
            return None
        first = select.args.get("from_") or select.args.get("from")
        if first is None or first.this.args.get("joins"):
            return None
        inner = self.find(first.this)
        if inner is None or not all(is_row_by_row(item) for item in select.expressions):
            return None
        table, columns = inner
        visible: dict[str, str] = {}
        for item in select.expressions:
            if isinstance(item, exp.Star) and not any(item.args.values()):
                shown: Columns = columns
            else:
                inner_item = item.this if isinstance(item, exp.Alias) else item
                plain = isinstance(inner_item, exp.Column) and len(inner_item.parts) == 1
                column = columns.get(inner_item.name.lower(), "") if plain else ""  # otherwise computed
                shown = {item.alias_or_name.lower(): column}
            for name, origin in shown.items():
                visible[name] = origin if name not in visible else ""
        return table, {name: origin for name, origin in visible.items() if origin}
