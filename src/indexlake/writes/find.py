"""The rows that an update or a delete is about: one row by its primary key, or any rows by a scan.

A predicate that names one primary key needs no scan: the row is found as a point read finds it, and the rest of the
predicate is computed in Python on that row.  The scalar path of expressions has the semantics of the Arrow one, so the
outcome is the same.  A scan is needed for transactions that have written to the table already, reads of the past,
predicates that name several keys, and columns whose values Python does not hold exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indexlake.expr.test import ColumnTest
from indexlake.scan.execute import Piece, pieces
from indexlake.scan.plan import plan_scan
from indexlake.scan.point import LiveRow, find_in_blocks, find_recent, key_in
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.schema.fitting import Values
from indexlake.snapshots.state import TableState
from indexlake.types import SqlValue
from indexlake.types.floats import is_float

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.transaction import Transaction

PredicateOf = Callable[[TableSchema], "Bound"]


@dataclass(frozen=True, slots=True)
class Target:
    """The row with the key that a predicate names, None when there is none, at the state that it was found in."""

    state: TableState
    predicate: Bound
    key: list[SqlValue]
    row: LiveRow | None

    def is_met(self, row: dict[str, Any]) -> bool:
        """Whether the row satisfies the whole predicate; ``row`` has the columns that it names."""
        assert self.row is not None
        row[ROW_ID] = self.row.row_id
        return self.predicate.evaluate_row(row) is True

    def held_exactly(self, names: Set[str]) -> bool:
        """Whether Python values of these columns are what Arrow computes with."""
        plain = self.state.current.plain_names
        return names <= plain or names - {ROW_ID} <= plain

    def key_row(self, names: Set[str]) -> dict[str, Any] | None:
        """The columns asked for, when the key tells them all.  A float may differ from its key: -0.0 equals 0.0."""
        schema = self.state.current
        row: dict[str, Any] = {}
        for f, codec, value in zip(schema.key_fields, schema.key_codecs, self.key, strict=True):
            if f.name in names and not is_float(codec):
                row[f.name] = codec.decode_one(value)
        return row if all(name in row or name == ROW_ID for name in names) else None

    def python_row(self, values: Values, names: Set[str]) -> dict[str, Any]:
        """The columns asked for, of the row's encoded values."""
        schema = self.state.current
        return {
            f.name: codec.decode_one(value)
            for f, codec, value in zip(schema.fields, schema.codecs, values, strict=True)
            if f.name in names
        }


def find_by_key(tx: Transaction, table_id: int, predicate_of: PredicateOf) -> Target | None:
    """None: rows have to be found by a scan."""
    if tx.own_writes(table_id) is not None:
        return None
    files = tx._lake._files
    with tx.reading(table_id) as reading:
        predicate = predicate_of(reading.schema)
        key = key_in(predicate, reading.schema) if reading.newest else None
        if key is None:
            return None
        found = find_recent(reading, files, key)
    row = found or find_in_blocks(reading, files, key)
    assert not isinstance(row, dict)  # neither the transaction's own nor of the past
    return Target(reading.state, predicate, key, row)


def find_by_scan(
    tx: Transaction, table_id: int, predicate_of: PredicateOf, columns: Sequence[Field] | None = None
) -> tuple[TableState, Iterator[Piece]]:
    """The state, and the rows that satisfy the predicate, with their row ids.  ``columns`` None: all of them."""
    with tx.reading(table_id) as reading:
        schema, predicate = reading.schema, predicate_of(reading.schema)
        fields = schema.fields if columns is None else columns
        needed = dict.fromkeys((*fields, *(f for f in schema.fields if f.name in predicate.columns)))
        plan = plan_scan(reading, tx._lake._files, predicate=predicate, columns=tuple(needed))
    return reading.state, pieces(plan, tx._lake._files, tx._lake._scan_threads, fields, row_id=True)


def with_row_ids(ids: Sequence[int]) -> PredicateOf:
    """Which rows have one of these ids."""
    from indexlake.expr.compiler import satisfying

    return lambda schema: satisfying(schema.arrow_with_row_id, [ColumnTest(ROW_ID, "in", tuple(ids))])
