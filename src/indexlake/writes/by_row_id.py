"""Changes to rows known by their ids: the results of a query are applied all at once, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import ConstraintError
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.sources.rules import default_array
from indexlake.writes.assignments import Assignments
from indexlake.writes.edit import Edit
from indexlake.writes.find import find_by_scan, with_row_ids
from indexlake.writes.merge.match import only

if TYPE_CHECKING:
    from indexlake.transaction import Transaction

Ids = npt.NDArray[np.int64]
_NONE: Ids = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class NewValues:
    """The new values of some rows, by column."""

    ids: Ids
    columns: Mapping[str, pa.ChunkedArray]


def change_by_row_id(
    tx: Transaction,
    table_id: int,
    *,
    updates: Sequence[NewValues] = (),
    deleted: Ids = _NONE,
    inserted: Sequence[pa.Table] = (),
) -> int:
    """Apply changes to distinct rows and return their number; inserted rows lack columns that take their default."""
    ids = np.concatenate([deleted, *(new.ids for new in updates)])
    if len(np.unique(ids)) < len(ids):
        raise ConstraintError(
            "The query finds several new values for the same row. Make sure that the join matches each row only once."
        )
    state, found = find_by_scan(tx, table_id, with_row_ids(ids.tolist()), None if updates else ())
    edit = Edit(tx, state)
    prepared = [_Update(new, state.current) for new in updates]
    for piece in found if len(ids) else ():
        here = piece.batch.column(ROW_ID).to_numpy()
        for update in prepared:
            places, versions = update.versions(here, piece.batch)
            if len(places):
                edit.update(only(piece, places), [versions], same_key=update.same_key)
        gone = np.flatnonzero(np.isin(here, deleted))
        if len(gone):
            edit.delete(only(piece, gone))
    for rows in inserted:
        if not rows.num_rows:
            continue
        setter = Assignments({}, state.current, copies={name: name for name in rows.schema.names})
        for batch in rows.to_batches():
            edit.insert(setter.apply(batch, _defaults(batch)))
    return edit.apply()


class _Update:
    """New values, found by row id."""

    def __init__(self, new: NewValues, schema: TableSchema) -> None:
        self._order = np.argsort(new.ids, kind="stable")
        self._ids = new.ids[self._order]
        self._columns = {f"#{name}": _whole(column) for name, column in new.columns.items()}
        self._setter = Assignments({}, schema, copies={name: f"#{name}" for name in new.columns})
        self.same_key = not self._setter.changes(schema.key_names)

    def versions(self, here: Ids, batch: pa.RecordBatch) -> tuple[Ids, pa.RecordBatch]:
        """Return the places of a batch that are changed, and their new versions."""
        places = np.flatnonzero(np.isin(here, self._ids))
        rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
        at = pa.array(self._order[np.searchsorted(self._ids, here[places])])
        for name, column in self._columns.items():
            rows = rows.append_column(name, column.take(at))
        return places, self._setter.apply(rows)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _defaults(batch: pa.RecordBatch) -> Callable[[Field], pa.Array]:
    return lambda f: default_array(f, batch.num_rows)
