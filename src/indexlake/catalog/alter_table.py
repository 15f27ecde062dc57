"""Altering a table in the catalog, inside the critical section: all alterations or none, in one commit.

No row and no file is touched. A renamed column gets another record; a column whose type or content changes gets another
field; new columns are added to the inline table. Dropped columns stay for the snapshots that show them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from indexlake.blocks.statistics import stats_from_bytes
from indexlake.catalog.definitions import (
    TableRecord,
    find_table,
    make_namespace,
    namespace_id_of,
    read_table,
    refuse_view,
)
from indexlake.catalog.driver import Transaction
from indexlake.catalog.fields import insert_checks, insert_fields, read_schema
from indexlake.catalog.index_definitions import live_indexes
from indexlake.catalog.tables import next_values
from indexlake.display import shown_value
from indexlake.errors import AlreadyExistsError, NotFoundError, SchemaError
from indexlake.evolution.alterations import Alteration, Column, Definition, altered
from indexlake.indexes.registry import kind_named
from indexlake.schema import Field, SchemaHistory, TableSchema
from indexlake.schema.lineage import line
from indexlake.schema.widening import limits
from indexlake.types.hugeint import is_hugeint

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore


@dataclass(frozen=True, slots=True)
class AlterTable:
    table_id: int
    full_name: str
    alterations: tuple[Alteration, ...]

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        table = read_table(tx, self.table_id)
        if table is None or table.end_snapshot is not None:
            raise NotFoundError(f"Table {self.full_name!r} was dropped by another commit.", name=self.full_name)
        history = read_schema(tx, table)
        old = Definition.of(table.namespace, table.name, table.config, history.current)
        new = altered(old, self.alterations)
        renamed = (new.namespace, new.name) != (old.namespace, old.name)
        columns = new.columns != old.columns or new.checks != old.checks
        if not (renamed or columns or new.config != old.config):
            return False
        if columns:
            for column in new.columns:
                _check_values(tx, hot, table, column)
            hot.add_columns(tx, table.table_id, _write_columns(tx, table, history, new, snapshot))
            _write_checks(tx, table, old, new, snapshot)
            _adapt_indexes(tx, hot, replace(table, schema_version=snapshot), history.current)
        if renamed:
            _write_name(tx, table, new, snapshot)
        tx.execute(
            "update indexlake_table set config = ?, schema_version = ?, changed_in = ? where table_id = ?",
            (new.config.to_json(), snapshot if columns or renamed else table.schema_version, snapshot, self.table_id),
        )
        return True


def _write_columns(
    tx: Transaction, table: TableRecord, history: SchemaHistory, new: Definition, snapshot: int
) -> list[Field]:
    """End and add field records; return the fields that nothing holds yet."""
    kept = {c.before.field_id for c in new.columns if c.before is not None and c.field == c.before}
    ended = [f.field_id for f in history.current.fields if f.field_id not in kept]
    tx.execute_many(
        "update indexlake_field set end_snapshot = ? where field_id = ? and end_snapshot is null",
        [(snapshot, field_id) for field_id in ended],
    )
    tx.execute_many(  # made in the same commit, so no snapshot shows it: a record of the same field takes its place
        "delete from indexlake_field where field_id = ? and begin_snapshot = ? and end_snapshot = ?",
        [(c.field.field_id, snapshot, snapshot) for c in new.columns if c.before is not None and not c.steps],
    )
    position = max(f.position for f in history.fields)
    records, fresh = [], []
    for column in new.columns:
        if column.before is not None and column.before.field_id in kept:
            continue
        f = column.field
        if column.before is None:
            position += 1
            f = replace(f, field_id=next_values(tx, "field"), position=position)
        elif column.steps:
            f = replace(f, field_id=next_values(tx, "field"), source=column.before, steps=column.steps)
        if column.before is None or column.steps:
            fresh.append(f)
        records.append(f)
    insert_fields(tx, table.table_id, records, snapshot)
    return fresh


def _write_checks(tx: Transaction, table: TableRecord, old: Definition, new: Definition, snapshot: int) -> None:
    kept = {c.check_id: c for c in new.checks}
    for check in old.checks:
        now = kept.get(check.check_id)
        if now is None:
            tx.execute("update indexlake_check set end_snapshot = ? where check_id = ?", (snapshot, check.check_id))
        elif now.validated and not check.validated:
            tx.execute("update indexlake_check set validated_in = ? where check_id = ?", (snapshot, check.check_id))
    known = {c.check_id for c in old.checks}
    added = [replace(c, check_id=next_values(tx, "check")) for c in new.checks if c.check_id not in known]
    insert_checks(tx, table.table_id, added, snapshot)


def _adapt_indexes(tx: Transaction, hot: HotStore, table: TableRecord, before: TableSchema) -> None:
    """Check that indexes still have their columns, of types they support, and adapt the hot store's indexes."""
    now = read_schema(tx, table).current
    for index in live_indexes(tx, table.table_id):
        if not index.fits(now):
            gone = next(f.name for f in index.all_fields(before) if f.field_id not in now.by_id)
            raise SchemaError(
                f"Column {gone!r} cannot be dropped: index {index.name!r} needs it. Drop the index first with "
                f"t.drop_index({index.name!r}).",
                column=gone,
            )
        fields = index.fields(now)
        if [f.field_id for f in fields] == [f.field_id for f in index.fields(before)]:
            continue
        kind = kind_named(index.kind)
        included = index.all_fields(now)[len(fields) :]
        try:
            kind.define(fields, included, index.unique, index.params)
        except SchemaError as error:
            raise SchemaError(
                f"Index {index.name!r} does not support the altered column: {error} Drop the index first with "
                f"t.drop_index({index.name!r}).",
                column=fields[0].name,
            ) from None
        hot.drop_index(tx, table.table_id, index.index_id)
        if kept := kind.hot_fields(fields):
            hot.add_index(tx, table.table_id, index.index_id, kept)


