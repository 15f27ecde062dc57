"""``returning``: expressions over the rows that a statement has changed, computed before it commits.

As in DuckDB, they can use only the table's columns: no other table, no subquery, no aggregate, no window.  A merge also
has ``merge_action``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from indexlake.schema import ROW_ID
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Edit, Fragment, composed, edited
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import Token, quoted
from indexlake.sql.plan.positions import opening
from indexlake.sql.plan.query import ACTIONS, CHANGED
from indexlake.sql.plan.select_items import has_name, items
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.definitions_in_duckdb import beside
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.planning import plan_query
from indexlake.writes.changed_rows import ACTION

MERGE_ACTION = "merge_action"
Changing = st.Insert | st.Update | st.Delete | st.Merge


def returned(
    engine: Engine, view: Viewpoint, parameters: Parameters, statement: Changing, written: Fragment, rows: pa.Table
) -> pa.Table:
    """Return what ``returning`` asks for, given the changed rows and what happened to each."""
    _check(engine, written)
    name = statement.table.name
    alias = None if isinstance(statement, st.Insert) else statement.alias
    with_action = isinstance(statement, st.Merge) and written.has_word(MERGE_ACTION)
    edits = [] if alias is not None else list(_unqualified(written, statement.table.namespace or view.namespace, name))
    if with_action:
        edits += _own_stars(written, quoted(alias or name))
    source = f" from {CHANGED} as {quoted(alias or name)}"
    source += f" positional join {ACTIONS}" if with_action else ""
    chosen = edited(written, edits)
    query = st.Query(composed(["select ", chosen, source], chosen.source))
    planned = plan_query(engine, view, query, parameters)
    hidden = [ACTION] if written.has_word(ROW_ID) else [ACTION, ROW_ID]
    planned.constants = {CHANGED: rows.drop_columns(hidden)}
    if with_action:
        planned.constants[ACTIONS] = pa.table({MERGE_ACTION: rows.column(ACTION)})
    schema, batches = planned.run()
    found = pa.Table.from_batches(list(batches), schema)
    if all(has_name(item) or _is_column(item) for item in items(query.text.tokens)):
        return found
    empty = planned.constant(planned.constants[CHANGED].slice(0, 0))
    names = _names(engine, empty, chosen, parameters, quoted(alias or name), with_action=with_action)
    return found if names is None else found.rename_columns([planned.query.shown(name) for name in names])


def _is_column(item: Sequence[Token]) -> bool:
    return all(token.kind in ("word", "name") or token.is_symbol(".") for token in item)


def _names(
    engine: Engine, empty: pa.Table, chosen: Fragment, parameters: Parameters, table: str, *, with_action: bool
) -> list[str] | None:
    """Return the names that DuckDB gives the columns: here, expressions are named with the casts that it adds."""
    import duckdb

    change = f"insert into {table} select * from {table} returning "
    if with_action:
        change = f"merge into {table} using {table} as __il_s on false when not matched then do nothing returning "
    asked = chosen.spliced(prefix=change)
    with beside(engine) as database:
        database.register("__il_rows", empty)
        try:
            database.execute(f"create table {table} as from __il_rows")
            done = database.execute(asked.text, parameters.of(chosen.parameters) or None)
            return [column[0] for column in done.description]
        except duckdb.Error:  # something has no counterpart there
            return None
        finally:
            database.unregister("__il_rows")


def _check(engine: Engine, written: Fragment) -> None:
    """Refuse anything that is not computed from a single row."""
    tokens = written.tokens
    for n, (token, after) in enumerate(pairwise(tokens)):
        query = token.is_word("select", "values") or (token.is_word("from") and not _separates(tokens, n))
        if query and not after.is_symbol(".", ","):
            written.source.fail(
                "RETURNING has no subqueries: it knows only the rows that were changed. Select afterwards.",
                token.start,
            )
        if token.is_word("over") and after.is_symbol("("):
            written.source.fail("RETURNING has no window functions: select over the rows afterwards.", token.start)
        if token.kind == "word" and after.is_symbol("(") and token.value in engine.aggregates:
            written.source.fail("RETURNING has no aggregates: it returns one row for each changed row.", token.start)


def _separates(tokens: Sequence[Token], n: int) -> bool:
    """Return whether a ``from`` is part of ``distinct from``, ``extract(year from d)`` or the like."""
    before = tokens[n - 1] if n else None
    return before is not None and (
        before.is_word("distinct") or (opening(tokens, n) is not None and not before.is_symbol("("))
    )


def _unqualified(written: Fragment, namespace: str, table: str) -> Iterator[Edit]:
    """Yield edits that turn ``namespace.table.column`` into ``table.column``."""
    tokens = written.tokens
    for n, token in enumerate(tokens[:-3]):
        _, dot, second, after = tokens[n : n + 4]
        inside = bool(n) and tokens[n - 1].is_symbol(".")
        if inside or token.kind not in ("word", "name") or not dot.is_symbol(".") or not after.is_symbol("."):
            continue
        if token.value.lower() == namespace.lower() and second.value.lower() == table.lower():
            yield token.start, second.start, ""


def _own_stars(written: Fragment, table: str) -> Iterator[Edit]:
    """Yield edits that limit every ``*`` to the columns of the table."""
    before = None
    for token in written.tokens:
        if token.is_symbol("*") and (before is None or before.is_symbol(",", "(")):
            yield token.start, token.end, f"{table}.*"
        before = token
