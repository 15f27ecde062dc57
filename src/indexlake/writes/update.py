"""Update: rows that a predicate or a query has found get new values and keep their ids. Also locks rows for update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from indexlake.arrow.batch_size import rows_of
from indexlake.commit.write_set import row_id_set
from indexlake.expr.moment import as_statement
from indexlake.scan.point import read_values
from indexlake.writes.assignments import Assignments
from indexlake.writes.edit import Edit, change_row
from indexlake.writes.find import PredicateOf, Target, find, find_by_scan

if TYPE_CHECKING:
    from indexlake.transaction import Transaction


@as_statement
def update(tx: Transaction, table_id: int, assignments: Mapping[str, Any], predicate_of: PredicateOf) -> int:
    """Give the rows that satisfy the predicate new values, and return their number."""
    rows = find(tx, table_id, predicate_of)
    if isinstance(rows, Target):
        if (done := _update_one(tx, rows, assignments)) is not None:
            return done
        rows = find_by_scan(tx, table_id, predicate_of)
    state, found = rows
    setter = Assignments(assignments, state.current)  # wrong columns are errors even if no row matches
    same_key = not setter.changes(state.current.key_names)
    edit = Edit(tx, state)
    step = rows_of(setter.constant_bytes)
    for piece in found:
        parts = (piece.batch.slice(start, step) for start in range(0, piece.batch.num_rows, step))
        edit.update(piece, map(setter.apply, parts), same_key=same_key)
    return edit.apply()


def _update_one(tx: Transaction, target: Target, assignments: Mapping[str, Any]) -> int | None:
    """Update a single row without a scan; return None if a scan is needed."""
    state = target.state
    if state.table.config.direct_write_row_count < 2:
        return None
    setter = Assignments(assignments, state.current)
    needed = target.tested | setter.columns
    if needed and not target.held_exactly(needed):
        return None
    if target.row is None:
        return 0
    old = read_values(target.row)
    row = target.python_row(old, needed) if needed else {}
    if not target.is_met(row):
        return 0
    same_key = not setter.changes(state.current.key_names)
    return change_row(tx, state, target.row, setter.apply_row(old, row), same_key=same_key)


def lock(tx: Transaction, table_id: int, row_ids: Sequence[int]) -> None:
    """Lock rows read ``for_update``, so that a concurrent change of them conflicts with this transaction.

    Rows that the transaction itself has added belong to nobody else yet and need no lock.
    """
    with tx.reading(table_id) as reading:
        writes = tx.writes(reading.state)
    ids = np.asarray(row_ids, np.int64)
    own = np.isin(ids, list(writes.rows))
    for block in writes.blocks:
        own |= block.row_ids.positions_of(ids) >= 0
    writes.locked |= row_id_set(ids[~own]) | (row_id_set(ids[own]) & writes.closed)
