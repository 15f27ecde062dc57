"""Column names with a namespace: ``sales.orders.id``.

DuckDB knows most scans by the name of their table alone, so the namespace is removed from the text wherever it is one.
As in DuckDB, a name begins with a namespace and a table if that table has the column that follows them; else it may
begin with a table, or with a column that is a struct.  A namespace and a table by themselves are a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from indexlake.sql.parse.fragment import Edit, Spliced
from indexlake.sql.parse.token_reader import DATABASE


@dataclass(frozen=True, slots=True, eq=False)
class Qualified:
    """A name that may begin with the namespace and the name of a table."""

    parts: tuple[str, ...]  # in lower case, at most three
    own: bool  # whether the query itself gives the table a namespace, rather than relying on the current one
    start: int  # of the first part in the whole text
    end: int  # of the second part
    reference: int  # the number of the table's mention
    alias: str  # the name that the query uses for the table


def qualified_names(
    spliced: Spliced, tree: Any, known: Mapping[tuple[str | None, str], tuple[int, str]]
) -> tuple[Qualified, ...]:
    """Return all such names.  ``known``: namespace and table to number and alias, for the tables without an alias."""
    found = []
    for column in tree.find_all(exp.Column):
        parts = column.parts
        start = parts[0].meta.get("start")
        if len(parts) > 3 and parts[0].name.lower() == DATABASE:
            parts = parts[1:]
        names = tuple(part.name.lower() for part in parts[:3] if not isinstance(part, exp.Star))
        if len(names) < 2 or (len(names) == 2 and len(parts) > 2):
            continue
        own = (names[0], names[1]) in known
        if not own and (None, names[1]) not in known:
            continue
        number, alias = known[names[0] if own else None, names[1]]
        end = spliced.original(parts[1].meta["end"]) + 1
        found.append(Qualified(names, own, spliced.original(start), end, number, alias))
    return tuple(found)


def qualifier_edits(
    names: Sequence[Qualified], aliases: Sequence[str], columns: Sequence[Collection[str]], namespaces: Sequence[str]
) -> Iterator[Edit]:
    """Yield edits that replace namespace and table with the alias.

    ``columns``: those of each mention, in lower case.  ``namespaces``: where each was found.
    """
    folded = [alias.lower() for alias in aliases]
    for name in names:
        first, second, *behind = name.parts
        if not name.own and first != namespaces[name.reference].lower():
            continue
        is_column = any(first in found for found in columns)
        if behind:
            is_table = behind[0] in columns[name.reference] or not (is_column or first in folded)
        else:
            of_table = (second in found for alias, found in zip(folded, columns, strict=True) if alias == first)
            is_table = not is_column and not any(of_table)
        if is_table:
            yield name.start, name.end, name.alias
