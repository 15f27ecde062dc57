"""Update and delete of rows that a query has found, by their row ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake import changes
from indexlake.assignments import Assignments
from indexlake.errors import ConstraintError
from indexlake.scan.execute import Piece
from indexlake.scan.scan import bind_predicate
from indexlake.schema import ROW_ID, TableSchema
from indexlake.state import TableState

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.transaction import Transaction


def delete_rows(tx: Transaction, table_id: int, row_ids: pa.ChunkedArray) -> int:
    ids = row_ids.unique().to_pylist()
    return changes.delete(tx, table_id, lambda schema: _by_row_id(schema, ids)) if ids else 0


def update_rows(tx: Transaction, table_id: int, row_ids: pa.ChunkedArray, values: Mapping[str, pa.ChunkedArray]) -> int:
    """Give the rows new values: one for each row id and column."""
    ids = row_ids.to_numpy()
    if not len(ids):
        return 0
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise ConstraintError(
            "The query finds several new values for one row. Make its FROM match each row once, or use MERGE."
        )
    columns = {name: _whole(column) for name, column in values.items()}
    closes: list[Piece] = []
    used: TableState | None = None
    count = 0
    for state, piece in changes._matching(tx, table_id, lambda schema: _by_row_id(schema, ids.tolist()), None):
        if used is None:
            used = state
            setter = Assignments({}, state.current, copies={name: f"#{name}" for name in columns})
            same_key = not setter.changes(state.current.key_fields)
            known = changes.NewVersions(tx, state, keys_known=True)
            unknown = changes.NewVersions(tx, state, keys_known=False)
        places = pa.array(order[np.searchsorted(ordered, piece.batch.column(ROW_ID).to_numpy())])
        batch = piece.batch
        for name, column in columns.items():
            batch = batch.append_column(f"#{name}", column.take(places))
        new = setter.apply(batch)
        closes.append(replace(piece, batch=piece.batch.select([ROW_ID])))
        count += batch.num_rows
        # The key of a row that this transaction itself has added must be looked for all the same.
        versions = known if same_key and not piece.kind.startswith("own") else unknown
        versions.add(new, piece.batch.column(ROW_ID))
    if used is None:
        return 0
    known.finish()
    unknown.finish()
    writes = tx.writes(used)
    for piece in closes:
        changes.close(writes, used, piece)
    known.apply(writes)
    unknown.apply(writes)
    writes.updated += count
    return count


def _by_row_id(schema: TableSchema, ids: list[Any]) -> Bound:
    return bind_predicate(f"{ROW_ID} in $ids", schema, {"ids": ids})


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
