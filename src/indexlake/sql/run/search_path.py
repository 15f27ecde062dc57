"""Where an unqualified name is found after USE: in the namespace it names, then in ``main``.

New things are created in the statement's namespace.  Queries look up their tables themselves; see ``read_together``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from indexlake.catalog import definitions
from indexlake.catalog.named import find_named
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.plan.snapshot import MAIN, Viewpoint
from indexlake.sql.run.engine import Engine

S = TypeVar("S", bound=st.Statement)
_FIELDS = ("table", "view", "name")
_CREATES = (st.CreateTable, st.CreateTemporaryTable, st.CreateView, st.CreateNamed, st.CreateSchema, st.DropSchema)


def located(engine: Engine, view: Viewpoint, statement: S) -> S:
    """Return the statement with the namespace of what it changes or describes, if that is in ``main``."""
    if len(view.path) == 1 or isinstance(statement, _CREATES):
        return statement
    changed: dict[str, Any] = {}
    for field in _FIELDS:
        name = getattr(statement, field, None)
        if isinstance(name, TableName):
            changed[field] = _located(engine, view, name, getattr(statement, "kind", "table"))
    if isinstance(statement, st.Truncate):
        changed["tables"] = tuple(_located(engine, view, name, "table") for name in statement.tables)
    return replace(statement, **changed) if changed else statement


def _located(engine: Engine, view: Viewpoint, name: TableName, kind: str) -> TableName:
    folded = name.name.lower()
    if name.namespace is not None or folded in engine.temporary_tables or folded in engine.temporary_views:
        return name
    return replace(name, namespace=MAIN) if namespace_of(view, name.name, kind) == MAIN else name


def namespace_of(view: Viewpoint, name: str, kind: str = "table") -> str:
    """Return the namespace where a name is found; that of the statement if there is nothing of this name."""
    if len(view.path) == 1:
        return view.namespace
    with view.seen() as seen:
        r, at = seen.r, seen.at
        for namespace in view.path:
            if kind in ("sequence", "type", "macro", "table macro"):
                found: object = find_named(r, kind, namespace, name, at)
            else:
                found = definitions.find_table(r, namespace, name, at) or find_named(r, "view", namespace, name, at)
            if found is not None:
                return namespace
    return view.namespace
