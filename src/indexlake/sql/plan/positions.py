"""What a name in a statement can be, judging by the tokens around it: an operand, a table, or a name defined there."""

from __future__ import annotations

from collections.abc import Sequence

from indexlake.sql.parse.tokens import Token

_BEFORE_OPERAND = frozenset({
    "select", "distinct", "all", "any", "some", "where", "and", "or", "not", "by", "when", "then", "else", "case", "on",
    "having", "qualify", "between", "symmetric", "asymmetric", "in", "is", "like", "ilike", "glob", "to", "escape",
    "limit", "offset", "from", "join", "lateral", "using", "call", "returning", "default", "if", "both", "leading",
    "trailing", "interval", "placing", "for", "values", "set", "array", "variadic", "zone", "pivot", "unpivot",
    "pivot_wider", "pivot_longer", "summarize", "describe", "show",
})  # fmt: skip
_BEFORE_TABLE = (
    "join", "lateral", "pivot", "unpivot", "pivot_wider", "pivot_longer", "summarize", "describe", "show",
)  # fmt: skip
_CLAUSES = ("select", "from", "where", "by", "having", "qualify", "set", "values", "returning", "limit", "with", "when")
_FROM_INSIDE = ("extract", "substring", "trim", "overlay", "position")
NO_CALLS = frozenset({
    "values", "in", "and", "or", "not", "over", "as", "using", "exists", "any", "all", "on", "when", "then", "else",
    "from", "select", "where", "by", "filter", "key", "check", "unique", "default", "into", "set", "returning", "with",
    "join", "having", "qualify", "union", "except", "intersect", "case", "is", "like", "ilike", "between", "limit",
    "offset", "struct", "map", "decimal", "varchar", "enum", "at", "replace", "exclude", "cast", "try_cast",
    "count", "sum", "min", "max", "recursive", "materialized", "within", "group", "distinct", "lateral", "table",
})  # fmt: skip
"""Words that may precede a parenthesis without calling one of our functions or macros."""
QUERY_BEGINS = ("select", "from", "with", "values", "table", "pivot", "unpivot", "describe", "show", "summarize")


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the bracket that closes this one, or of the last token if there is none."""
    depth = 0
    for n in range(opening, len(tokens)):
        depth += tokens[n].is_symbol("(", "[", "{") - tokens[n].is_symbol(")", "]", "}")
        if not depth:
            return n
    return len(tokens) - 1


def opening(tokens: Sequence[Token], place: int) -> int | None:
    """Return the index of the innermost opening bracket around a token."""
    depth = 0
    for n in range(place - 1, -1, -1):
        depth += tokens[n].is_symbol(")", "]", "}") - tokens[n].is_symbol("(", "[", "{")
        if depth < 0:
            return n
    return None


def is_operand(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a name begins an expression or a table, and is no alias, target, type or field."""
    if not n:
        return True
    before = tokens[n - 1]
    if before.kind == "word":
        return before.value in _BEFORE_OPERAND
    if before.is_symbol(")"):
        first = opening(tokens, n - 1)
        return (
            first is not None
            and first >= 2
            and tokens[first - 1].is_word("on")
            and tokens[first - 2].is_word("distinct")
        )
    return before.kind == "symbol" and not before.is_symbol("]", "}", ".", "::")


def is_table(tokens: Sequence[Token], n: int) -> bool:
    """Return whether an operand is the name of a table."""
    before = tokens[n - 1] if n else None
    if before is None:
        return False
    if before.is_word(*_BEFORE_TABLE):
        return True
    if before.is_word("call"):
        return n == 1
    if before.is_word("using"):
        return any(token.is_word("merge", "delete") for token in tokens)
    if before.is_word("from"):
        return _begins_tables(tokens, n - 1)
    if before.is_symbol("("):
        return is_table(tokens, n - 1)
    if not before.is_symbol(","):
        return False
    depth = 0
    for m in range(n - 2, -1, -1):
        depth += tokens[m].is_symbol(")", "]", "}") - tokens[m].is_symbol("(", "[", "{")
        if depth < 0:
            return tokens[m].is_symbol("(") and is_table(tokens, m)
        if not depth and tokens[m].is_word(*_CLAUSES):
            if tokens[m].is_word("from") and not _begins_tables(tokens, m):
                continue
            return tokens[m].is_word("from")
    return False


def _begins_tables(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a ``from`` is followed by tables, unlike in ``is distinct from`` or ``extract(… from …)``."""
    if n >= 2 and tokens[n - 1].is_word("distinct") and tokens[n - 2].is_word("is", "not"):
        return False
    first = opening(tokens, n)
    return not (
        first is not None
        and first
        and tokens[first - 1].is_word(*_FROM_INSIDE)
        and not tokens[first + 1].is_word(*QUERY_BEGINS)
    )


def is_query_name(tokens: Sequence[Token], after: int) -> bool:
    """Return whether ``as [not] [materialized] (`` follows, so that the name before it is that of a query."""
    if after >= len(tokens) or not tokens[after].is_word("as"):
        return False
    after += 1
    while after < len(tokens) and tokens[after].is_word("not", "materialized"):
        after += 1
    return after < len(tokens) and tokens[after].is_symbol("(")


def is_column_of_alias(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a name is one of ``a, b`` in ``… as x(a, b)`` or ``with x(a, b) as (…)``."""
    around = opening(tokens, n)
    if not around or not tokens[around].is_symbol("("):
        return False
    head = tokens[around - 1]
    if head.kind not in ("word", "name") or head.is_word(*NO_CALLS, *_BEFORE_OPERAND):
        return False
    if around >= 2 and tokens[around - 2].is_symbol(".", "::"):
        return False
    return not is_operand(tokens, around - 1) or is_query_name(tokens, closing(tokens, around) + 1)
