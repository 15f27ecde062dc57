"""Determines which columns of a result are plain columns of a table, so that they can keep its Arrow types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from indexlake.sql.plan.calls import is_call
from indexlake.sql.plan.query import ParsedQuery
from indexlake.sql.plan.table_plan import TablePlan
from indexlake.sql.run.searches import FoundRows
from indexlake.sql.run.types import in_zone, result_type
from indexlake.types.marks import is_shown_as_held


@dataclass(frozen=True, slots=True)
class _Given:
    """What a table or a search provides to a query."""

    fields: Sequence[Any]
    by_name: Mapping[str, Any]  # everything that may be named, in lower case
    plain: bool  # whether its fields are exactly what `*` shows


def result_types(
    query: ParsedQuery,
    tables: Sequence[TablePlan],
    searches: Sequence[FoundRows],
    constants: Mapping[str, pa.Table],
    given: pa.Schema,
    zone: str | None = None,
) -> list[pa.DataType]:
    """Return the types of the result: plain columns keep their table's type, but for the zone; others have DuckDB's."""
    types = [f.type for f in given]
    origins = _origins(query, tables, searches, constants)
    if origins is None or len(origins) != len(types):
        return types
    return [
        result_type(t, in_zone(f.type, zone)) if f is not None and is_shown_as_held(f) else t
        for t, f in zip(types, origins, strict=True)
    ]


def _origins(
    query: ParsedQuery,
    tables: Sequence[TablePlan],
    searches: Sequence[FoundRows],
    constants: Mapping[str, pa.Table],
) -> list[Any | None] | None:
    """Return for each result column the table or search column it is, as far as that is evident."""
    tree = query.tree
    if query.scopes is None or not isinstance(tree, exp.Select):
        return None
    items = query.scopes.items(tree)
    if any(True for _ in tree.find_all(exp.Pivot)):
        return None
    by_node = {id(t.reference.node): _Given(t.fields, t.found.schema.by_name, not t.row_id) for t in tables}
    for search in searches:
        fields = list(search.rows.schema)
        by_node[id(search.reference.node)] = _Given(fields, {f.name.lower(): f for f in fields}, True)
    for node in tree.find_all(exp.Table):
        if node.name in constants:
            fields = list(constants[node.name].schema)
            by_node[id(node)] = _Given(fields, {f.name.lower(): f for f in fields}, True)
    merged = any(j.args.get("using") or j.args.get("method") for j in tree.find_all(exp.Join))
    found: list[Any | None] = []
    for item in tree.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Star):
            if merged or any(inner.args.values()) or any(id(i) not in by_node for i in items):
                return None
            for i in items:
                if i.alias_column_names or not by_node[id(i)].plain:
                    return None
                found += by_node[id(i)].fields
        elif isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
            found.append(_origin(inner, items, by_node))
        elif any(not is_call(star.parent, "count") for star in inner.find_all(exp.Star)) or _is_several(inner):
            return None
        else:
            found.append(None)
    return found


def _is_several(item: Any) -> bool:
    """Return whether a select item can become several columns."""
    return any(is_call(node, "columns", "unnest") for node in item.find_all(exp.Func))


def _origin(column: Any, items: Sequence[Any], by_node: dict[int, _Given]) -> Any | None:
    parts = [p.name.lower() for p in column.parts]
    found = []
    for item in items:
        if len(parts) == 2 and item.alias_or_name.lower() != parts[0]:
            continue
        given = by_node.get(id(item))
        if given is None or item.alias_column_names:
            return None  # it may be a column of that item
        f = given.by_name.get(parts[-1])
        if f is not None:
            found.append(f)
    return found[0] if len(parts) <= 2 and len(found) == 1 else None
