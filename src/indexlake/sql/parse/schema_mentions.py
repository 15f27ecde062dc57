"""Finds where a query refers to the lake's own definitions: ``information_schema.tables``, ``duckdb_columns()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexlake.sql.parse.fragment import Edit, Fragment, composed
from indexlake.sql.parse.tokens import Token, quoted

SCHEMAS = ("information_schema", "pg_catalog")
TABLES = (
    "sqlite_master", "sqlite_schema", "pg_class", "pg_tables", "pg_views", "pg_type", "pg_attribute", "pg_namespace",
    "pg_index", "pg_indexes", "pg_constraint", "pg_database", "pg_sequences", "pg_attrdef", "pg_enum", "pg_proc",
    "pg_settings", "pg_prepared_statements", "pg_am", "pg_depend", "pg_description", "pg_tablespace",
    "pragma_database_list",
)  # fmt: skip
FUNCTIONS = (
    "duckdb_tables", "duckdb_columns", "duckdb_schemas", "duckdb_constraints", "duckdb_indexes", "duckdb_views",
    "duckdb_sequences", "duckdb_types", "duckdb_databases", "duckdb_functions", "pragma_table_info", "pragma_show",
    "pragma_show_tables",
)  # fmt: skip
_NO_ALIAS = (
    "where", "join", "left", "right", "inner", "full", "cross", "natural", "asof", "positional", "semi", "anti", "on",
    "using", "order", "group", "having", "limit", "offset", "union", "except", "intersect", "qualify", "window",
    "select", "sample", "tablesample", "pivot", "unpivot", "at", "returning", "when",
)  # fmt: skip
_QUERIES = ("select", "from", "with", "values")
PREFIX = "__il_schema_"


@dataclass(frozen=True, slots=True)
class Mention:
    start: int
    end: int
    text: str  # as written in a query for all of it
    alias: str | None  # the name that qualifies its columns; None: the query gives it one
    described: Fragment | None = None  # the query whose columns it shows
    is_query: bool = False  # it stands where a query does, rather than a table

    def name(self, number: int) -> str:
        return f"{PREFIX}{number}"

    def edit(self, number: int) -> Edit:
        if self.is_query:
            return self.start, self.end, f"(from {quoted(self.name(number))})"
        alias = "" if self.alias is None else f" as {quoted(self.alias)}"
        return self.start, self.end, quoted(self.name(number)) + alias


def schema_mentions(fragment: Fragment) -> tuple[Mention, ...]:
    """Return all mentions, in order."""
    if not fragment.has_word(*SCHEMAS, *TABLES, *FUNCTIONS, "show", "describe", "desc"):
        return ()
    tokens, found, n = fragment.tokens, [], 0
    common = _common_tables(fragment)
    while n < len(tokens):
        first, last, described = tokens[n], n, None
        inside = n > 0 and tokens[n - 1].is_symbol(".")
        if first.is_word(*SCHEMAS) and n + 2 < len(tokens) and tokens[n + 1].is_symbol(".") and not inside:
            last = n + 2
            if n + 3 < len(tokens) and tokens[n + 3].is_symbol("("):
                n = last  # a function, which does not read definitions
                continue
        elif first.is_word(*FUNCTIONS) and n + 1 < len(tokens) and tokens[n + 1].is_symbol("(") and not inside:
            last = _closing(fragment, n + 1)
        elif first.is_symbol("(") and _shows(fragment, n + 1):
            last = _closing(fragment, n)
            described = _described(fragment, n + 2, last, common)
        elif not (first.is_word(*TABLES, *FUNCTIONS) and n and tokens[n - 1].is_word("from", "join")):
            n += 1
            continue
        after = tokens[last + 1] if last + 1 < len(tokens) else None
        if after is None or not after.is_symbol("."):
            named = after is not None and (after.is_word("as") or is_alias(after.kind, after.value))
            text = fragment.source.text[first.start : tokens[last].end]
            alias = None if named else (first if tokens[last].is_symbol(")") else tokens[last]).value
            alias = "shown" if first.is_symbol("(") and not named else alias
            before = tokens[n - 1] if n else None
            is_table = before is not None and (before.is_word("from", "join") or before.is_symbol(","))
            is_query = first.is_symbol("(") and not is_table
            found.append(Mention(first.start, tokens[last].end, text, alias, described, is_query))
        n = last + 1
    return tuple(found)


def _shows(fragment: Fragment, n: int) -> bool:
    """Return whether ``show …`` or ``describe …`` comes next, and not a column of such a name."""
    ahead = fragment.tokens[n : n + 2]
    if len(ahead) < 2 or not ahead[0].is_word("show", "describe", "desc"):
        return False
    if _is_query(fragment.tokens, n + 1):
        return True
    last = fragment.tokens[_closing(fragment, n - 1) - 1]
    return not ahead[1].is_symbol("(", "*", ",", ".", ")") and last.kind in ("word", "name")


def _is_query(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a query comes next, in parentheses or not."""
    while n < len(tokens) and tokens[n].is_symbol("("):
        n += 1
        if n < len(tokens) and tokens[n].is_word("describe", "show", "summarize"):
            return True
    return n < len(tokens) and tokens[n].is_word(*_QUERIES)


def _described(fragment: Fragment, n: int, closing: int, common: tuple[int, Fragment] | None) -> Fragment | None:
    """Return the query before ``closing``, with the common tables of the whole one if they come before it."""
    if not _is_query(fragment.tokens, n):
        return None
    inner = Fragment(fragment.source, fragment.tokens[n:closing], fragment.question_marks)
    if common is None or n < common[0]:
        return inner
    return composed([common[1], " from (", inner, ")"], fragment.source)


def _common_tables(fragment: Fragment) -> tuple[int, Fragment] | None:
    """Return the ``with`` that the text begins with, and the index of the token after it."""
    tokens, n = fragment.tokens, 0
    if not tokens[0].is_word("with"):
        return None
    while n < len(tokens):
        if tokens[n].is_symbol("("):
            n = _closing(fragment, n)
            after = tokens[n + 1] if n + 1 < len(tokens) else None
            if after is None or not (after.is_symbol(",") or after.is_word("as", "using")):
                return n + 1, Fragment(fragment.source, tokens[: n + 1], fragment.question_marks)
        n += 1
    return None


def is_alias(kind: str, value: str) -> bool:
    """Return whether a token after a table is an alias for it."""
    return kind == "name" or (kind == "word" and value not in _NO_ALIAS)


def _closing(fragment: Fragment, opening: int) -> int:
    depth = 0
    for n in range(opening, len(fragment.tokens)):
        depth += fragment.tokens[n].is_symbol("(") - fragment.tokens[n].is_symbol(")")
        if not depth:
            return n
    raise fragment.source.error("This parenthesis is not closed.", fragment.tokens[opening].start)
