"""Fills the arguments into the text of a macro.

Parameters and lambda variables are renamed to something unique.  The arguments of a table macro are put into its query,
whose columns they may name.  The text of any other macro never captures a name used in an argument: if it contains a
query, arguments that refer to columns or tables are computed outside it, in a derived table; arguments whose meaning
this would change are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from indexlake.sql.parse.fragment import Edit, Fragment
from indexlake.sql.parse.tokens import Source, Token, quoted, tokenize
from indexlake.sql.plan.positions import (
    QUERY_BEGINS,
    closing,
    is_column_of_alias,
    is_operand,
    is_query_name,
    is_table,
    opening,
)

_LAMBDA_FUNCTIONS = frozenset(
    prefix + name for prefix in ("", "list_", "array_") for name in ("transform", "apply", "filter", "reduce")
)
_WORDS = frozenset({
    "null", "true", "false", "case", "when", "then", "else", "end", "and", "or", "not", "is", "in", "like", "ilike",
    "distinct",
})  # fmt: skip
_PARAMETER, _ARGUMENTS = "__il_p_", "__il_a_"
_OF_ROWS = ("columns", "unnest", "unlist", "generate_subscripts", "grouping", "grouping_id")
_MORE_AGGREGATES = frozenset({"histogram", "geomean", "geometric_mean", "wavg", "weighted_avg"})
"""Aggregates that also have another meaning, or that are macros of DuckDB."""


def apart(text: str, parameters: Collection[str], tag: str) -> str:
    """Return the text with its parameters and lambda variables renamed to unique names; see `own_name`."""
    source = Source(text)
    tokens = tokenize(source)
    scopes = list(_variables(tokens))
    tables = {t.value.lower() for n, t in enumerate(tokens) if t.kind in ("word", "name") and _is_declared(tokens, n)}
    edits: list[Edit] = []
    for n, token in enumerate(tokens):
        if token.kind not in ("word", "name") or not _is_name(tokens, n):
            continue
        name = token.value.lower()
        if any(n in places and name in names for places, names in scopes):
            edits.append((token.start, token.end, quoted(f"__il_v_{tag}_{name}")))
        elif name in parameters and not _is_declared(tokens, n):
            if name in tables and n + 1 < len(tokens) and tokens[n + 1].is_symbol("."):
                continue  # a column of that table
            edits.append((token.start, token.end, quoted(own_name(tag, name))))
    return Fragment(source, tokens, {}).spliced(edits).text if tokens else text


def own_name(tag: str, parameter: str) -> str:
    return f"{_PARAMETER}{tag}_{parameter.lower()}"


def _is_name(tokens: Sequence[Token], n: int) -> bool:
    """Return whether it is a name, not a field, an alias after ``as``, a function, an argument's name or a key."""
    before = tokens[n - 1] if n else None
    after = tokens[n + 1] if n + 1 < len(tokens) else None
    if before is not None and (before.is_symbol(".", "::") or before.is_word("as")):
        return False
    if after is None or not after.is_symbol("(", ":=", "=>", ":"):
        return True
    if not after.is_symbol(":"):
        return False
    if before is not None and before.is_word("lambda"):
        return True
    around = opening(tokens, n)
    if around is None or tokens[around].is_symbol("("):
        return _declares_lambda(tokens, n)
    return tokens[around].is_symbol("[") or (around > 0 and tokens[around - 1].is_word("map"))


def _declares_lambda(tokens: Sequence[Token], n: int) -> bool:
    """Return whether the name is a variable declared by ``lambda a, b: …``."""
    while n >= 2 and tokens[n - 1].is_symbol(","):
        n -= 2
    return n >= 1 and tokens[n - 1].is_word("lambda")


