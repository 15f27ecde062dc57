"""Expressions of a statement in the form that our own operations accept, with the qualifiers they know.

``update orders as o set total = o.total * 2`` becomes ``total * 2``; in a merge the table is ``t``, the source ``s``.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from indexlake.expr.parse import parse
from indexlake.sql.parse.fragment import Fragment


def requalified(fragment: Fragment, names: Mapping[str, str], bare: Mapping[str, str] | None = None) -> str | None:
    """Return the text with qualifiers replaced (``""`` removes one) or added; None if it contains a query.

    Raises ``ExpressionError`` for text that is not an expression.
    """
    text = fragment.text
    tree = parse(text).tree
    if any(True for _ in tree.find_all(exp.Query)):
        return None
    edits: list[tuple[int, int, str]] = []
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if any("start" not in part.meta for part in parts):
            return None
        first = parts[0]
        start, end = int(first.meta["start"]), int(first.meta["end"]) + 1
        if len(parts) > 2 and f"{first.name}.{parts[1].name}".lower() in names:
            new = names[f"{first.name}.{parts[1].name}".lower()]
            after = int(parts[2].meta["start"])
            edits.append((start, after, f"{new}." if new else ""))
        elif len(parts) > 1 and first.name.lower() in names:
            new = names[first.name.lower()]
            if new:
                edits.append((start, end, new))
            else:
                edits.append((start, int(parts[1].meta["start"]), ""))
        elif len(parts) == 1 and bare is not None and first.name.lower() in bare:
            edits.append((start, start, f"{bare[first.name.lower()]}."))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def own_names(table: str, namespace: str, alias: str | None, new: str = "") -> dict[str, str]:
    """Return the qualifiers that a statement may use for the columns of its table, each mapped to ``new``."""
    if alias is not None:
        return {alias.lower(): new}
    return {table.lower(): new, f"{namespace}.{table}".lower(): new}
