"""Creating and dropping views.

A view is stored in the catalog as text, and must be a query that runs when it is created.  A temporary view belongs to
the open lake and exists nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count

from indexlake.catalog.named_definitions import CreateNamed, DropNamed, RenameNamed
from indexlake.errors import AlreadyExistsError, NotFoundError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.plan.query_tables import TEMPORARY
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.plan.views import View, view_text
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.planning import parsed_query, plan_query
from indexlake.sql.run.search_path import namespace_of

_temporary = count(1)


def create_view(engine: Engine, view: Viewpoint, statement: st.CreateView, parameters: Parameters) -> None:
    parsed = parsed_query(engine, statement.query)
    text = view_text(parsed, partial(namespace_of, view), engine.temporary_views)
    planned = plan_query(engine, view, statement.query, parameters, points=False, scans_only=True)
    columns = planned.describe().column("column_name")
    if len(statement.names) > len(columns):
        parsed.fragment.source.fail(
            f"{len(statement.names)} names are given for {len(columns)} columns.", statement.view.place
        )
    names = (*statement.names, *columns.to_pylist()[len(statement.names) :]) if statement.names else ()
    name = statement.view.name
    if statement.temporary:
        _create_temporary(engine, statement, View(-next(_temporary), name, text, names))
        return
    if any(t.value.lower() in engine.temporary_tables for t in parsed.fragment.tokens if t.kind in ("word", "name")):
        parsed.fragment.source.fail(
            "A stored view cannot read a temporary table; use CREATE TEMP VIEW.", parsed.fragment.start
        )
    for reference in parsed.references:
        if reference.table.namespace in (None, TEMPORARY) and reference.table.name.lower() in engine.temporary_views:
            parsed.fragment.source.fail(
                f"{reference.table.name!r} is a temporary view, and a stored one cannot read it: use CREATE TEMP VIEW.",
                reference.start,
            )
    written = statement.query.text.text
    body = {"text": text, "columns": list(names), "written": written, "named": list(statement.names)}
    change = CreateNamed(
        "view", statement.view.namespace or view.namespace, name, body, statement.replace, statement.if_not_exists
    )
    view.within._define(change, "create view")


def _create_temporary(engine: Engine, statement: st.CreateView, made: View) -> None:
    there = engine.temporary_views.get(made.name.lower())
    if there is not None and statement.if_not_exists:
        return
    if there is not None and not statement.replace:
        raise AlreadyExistsError(
            f"There is a temporary view {there.name!r} already. Replace it with CREATE OR REPLACE, accept it with IF "
            "NOT EXISTS, or drop it first.",
            name=there.name,
        )
    engine.temporary_views[made.name.lower()] = made


def rename_view(engine: Engine, view: Viewpoint, statement: st.RenameView) -> None:
    name = statement.view
    folded = name.name.lower()
    if name.namespace in (None, TEMPORARY) and folded in engine.temporary_views:
        made = replace(engine.temporary_views.pop(folded), name=statement.new)
        engine.temporary_views[statement.new.lower()] = made
        return
    change = RenameNamed("view", name.namespace or view.namespace, name.name, statement.new, statement.if_exists)
    view.within._define(change, "alter view")


def drop_view(engine: Engine, view: Viewpoint, statement: st.DropView) -> None:
    name = statement.view
    if name.namespace in (None, TEMPORARY) and engine.temporary_views.pop(name.name.lower(), None) is not None:
        return
    if name.namespace == TEMPORARY:
        if statement.if_exists:
            return
        raise NotFoundError(f"There is no temporary view {name.name!r}.", name=name.name)
    view.within._define(
        DropNamed("view", name.namespace or view.namespace, name.name, statement.if_exists), "drop view"
    )