def _is_declared(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a name is that of a table, or is given to something here."""
    if n and tokens[n - 1].is_symbol(".", "::"):
        return False
    around = opening(tokens, n)
    if around and tokens[around].is_symbol("(") and tokens[around - 1].is_word("using", "exclude"):
        return True
    if not is_operand(tokens, n) or is_table(tokens, n) or is_query_name(tokens, n + 1):
        return True
    return is_column_of_alias(tokens, n)


def _variables(tokens: Sequence[Token]) -> Iterator[tuple[Collection[int], Collection[str]]]:
    """Yield the variables of each lambda and list comprehension, with the indices of the tokens they apply to."""
    for n, token in enumerate(tokens):
        if token.is_word("lambda"):
            colon = next((m for m in range(n, len(tokens)) if tokens[m].is_symbol(":")), n)
            yield range(n + 1, _end_of_item(tokens, colon + 1)), _names(tokens[n + 1 : colon])
        elif token.is_symbol("->") and n and _is_lambda(tokens, first := _first_variable(tokens, n - 1)):
            yield range(first, _end_of_item(tokens, n + 1)), _names(tokens[first:n])
        elif token.is_word("for") and (around := opening(tokens, n)) is not None and tokens[around].is_symbol("["):
            last = closing(tokens, around)
            depth, of, condition = 0, last, last
            for m in range(n, last):
                depth += tokens[m].is_symbol("(", "[", "{") - tokens[m].is_symbol(")", "]", "}")
                if not depth and tokens[m].is_word("in") and of == last:
                    of = m
                if not depth and tokens[m].is_word("if"):
                    condition = m
            yield {*range(around, of), *range(condition, last)}, _names(tokens[n + 1 : of])


def _names(tokens: Sequence[Token]) -> frozenset[str]:
    return frozenset(t.value.lower() for t in tokens if t.kind in ("word", "name"))


def _first_variable(tokens: Sequence[Token], n: int) -> int:
    if not tokens[n].is_symbol(")"):
        return n
    first = opening(tokens, n)
    return n if first is None else first


def _is_lambda(tokens: Sequence[Token], n: int) -> bool:
    """Return whether an argument of a function that takes a lambda begins here; ``->`` is also a JSON operator."""
    around = opening(tokens, n)
    if around is None or not around or tokens[around - 1].value.lower() not in _LAMBDA_FUNCTIONS:
        return False
    is_method = around >= 2 and tokens[around - 2].is_symbol(".")
    return tokens[n - 1].is_symbol(",") or (is_method and n - 1 == around)


def _end_of_item(tokens: Sequence[Token], n: int) -> int:
    depth = 0
    for m in range(n, len(tokens)):
        depth += tokens[m].is_symbol("(", "[", "{") - tokens[m].is_symbol(")", "]", "}")
        if depth < 0 or (not depth and tokens[m].is_symbol(",")):
            return m
    return len(tokens)


# ---------------------------------------------------------------- arguments


def names_something(text: str) -> bool:
    """Return whether an expression may refer to columns or tables.  When in doubt, True."""
    tokens = tokenize(Source(text))
    return any(_may_name(tokens, n) for n in range(len(tokens)))


def _may_name(tokens: Sequence[Token], n: int) -> bool:
    token = tokens[n]
    if token.kind not in ("word", "name") or token.is_word(*_WORDS):
        return False
    before = tokens[n - 1] if n else None
    after = tokens[n + 1] if n + 1 < len(tokens) else None
    if token.kind == "word" and token.value in QUERY_BEGINS:
        return True
    if after is not None and (after.is_symbol("(", ":=", "=>") or after.kind == "string"):
        return False
    if before is None:
        return True
    is_type = before.is_symbol("::") or before.is_word("as")
    return not is_type and not before.is_symbol(".", ")") and before.kind not in ("string", "number", "parameter")


@dataclass(frozen=True)
class Value:
    argument: str
    text: str  # cast to the type of the parameter, as used in an expression


def queried(text: str, values: Mapping[str, Value]) -> str:
    """Return a query made by `apart` with the values filled in, which may name columns of that query."""
    source = Source(text)
    tokens = tokenize(source)
    plain = {name: value.text for name, value in values.items()}
    return f"({Fragment(source, tokens, {}).spliced(_edits(tokens, plain)).text})"


def filled(
    text: str,
    tag: str,
    values: Mapping[str, Value],
    aggregates: Collection[str],
) -> str:
    """Return an expression made by `apart`, in parentheses, with the values (by their own names) filled in.

    Raises ValueError with advice if an argument cannot be used.
    """
    source = Source(text)
    tokens = tokenize(source)
    aggregates = _MORE_AGGREGATES.union(aggregates)
    in_query, in_scope = _places(tokens)
    for value in (value for name, value in values.items() if name in in_query):
        if reason := _depends_on_rows(tokenize(Source(value.argument)), aggregates):
            raise ValueError(
                f"The macro contains a query, and its argument {value.argument!r} has {reason}, which would be taken "
                "over the rows of that query: compute the argument in a subquery first, and pass its column."
            )
    outside = {name: v.text for name, v in values.items() if name in in_scope and names_something(v.argument)}
    if outside and (reason := _depends_on_rows(tokens, aggregates)):
        raise ValueError(
            f"The macro has {reason} besides a query with an argument, and the argument refers to a column: make two "
            "macros of it, one with the query and one without."
        )
    for n in range(len(tokens)) if outside else ():
        if _is_call_of(tokens, n, aggregates) and _takes_only(tokens[n + 2 : closing(tokens, n + 1)], outside):
            raise ValueError(
                f"The macro takes {tokens[n].text} of nothing but its argument, which refers to a column: such an "
                "aggregate belongs to the query that calls it. Join the tables in a query of your own instead."
            )
    table = quoted(f"{_ARGUMENTS}{tag}")
    plain = {name: value.text for name, value in values.items()}
    own = _edits(tokens, plain | {name: f"({table}.{quoted(name)})" for name in outside})
    made = Fragment(source, tokens, {}).spliced(own).text
    if not outside:
        return f"({made})"
    derived = f"(select {', '.join(f'{value} as {quoted(name)}' for name, value in outside.items())}) as {table}"
    return f"(select ({made}) from {derived})"


def _places(tokens: Sequence[Token]) -> tuple[set[str], set[str]]:
    """Return the names used in queries, and those of them that tables of these queries could capture as columns.

    The derived table of another macro's arguments is a query without tables inside one that has no other tables.
    """
    in_query: set[str] = set()
    in_scope: set[str] = set()
    for n, token in enumerate(tokens):
        if token.kind != "name" or not token.value.startswith(_PARAMETER):
            continue
        place = opening(tokens, n)
        while place is not None:
            if tokens[place + 1].is_word(*QUERY_BEGINS):
                in_query.add(token.value)
                alias = tokens[closing(tokens, place) + 1 :][:2]
                if len(alias) == 2 and alias[0].is_word("as") and alias[1].value.startswith(_ARGUMENTS):
                    place = opening(tokens, place)
                    assert place is not None
                else:
                    in_scope.add(token.value)
            place = opening(tokens, place)
    return in_query, in_scope


def _edits(tokens: Sequence[Token], texts: Mapping[str, str]) -> list[Edit]:
    return [(t.start, t.end, texts[t.value]) for t in tokens if t.kind == "name" and t.value in texts]


def _is_call_of(tokens: Sequence[Token], n: int, functions: Collection[str]) -> bool:
    token = tokens[n]
    return (
        token.kind in ("word", "name")
        and token.value.lower() in functions
        and n + 1 < len(tokens)
        and tokens[n + 1].is_symbol("(")
    )


def _takes_only(tokens: Sequence[Token], bound: Collection[str]) -> bool:
    """Return whether the tokens refer to some of these names, and to nothing else."""
    named = [tokens[n].value in bound for n in range(len(tokens)) if _may_name(tokens, n)]
    return bool(named) and all(named)


def _depends_on_rows(tokens: Sequence[Token], aggregates: Collection[str]) -> str | None:
    """Return what in an expression, outside of its queries, depends on the rows of the enclosing query, if anything."""
    n = 0
    while n < len(tokens):
        token = tokens[n]
        before = tokens[n - 1] if n else None
        if token.is_symbol("(") and n + 1 < len(tokens) and tokens[n + 1].is_word(*QUERY_BEGINS):
            n = closing(tokens, n)
        elif _is_call_of(tokens, n, aggregates) or _is_call_of(tokens, n, _OF_ROWS):
            return f"{token.text}(…)"
        elif token.is_word("over"):
            return "a window"
        elif token.is_symbol("#") or (
            token.is_symbol("*") and (before is None or before.is_symbol("(", ",", ".") or before.is_word("distinct"))
        ):
            return f"{token.text!r}"
        n += 1
    return None
