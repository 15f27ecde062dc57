"""Views in a query: each mention becomes a subquery, whose own tables are read at the snapshot of the query.

In the text of a view every table has its namespace, so that it means the same wherever it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from indexlake.errors import ExpressionError
from indexlake.sql.parse.fragment import Edit, Fragment, Spliced
from indexlake.sql.parse.tokens import Source, quoted, tokenize
from indexlake.sql.plan.query import ParsedQuery, Reference
from indexlake.sql.plan.query_tables import TEMPORARY, parse_query

MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class View:
    """A stored query, with the number of its definition; temporary views have negative numbers."""

    number: int
    name: str
    text: str
    columns: tuple[str, ...]


class ViewsNamed(Exception):
    """Some references of a query turned out to be views, here by the references' numbers."""

    def __init__(self, views: Mapping[int, View]) -> None:
        self.views = views


def expanded(
    parsed: ParsedQuery, views: Mapping[int, View], namespace: str, parse_in_duckdb: Callable[[str], Any]
) -> Fragment:
    """Return the query with views replaced by subqueries."""
    fragment = parsed.fragment
    edits: list[Edit] = []
    for number, view in views.items():
        reference = parsed.references[number]
        edits.append((reference.start, reference.end, _subquery(reference, view, parse_in_duckdb)))
    for name in parsed.qualified:
        if name.reference in views and (name.own or name.parts[0] == namespace.lower()):
            edits.append((name.start, name.end, name.alias))
    first = fragment.tokens[0]
    if first.is_word("table"):
        edits.append((first.start, first.end, "from"))
    return _fragment(fragment.source, fragment.spliced(edits))


def _subquery(reference: Reference, view: View, parse_in_duckdb: Callable[[str], Any]) -> str:
    text = view.text
    if reference.at is not None:
        own = Source(text)
        inner = parse_query(Fragment(own, tokenize(own), {}), parse_in_duckdb)
        clause = f" at ({reference.at.kind} => {reference.at.value.text})"
        text = inner.fragment.spliced([(r.end, r.end, clause) for r in inner.references if r.at is None]).text
    if view.columns:
        text = f"select * from ({text}) as _({', '.join(map(quoted, view.columns))})"
    own_name = f" as {quoted(reference.table.name)}"
    if reference.is_bare:
        return f"from ({text}){own_name}"
    return f"({text}){own_name if reference.replacement.endswith(own_name) else ''}"


def _fragment(source: Source, made: Spliced) -> Fragment:
    whole = Source(made.text, (source, made.original))
    return Fragment(whole, tokenize(whole), {})


def view_text(parsed: ParsedQuery, namespace_of: Callable[[str], str], temporary: Collection[str]) -> str:
    """Return the text of a view over this query, given where names are found and the temporary views."""
    fragment = parsed.fragment
    if fragment.parameters:
        place = next(t.start for t in fragment.tokens if t.kind == "parameter")
        fragment.source.fail("A view is stored and cannot have parameters: write the value itself.", place)
    for search in parsed.searches:
        fragment.source.fail("A view cannot search; put the search into the query that reads it.", search.call.start)
    edits = [
        (r.start, r.start, f"{quoted(TEMPORARY if r.table.name.lower() in temporary else namespace_of(r.table.name))}.")
        for r in parsed.references
        if r.table.namespace is None
    ]
    first = fragment.tokens[0]
    if first.is_word("table"):
        edits.append((first.start, first.end, "from"))
    return fragment.spliced(edits).text


def too_deep(name: str) -> ExpressionError:
    return ExpressionError(f"View {name!r} reads itself, directly or through another view. Replace one of them.")
