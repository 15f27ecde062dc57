"""Update and delete of one row by its primary key, without Arrow's fixed costs.

A change whose predicate names one primary key goes the way of a point read: the row is found among the hot rows or
through the key segments, the rest of the predicate and the new values are computed in Python on that row.  The
scalar path of expressions has the same semantics as the Arrow one, so the outcome is that of the general path.
What this module does not do (returns None for): transactions that have written to the table already, reads of the
past, predicates that name several keys or columns whose values Python does not hold exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from indexlake.assignments import Assignments
from indexlake.blocks.block import BlockRecord
from indexlake.catalog import inline
from indexlake.errors import ConstraintError
from indexlake.expr.test import ColumnTest
from indexlake.keys.encoding import Key, encode_key
from indexlake.point import older_values
from indexlake.rows import Values
from indexlake.scan.plan import conjuncts
from indexlake.schema import ROW_ID, TableSchema
from indexlake.state import TableState
from indexlake.types import SqlValue
from indexlake.types.floats import is_float

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.catalog.driver import ReadTransaction
    from indexlake.commit.write_set import TableWrites
    from indexlake.expr import Bound
    from indexlake.transaction import Transaction

PredicateOf = Callable[[TableSchema], "Bound"]


@dataclass(frozen=True, slots=True)
class _Hot:
    """A row version in the catalog."""

    row_id: int
    begin: int
    encoded: Values

    def values(self, files: OpenFiles, state: TableState) -> Values:
        return self.encoded

    def close(self, writes: TableWrites) -> None:
        writes.close_hot(self.row_id, self.begin)


@dataclass(frozen=True, slots=True)
class _InBlock:
    """A row at a position of a block."""

    row_id: int
    block: BlockRecord
    position: int

    def values(self, files: OpenFiles, state: TableState) -> Values:
        """Encoded, in the order of the current fields."""
        in_file, schema = state.schema.at(self.block.schema_snapshot), state.current
        all_columns = list(zip(schema.columns, schema.codecs, strict=True))
        reader = files.reader(self.block, in_file.file)
        if in_file is schema:
            columns, older = schema.columns, {}
        else:
            missing = [f for f in schema.fields if f.field_id not in in_file.by_id]
            columns = tuple(f.column for f in schema.fields if f.field_id in in_file.by_id)
            older = older_values(reader, self.position, missing, in_file) if missing else {}
        if not older and len(schema.plain_names) == len(schema):
            row = reader.row(self.position, columns)
            if all(value == value for value in row.values()):  # Python may change the bits of a NaN
                return tuple(codec.encode_one(row[column]) for column, codec in all_columns)
        table = reader.take(np.array([self.position], np.uint64), columns)
        return tuple(
            codec.encode(older[column] if column in older else table.column(column))[0] for column, codec in all_columns
        )

    def close(self, writes: TableWrites) -> None:
        file_id = self.block.data_file_id
        writes.close_in_block(file_id, np.array([self.position]), np.array([self.row_id]))
        writes.block_row_ids[file_id] = self.block.row_ids


Place = _Hot | _InBlock
"""Where a row lies: it has ``row_id``, ``values`` and ``close``."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The row that a change is about, None when there is none, at the state that it was found in."""

    state: TableState
    predicate: Bound
    key: list[SqlValue]
    place: Place | None

    def is_met(self, row: dict[str, Any]) -> bool:
        assert self.place is not None
        row[ROW_ID] = self.place.row_id
        return self.predicate.evaluate_row(row) is True


def delete(tx: Transaction, table_id: int, predicate_of: PredicateOf) -> int | None:
    """How many rows were deleted; None: the general path has to do it."""
    target = _find(tx, table_id, predicate_of)
    if target is None or not _held_exactly(target.state.current, target.predicate.columns):
        return None
    state, place = target.state, target.place
    if place is None:
        return 0
    row = _key_row(state.current, target.key, target.predicate.columns)
    if row is None:
        row = _python_row(state.current, place.values(tx._lake._files, state), target.predicate.columns)
    if not target.is_met(row):
        return 0
    writes = tx.writes(state)
    place.close(writes)
    writes.deleted += 1
    return 1


