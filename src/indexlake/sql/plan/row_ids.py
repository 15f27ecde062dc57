"""``rowid``, as in DuckDB: a column of every table without a column of that name, not included in ``*``.

It is the row id, which a row keeps for life.
"""

from __future__ import annotations

from collections.abc import Sequence

from indexlake.schema import ROW_ID
from indexlake.sql.parse.fragment import Edit, Fragment
from indexlake.sql.parse.tokens import Token, quoted

NAME = "rowid"
_BEFORE_A_STAR = ("select", "distinct", "all")
_BEFORE_A_QUERY = ("union", "all", "except", "intersect", "name", "as")


def names_row_id(fragment: Fragment) -> bool:
    return any(t.kind in ("word", "name") and t.value.lower() == NAME for t in fragment.tokens)


def with_row_id(replacement: str, view: str, fragment: Fragment) -> str:
    """Return the replacement of a table with the ``rowid`` column added."""
    both = any(t.value.lower() == ROW_ID for t in fragment.tokens)
    shown = f"{'*' if both else f'* exclude ({quoted(ROW_ID)})'}, {quoted(ROW_ID)} as {NAME}"
    if replacement.startswith("(select * "):
        return replacement.replace("(select * ", f"(select {shown} ", 1)
    return replacement.replace(quoted(view), f"(select {shown} from {quoted(view)})", 1)


def star_edits(fragment: Fragment, tables: Sequence[tuple[int, str]]) -> list[Edit]:
    """Return edits that exclude ``rowid`` from every ``*`` over tables given by place and alias, even implicit ones."""
    tokens = fragment.tokens
    regions = _regions(tokens)
    places = {t.start: n for n, t in enumerate(tokens)}
    aliases: dict[int, set[str]] = {}
    for start, alias in tables:
        aliases.setdefault(regions[places[start]], set()).add(alias.lower())
    edits: list[Edit] = []
    for n, token in enumerate(tokens):
        before = tokens[n - 1] if n else None
        begins = before is None or before.is_symbol("(") or before.is_word(*_BEFORE_A_QUERY)
        if begins and token.is_word("from") and regions[n] in aliases and not _selects(tokens, regions, n):
            edits.append((token.start, token.start, f"select * exclude ({NAME}) "))
        if not token.is_symbol("*") or before is None:
            continue
        region, qualifier = regions[n], None
        if before.is_symbol(".") and n > 1:
            qualifier = tokens[n - 2].value.lower()
        elif before.is_symbol("(") and n > 1 and tokens[n - 2].is_word("columns"):
            region = regions[n - 1]
        elif not before.is_word(*_BEFORE_A_STAR) and not before.is_symbol(","):
            continue
        found = aliases.get(region, set())
        if found and (qualifier is None or qualifier in found):
            edits.append(_without(tokens, n))
    return edits


def _without(tokens: Sequence[Token], n: int) -> Edit:
    after = tokens[n + 1 : n + 3]
    if len(after) == 2 and after[0].is_word("exclude", "except"):
        if after[1].is_symbol("("):
            return after[1].end, after[1].end, f"{NAME}, "
        return after[1].start, after[1].end, f"({NAME}, {after[1].text})"
    return tokens[n].end, tokens[n].end, f" exclude ({NAME})"


def _regions(tokens: Sequence[Token]) -> list[int]:
    """Return for each token the index of the parenthesis that encloses it, or -1."""
    found, within = [], [-1]
    for n, token in enumerate(tokens):
        if token.is_symbol(")") and len(within) > 1:
            within.pop()
        found.append(within[-1])
        if token.is_symbol("("):
            within.append(n)
    return found


def _selects(tokens: Sequence[Token], regions: Sequence[int], n: int) -> bool:
    """Return whether a select list belongs to this ``from``."""
    for step in (-1, 1):
        at = n + step
        while 0 <= at < len(tokens):
            if regions[at] == regions[n] and tokens[at].is_word("select"):
                return True
            if regions[at] == regions[n] and tokens[at].is_word("union", "except", "intersect"):
                break
            at += step
    return False
