"""What can be told from the names of function calls in a query."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from indexlake.expr.functions import FUNCTIONS

VOLATILE = frozenset({"random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval", "currval", "setseed"})


def is_call(node: Any, *names: str) -> bool:
    """Return whether a node calls one of these functions, in either of the sqlglot dialects used here."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in names
    return isinstance(node, exp.Func) and node.key.lower() in names


def is_row_by_row(item: Any) -> bool:
    """Return whether a select item gives one value for each row and depends on no other row.  When in doubt, False."""
    others = (
        exp.AggFunc, exp.Window, exp.Filter, exp.Query, exp.UDTF, exp.Explode, exp.Columns, exp.PositionalColumn,
    )  # fmt: skip
    if any(True for _ in item.find_all(*others)):
        return False
    return all(call.name.lower() in FUNCTIONS for call in item.find_all(exp.Anonymous))
