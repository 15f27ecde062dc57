"""A query and the tables it names.

The text is kept as it is; only the names of our tables (with their ``at (…)``) are replaced by the names under which
the scans are registered.  sqlglot says where they stand and what may be pushed into each scan; what it cannot parse
is parsed by DuckDB itself, and then nothing is pushed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from indexlake.sql.fragment import Edit, Fragment, Spliced
from indexlake.sql.qualified_names import Qualified, qualified_names, qualifier_edits
from indexlake.sql.text_groups import text_groups
from indexlake.sql.token_reader import TableName
from indexlake.sql.tokens import Token, quoted

_lock = threading.Lock()
_NAME = r"(?:\"(?:[^\"]|\"\")+\"|\w+)"
_PRINTED = re.compile(
    r"(?:(?:\(SELECT \* FROM __il_(\d+) TABLESAMPLE System\(100\.0 PERCENT\)\)|__il_(\d+)) AS "
    rf"|__il_\d+_(\d+)\.{_NAME}\.){_NAME}"
)
"""How DuckDB prints what stands for a table, in the names that it gives to expressions."""


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """``at (version => …)`` or ``at (timestamp => …)`` after a table."""

    kind: str
    value: Fragment


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """One mention of one of our tables."""

    number: int
    table: TableName
    start: int  # of the name in the whole text
    end: int  # of the name, or of its `at (…)`
    alias: str  # by which its columns are qualified
    replacement: str
    at: At | None
    node: Any  # of sqlglot's tree; None when DuckDB parsed the query
    once: bool  # whether DuckDB opens the scan a single time
    in_schema: bool = False  # whether DuckDB has to know its namespace, to tell it from another of its name

    def edit(self) -> Edit:
        return self.start, self.end, self.replacement

    @property
    def named(self) -> str:
        """The table as DuckDB would print it."""
        name = self.table.name if self.table.namespace is None else f"{self.table.namespace}.{self.table.name}"
        return name if self.alias == self.table.name else f"{name} AS {self.alias}"


@dataclass(eq=False)
class ParsedQuery:
    """A query taken apart as far as possible without knowing its tables."""

    fragment: Fragment
    references: tuple[Reference, ...]
    tree: Any  # None: only DuckDB could parse it
    edits: tuple[Edit, ...]
    qualified: tuple[Qualified, ...] = ()
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of ``text_groups``
    analyses: dict[Any, Any] = field(default_factory=dict)  # by the schemas of the references

    def text(
        self,
        prefix: str = "",
        *,
        columns: Sequence[Collection[str]] = (),
        namespace: str = "main",
        careful: bool = False,
        places: Mapping[int, str] | None = None,
    ) -> Spliced:
        """What DuckDB is asked.

        ``columns``: of each reference, in lower case.  ``namespace``: of the tables that are named without one.
        ``careful``: DuckDB may read every table as often as it likes.  ``places``: the full names of the references
        that are ``in_schema``, by their numbers.
        """
        edits = self.edits_over(columns, namespace)
        if places:
            named = {self.references[number].start: name for number, name in places.items()}
            edits = [(start, end, named.get(start, new)) for start, end, new in edits]
        if careful:
            bare = {r.start: (quoted(view_name(r.number)), sampled(r.number)) for r in self.references if r.once}
            edits = [(start, end, new.replace(*bare.get(start, ("", "")))) for start, end, new in edits]
        return self.fragment.spliced(edits, prefix)

    def edits_over(self, columns: Sequence[Collection[str]], namespace: str) -> list[Edit]:
        """The changes of the text, given the columns of each reference in lower case."""
        aliases = [r.alias for r in self.references]
        names = [q for q in self.qualified if not self.references[q.reference].in_schema]
        return [*self.edits, *qualifier_edits(names, aliases, columns, namespace)]

    def edits_apart(self, columns: Sequence[Collection[str]], namespace: str) -> list[Edit]:
        """The same for an engine that knows no namespaces.

        There tables of one name get an alias each, unless something is named by what they share: that is for the
        engine to judge.
        """
        from sqlglot import exp

        apart = [r for r in self.references if r.in_schema]
        shared = {r.table.name.lower() for r in apart}
        if not apart or any(column.parts[0].name.lower() in shared for column in self.tree.find_all(exp.Column)):
            return self.edits_over(columns, namespace)
        long = {r.number: quoted(f"{r.table.namespace or namespace}.{r.table.name}") for r in apart}
        edits = {r.start: r.edit() for r in self.references}
        for r in apart:
            edits[r.start] = (r.start, r.end, f"{r.replacement.rpartition(' as ')[0]} as {long[r.number]}")
        names = [replace(q, alias=long.get(q.reference, q.alias)) for q in self.qualified]
        rest = [e for e in self.edits if e[0] not in edits]
        aliases = [r.alias for r in self.references]
        return [*edits.values(), *rest, *qualifier_edits(names, aliases, columns, namespace)]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that are left in the text: those of ``at (…)`` are not."""
        spans = [(r.start, r.end) for r in self.references]
        tokens = [t for t in self.fragment.tokens if t.kind == "parameter"]
        kept = (t for t in tokens if not any(start <= t.start < end for start, end in spans))
        return tuple(dict.fromkeys(self.fragment.key(t) for t in kept))

    def shown(self, name: str) -> str:
        """The name of a result column or a message of DuckDB's, with tables named as in the query."""
        if "__il_" not in name:
            return name
        return _PRINTED.sub(lambda match: self.references[int(next(filter(None, match.groups())))].named, name)


