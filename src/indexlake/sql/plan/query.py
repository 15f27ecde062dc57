"""A query and the tables it names, and the text that is sent to DuckDB in its place.

The text is kept as it is; only the names of our tables (with their ``at (…)``) are replaced by the names under which
the scans are registered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from indexlake.sql.parse.fragment import Edit, Fragment, Spliced
from indexlake.sql.parse.schema_mentions import Mention
from indexlake.sql.parse.search_call import SearchCall
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.at_clause import At
from indexlake.sql.plan.qualified_names import Qualified, qualifier_edits
from indexlake.sql.plan.row_ids import NAME, names_row_id, star_edits, with_row_id
from indexlake.sql.plan.scopes import Scopes

_NAME = r"(?:\"(?:[^\"]|\"\")+\"|\w+)"
_PRINTED = re.compile(
    r"(?:(?:\(SELECT \*(?: EXCLUDE \(\w+\), \w+ AS rowid|, \w+ AS rowid)? FROM __il_(\d+)"
    r"(?: TABLESAMPLE System\(100\.0 PERCENT\))?\)|__il_(\d+)) AS "
    rf"|__il_\d+_(\d+)\.{_NAME}\.){_NAME}"
)
"""Matches how DuckDB prints the replacement of a table in the names that it gives to expressions."""
_PRINTED_SEARCH = re.compile(r"\(SELECT \* FROM __il_search_(\d+) TABLESAMPLE System\(100\.0 PERCENT\)\)")


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """One mention of one of our tables."""

    number: int
    table: TableName
    start: int  # of the name in the whole text
    end: int  # of the name, or of its `at (…)`
    alias: str  # qualifies its columns
    replacement: str
    at: At | None
    node: Any  # in sqlglot's tree; None if DuckDB parsed the query
    once: bool  # whether DuckDB opens the scan only once
    in_schema: bool = False  # whether DuckDB has to know its namespace to tell it from another table of the same name
    is_bare: bool = False  # whether it stands alone after ``summarize`` or ``describe``

    def edit(self) -> Edit:
        return self.start, self.end, self.replacement

    @property
    def named(self) -> str:
        """The table as DuckDB would print it."""
        name = self.table.name if self.table.namespace is None else f"{self.table.namespace}.{self.table.name}"
        return name if self.alias == self.table.name else f"{name} AS {self.alias}"


@dataclass(frozen=True, slots=True, eq=False)
class SearchReference:
    """A search in the place of a table."""

    number: int
    call: SearchCall
    end: int  # of the call, or of its `at (…)`
    alias: str  # qualifies its columns
    replacement: str
    at: At | None
    node: Any  # in sqlglot's tree; None if DuckDB parsed the query
    asked: frozenset[str] | None  # the column names that the query may use, in lower case; None: all of them
    row_id: bool = False  # whether row ids are used as well

    def edit(self) -> Edit:
        return self.call.start, self.end, self.replacement


@dataclass(eq=False)
class ParsedQuery:
    """A query parsed as far as possible without knowing its tables."""

    fragment: Fragment
    references: tuple[Reference, ...]
    tree: Any  # None: only DuckDB could parse it
    scopes: Scopes | None  # of the tree
    edits: tuple[Edit, ...]
    qualified: tuple[Qualified, ...] = ()
    searches: tuple[SearchReference, ...] = ()
    mentions: tuple[Mention, ...] = ()  # of the lake's definitions
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by ``text_groups``
    analyses: dict[Any, Any] = field(default_factory=dict)  # by the schemas of the references

    def text(
        self,
        prefix: str = "",
        suffix: str = "",
        *,
        columns: Sequence[Collection[str]] = (),
        namespaces: Sequence[str] = (),
        careful: bool = False,
        places: Mapping[int, str] | None = None,
        typed: Mapping[int, str] | None = None,
    ) -> Spliced:
        """Return the text to send to DuckDB.

        ``columns``: those of each reference, in lower case.  ``namespaces``: where each was found.  ``careful``: DuckDB
        may read every table as often as it likes.  ``places``: the full names of the references that are
        ``in_schema``, by their numbers.  ``typed``: the replacements for scans whose column types DuckDB has to be
        told.
        """
        edits = self.edits_over(columns, namespaces)
        if names_row_id(self.fragment):
            own = {r.start: r for r in self.references if columns and NAME not in columns[r.number]}
            edits = [
                (start, end, with_row_id(new, view_name(own[start].number), self.fragment) if start in own else new)
                for start, end, new in edits
            ]
            edits += star_edits(self.fragment, [(r.start, r.alias) for r in own.values()])
        if places:
            named = {self.references[number].start: name for number, name in places.items()}
            edits = [(start, end, named.get(start, new)) for start, end, new in edits]
        if careful:
            views = {r.start: view_name(r.number) for r in self.references if r.once}
            bare = {start: (quoted(view), sampled(view)) for start, view in views.items()}
            edits = [(start, end, new.replace(*bare.get(start, ("", "")))) for start, end, new in edits]
        if typed:
            whole = {self.references[n].start: (quoted(view_name(n)), text) for n, text in typed.items()}
            edits = [(start, end, new.replace(*whole.get(start, ("", "")), 1)) for start, end, new in edits]
        return self.fragment.spliced(edits, prefix, suffix)

    def edits_over(self, columns: Sequence[Collection[str]], namespaces: Sequence[str]) -> list[Edit]:
        """Return the edits of the text, given the columns of each reference in lower case."""
        aliases = [r.alias for r in self.references]
        names = [q for q in self.qualified if not self.references[q.reference].in_schema]
        return [*self.edits, *qualifier_edits(names, aliases, columns, namespaces)]

    def edits_apart(self, columns: Sequence[Collection[str]], namespaces: Sequence[str]) -> list[Edit]:
        """Return the edits for an engine without namespaces.

        Tables with the same name each get an alias, unless something is qualified by that shared name: then the engine
        has to decide.
        """
        apart = [r for r in self.references if r.in_schema]
        shared = {r.table.name.lower() for r in apart}
        if not apart or any(column.parts[0].name.lower() in shared for column in self.tree.find_all(exp.Column)):
            return self.edits_over(columns, namespaces)
        long = {r.number: quoted(f"{namespaces[r.number]}.{r.table.name}") for r in apart}
        edits = {r.start: r.edit() for r in self.references}
        for r in apart:
            edits[r.start] = (r.start, r.end, f"{r.replacement.rpartition(' as ')[0]} as {long[r.number]}")
        names = [replace(q, alias=long.get(q.reference, q.alias)) for q in self.qualified]
        rest = [e for e in self.edits if e[0] not in edits]
        aliases = [r.alias for r in self.references]
        return [*edits.values(), *rest, *qualifier_edits(names, aliases, columns, namespaces)]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters left in the text; those of ``at (…)`` and of searches are not."""
        spans = [(r.start, r.end) for r in self.references] + [(s.call.start, s.end) for s in self.searches]
        spans += [(m.start, m.end) for m in self.mentions]
        tokens = [t for t in self.fragment.tokens if t.kind == "parameter"]
        kept = (t for t in tokens if not any(start <= t.start < end for start, end in spans))
        return tuple(dict.fromkeys(self.fragment.key(t) for t in kept))

    def shown(self, name: str) -> str:
        """Return the name of a result column, or a message of DuckDB's, with tables named as in the query."""
        if "__il_" not in name:
            return name
        name = _PRINTED_SEARCH.sub(lambda match: self._written(self.searches[int(match[1])]), name)
        return _PRINTED.sub(lambda match: self.references[int(next(filter(None, match.groups())))].named, name)

    def _written(self, search: SearchReference) -> str:
        return self.fragment.source.text[search.call.start : search.call.last.end]


DEFAULTS = "__il_defaults"
"""A table of one row with column defaults, for ``insert``."""
CHANGED = "__il_changed"
"""The rows that a statement has changed, for ``returning``."""
ACTIONS = "__il_actions"
"""What happened to each of these rows, for ``returning`` of a merge."""
SOURCE = "__il_source"
"""The rows of the source of a merge."""
FILE = "__il_file_"
"""Prefix of the names of tables that stand for files."""
CONSTANTS = frozenset((DEFAULTS, CHANGED, ACTIONS, SOURCE))


def view_name(number: int) -> str:
    return f"__il_{number}"


def search_name(number: int) -> str:
    return f"__il_search_{number}"


def sampled(view: str) -> str:
    """Return how DuckDB should read a scan that it can open again, in one thread: filters, which Arrow would evaluate
    with a different order of NaN, do not pass a sample.  A stream that is read only once gets no filters."""
    return f"(select * from {quoted(view)} tablesample system(100%))"
