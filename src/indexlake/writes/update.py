"""Update: rows that a predicate or a query has found get new values and keep their ids; rows are locked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import rows_of
from indexlake.commit.write_set import row_id_set
from indexlake.errors import ConstraintError
from indexlake.expr.moment import statement
from indexlake.scan.point import read_values
from indexlake.schema import ROW_ID
from indexlake.writes.assignments import Assignments
from indexlake.writes.edit import Edit
from indexlake.writes.find import PredicateOf, Target, find, find_by_scan, with_row_ids

if TYPE_CHECKING:
    from indexlake.transaction import Transaction


@statement()
def update(tx: Transaction, table_id: int, assignments: Mapping[str, Any], predicate_of: PredicateOf) -> int:
    """Give the rows that satisfy the predicate new values.  How many they are."""
    rows = find(tx, table_id, predicate_of)
    if isinstance(rows, Target):
        if (done := _update_one(tx, rows, assignments)) is not None:
            return done
        rows = find_by_scan(tx, table_id, predicate_of)
    state, found = rows
    setter = Assignments(assignments, state.current)  # wrong columns are errors also when no row matches
    same_key = not setter.changes(state.current.key_fields)
    edit = Edit(tx, state)
    step = rows_of(setter.constant_bytes)
    for piece in found:
        parts = (piece.batch.slice(start, step) for start in range(0, piece.batch.num_rows, step))
        edit.update(piece, map(setter.apply, parts), same_key=same_key)
    return edit.apply()


def _update_one(tx: Transaction, target: Target, assignments: Mapping[str, Any]) -> int | None:
    """None: a scan has to do it."""
    state = target.state
    if state.table.config.direct_write_row_count < 2:
        return None
    setter = Assignments(assignments, state.current)
    needed = target.predicate.columns | setter.columns
    if not target.held_exactly(needed):
        return None
    if target.row is None:
        return 0
    old = read_values(target.row)
    row = target.python_row(old, needed)
    if not target.is_met(row):
        return 0
    edit = Edit(tx, state)
    new = setter.apply_row(old, row)
    edit.update_row(target.row, new, same_key=not setter.changes(state.current.key_fields))
    return edit.apply()


def update_by_row_id(
    tx: Transaction, table_id: int, row_ids: pa.ChunkedArray, values: Mapping[str, pa.ChunkedArray]
) -> int:
    """Give rows new values: one for each row id and column."""
    ids = row_ids.to_numpy()
    if not len(ids):
        return 0
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise ConstraintError(
            "The query finds several new values for one row. Make its FROM match each row once, or use MERGE."
        )
    columns = {f"#{name}": _whole(column) for name, column in values.items()}
    state, found = find_by_scan(tx, table_id, with_row_ids(ids.tolist()))
    setter = Assignments({}, state.current, copies={name: f"#{name}" for name in values})
    same_key = not setter.changes(state.current.key_fields)
    edit = Edit(tx, state)
    for piece in found:
        batch = piece.batch
        places = pa.array(order[np.searchsorted(ordered, batch.column(ROW_ID).to_numpy())])
        for name, column in columns.items():
            batch = batch.append_column(name, column.take(places))
        edit.update(piece, [setter.apply(batch)], same_key=same_key)
    return edit.apply()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def lock(tx: Transaction, table_id: int, row_ids: Sequence[int]) -> None:
    """Rows read ``for_update``: a concurrent change of them conflicts with this transaction.

    Rows that the transaction itself has added are nobody else's yet and need no lock.
    """
    with tx.reading(table_id) as reading:
        writes = tx.writes(reading.state)
    ids = np.asarray(row_ids, np.int64)
    own = np.isin(ids, list(writes.rows))
    for block in writes.blocks:
        own |= block.row_ids.positions_of(ids) >= 0
    writes.locked |= row_id_set(ids[~own]) | (row_id_set(ids[own]) & writes.closed)