def _write_name(tx: Transaction, table: TableRecord, new: Definition, snapshot: int) -> None:
    existing = find_table(tx, new.namespace, new.name)
    if existing is not None and existing.table_id != table.table_id:
        raise AlreadyExistsError(
            f"Table {existing.full_name!r} already exists. Choose another name, or drop it first.",
            name=existing.full_name,
        )
    refuse_view(tx, new.namespace, new.name)
    namespace_id = namespace_id_of(tx, new.namespace)
    if namespace_id is None:
        namespace_id = make_namespace(tx, new.namespace, snapshot)
    if table.named_in < snapshot:  # otherwise the name was given in the same commit, and no snapshot shows it
        tx.execute(
            """insert into indexlake_former_name (table_id, begin_snapshot, end_snapshot, namespace_id, table_name,
            folded_name) select table_id, named_in, ?, namespace_id, table_name, folded_name from indexlake_table
            where table_id = ?""",
            (snapshot, table.table_id),
        )
    tx.execute(
        """update indexlake_table set namespace_id = ?, table_name = ?, folded_name = ?, named_in = ?
        where table_id = ?""",
        (namespace_id, new.name, new.name.lower(), snapshot, table.table_id),
    )


# ---------------------------------------------------------------- widening to a narrower range


def _check_values(tx: Transaction, hot: HotStore, table: TableRecord, column: Column) -> None:
    """Refuse a type with a finer unit or fewer digits if a value recorded in the catalog is outside its range."""
    if column.before is None or column.field.codec is column.before.codec:
        return
    for f in line(column.before):
        fitting = limits(f, column.field)
        if fitting is None:
            continue
        for low, high in _bounds(tx, hot, table, f):
            if low < fitting[0] or high > fitting[1]:
                wrong = shown_value(f.codec.decode([low if low < fitting[0] else high])[0])
                raise SchemaError(
                    f"Column {column.field.name!r} of type {_named(column.before)} cannot become "
                    f"{_named(column.field)}: "
                    f"{wrong} is outside the range of the new type. Change or delete such rows first; values of "
                    "deleted rows count until their block has been rewritten.",
                    column=column.field.name,
                )


def _named(f: Field) -> str:
    return "HUGEINT" if is_hugeint(f) else str(f.type)


def _bounds(tx: Transaction, hot: HotStore, table: TableRecord, f: Field) -> list[tuple[Any, Any]]:
    """Return the least and greatest encoded value, for the live hot rows and each live block."""
    found = [held] if (held := hot.bounds(tx, table.table_id, f)) is not None else []
    blocks = tx.rows(
        """select column_stats from indexlake_data_file where table_id = ? and end_snapshot is null
        and role <> 'history'""",
        (table.table_id,),
    )
    for (data,) in blocks:
        stats = stats_from_bytes(data).get(f.column)
        if stats is not None and stats.min is not None and stats.max is not None:
            found.append((stats.min, stats.max))
    return found
