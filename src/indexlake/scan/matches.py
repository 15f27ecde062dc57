"""Finds which rows, in memory and in blocks, satisfy a search's predicate, and remembers it for the next search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.scan.access import file_test
from indexlake.scan.execute import read_task
from indexlake.scan.plan import BlockTask, plan_blocks
from indexlake.schema import ROW_ID

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.expr import Bound
    from indexlake.scan.search_sources import View

Mask = npt.NDArray[np.bool_]


class Where:
    """The predicate of a search.  Block files never change, so the positions of its matches in them are remembered."""

    def __init__(self, view: View, predicate: Bound) -> None:
        self._view = view
        self.predicate = predicate
        self.found_by = "what earlier searches found"
        self._tasks: dict[int, BlockTask] | None = None
        self.form, values = predicate.identity or (None, b"")
        self.key = f"{id(self.form)} {values.hex()} {view.reading.state.table.schema_version}"

    def mask(self, rows: pa.RecordBatch) -> Mask:
        """Return which rows satisfy the predicate; their columns are named as in files."""
        columns = self._view.reading.schema.column_of
        names = sorted(self.predicate.columns) or [ROW_ID]
        named = pa.RecordBatch.from_arrays([rows.column(columns.get(n, n)) for n in names], names)
        mask: Mask = np.array(self.predicate.mask(named).fill_null(False))
        return mask

    def mark(self, block: BlockRecord, mask: Mask) -> None:
        """Mark the rows of the block that satisfy the predicate, deleted ones included."""
        mask[self._positions(block)] = True

    def _holds_always(self, task: BlockTask | None) -> bool:
        """Return whether the matches include rows deleted at this snapshot, which other snapshots may still show."""
        return self.found_by != "primary key" and (task is None or task.only is None or len(task.only) > 1)

    def _positions(self, block: BlockRecord) -> npt.NDArray[np.int64]:
        view, key = self._view, f"{block.path} {self.key}"
        known = view.remembered.matches.get(key)
        if known is not None and known[0] is self.form:
            return known[1]
        positions = np.zeros(0, np.int64)
        task = self._planned().get(block.data_file_id)
        if task is not None:
            whole = replace(task, deleted=None, versions_up_to=None)
            batches = read_task(whole, view.files, (), self.predicate, row_id=True)
            found = [view.positions(block, batch.column(ROW_ID).to_numpy()) for batch in batches]
            positions = np.concatenate(found) if found else positions
        if self.form is not None and self._holds_always(task):
            view.remembered.matches.put(key, (self.form, positions), positions.nbytes)
        return positions

    def _planned(self) -> dict[int, BlockTask]:
        """Return the tasks of the blocks that may hold matching rows, by file id."""
        if self._tasks is None:
            view = self._view
            test = file_test(self.predicate, view.reading.schema)
            tasks, notes = plan_blocks(view.reading, view.files, test)
            self.found_by = notes["found by"]
            self._tasks = {task.file_id: task for task in tasks if task.kind == "block"}
        return self._tasks