DEFAULTS = "__il_defaults"
"""A table of one row with the defaults of columns, for ``insert``."""


def view_name(number: int) -> str:
    return f"__il_{number}"


def sampled(number: int) -> str:
    """How DuckDB reads a scan that it can open again, in one thread: Arrow would evaluate its filters, and ranks NaN
    otherwise; none passes a sample.  A stream that is read once gets no filters, and is read by all threads.
    """
    return f"(select * from {quoted(view_name(number))} tablesample system(100%))"


def parse_query(fragment: Fragment, parse_in_duckdb: Callable[[str], Any]) -> ParsedQuery:
    """Find the tables of a query.  Raises ``ExpressionError`` when neither parser understands it."""
    from sqlglot import exp

    spliced = fragment.spliced()
    tree = _tree(spliced.text)
    if tree is None:
        return _parsed_by_duckdb(fragment, parse_in_duckdb)
    found = []
    for node in tree.find_all(exp.Table):
        name = node.this
        if not isinstance(name, exp.Identifier) or name.name == DEFAULTS or cte_of(node) is not None:
            continue
        place = name.meta.get("start")
        if place is None:
            return _parsed_by_duckdb(fragment, parse_in_duckdb)
        place = spliced.original(place)
        if fragment.source.text[place] == "'":
            continue  # a file, as DuckDB reads it
        found.append((place, node))
    references = []
    shared = _shared_names(tree, [node for _, node in found])
    once = _read_once(tree)
    for number, (place, node) in enumerate(sorted(found, key=lambda item: item[0])):
        bare = isinstance(node.parent, exp.Summarize | exp.Describe)
        in_schema = not bare and not node.alias and node.name.lower() in shared
        once_only = once(node) and not in_schema
        reference = _reference(fragment, number, place, node.alias or None, node, bare=bare, once=once_only)
        references.append(replace(reference, in_schema=in_schema))
    edits = [r.edit() for r in references]
    first = fragment.tokens[0]
    if first.is_word("table"):
        edits.append((first.start, first.end, "from"))
    known = {
        (r.table.namespace and r.table.namespace.lower(), r.table.name.lower()): (r.number, quoted(r.table.name))
        for r in references
        if not r.node.alias
    }
    qualified = qualified_names(spliced, tree, known)
    return ParsedQuery(fragment, tuple(references), tree, tuple(edits), qualified, text_groups(tree))


def _tree(text: str) -> Any:
    """sqlglot's tree: with calls as they are written, or in its own vocabulary; None when it can do neither."""
    import sqlglot
    from sqlglot import exp

    from indexlake.expr.dialect import expression_dialect

    for dialect in (expression_dialect(), "duckdb"):
        try:
            with _lock:  # sqlglot shows a dialect to other threads while it still loads it
                tree = sqlglot.parse_one(text, read=dialect)
        except Exception:  # of the parser, whatever it is
            continue
        if not isinstance(tree, exp.Command | exp.Block):
            return tree
    return None


