"""Finds where a query refers to the lake's own definitions: ``information_schema.tables``, ``duckdb_columns()``."""

from __future__ import annotations

from dataclasses import dataclass

from indexlake.sql.parse.fragment import Edit, Fragment
from indexlake.sql.parse.tokens import quoted

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
PREFIX = "__il_schema_"


@dataclass(frozen=True, slots=True)
class Mention:
    start: int
    end: int
    text: str  # as written in a query for all of it
    alias: str | None  # the name that qualifies its columns; None: the query gives it one

    def name(self, number: int) -> str:
        return f"{PREFIX}{number}"

    def edit(self, number: int) -> Edit:
        alias = "" if self.alias is None else f" as {quoted(self.alias)}"
        return self.start, self.end, quoted(self.name(number)) + alias


def schema_mentions(fragment: Fragment) -> tuple[Mention, ...]:
    """Return all mentions, in order."""
    if not fragment.has_word(*SCHEMAS, *TABLES, *FUNCTIONS, "show", "describe", "desc"):
        return ()
    tokens, found, n = fragment.tokens, [], 0
    while n < len(tokens):
        first, last = tokens[n], n
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
        elif not (first.is_word(*TABLES, *FUNCTIONS) and n and tokens[n - 1].is_word("from", "join")):
            n += 1
            continue
        after = tokens[last + 1] if last + 1 < len(tokens) else None
        if after is None or not after.is_symbol("."):
            named = after is not None and (after.is_word("as") or is_alias(after.kind, after.value))
            text = fragment.source.text[first.start : tokens[last].end]
            alias = None if named else (first if tokens[last].is_symbol(")") else tokens[last]).value
            alias = "shown" if first.is_symbol("(") and not named else alias
            found.append(Mention(first.start, tokens[last].end, text, alias))
        n = last + 1
    return tuple(found)


def _shows(fragment: Fragment, n: int) -> bool:
    """Return whether ``show …`` or ``describe table`` comes next, not followed by a query."""
    ahead = fragment.tokens[n : n + 2]
    if len(ahead) < 2 or not ahead[0].is_word("show", "describe", "desc"):
        return False
    is_query = ahead[1].is_symbol("(", "*", ",", ".", ")") or ahead[1].is_word("select", "from", "with", "values")
    return not is_query and fragment.tokens[_closing(fragment, n - 1) - 1].kind in ("word", "name")


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
