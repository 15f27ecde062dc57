"""Finds the tables of a query in its text.

sqlglot tells where they are and what may be pushed into each scan.  What it cannot parse is parsed by DuckDB, and then
nothing is pushed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp

from indexlake.expr.dialect import expression_dialect
from indexlake.sql.parse.fragment import Edit, Fragment
from indexlake.sql.parse.schema_mentions import PREFIX, Mention, schema_mentions
from indexlake.sql.parse.search_call import SearchCall, search_calls
from indexlake.sql.parse.token_reader import DATABASE, TableName, is_file
from indexlake.sql.parse.tokens import Token, quoted
from indexlake.sql.plan.at_clause import at_after
from indexlake.sql.plan.qualified_names import qualified_names
from indexlake.sql.plan.query import CONSTANTS, FILE, ParsedQuery, Reference, sampled, search_name, view_name
from indexlake.sql.plan.query_searches import searches_in, searches_named, without_searches
from indexlake.sql.plan.scopes import RECURRING, Scopes, with_selects
from indexlake.sql.plan.text_groups import text_groups

TEMPORARY = "temp"
"""The namespace of temporary tables and views."""

_lock = threading.Lock()


def parse_query(fragment: Fragment, parse_in_duckdb: Callable[[str], Any], own: Collection[str] = ()) -> ParsedQuery:
    """Find the tables of a query.  Raises ``ExpressionError`` if neither parser understands it.

    ``own``: DuckDB's own tables, in lower case, which are named without a namespace or with ``temp``.
    """
    calls, mentions = search_calls(fragment), schema_mentions(fragment)
    spliced = without_searches(fragment, calls, mentions)
    parsed = _parsed(spliced.text)
    if parsed is None:
        return _parsed_by_duckdb(fragment, calls, mentions, parse_in_duckdb, own)
    tree, scopes, bare = parsed
    moved: list[Edit] = []
    searches = searches_in(fragment, calls, tree, scopes, bare)
    its_nodes = {id(search.node) for search in searches}
    found = []
    for node in tree.find_all(exp.Table):
        name = node.this
        if not isinstance(name, exp.Identifier) or _is_constant(name.name) or scopes.common_table(node) is not None:
            continue
        if id(node) in its_nodes:
            continue
        place = name.meta.get("start")
        if place is None:
            return _parsed_by_duckdb(fragment, calls, mentions, parse_in_duckdb, own)
        place = spliced.original(place)
        if name.name.lower() in own and node.db.lower() in ("", TEMPORARY):
            moved += _without_namespace(fragment, place)
            continue
        if fragment.source.text[place] == "'" and is_file(name.name):
            continue  # DuckDB reads it itself
        found.append((place, node))
    references = []
    shared = _shared_names(tree, [node for _, node in found])
    once = _read_once(tree, scopes)
    for number, (place, node) in enumerate(sorted(found, key=lambda item: item[0])):
        is_bare = id(node) in bare
        in_schema = not is_bare and not node.alias and node.name in shared
        once_only = once(node) and not in_schema
        reference = _reference(fragment, number, place, node.alias or None, node, bare=is_bare, once=once_only)
        references.append(replace(reference, in_schema=in_schema))
    edits = [*(r.edit() for r in references), *(s.edit() for s in searches), *moved]
    edits += [m.edit(n) for n, m in enumerate(mentions)]
    first = fragment.tokens[0]
    if first.is_word("table"):
        edits.append((first.start, first.end, "from"))
    known = {
        (r.table.namespace and r.table.namespace.lower(), r.table.name.lower()): (r.number, quoted(r.table.name))
        for r in references
        if not r.node.alias
    }
    qualified = qualified_names(spliced, tree, known)
    return ParsedQuery(
        fragment, tuple(references), tree, scopes, tuple(edits), qualified, searches, mentions, text_groups(tree)
    )  # fmt: skip


def _parsed(text: str) -> tuple[Any, Scopes, set[int]] | None:
    """Return sqlglot's tree with its scopes, and the ids of tables that ``summarize`` or ``describe`` names by itself.

    Calls are in the tree as they are written or, failing that, in sqlglot's own vocabulary; None if neither parses.
    """
    for dialect in (expression_dialect(), "duckdb"):
        try:
            with _lock:  # while sqlglot is loading a dialect, other threads already see it
                tree = sqlglot.parse_one(text, read=dialect)
            if isinstance(tree, exp.Command | exp.Block):
                continue
            bare = {id(node.this) for node in tree.find_all(exp.Summarize, exp.Describe)}
            tree = with_selects(tree)
            return tree, Scopes(tree), bare
        except Exception:  # whatever the parser raises
            continue
    return None


def _read_once(tree: Any, scopes: Scopes) -> Callable[[Any], bool]:
    """Return a function that tells whether DuckDB reads a table node only once.

    DuckDB repeats what a recursion needs, may repeat a common table expression that is named several times, and looks
    at the rows before it pivots them.
    """
    if tree.find(exp.Pivot) is not None or any(common.args.get("recursive") for common in tree.find_all(exp.With)):
        return lambda node: False

    def once(node: Any) -> bool:
        cte = node.find_ancestor(exp.CTE)
        if cte is None:
            return True
        named = scopes.uses(cte)
        return len(named) == 1 and all(map(once, [cte, *named]))

    return once


def _reference(
    fragment: Fragment,
    number: int,
    place: int,
    alias: str | None,
    node: Any,
    *,
    bare: bool = False,
    once: bool = False,
) -> Reference:
    """Return the reference whose last name part is at ``place``."""
    tokens = fragment.tokens
    n = next(i for i, t in enumerate(tokens) if t.start == place)
    last = tokens[n]
    parts = [last]
    while n >= 2 and tokens[n - 1].is_symbol("."):
        n -= 2
        parts.insert(0, tokens[n])
    first = parts[0]
    if len(parts) == 3 and first.value.lower() == DATABASE:
        parts = parts[1:]
    if len(parts) > 2:
        fragment.source.fail("A table is named `table` or `namespace.table`.", parts[0].start)
    name = TableName(_name(parts[0]) if len(parts) == 2 else None, _name(last), first.start)
    at, end = at_after(fragment, last)
    replacement = quoted(view_name(number)) if bare or once else sampled(view_name(number))
    if not bare and alias is None:
        replacement += f" as {quoted(name.name)}"
    return Reference(
        number, name, first.start, end, alias or name.name, replacement, at, node, once, is_bare=bare
    )  # fmt: skip


def _name(token: Token) -> str:
    return token.text if token.kind == "word" else token.value


def _shared_names(tree: Any, tables: Sequence[Any]) -> set[str]:
    """Return the names that tables of several namespaces share in one query, or that a table shares with anything else.

    The latter only if a column is qualified with that name after something else: otherwise the name alone is enough.
    """
    own = {id(node) for node in tables if not node.alias}
    spaces: dict[str, set[str]] = {}
    others: set[str] = set()
    for node in tree.find_all(exp.Table, exp.Subquery, exp.UDTF):
        if id(node) in own:
            spaces.setdefault(node.name.lower(), set()).add(node.db.lower())
        else:
            others.add(node.alias_or_name.lower())
    behind = {column.parts[1].name.lower() for column in tree.find_all(exp.Column) if len(column.parts) > 1}
    return {name for name, found in spaces.items() if len(found) > 1 or name in others & behind}


# ---------------------------------------------------------------- queries that only DuckDB can parse


def _without_namespace(fragment: Fragment, place: int) -> list[Edit]:
    """Return the edit that removes ``temp`` before the name at a place, if it is there."""
    n = next(i for i, t in enumerate(fragment.tokens) if t.start == place)
    return [(fragment.tokens[n - 2].start, place, "")] if n >= 2 and fragment.tokens[n - 1].is_symbol(".") else []


def _parsed_by_duckdb(
    fragment: Fragment,
    calls: Sequence[SearchCall],
    mentions: Sequence[Mention],
    parse_in_duckdb: Callable[[str], Any],
    duckdbs: Collection[str],
) -> ParsedQuery:
    spliced = without_searches(fragment, calls, mentions)
    names = {search_name(n): n for n in range(len(calls))}
    aliases: dict[int, str | None] = {}
    encoded = spliced.text.encode()
    found: list[tuple[int, str | None]] = []

    def visit(node: Any, shadowed: frozenset[str]) -> None:
        if isinstance(node, list):
            for item in node:
                visit(item, shadowed)
        elif isinstance(node, dict):
            common = (node.get("cte_map") or {}).get("map") or []
            defined = frozenset(str(entry["key"]).lower() for entry in common)
            if node.get("type") == "BASE_TABLE" and node["table_name"] in names:
                aliases[names[node["table_name"]]] = node["alias"] or None
            elif node.get("type") == "BASE_TABLE" and not _is_constant(node["table_name"]):
                own = node["schema_name"].lower() in ("", RECURRING) and node["table_name"].lower() in shadowed
                place = len(encoded[: node["query_location"]].decode())
                own = own or (node["schema_name"] in ("", TEMPORARY) and node["table_name"].lower() in duckdbs)
                if not own and not (spliced.text[place] == "'" and is_file(node["table_name"])):
                    found.append((spliced.original(place), node["alias"] or None))
            for value in node.values():
                visit(value, shadowed | defined)

    visit(parse_in_duckdb(spliced.text), frozenset())
    references = []
    for number, (place, alias) in enumerate(sorted(found)):
        n = next(i for i, t in enumerate(fragment.tokens) if t.start == place)
        while n + 2 < len(fragment.tokens) and fragment.tokens[n + 1].is_symbol("."):
            n += 2
        references.append(_reference(fragment, number, fragment.tokens[n].start, alias, None))
    searches = searches_named(fragment, calls, aliases)
    edits = (*(r.edit() for r in references), *(s.edit() for s in searches))
    edits += tuple(m.edit(n) for n, m in enumerate(mentions))
    return ParsedQuery(fragment, tuple(references), None, None, edits, searches=searches, mentions=tuple(mentions))


def _is_constant(name: str) -> bool:
    """Return whether the table is made for this query only, not one of the lake's."""
    return name in CONSTANTS or name.startswith((PREFIX, FILE))
