"""Finds the items of select lists by their tokens, and names for those that have none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from indexlake.sql.parse.fragment import Edit, Fragment
from indexlake.sql.parse.tokens import Token, quoted

_LIST_ENDS = (
    "from", "where", "group", "having", "order", "limit", "offset", "union", "except", "intersect", "qualify", "window",
    "using", "sample",
)  # fmt: skip


def items(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the items of all select lists."""
    for n, token in enumerate(tokens):
        if not token.is_word("select", "returning"):
            continue
        first = n + 1
        while first < len(tokens) and tokens[first].is_word("distinct", "all"):
            first += 1
        if first + 1 < len(tokens) and tokens[first].is_word("on") and tokens[first + 1].is_symbol("("):
            continue  # for distinct on (…), such a select keeps the names it gives
        depth = 0
        for m in range(first, len(tokens) + 1):
            here = tokens[m] if m < len(tokens) else None
            if here is not None:
                depth += here.is_symbol("(", "[", "{") - here.is_symbol(")", "]", "}")
            compares = m > first and tokens[m - 1].is_word("distinct")  # is distinct from
            ends = here is None or depth < 0 or (not depth and here.is_word(*_LIST_ENDS) and not compares)
            if ends or (not depth and here is not None and here.is_symbol(",")):
                if m > first:
                    yield tokens[first:m]
                first = m + 1
            if ends:
                break


_OPERATORS = frozenset({
    "and", "or", "not", "is", "in", "like", "ilike", "between", "then", "else", "when", "end", "null", "true", "false",
    "similar", "glob", "collate", "over", "filter", "from",
})  # fmt: skip


def has_name(item: Sequence[Token]) -> bool:
    if len(item) > 1 and item[1].is_symbol(":"):
        return True
    last, before = item[-1], item[-2] if len(item) > 1 else None
    if last.is_symbol("*") or before is None:
        return True
    if last.kind not in ("word", "name") or before.is_symbol(".", "::"):
        return False
    if before.is_word("as"):
        return not _is_cast_end(item)
    return (
        last.value not in _OPERATORS
        and (before.kind != "symbol" or before.is_symbol(")", "]", "}"))
        and not (before.kind == "word" and before.value in _OPERATORS - {"end", "null", "true", "false"})
    )


def _is_cast_end(item: Sequence[Token]) -> bool:
    depth = sum(t.is_symbol("(") - t.is_symbol(")") for t in item)
    return depth > 0


def names(text: Fragment, edits: Sequence[Edit], printed: Callable[[str], str | None]) -> Iterator[Edit]:
    """Yield aliases for edited items without a name: DuckDB's name for the expression as written.

    What is computed for each of ``columns(…)`` is named after the columns.
    """
    for item in items(text.tokens):
        if any(a.is_word("columns") and b.is_symbol("(") for a, b in pairwise(item)):
            continue
        if not any(item[0].start <= start < item[-1].end for start, _, _ in edits):
            continue
        if not has_name(item) or (len(item) == 1 and item[0].kind == "parameter"):
            name = printed(Fragment(text.source, item, text.question_marks).text)
            if name is not None:
                yield item[-1].end, item[-1].end, f" as {quoted(name)}"
