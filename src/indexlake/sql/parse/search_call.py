"""Finds and parses ``search('table', 'index or column', query, name := value, …)`` where a query names a table.

It is found by its tokens before the query is parsed, because no engine has such a function.  An alias or a common table
expression may also be called ``search``; then its parentheses contain only names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.token_reader import TokenReader
from indexlake.sql.parse.tokens import Token

NAME = "search"
_LIKE_THIS = "search('table', 'index or column', $query, k := 10)"


@dataclass(frozen=True, slots=True, eq=False)
class SearchCall:
    """The arguments of a search, as written."""

    table: Fragment
    index: Fragment
    query: Fragment | None
    options: tuple[tuple[str, Fragment], ...]
    start: int  # in the whole text
    last: Token  # its closing parenthesis


def search_calls(fragment: Fragment) -> list[SearchCall]:
    """Return all searches of a query, in order."""
    r = TokenReader(fragment.source, fragment.tokens, fragment.question_marks)
    found: list[SearchCall] = []
    while not r.at_end:
        if is_call(r.tokens, r.place):
            found.append(call_at(r))
        else:
            r.place += 1
    return found


def is_call(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a search begins at that token."""
    if not tokens[place].is_word(NAME):
        return False
    ahead = tokens[place + 1 : place + 3]
    if len(ahead) < 2 or not ahead[0].is_symbol("("):
        return False
    before = tokens[place - 1] if place else None
    if before is not None and before.is_symbol("."):
        return False
    follows = before is not None and before.is_word("from", "join", "using")
    return follows or ahead[1].kind in ("string", "parameter") or ahead[1].is_symbol(")")


def call_at(r: TokenReader) -> SearchCall:
    """Parse the search that begins here, and move past it."""
    name = r.here
    assert name is not None
    r.place += 1
    positional: list[Fragment] = []
    options: dict[str, Fragment] = {}
    if r.take_symbol("(") and not r.sees_symbol(")"):
        while True:
            _argument(r, positional, options)
            if not r.take_symbol(","):
                break
    last = r.here
    if last is None or not r.take_symbol(")"):
        r.fail("This parenthesis is not closed.", r.tokens[r.place - 1] if r.at_end else None)
    if len(positional) < 2:
        r.fail(f"A search needs a table, an index or a column, and what to look for: {_LIKE_THIS}.", name)
    query = positional[2] if len(positional) == 3 else None
    return SearchCall(positional[0], positional[1], query, tuple(options.items()), name.start, last)


def _argument(r: TokenReader, positional: list[Fragment], options: dict[str, Fragment]) -> None:
    first = r.here
    ahead = r.tokens[r.place + 1] if r.place + 1 < len(r.tokens) else None
    if first is not None and first.kind in ("word", "name") and ahead is not None and ahead.is_symbol(":=", "=>"):
        r.place += 2
        name = first.value.lower()
        if name in options:
            r.fail(f"{first.text} is given twice.", first)
        options[name] = r.operand("Expected the value of the argument here.")
        return
    if options:
        r.fail(f"After a named argument, all others must be named: {_LIKE_THIS}.")
    if len(positional) == 3:
        r.fail(f"Only the first three arguments can be given without a name: {_LIKE_THIS}.")
    positional.append(r.operand("Expected an argument here."))
