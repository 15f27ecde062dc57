"""Insert: rows are checked, encoded and given row ids, then join the write-set of a transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import Target
from indexlake.display.progress import ProgressBar
from indexlake.errors import ConflictError, ConstraintError, SchemaError
from indexlake.expr.moment import as_statement
from indexlake.partitions.writing import block_rows, write_many, write_sorted
from indexlake.schema.fitting import Values
from indexlake.snapshots.state import TableState
from indexlake.sources.rows import take_dicts, take_rows

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.transaction import Transaction


_TAKEN_AGAIN = (dict, Mapping, list, tuple, str, os.PathLike, pa.Table, pa.RecordBatch)


@dataclass(slots=True)
class Prepared:
    """Rows ready to insert: small inputs as encoded tuples, large ones as finished blocks."""

    state: TableState
    rows: list[tuple[int, Values]]
    blocks: list[NewBlock]


@as_statement
def prepare_insert(lake: Lake, state: TableState, rows: Any, progress: bool | None = None) -> Prepared:
    """Check and encode the rows, give them row ids, and write blocks if they are many."""
    table, schema = state.table, state.current
    limit, take_ids = table.config.direct_write_row_count, lake._row_ids.take
    taken = take_dicts(rows, schema, lake._encoder(state), limit)
    if not isinstance(taken, list):
        with ProgressBar(f"loading {table.full_name}", progress) as bar:
            taken = take_rows(rows, schema, limit, bar) if taken is None else taken
            if not isinstance(taken, list):
                target = Target.of(state, lake._writer_id(), waiting=True)
                return Prepared(
                    state, [], list(write_many(lake.storage, target, taken, partial(take_ids, table.table_id)))
                )
    return Prepared(state, list(enumerate(taken, take_ids(table.table_id, len(taken)) if taken else 0)), [])


class Insert:
    """One insert statement, which can be run again after a conflict.

    If the table's columns have changed meanwhile, rows that can be read again are; others stay as they were prepared,
    and the commit adapts them to the new columns if it can.
    """

    def __init__(self, table_id: int, rows: Any, progress: bool | None) -> None:
        self._table_id = table_id
        self._rows = rows
        self._progress = progress
        self._again = can_be_taken_again(rows)
        self._prepared: Prepared | None = None

    @property
    def is_prepared(self) -> bool:
        """Whether the rows have been accepted, so that they may have been committed."""
        return self._prepared is not None

    def __call__(self, tx: Transaction) -> int:
        if self._prepared is None and not self._again:
            with tx.reading(self._table_id):
                pass  # load the current columns: there will be no second try
        state = tx.state_to_write(self._table_id)
        if self._prepared is not None and self._prepared.state.table.schema_version != state.table.schema_version:
            if self._again:
                self._prepared = None
            else:
                tx.write_set.single = False
                if self._prepared.state.table.layout != state.table.layout:
                    self._prepared = _in_layout(tx._lake, self._prepared, state)
        if self._prepared is None:
            try:
                self._prepared = prepare_insert(tx._lake, state, self._rows, self._progress)
            except (SchemaError, ConstraintError):
                if self._again and tx.is_outdated(state):
                    raise ConflictError("The definition of the table changed meanwhile.") from None
                raise
        return insert(tx, self._prepared.state, self._prepared)


def _in_layout(lake: Lake, prepared: Prepared, now: TableState) -> Prepared:
    """Return the same rows for the layout that the table has now."""
    before = prepared.state
    target = Target.of(now, lake._writer_id()).with_schema(before.current, before.table.schema_version)
    blocks: list[NewBlock] = []
    for block in prepared.blocks:
        rows = list(block_rows(lake.storage, block, before.current.file))
        blocks += write_sorted(lake.storage, target, rows, None)
    state = before._replace(table=replace(before.table, layout=now.table.layout), ranges=now.ranges)
    return Prepared(state, prepared.rows, blocks)


def can_be_taken_again(rows: Any) -> bool:
    """Return whether rows can certainly be read from the same object twice."""
    if isinstance(rows, _TAKEN_AGAIN) or type(rows).__name__ == "DataFrame":
        return True
    from indexlake.sources.files import Files

    return isinstance(rows, Files)


def insert(tx: Transaction, state: TableState, prepared: Prepared) -> int:
    if tx.watching is not None:
        ids = [np.array([row_id for row_id, _ in prepared.rows], np.int64)]
        ids += [block.all_row_ids() for block in prepared.blocks]
        tx.watching.note(state.table.table_id, np.zeros(0, np.int64), np.concatenate(ids))
    writes = tx.writes(state)
    writes.insert(prepared.rows)
    count = len(prepared.rows)
    for block in prepared.blocks:
        writes.insert_block(block)
        writes.inserted += block.record_count
        count += block.record_count
    return count
