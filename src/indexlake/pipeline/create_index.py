"""Creating an index: one commit for its definition; then existing rows are indexed, and a unique index is published.

From the first commit on, every new block gets a segment and every search finds every row; blocks without a segment are
scanned until the build reaches them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indexlake.catalog.index_definitions import CreateIndex, DropIndex
from indexlake.display.progress import ProgressBar
from indexlake.errors import ConflictError, OwnershipError, SchemaError
from indexlake.indexes.index import PRIMARY
from indexlake.indexes.registry import kind_named, known_name
from indexlake.pipeline.build_index import build_index
from indexlake.pipeline.job import JobBusy
from indexlake.pipeline.merge_index import merge_index
from indexlake.pipeline.publish_unique import publish_unique
from indexlake.pipeline.runner import choose_runner
from indexlake.schema.lineage import line

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.schema import Field
    from indexlake.table import Table
    from indexlake.transaction import Transaction

_AGAIN = 10


def create_index(
    table: Table,
    name: str,
    columns: str | Sequence[str],
    kind: str,
    unique: bool,
    include: str | Sequence[str],
    params: Mapping[str, Any],
    progress: bool | None,
) -> None:
    """Create an index; return when every block has a segment and, if it is unique, no two rows have the same key."""
    refuse_view(table, "created")
    _check_name(name)
    if not isinstance(unique, bool):
        raise SchemaError(f"unique is True or False, not {unique!r}.")
    if name.lower() == PRIMARY:
        raise SchemaError(f"{name!r} is the index of the primary key. Choose another name.")
    lake, table_id = table._lake, table._table_id
    if table._tx is not None:
        _create_in(table._tx, _definition(table, name, columns, kind, unique, include, params))
        return
    for attempt in range(_AGAIN):
        change = _definition(table, name, columns, kind, unique, include, params)
        try:
            lake._define(change, "create index")
            break
        except ConflictError:  # columns were altered meanwhile
            if attempt == _AGAIN - 1:
                raise
    lake._readings.states.forget(table_id)
    index_id = change.found[0]
    build(lake, change, progress)
    if unique:
        publish_unique(lake, table_id, index_id)
    if unique and index_id not in {index.index_id for index in lake._readings.latest(table_id).live_indexes}:
        raise ConflictError(
            f"Index {name!r} was dropped by another process while it was built, perhaps because its keys are not "
            "unique. Create it again.",
            table=table._name,
        )


def build(lake: Lake, change: CreateIndex, progress: bool | None = None) -> None:
    """Index the existing rows."""
    (index_id,), runner = change.found, choose_runner(lake.storage)
    with suppress(JobBusy):  # the background work is doing it
        build_index(lake, change.table_id, index_id, runner, bar=ProgressBar(f"index {change.name}", progress))
        merge_index(lake, change.table_id, index_id, runner)


def _create_in(tx: Transaction, change: CreateIndex) -> None:
    """Create an index in a transaction; its commit is followed by the build.

    A unique index on a new table holds from the start.
    """
    new = tx.draft is not None and change.table_id in tx.draft.created
    if change.unique and not new:
        raise OwnershipError(
            f"A unique index on a table that has rows cannot be created inside a transaction: all rows have to be "
            f"compared. Create {change.name!r} before or after, on lake.table({change.full_name!r})."
        )
    tx._define(replace(change, enforced=change.unique), "create index")


def _check_name(name: object) -> None:
    good = isinstance(name, str) and bool(name.strip()) and "." not in name and name.isprintable()
    if not good:
        raise SchemaError(f"{name!r} is not an index name: it must be printable text without dots.")


def _names(what: str, given: Any) -> list[str]:
    """Return a list of column names, given one or several."""
    names: list[Any] = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise SchemaError(f'{what} is a column, or a list of columns such as ["city", "total"]; got {given!r}.')
    return names


def _definition(
    table: Table,
    name: str,
    columns: str | Sequence[str],
    kind: str,
    unique: bool,
    include: str | Sequence[str],
    params: Mapping[str, Any],
) -> CreateIndex:
    state = table._state()
    schema = state.current
    wanted = known_name(kind)
    keys = schema.project(_names("columns", columns))
    included = schema.project(_names("include", include))
    if not keys:
        raise SchemaError(f'Index {name!r} needs a column: t.create_index({name!r}, "column").')
    for twice in (f for n, f in enumerate((*keys, *included)) if f in (*keys, *included)[:n]):
        raise SchemaError(f"Index {name!r} names column {twice.name!r} twice.", column=twice.name)
    implementation = kind_named(wanted)
    kept = implementation.define(keys, included, unique, params)
    return CreateIndex(
        table._table_id, state.table.full_name, state.table.schema_version, name, wanted, _roots(keys),
        _roots(included), unique, kept, tuple(implementation.hot_fields(keys)),
    )  # fmt: skip


def _roots(fields: Sequence[Field]) -> tuple[int, ...]:
    """Return the oldest field of each column's lineage, which stays whatever happens to the column."""
    return tuple([g.field_id for g in line(f)][-1] for f in fields)


def drop_index(table: Table, name: str, missing_ok: bool) -> None:
    refuse_view(table, "dropped")
    _check_name(name)
    (table._tx or table._lake)._define(DropIndex(table._table_id, table.name, name, missing_ok), "drop index")
    table._lake._readings.states.forget(table._table_id)


def refuse_view(table: Table, what: str) -> None:
    if table._snapshot is not None:
        raise OwnershipError(
            f"{table._name} at snapshot {table._snapshot} is a view of the past: no index can be {what} there."
        )
    table._lake._check(writing=True)
