"""Must-be-absent values: what a merge found in no row, and added rows for, must be in no row when it commits.

The merge itself has looked at its snapshot S.  What may have come since is in row versions committed after S: among
hot rows, or in blocks that hold such versions.  As with primary keys (`key_check`) blocks are read by a *look* outside
the critical section, as of the snapshot of the state it used; inside the section only what is newer matters, and a
block with new versions that was written since calls for another look.  A background job that moves old versions
does not: they are no newer for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import inline, layout
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.layout import Head
from indexlake.commit.key_check import LookNeeded, is_live_in_block
from indexlake.commit.write_set import AbsentValues, TableWrites
from indexlake.errors import ConflictError
from indexlake.keys.encoding import KeyColumn, encode_key
from indexlake.keys.key_set import KeySet
from indexlake.schema import ROW_ID, VERSION
from indexlake.state import TableState
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles


@dataclass(frozen=True, slots=True)
class AbsentLook:
    """Rows with must-be-absent values that were committed after the merge read, and live at snapshot ``at``."""

    at: int
    in_blocks: tuple[tuple[int, int], ...] = ()  # (data file id, position)
    in_hot: tuple[tuple[int, int], ...] = ()  # (begin, row id)


def look_for_absent(
    state: TableState, writes: TableWrites, since: int, files: OpenFiles, r: ReadTransaction | Transaction
) -> AbsentLook:
    """Everything committed after ``since`` that the state of a read transaction knows."""
    if state.at <= since:
        return AbsentLook(since)
    in_blocks: list[tuple[int, int]] = []
    in_hot: list[tuple[int, int]] = []
    for values in writes.absent:
        wanted = KeySet(values.keys)
        in_hot += _hot_holders(r, state.table.table_id, state.table.hot_floor, since, writes, values, wanted)
        for block in state.blocks.records:
            if block.role != "history" and block.max_snapshot > since and block.visible_at(state.at):
                in_blocks += _block_holders(state, block, since, writes, values, wanted, files)
    return AbsentLook(state.at, tuple(in_blocks), tuple(in_hot))


def check_absent(tx: Transaction, head: Head, writes: TableWrites, since: int, found: AbsentLook) -> None:
    """Inside the critical section: nothing, ``LookNeeded`` or ``ConflictError``."""
    table_id = writes.state.table.table_id
    if head.blocks_changed_in > found.at and layout.has_new_live_blocks(tx, table_id, found.at, since):
        raise LookNeeded
    for file_id, position in found.in_blocks:
        if is_live_in_block(tx, file_id, position):
            raise lost_race(writes)
    for begin, row_id in found.in_hot:
        for row in inline.rows_by_id(tx, table_id, row_id, ()):
            if row[0] == begin and row[2] is None and (begin, row_id) > head.hot_floor:
                raise lost_race(writes)
    for values in writes.absent:
        if _hot_holders(tx, table_id, head.hot_floor, found.at, writes, values, KeySet(values.keys)):
            raise lost_race(writes)


def lost_race(writes: TableWrites) -> ConflictError:
    name = writes.state.table.full_name
    return ConflictError(
        f"Another commit has added rows to {name!r} that this merge would have matched, after it read the table. "
        "Run it again; lake.run does so by itself.",
        table=name,
    )


def _hot_holders(
    r: ReadTransaction | Transaction,
    table_id: int,
    floor: tuple[int, int],
    since: int,
    writes: TableWrites,
    values: AbsentValues,
    wanted: KeySet,
) -> list[tuple[int, int]]:
    """(begin, row id) of live hot rows committed after ``since`` that hold one of the values."""
    codecs = [f.codec for f in values.fields]
    rows = inline.live_keys_since(r, table_id, floor, since, [f.column for f in values.fields])
    return [
        (row[0], row[1])
        for row in rows
        if row[1] not in writes.closed and None not in row[3:] and encode_key(codecs, row[3:]) in wanted
    ]


def _block_holders(
    state: TableState,
    block: BlockRecord,
    since: int,
    writes: TableWrites,
    values: AbsentValues,
    wanted: KeySet,
    files: OpenFiles,
) -> Iterator[tuple[int, int]]:
    """(data file id, position) of live rows of a block, committed after ``since``, that hold one of the values."""
    from indexlake.scan.execute import read_task
    from indexlake.scan.plan import block_task

    codecs = [f.codec for f in values.fields]
    for batch in read_task(block_task(state, block, state.at), files, values.fields, None, row_id=True, version=True):
        sought = batch.column(VERSION).to_numpy() > since
        for n in range(len(codecs)):
            sought &= np.asarray(batch.column(n).is_valid())
        if not sought.any():
            continue
        rows = batch if sought.all() else keep(batch, pa.array(sought))
        keys = KeyColumn.from_arrays(codecs, rows.columns[: len(codecs)])
        held = rows.column(ROW_ID).to_numpy()[wanted.mask(keys)]
        for row_id, position in zip(held.tolist(), state.row_ids(block).positions_of(held).tolist(), strict=True):
            if row_id not in writes.closed:
                yield block.data_file_id, position
