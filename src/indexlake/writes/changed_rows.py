"""The rows that a statement of a transaction changes: new ones as they are, deleted ones as they were."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.writes.find import find_by_scan, with_row_ids

if TYPE_CHECKING:
    from indexlake.transaction import Transaction

Ids = npt.NDArray[np.int64]
NO_IDS: Ids = np.zeros(0, np.int64)
ACTION = "action"


class ChangedRows:
    """Records the changes to one table of a transaction while its context is entered."""

    def __init__(self, tx: Transaction, table_id: int) -> None:
        self._tx = tx
        self._table_id = table_id
        self._deleted: list[pa.Table] = []
        self._written: dict[str, list[Ids]] = {"INSERT": [], "UPDATE": []}

    def __enter__(self) -> ChangedRows:
        self._tx.watching = self
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tx.watching = None

    def note(self, table_id: int, ended: Ids, begun: Ids) -> None:
        """Note that versions of rows end and others begin, before the write-set changes."""
        if table_id != self._table_id:
            return
        gone = np.setdiff1d(ended, begun)
        if len(gone):
            self._deleted.append(self._read(gone, "DELETE"))
        self._written["UPDATE"].append(np.intersect1d(ended, begun))
        self._written["INSERT"].append(np.setdiff1d(begun, ended))

    def rows(self) -> pa.Table:
        """Return all changed rows: the columns, the row id, and what happened to each as ``action``."""
        parts = list(self._deleted)
        for action, ids in self._written.items():
            parts.append(self._read(np.concatenate([NO_IDS, *ids]), action))
        return pa.concat_tables(parts)

    def _read(self, ids: Ids, action: str) -> pa.Table:
        state, found = find_by_scan(self._tx, self._table_id, with_row_ids(ids.tolist()))
        batches: Sequence[pa.RecordBatch] = [piece.batch for piece in found] if len(ids) else []
        schema = state.current.arrow_with_row_id
        table = pa.Table.from_batches([pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in batches], schema)
        return table.append_column(ACTION, pa.array([action] * table.num_rows, pa.string()))
