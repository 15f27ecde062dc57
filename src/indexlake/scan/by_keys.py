"""Rows by many primary keys: one plan, made in one read transaction, at a cost that follows the keys.

Hot rows are found through the database's index on the key, rows in blocks through the key segments.  Whether a row has
one of the keys is decided by comparing encoded keys, as everywhere: NaN equals itself, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake import kernels as pc
from indexlake.catalog import inline
from indexlake.catalog.driver import ReadTransaction
from indexlake.keys.encoding import KeyColumn, encode_key
from indexlake.scan.execute import pieces
from indexlake.scan.hot_rows import HotRows
from indexlake.scan.plan import MOST_KEYS, ScanPlan, own_tasks, tasks_for_keys
from indexlake.state import TableState
from indexlake.storage.spill import Spill
from indexlake.types import SqlValue
from indexlake.types.floats import is_float
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.commit.write_set import TableWrites
    from indexlake.lake import Lake
    from indexlake.table import Table

EncodedKey = Sequence[SqlValue]


def rows_by_keys(table: Table, given: Sequence[Sequence[object]]) -> pa.Table:
    """The rows that have one of the keys, in no particular order.  A key with a null is nobody's."""
    lake, writes = table._lake, table._own_writes()
    lake._check()
    with table._reading(None) as (r, found, snapshot):
        state = found.as_of(snapshot)
        keys = [table._key(state, tuple(key)) for key in given if not any(value is None for value in key)]
        hot = _hot_rows(r, state, snapshot, keys, writes, lake.storage.spill)
    schema = state.current
    wanted = KeyColumn.from_keys(sorted({encode_key(schema.key_codecs, key) for key in keys}), ints=False)
    plan = _plan(lake, state, snapshot, wanted, hot, writes)
    return pa.Table.from_batches(_rows(lake, plan, wanted), schema.arrow)


def _hot_rows(
    r: ReadTransaction,
    state: TableState,
    snapshot: int,
    keys: Sequence[EncodedKey],
    writes: TableWrites | None,
    spill: Spill,
) -> HotRows:
    schema, table = state.current, state.table
    hot = HotRows(schema.fields, spill)
    if writes is not None and writes.truncate:
        return hot
    if len(keys) > MOST_KEYS or any(is_float(codec) for codec in schema.key_codecs):
        newest = snapshot == state.at
        hot.read(inline.visible_rows(r, table, snapshot, hot.columns, newest=newest))
    else:
        rows = inline.rows_with_keys(r, table.table_id, schema.key_columns, keys, hot.columns)
        # A key that is given twice is looked up twice: each version is taken once.
        visible = {(row[0], row[1]): row for row in rows if inline.is_visible(row, snapshot, table)}
        hot.read(iter(visible.values()))
    return hot


def _plan(
    lake: Lake, state: TableState, snapshot: int, keys: KeyColumn, hot: HotRows, writes: TableWrites | None
) -> ScanPlan:
    tasks, hidden = [], None
    if len(keys) and (writes is None or not writes.truncate):
        visible = np.flatnonzero(state.blocks.visible_at(snapshot))
        blocks = [state.blocks.records[n] for n in visible]
        tasks = tasks_for_keys(state, snapshot, lake._files, blocks, keys)
    if writes is not None:
        if writes.closed:
            hidden = np.frombuffer(writes.closed.to_array(), np.uint64).astype(np.int64)
        tasks += own_tasks(state, writes)
        hot = hot.without(hidden)
        hot.read_own(writes.rows, state.current)
    return ScanPlan(state.table.full_name, snapshot, state.current, None, hot, tuple(tasks), hidden)


def _rows(lake: Lake, plan: ScanPlan, keys: KeyColumn) -> Iterator[pa.RecordBatch]:
    schema = plan.schema
    for piece in pieces(plan, lake._files, lake._scan_threads, schema.fields, row_id=False):
        found = KeyColumn.from_arrays(schema.key_codecs, [piece.batch.column(f.name) for f in schema.key_fields])
        mask = pc.is_in(found.binary, value_set=keys.binary)
        yield piece.batch if mask.true_count == len(mask) else keep(piece.batch, mask)
