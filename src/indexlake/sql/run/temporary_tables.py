"""Temporary tables: DuckDB's own, in the engine of an open lake.

They belong to the open lake, hide anything else of the same name, support every type and feature that DuckDB has, and
end with the lake.  They never reach the catalog, so they are not part of transactions or of time travel.  A statement
that changes one runs in DuckDB as written, over scans of the lake's tables that it reads.
"""

from __future__ import annotations

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.errors import AlreadyExistsError, OwnershipError, SchemaError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.query_tables import TEMPORARY
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.copies import copy_into_temporary
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.result import SqlChange, SqlResult, table_result


def is_temporary(engine: Engine, name: TableName) -> bool:
    return name.namespace in (None, TEMPORARY) and name.name.lower() in engine.temporary_tables


def target_of(statement: st.Statement) -> TableName | None:
    """Return the table that a statement changes."""
    if isinstance(statement, st.Truncate):
        return statement.tables[0] if len(statement.tables) == 1 else None
    if isinstance(statement, st.Write | st.DropTable | st.AlterTable | st.CreateIndex):
        return statement.table
    if isinstance(statement, st.CommentOn) and statement.kind in ("table", "column"):
        return statement.name
    return None


def check_hidden(engine: Engine, view: Viewpoint, statement: st.Statement) -> None:
    """Refuse to change a stored table by a name that means something temporary."""
    if isinstance(statement, st.Truncate):
        names = statement.tables
    else:
        target = statement.table if isinstance(statement, st.DropIndex) else target_of(statement)
        names = () if target is None else (target,)
    for name in names:
        folded = name.name.lower()
        if name.namespace not in (None, TEMPORARY):
            continue
        if folded in engine.temporary_views:
            what, rather = "a temporary view, and only tables can be changed", f"drop view {quoted(name.name)}"
        elif folded in engine.temporary_tables:
            what, rather = "a temporary table, which this statement cannot change", f"drop table {quoted(name.name)}"
        else:
            continue
        raise SchemaError(
            f"{name.name!r} is {what}. Remove it first ({rather}), or name a table of the lake with its schema: "
            f"{view.namespace}.{name.name}.",
            name=name.name,
        )


def create(engine: Engine, view: Viewpoint, statement: st.CreateTemporaryTable, parameters: Parameters) -> SqlChange:
    name = statement.table.name
    folded = name.lower()
    if view.transaction is not None:
        raise OwnershipError(f"The temporary table {name!r} cannot be created in a transaction: do that before it.")
    if folded in engine.temporary_views:
        raise AlreadyExistsError(f"{name!r} is a temporary view. Drop it first, or choose another name.", name=name)
    if folded in engine.temporary_tables and not statement.replace:
        if statement.if_not_exists:
            return SqlChange("create table", WriteResult(0))
        raise AlreadyExistsError(
            f"There is a temporary table {name!r} already. Replace it with CREATE OR REPLACE, accept it with IF NOT "
            "EXISTS, or drop it first.",
            name=name,
        )
    head = f"create or replace table {quoted(name)} "
    count = 0
    if statement.query is None:
        assert statement.definition is not None
        spliced = statement.definition.spliced(prefix=head)
        with translating(statement.definition.source, spliced), engine.cursor() as cursor:
            cursor.execute(spliced.text)
    else:
        names = f"({', '.join(map(quoted, statement.names))}) " if statement.names else ""
        planned = plan_query(engine, view, statement.query, parameters, points=False, scans_only=True)
        count = _count(planned.execute(f"{head}{names}as "))
        if not statement.with_data:
            count = 0
            with engine.cursor() as cursor:
                cursor.execute(f"truncate {quoted(name)}")
    engine.temporary_tables[folded] = name
    return SqlChange("create table", WriteResult(count, None, count))


def change(
    engine: Engine, view: Viewpoint, statement: st.Statement, text: Fragment, parameters: Parameters
) -> SqlResult:
    """Run a statement that changes a temporary table."""
    if view.transaction is not None:
        raise OwnershipError("A temporary table cannot be changed in a transaction: do that before or after.")
    target = target_of(statement)
    assert target is not None
    if isinstance(statement, st.CopyFrom):
        return copy_into_temporary(engine, statement, text, parameters)
    if not isinstance(statement, st.Write):
        return _define(engine, statement, target, text)
    planned = plan_query(engine, view, st.Query(text), parameters, points=False, scans_only=True)
    found = planned.execute("")
    if text.has_word("returning"):
        return table_result(found, planned.snapshot_id)
    count = _count(found)
    counts = {"insert": (count, 0, 0), "update": (0, count, 0), "delete": (0, 0, count), "truncate": (0, 0, count)}
    operation = type(statement).__name__.lower()
    return SqlChange(operation, WriteResult(count, None, *counts.get(operation, (0, 0, 0))))


def _define(engine: Engine, statement: st.Statement, target: TableName, text: Fragment) -> SqlChange:
    """Drop or alter the table, or create an index on it."""
    behind = next(t.start for t in text.tokens if t.start > target.place) + 1 if target.namespace else target.place
    spliced = text.spliced([(target.place, behind, "")] if target.namespace else [])
    with translating(text.source, spliced), engine.cursor() as cursor:
        cursor.execute(spliced.text)
    operation = "comment" if isinstance(statement, st.CommentOn) else "alter table"
    if isinstance(statement, st.DropTable):
        operation = "drop table"
        del engine.temporary_tables[target.name.lower()]
    elif isinstance(statement, st.AlterTable) and isinstance(statement.action, st.RenameTable):
        del engine.temporary_tables[target.name.lower()]
        engine.temporary_tables[statement.action.new.name.lower()] = statement.action.new.name
    return SqlChange(operation, WriteResult(0))


def _count(found: pa.Table) -> int:
    return int(found.column(0)[0].as_py()) if found.num_columns == 1 and found.num_rows == 1 else 0
