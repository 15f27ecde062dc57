"""Create, drop and show indexes: maps parsed statements to ``table.create_index``, ``drop_index`` and ``indexes``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import definitions, segments
from indexlake.catalog.index_definitions import CommentOnIndex
from indexlake.errors import AlreadyExistsError, NotFoundError
from indexlake.schema.names import split_name
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.engine import Engine

if TYPE_CHECKING:
    from indexlake.catalog.driver import ReadTransaction, Transaction
    from indexlake.indexes.index import Index
    from indexlake.table import Table

_WRITTEN_ELSEWHERE = {
    "name": "CREATE INDEX name ON …",
    "columns": "… USING kind (column, …)",
    "kind": "… USING kind (column, …)",
    "unique": "CREATE UNIQUE INDEX …",
    "include": "… INCLUDE (column, …)",
    "progress": "table.create_index(…, progress=True) in Python",
}
_SHOWN = pa.schema({
    "table": pa.string(), "name": pa.string(), "kind": pa.string(), "columns": pa.list_(pa.string()),
    "include": pa.list_(pa.string()), "unique": pa.bool_(), "state": pa.string(), "size_bytes": pa.int64(),
    "rows_in_segments": pa.int64(), "rows_hot": pa.int64(), "rows_uncovered": pa.int64(), "last_error": pa.string(),
})  # fmt: skip


def create_index(engine: Engine, view: Viewpoint, statement: st.CreateIndex, parameters: Parameters) -> None:
    table = view.table(statement.table.full(view.namespace))
    if _has(table, statement.name):
        if statement.if_not_exists:
            return
        raise AlreadyExistsError(
            f"Table {table.name!r} has an index {statement.name!r} already. Accept that with IF NOT EXISTS, or drop it "
            "first.",
            name=statement.name,
        )
    table.create_index(
        statement.name, list(statement.columns), kind=statement.kind, unique=statement.unique,
        include=list(statement.include), **_params(engine, statement.options, parameters),
    )  # fmt: skip


def drop_index(view: Viewpoint, statement: st.DropIndex) -> None:
    named = statement.table
    space = view.namespace if named is None else _space(view, named)
    if space is None:
        assert named is not None
        table = _found(view, named.full(view.namespace), missing_ok=statement.if_exists)
    else:
        within = replace(view, namespace=space)
        table = _only_table_with(within, statement.name)
        if table is None and not statement.if_exists:
            raise _no_index(within, statement.name)
    if table is not None:
        table.drop_index(statement.name, missing_ok=statement.if_exists)


def _space(view: Viewpoint, named: TableName) -> str | None:
    """Return the namespace that stands before an index, if it is one and not the table of the index."""
    if named.namespace is not None or _found(view, named.full(view.namespace), missing_ok=True) is not None:
        return None
    return next((space for space in view.within.namespaces() if space.lower() == named.name.lower()), None)


def comment_on_index(view: Viewpoint, name: TableName, comment: str | None) -> None:
    within = view if name.namespace is None else replace(view, namespace=name.namespace)
    table = _only_table_with(within, name.name)
    if table is None:
        raise _no_index(within, name.name)
    view.within._define(CommentOnIndex(table._table_id, table.name, name.name, comment), "comment")


def _no_index(view: Viewpoint, name: str) -> NotFoundError:
    return NotFoundError(
        f"No table of namespace {view.namespace!r} has an index {name!r}. SHOW ALL INDEXES lists those of all "
        "namespaces.",
        name=name,
    )


def shown_indexes(view: Viewpoint, statement: st.ShowIndexes) -> pa.Table:
    """Return a row for each index of one table, of the namespace's tables, or of all tables by full name."""
    if statement.table is None:
        tables = list(_tables(view, everywhere=statement.everywhere))
    else:
        tables = [_handle(view, statement.table.full(view.namespace))]
    rows = []
    for table in tables:
        for info in sorted(table.indexes(), key=lambda info: info.name.lower()):
            row = {name: getattr(info, name) for name in _SHOWN.names[1:]}
            rows.append({"table": table.name if statement.everywhere else split_name(table.name)[1], **row})
    return pa.Table.from_pylist(rows, _SHOWN)


def _params(engine: Engine, options: Sequence[tuple[str, Fragment]], parameters: Parameters) -> dict[str, Any]:
    """Return the parameters in ``with (name = value, …)``, which depend on the kind of index."""
    values: dict[str, Any] = {}
    for written_name, written in options:
        name = written_name.lower()
        if name in values:
            written.source.fail(f"{written_name!r} is given twice.", written.start)
        if name in _WRITTEN_ELSEWHERE:
            written.source.fail(f"{written_name!r} is not an option: write {_WRITTEN_ELSEWHERE[name]}", written.start)
        value = constant_value(engine, written, parameters)
        items = value if isinstance(value, list) else [value]
        if any(item is None or not isinstance(item, str | bool | int | float | Decimal) for item in items):
            written.source.fail(
                f"The value of {written_name!r} has to be a number, a text, true or false, or a list of texts.",
                written.start,
            )
        values[name] = [_plain(item) for item in items] if isinstance(value, list) else _plain(value)
    return values


def _plain(value: Any) -> Any:
    """Convert decimals, which is what DuckDB makes of 1.5."""
    return float(value) if isinstance(value, Decimal) else value


def _has(table: Table, index: str) -> bool:
    return any(info.name.lower() == index.lower() for info in table.indexes())


def _only_table_with(view: Viewpoint, index: str) -> Table | None:
    with view.seen() as seen:
        r = seen.r
        tables = [t for t in definitions.list_tables(r, seen.at) if t.namespace.lower() == view.namespace.lower()]
        found = [t for t in tables if any(i.name.lower() == index.lower() for i in _live(r, t.table_id))]
    if len(found) > 1:
        names = [table.name for table in found]
        raise NotFoundError(
            f"Tables {' and '.join(map(repr, names))} each have an index {index!r}. Say which one: "
            f"DROP INDEX {index} ON {names[0]}.",
            name=index,
        )
    return _handle(view, found[0].full_name) if found else None


def _live(r: ReadTransaction | Transaction, table_id: int) -> list[Index]:
    return [i for i in segments.read_indexes(r, table_id) if i.end_snapshot is None and not i.is_primary]


def _tables(view: Viewpoint, *, everywhere: bool) -> Iterator[Table]:
    with view.seen() as seen:
        every = definitions.list_tables(seen.r, seen.at)
        names = [t.full_name for t in every if everywhere or t.namespace.lower() == view.namespace.lower()]
    for name in names:
        table = _found(view, name, missing_ok=True)  # it may be dropped in the meantime
        if table is not None:
            yield table


def _found(view: Viewpoint, name: str, *, missing_ok: bool) -> Table | None:
    try:
        return _handle(view, name)
    except NotFoundError:
        if missing_ok:
            return None
        raise


def _handle(view: Viewpoint, name: str) -> Table:
    return view.table(name)
