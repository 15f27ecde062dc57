"""Parses SQL text in DuckDB's dialect into a syntax tree, once per text.

sqlglot does the parsing and is imported on first use.  The binder reads the tree and never changes it.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

from indexlake.errors import ExpressionError
from indexlake.expr.dialect import expression_dialect
from indexlake.expr.foreign_parameters import parameter_hint

MAX_PARSED = 512


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text, its syntax tree and the parameters it uses: 1-based positions or names."""

    text: str
    tree: Any
    parameters: tuple[int | str, ...]
    question_marks: dict[int, int]  # id of a `?` placeholder -> its position


_parsed: dict[str, Parsed] = {}
_lock = threading.Lock()


def parse(text: str) -> Parsed:
    """Return the syntax tree of one scalar expression.  Statements, and none or several expressions, are refused."""
    found = _parsed.get(text) if isinstance(text, str) else None
    if found is not None:
        return found
    with _lock:  # also because other threads would see a dialect while sqlglot is still loading it
        made = _parse(text)
        while len(_parsed) >= MAX_PARSED:
            del _parsed[next(iter(_parsed))]
        return _parsed.setdefault(text, made)


def _parse(text: str) -> Parsed:
    if not isinstance(text, str):
        raise ExpressionError(
            f'an expression is SQL text, not {type(text).__name__}; write e.g. "id = 1"', text=str(text)
        )
    if not text.strip():
        raise ExpressionError('the expression is empty; write a condition such as "id = 1"', text=text)
    if (word := re.match(r"\s*(where|select)\b", text, re.IGNORECASE)) is not None:
        raise ExpressionError(f"give only the condition, without `{word[1]}` (in `{text}`)", text=text)
    if (hint := parameter_hint(text)) is not None:
        raise ExpressionError(f"{hint} (in `{text}`)", text=text)
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(text, read=expression_dialect(), into=exp.Condition)
    except Exception as error:  # whatever the parser raises
        raise ExpressionError(_syntax_message(text, error), text=text) from None
    if isinstance(tree, exp.Block):
        raise ExpressionError(f"`{text}` contains several expressions; give one", text=text)
    # sqlglot accepts some operators that lack an operand.
    if any(node.this is None or node.expression is None for node in tree.find_all(exp.Binary)):
        raise ExpressionError(f"cannot parse `{text}`: an operator lacks an operand", text=text)
    return Parsed(text, tree, *_parameters(tree))


def _syntax_message(text: str, error: Exception) -> str:
    if type(error).__name__ == "TokenError":
        return f"cannot parse `{text}`: a quote is never closed; inside quotes, write ' as ''"
    details = getattr(error, "errors", None) or []
    for detail in details:
        description, near = detail.get("description"), detail.get("highlight")
        if description:
            at = "after" if str(description).startswith("Expect") else "at"
            where = f" {at} `{near}` (line {detail.get('line')}, column {detail.get('col')})" if near else ""
            name = f'; if that is a column, write "{near}" in double quotes' if near and near.isidentifier() else ""
            return f"cannot parse `{text}`: {_plain(str(description))}{where}{name}"
    if isinstance(error, RecursionError):
        return f"cannot parse `{text[:200]}`: it is nested too deeply; bind long lists as a parameter: `x in $ids`"
    return f"cannot parse `{text}`: {str(error).splitlines()[0]}"


def _plain(description: str) -> str:
    """Return the parser's description without the names of its classes."""
    if description.startswith("Required keyword:"):
        return "an operator lacks an operand"
    if description.startswith("Invalid expression"):
        return "unexpected text"
    if expected := re.fullmatch(r"Expect(?:ing|ed) (\S+)", description):
        return f"`{expected[1]}` is missing"
    return re.sub(r"\s*(?:for |of )?<class '[^']*'>", "", description).rstrip(".")


def _parameters(tree: Any) -> tuple[tuple[int | str, ...], dict[int, int]]:
    from sqlglot import exp

    seen: dict[int | str, None] = {}
    question_marks: dict[int, int] = {}
    for node in tree.dfs():
        if not isinstance(node, exp.Placeholder):
            continue
        key = placeholder_key(node)
        if key is None:
            key = len(question_marks) + 1
            question_marks[id(node)] = key
        seen[key] = None
    return tuple(seen), question_marks


def placeholder_key(node: Any) -> int | str | None:
    """Return the 1-based position or the name of a placeholder, or None for `?`."""
    if node.this is None:
        return None
    name = str(node.name)
    return int(name) if name.isdigit() else name