def update(tx: Transaction, table_id: int, assignments: Mapping[str, Any], predicate_of: PredicateOf) -> int | None:
    """How many rows were changed; None: the general path has to do it."""
    target = _find(tx, table_id, predicate_of)
    if target is None or target.state.table.config.direct_write_row_count < 2:
        return None
    state, place = target.state, target.place
    schema = state.current
    setter = Assignments(assignments, schema)
    needed = target.predicate.columns | setter.columns
    if not _held_exactly(schema, needed):
        return None
    if place is None:
        return 0
    old = place.values(tx._lake._files, state)
    row = _python_row(schema, old, needed)
    if not target.is_met(row):
        return 0
    new = setter.apply_row(old, row)
    writes = tx.writes(state)
    place.close(writes)
    writes.replace(place.row_id, new, same_key=not setter.changes(schema.key_fields))
    writes.updated += 1
    return 1


def _find(tx: Transaction, table_id: int, predicate_of: PredicateOf) -> _Target | None:
    """Where the row lies whose key the predicate names; files are read outside the read transaction."""
    if tx.own_writes(table_id) is not None:
        return None
    with tx.reading(table_id) as (r, state, snapshot):
        predicate = predicate_of(state.current)
        key = _key_in(predicate, state.current) if snapshot == state.at else None
        if key is None:
            return None
        hot = hot_row(r, state, snapshot, key)
    if hot is not None:
        return _Target(state, predicate, key, hot)
    wanted = encode_key(state.current.key_codecs, key)
    return _Target(state, predicate, key, row_in_blocks(tx._lake._files, state, snapshot, wanted))


def row_in_blocks(files: OpenFiles, state: TableState, snapshot: int, key: Key) -> Place | None:
    """The row with that key in the blocks of a state that is not newer than the snapshot."""
    for block, position in state.finder.find(key, state, snapshot, files):
        return _InBlock(state.row_ids(block).row_id_at(position), block, position)
    return None


def _key_in(predicate: Bound, schema: TableSchema) -> list[SqlValue] | None:
    """The encoded primary key that a row must have to satisfy the predicate, when it names exactly one."""
    named = {
        part.column: part.values[0]
        for part in conjuncts(predicate.test())
        if isinstance(part, ColumnTest) and part.op in ("=", "in") and len(part.values) == 1
    }
    key: list[SqlValue] = []
    for f, codec in zip(schema.key_fields, schema.key_codecs, strict=True):
        value = named.get(f.name)
        if value is None:
            return None
        try:
            key.append(codec.encode_constant(value))
        except ConstraintError:
            return None
    return key or None


def hot_row(r: ReadTransaction, state: TableState, snapshot: int, key: list[SqlValue]) -> Place | None:
    """The row with that encoded key among the hot rows."""
    schema = state.current
    condition, values = inline.key_condition(schema.key_columns, schema.key_codecs, key)
    older = schema.inline if schema.evolved else None
    columns = schema.columns if older is None else older.columns
    for row in inline.rows_by_key(r, state.table.table_id, columns, condition, values):
        if inline.is_visible(row, snapshot, state.table):
            return _Hot(row[1], row[0], row[3:] if older is None else older.row(row[0], row[3:]))
    return None


def _held_exactly(schema: TableSchema, names: Set[str]) -> bool:
    """Whether Python values of these columns are what Arrow computes with."""
    return names <= schema.plain_names or names - {ROW_ID} <= schema.plain_names


def _key_row(schema: TableSchema, key: list[SqlValue], names: Set[str]) -> dict[str, Any] | None:
    """The columns asked for, when the key tells them all.  A float may differ from its key: -0.0 equals 0.0."""
    row: dict[str, Any] = {}
    for f, codec, value in zip(schema.key_fields, schema.key_codecs, key, strict=True):
        if f.name in names and not is_float(codec):
            row[f.name] = codec.decode_one(value)
    return row if all(name in row or name == ROW_ID for name in names) else None


def _python_row(schema: TableSchema, values: Values, names: Set[str]) -> dict[str, Any]:
    return {
        f.name: codec.decode_one(value)
        for f, codec, value in zip(schema.fields, schema.codecs, values, strict=True)
        if f.name in names
    }
