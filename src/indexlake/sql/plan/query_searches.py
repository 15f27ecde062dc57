"""The searches of a query: each is replaced by a name before parsing, and belongs where the parser finds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from sqlglot import exp

from indexlake.schema import ROW_ID
from indexlake.sql.parse.fragment import Fragment, Spliced
from indexlake.sql.parse.schema_mentions import Mention
from indexlake.sql.parse.search_call import NAME, SearchCall
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.at_clause import at_after
from indexlake.sql.plan.query import SearchReference, sampled, search_name
from indexlake.sql.plan.scopes import Scopes
from indexlake.sql.plan.table_references import asked_names


def without_searches(fragment: Fragment, calls: Sequence[SearchCall], mentions: Sequence[Mention] = ()) -> Spliced:
    """Return the text with a name in place of each search with its ``at (…)``, and of each mention of definitions."""
    ends = [at_after(fragment, call.last)[1] for call in calls]
    names = [(c.start, ends[n], quoted(search_name(n))) for n, c in enumerate(calls)]
    return fragment.spliced([*names, *(m.edit(n) for n, m in enumerate(mentions))])


def searches_in(
    fragment: Fragment, calls: Sequence[SearchCall], tree: Any, scopes: Scopes, bare: Collection[int]
) -> tuple[SearchReference, ...]:
    """Return the searches as found in sqlglot's tree.  ``bare``: ids of the nodes that cannot have an alias."""
    if not calls:
        return ()
    names = {search_name(n): n for n in range(len(calls))}
    nodes = {names[node.name]: node for node in tree.find_all(exp.Table) if node.name in names}
    found = []
    for number, call in enumerate(calls):
        if number not in nodes:
            _misplaced(fragment, call)
        node = nodes[number]
        alias = node.alias or None
        if alias is None:  # for code that looks at the tree
            node.set("alias", exp.TableAlias(this=exp.to_identifier(NAME)))
        asked = asked_names(tree, scopes, node)
        found.append(_search(fragment, number, call, alias, node, asked, bare=id(node) in bare))
    return tuple(found)


def searches_named(
    fragment: Fragment, calls: Sequence[SearchCall], aliases: Mapping[int, str | None]
) -> tuple[SearchReference, ...]:
    """Return the searches when only the aliases of those in a table's place are known."""
    found = []
    for number, call in enumerate(calls):
        if number not in aliases:
            _misplaced(fragment, call)
        found.append(_search(fragment, number, call, aliases[number], None, None))
    return tuple(found)


def _search(
    fragment: Fragment,
    number: int,
    call: SearchCall,
    alias: str | None,
    node: Any,
    asked: Collection[str] | None,
    *,
    bare: bool = False,
) -> SearchReference:
    at, end = at_after(fragment, call.last)
    replacement = quoted(search_name(number)) if bare else sampled(search_name(number))
    if not bare and alias is None:
        replacement += f" as {quoted(NAME)}"
    kept = None if asked is None else frozenset(asked)
    row_id = any(t.value.lower() == ROW_ID for t in fragment.tokens) if kept is None else ROW_ID in kept
    return SearchReference(number, call, end, alias or NAME, replacement, at, node, kept, row_id)


def _misplaced(fragment: Fragment, call: SearchCall) -> NoReturn:
    fragment.source.fail("search(…) returns rows, like a table: write it after FROM or JOIN.", call.start)
