"""Parses ``at (version => …)`` and ``at (timestamp => …)`` after a table or a search."""

from __future__ import annotations

from dataclasses import dataclass

from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.tokens import Token


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """The snapshot at which one table is read."""

    kind: str
    value: Fragment


def at_after(fragment: Fragment, after: Token) -> tuple[At | None, int]:
    """Return the clause after a token, if there is one, and where it or the token ends."""
    tokens = fragment.tokens
    n = next(i for i, t in enumerate(tokens) if t is after) + 1
    ahead = tokens[n : n + 4]
    if not (
        len(ahead) == 4
        and ahead[0].is_word("at")
        and ahead[1].is_symbol("(")
        and ahead[2].is_word("version", "timestamp")
        and ahead[3].is_symbol("=>")
    ):
        return None, after.end
    depth, last = 1, n + 4
    while last < len(tokens):
        depth += tokens[last].is_symbol("(") - tokens[last].is_symbol(")")
        if not depth:
            break
        last += 1
    inner = tokens[n + 4 : last]
    if depth or not inner:
        fragment.source.fail("Write at (version => 12) or at (timestamp => '2024-01-31 12:00:00+00').", ahead[0].start)
    return At(ahead[2].value, Fragment(fragment.source, inner, fragment.question_marks)), tokens[last].end
