"""Grouping by text as if by numbers: DuckDB gets a number for each text, and the result gets the texts back.

If blocks hold a column as dictionaries, comparing numbers instead of texts takes a third of the time.  It is only done
for queries of one table that use the column as a group and a result column and nowhere else.  Results are then the
same, since numbers are equal exactly where the texts are, and NULL stays NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from indexlake.sql.plan.calls import is_call
from indexlake.types.dictionaries import TEXT

_AGGREGATES = ("count", "sum", "min", "max", "avg", "mean", "median", "stddev", "variance", "any_value")
_CLAUSES = {"kind", "expressions", "from_", "from", "where", "group", "having", "order", "limit"}


class TextNumbers:
    """Assigns numbers to the texts of one column as they are encountered.  For one reader at a time."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._known: tuple[Any, Any] | None = None  # the latest dictionary, and the numbers of its texts

    def encode(self, array: Any) -> Any:
        """Return the number of each row's text."""
        if array.type != TEXT:
            array = array.cast(pa.string()).dictionary_encode()
        if self._known is None or not self._known[0].equals(array.dictionary):
            numbers = [None if text is None else self._number(text) for text in array.dictionary.to_pylist()]
            self._known = array.dictionary, pa.array(numbers, pa.int32())
        return self._known[1].take(array.indices)

    def _number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def decode(self, array: Any) -> Any:
        """Return the texts for some numbers."""
        return pa.array(list(self._numbers), pa.string()).take(array)


def text_groups(tree: Any) -> Mapping[str, tuple[int, ...]]:
    """Return columns used as groups and as plain result columns and nowhere else, with their places in the result.

    They are given by name in lower case; empty if the query is more than a plain aggregate of one table.
    """
    if not isinstance(tree, exp.Select) or any(v for k, v in tree.args.items() if k not in _CLAUSES):
        return {}
    first, group = tree.args.get("from_") or tree.args.get("from"), tree.args.get("group")
    if first is None or not isinstance(first.this, exp.Table) or group is None or not _is_plain(tree, first.this):
        return {}
    if any(v for k, v in group.args.items() if k != "expressions") or _reorders(tree):
        return {}
    found: dict[str, tuple[int, ...]] = {}
    names = [node.name.lower() for node in tree.find_all(exp.Column)]
    aliases = [(item.alias.lower(), _column(item)) for item in tree.expressions if isinstance(item, exp.Alias)]
    for item in group.expressions:
        name = _column(item)
        if name is None:
            return {}
        places = tuple(n for n, shown in enumerate(tree.expressions) if _column(shown) == name)
        alone = names.count(name) == len(places) + 1
        confusing = any((new == name) != (old == name) and new in names for new, old in aliases if name in (new, old))
        if places and alone and not confusing:
            found[name] = places
    return found


def _column(item: Any) -> str | None:
    """Return the lower-case name of the column that an item consists of, or None."""
    inner = item.this if isinstance(item, exp.Alias) else item
    return inner.name.lower() if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier) else None


def _is_plain(tree: Any, table: Any) -> bool:
    """Return whether the query consists of columns, aggregates and arithmetic only: no whole rows, no subqueries."""
    if table.alias_column_names or any(table.args.get(k) for k in ("joins", "pivots", "sample", "laterals")):
        return False
    whole = table.alias_or_name.lower()
    plain = (
        exp.From, exp.Table, exp.TableAlias, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit,
        exp.Alias, exp.Identifier, exp.Literal, exp.Placeholder, exp.Parameter, exp.Var,
        exp.Paren, exp.Neg, exp.Not, exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.EQ, exp.NEQ, exp.LT,
        exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Null, exp.Boolean, exp.Between, exp.In, exp.Distinct,
    )  # fmt: skip
    for node in tree.walk():
        if node is tree:
            continue
        if isinstance(node, exp.Star):
            if not is_call(node.parent, "count"):
                return False
        elif isinstance(node, exp.Func):
            if not is_call(node, *_AGGREGATES) and not isinstance(node, exp.And | exp.Or):
                return False
        elif isinstance(node, exp.Column):
            parts = [part.name.lower() for part in node.parts]
            if parts[-1] == whole or (len(parts) > 1 and parts[:-1] != [whole]):
                return False  # a whole row, or a field inside a column
        elif not isinstance(node, plain):
            return False
    return True


def _reorders(tree: Any) -> bool:
    """Return whether rows are sorted by their places in the result."""
    order = tree.args.get("order")
    if order is None:
        return False
    named = (item.find(exp.Column, exp.Func) for item in order.expressions)
    return any(node is None or node.name.lower() == "all" for node in named)
