"""Rewrites table functions that take tables by name, so that these tables can be found.

``query('…')`` becomes the query in its text, ``query_table('t')`` and ``summarize 't'`` become the table, and ``table
t`` inside a query becomes ``from t``.  ``histogram(t, x)`` and ``histogram_values`` are made to read the table through
a common table expression.
"""

from __future__ import annotations

from itertools import pairwise

from indexlake.sql.parse.fragment import Edit, Fragment, edited
from indexlake.sql.parse.token_reader import TokenReader, is_file
from indexlake.sql.parse.tokens import Source, Token, quoted, tokenize

_CALLS = ("query", "query_table", "histogram", "histogram_values")
_COMMON = "__il_table_"


def written_out(fragment: Fragment) -> Fragment:
    """Return the query with such calls replaced, or reading from a common table expression."""
    if not fragment.has_word(*_CALLS, "table", "summarize"):
        return fragment
    edits: list[Edit] = [
        (token.start, token.end, "from")
        for before, token in pairwise(fragment.tokens)
        if token.is_word("table") and (before.is_symbol("(") or before.is_word("union", "all", "except", "intersect"))
    ]
    edits += [
        (name.start, name.end, quoted(name.value))
        for token, name in pairwise(fragment.tokens)
        if token.is_word("summarize") and name.kind == "string" and not is_file(name.value)
    ]
    common: list[str] = []
    for n, token in enumerate(fragment.tokens[:-1]):
        before = fragment.tokens[n - 1] if n else None
        if before is None or not before.is_word("from", "join") or not token.is_word(*_CALLS):
            continue
        if not fragment.tokens[n + 1].is_symbol("("):
            continue
        r = TokenReader(fragment.source, fragment.tokens[n + 1 :], fragment.question_marks)
        arguments = r.listed(lambda r=r: r.operand("Expected an argument here."))  # type: ignore[misc]
        last = fragment.tokens[n + r.place]
        first = arguments[0]
        if token.is_word("histogram", "histogram_values"):
            if _is_common(fragment, _text(first)):
                continue
            name = f"{_COMMON}{len(common)}"
            common.append(f"{name} as (from {_text(first)})")
            edits.append((first.start, first.end, name))
        elif token.is_word("query") and len(first.tokens) == 1 and first.tokens[0].kind == "string":
            edits.append((token.start, last.end, f"({_query(first.tokens[0].value)})"))
        elif token.is_word("query_table"):
            if len(arguments) > (2 if first.tokens[0].is_symbol("[") else 1):
                continue
            by_name = len(arguments) > 1 and arguments[1].tokens[-1].is_word("true")
            names = [t for t in first.tokens if t.kind in ("string", "name", "word")]
            is_query = any(t.kind == "string" and t.value.lstrip().startswith("(") for t in names)
            if not names or first.parameters or is_query:
                fragment.source.fail(
                    "query_table(…) takes names of tables as constants; query('…') takes a query.", token.start
                )
            tables = f" union all {'by name ' if by_name else ''}".join(f"from {_name(t)}" for t in names)
            whole = _name(names[0]) if len(first.tokens) == 1 else f"({tables})"
            edits.append((token.start, last.end, whole))
    if common:
        head = fragment.tokens[0]
        start = head.start if not head.is_word("with") else fragment.tokens[1].start
        if fragment.tokens[1].is_word("recursive") and head.is_word("with"):
            start = fragment.tokens[2].start
        joined = ", ".join(common)
        edits.append((start, start, f"{joined}, " if head.is_word("with") else f"with {joined} "))
    return edited(fragment, edits)


def _is_common(fragment: Fragment, name: str) -> bool:
    """Return whether the query itself defines a common table of this name."""
    following = zip(fragment.tokens, fragment.tokens[1:], fragment.tokens[2:], strict=False)
    return any(_name(t) == name and a.is_word("as") and b.is_symbol("(") for t, a, b in following)


def _query(text: str) -> str:
    """Return the query in a text without the semicolons and comments behind it."""
    tokens = tokenize(Source(text))
    while tokens and tokens[-1].is_symbol(";"):
        tokens = tokens[:-1]
    return text[tokens[0].start : tokens[-1].end] if tokens else ""


def _text(written: Fragment) -> str:
    return _name(written.tokens[0]) if len(written.tokens) == 1 else written.text


def _name(token: Token) -> str:
    return token.value if token.kind == "string" else token.text