def _read_once(tree: Any) -> Callable[[Any], bool]:
    """Tells whether DuckDB reads a table node a single time.

    It repeats what a recursion needs, may repeat a common table expression that is named several times, and looks at
    the rows before it pivots them.
    """
    from sqlglot import exp

    if tree.find(exp.Pivot) is not None or any(common.args.get("recursive") for common in tree.find_all(exp.With)):
        return lambda node: False
    uses: dict[int, list[Any]] = {}
    for table in tree.find_all(exp.Table):
        if (cte := cte_of(table)) is not None:
            uses.setdefault(id(cte), []).append(table)

    def once(node: Any) -> bool:
        cte = node.find_ancestor(exp.CTE)
        if cte is None:
            return True
        named = uses.get(id(cte), [])
        return len(named) < 2 and all(map(once, [cte, *named]))

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
    """The reference whose last name part stands at ``place``."""
    tokens = fragment.tokens
    n = next(i for i, t in enumerate(tokens) if t.start == place)
    last = tokens[n]
    parts = [last]
    while n >= 2 and tokens[n - 1].is_symbol("."):
        n -= 2
        parts.insert(0, tokens[n])
    if len(parts) > 2:
        fragment.source.fail("A table is named `table` or `namespace.table`.", parts[0].start)
    name = TableName(_name(parts[0]) if len(parts) == 2 else None, _name(last), parts[0].start)
    at, end = _at(fragment, last)
    replacement = quoted(view_name(number)) if bare or once else sampled(number)
    if not bare and alias is None:
        replacement += f" as {quoted(name.name)}"
    return Reference(number, name, parts[0].start, end, alias or name.name, replacement, at, node, once)


def _name(token: Token) -> str:
    return token.text if token.kind == "word" else token.value


def _at(fragment: Fragment, after: Token) -> tuple[At | None, int]:
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


def _shared_names(tree: Any, tables: Sequence[Any]) -> set[str]:
    """The names that tables of several namespaces have in one query, or a table and anything else.

    The latter only where a column is named with a namespace: else the name alone says what is meant.
    """
    from sqlglot import exp

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


def cte_of(node: Any) -> Any:
    """The common table expression that a table node names, None for a real table."""
    from sqlglot import exp

    if node.args.get("db") is not None:
        return None
    name = node.name.lower()
    child, parent = node, node.parent
    while parent is not None:
        common = parent.args.get("with_") or parent.args.get("with")
        if common is not None and common is not child:
            for cte in reversed(common.expressions):
                if cte.alias.lower() == name:
                    return cte
        if isinstance(parent, exp.With):
            place = next(n for n, cte in enumerate(parent.expressions) if cte is child)
            seen = place + 1 if parent.args.get("recursive") else place
            for cte in reversed(parent.expressions[:seen]):
                if cte.alias.lower() == name:
                    return cte
            parent = parent.parent  # the query itself does not lend its own list to itself
            child = parent
            parent = parent.parent if parent is not None else None
            continue
        child, parent = parent, parent.parent
    return None


# ---------------------------------------------------------------- what only DuckDB can parse


def _parsed_by_duckdb(fragment: Fragment, parse_in_duckdb: Callable[[str], Any]) -> ParsedQuery:
    spliced = fragment.spliced()
    encoded = spliced.text.encode()
    found: list[tuple[int, str | None]] = []

    def visit(node: Any, shadowed: frozenset[str]) -> None:
        if isinstance(node, list):
            for item in node:
                visit(item, shadowed)
        elif isinstance(node, dict):
            common = (node.get("cte_map") or {}).get("map") or []
            names = frozenset(str(entry["key"]).lower() for entry in common)
            if node.get("type") == "BASE_TABLE":
                own = not node["schema_name"] and node["table_name"].lower() in shadowed
                place = len(encoded[: node["query_location"]].decode())
                if not own and spliced.text[place] != "'":
                    found.append((spliced.original(place), node["alias"] or None))
            for value in node.values():
                visit(value, shadowed | names)

    visit(parse_in_duckdb(spliced.text), frozenset())
    references = []
    for number, (place, alias) in enumerate(sorted(found)):
        n = next(i for i, t in enumerate(fragment.tokens) if t.start == place)
        while n + 2 < len(fragment.tokens) and fragment.tokens[n + 1].is_symbol("."):
            n += 2
        references.append(_reference(fragment, number, fragment.tokens[n].start, alias, None))
    return ParsedQuery(fragment, tuple(references), None, tuple(r.edit() for r in references))
