"""The effects of a commit whose requirements hold: the same few for users and for jobs.

Old row versions are closed before new ones are inserted. A row that a job has moved since it was read is found again by
its row id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexlake.blocks.addresses import ranked
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.delete_vector import is_among
from indexlake.blocks.row_ids import RowIds
from indexlake.catalog import data_files, delete_entries, segments, table_heads

if TYPE_CHECKING:
    from indexlake.blocks.new_block import NewBlock
    from indexlake.catalog.driver import Transaction
    from indexlake.commit.section import Section
    from indexlake.commit.sequencer import Touched
    from indexlake.commit.write_set import TableWrites, WriteSet
    from indexlake.hot.store import HotTable


def apply(section: Section, ws: WriteSet, writes: TableWrites, hot: HotTable, s: int) -> int:
    """Apply a write-set's changes to one table and return how many rows a truncate removed."""
    state, tx, sequencer = writes.state, section.tx, section.sequencer
    table_id, removed = state.table.table_id, 0
    if writes.truncate:
        removed = hot.close_all(s) + data_files.live_row_count(tx, table_id)
        data_files.end_live_blocks(tx, table_id, s)
        sequencer.touch(table_id, s, None)
    elif writes.closed:
        sequencer.touch(table_id, s, writes.closed)
    if writes.closed:
        close_rows(section, writes, hot, s, ws.base)
    if ws.turn is not None and ws.turn.owns(table_id):
        sequencer.end_reservation(table_id)
    if writes.locked:
        sequencer.lock(table_id, s, writes.locked)
    if writes.rows:
        columns, stored = writes.stored()
        hot.insert(columns, stored, s)
    for block in writes.own_live_blocks() if writes.blocks else ():
        add_block(tx, table_id, block, s, begin=s)
    return removed


def close_rows(section: Section, writes: TableWrites, hot: HotTable, s: int, base: int) -> None:
    """End the versions that the write-set replaces or deletes, wherever they are now."""
    moved = hot.close(writes.hot_closes, s) if writes.hot_closes else []
    table_id = writes.state.table.table_id
    deletes: dict[int, Any] = {}
    live = section.live_blocks(writes, writes.block_closes) if writes.block_closes else set()
    for file_id, positions in writes.block_closes.items():
        if file_id in live:
            deletes[file_id] = positions
        else:
            moved += writes.addresses[file_id].row_ids_at(np.frombuffer(positions.to_array(), np.uint32)).tolist()
    if moved:
        for file_id, positions in _resolve(section.tx, writes, np.array(sorted(moved), np.int64), base).items():
            deletes[file_id] = deletes[file_id] | positions if file_id in deletes else positions
    for file_id, positions in deletes.items():
        section.delete(table_id, file_id, s, positions)


def _resolve(tx: Transaction, writes: TableWrites, row_ids: npt.NDArray[np.int64], base: int) -> dict[int, Any]:
    """Return, by block, the positions of rows that a job has moved since ``base``."""
    found: dict[int, Any] = {}
    missing = row_ids
    table_id = writes.state.table.table_id
    for block in data_files.live_blocks_with(tx, table_id, int(row_ids[0]), int(row_ids[-1]), base):
        if block.row_order == "row_id":
            positions = ranked(block.row_ids).positions_of(missing)
        else:
            positions = writes.positions_in(block.data_file_id, missing)
        here = positions >= 0
        for dead in delete_entries.deleted_positions(tx, block.data_file_id) if here.any() else ():
            here &= ~is_among(positions, dead)
        if here.any():
            found[block.data_file_id] = BitMap(positions[here].tolist())
            missing = missing[~here]
        if not len(missing):
            return found
    raise AssertionError(f"rows {missing[:5].tolist()} passed validation but are nowhere")


def swap_blocks(
    tx: Transaction,
    table_id: int,
    inputs: Sequence[int],
    outputs: Iterable[NewBlock],
    touched: Touched,
    s: int,
    *,
    given: bool = False,
) -> None:
    """Replace the input blocks by output blocks that hold the same rows.

    What commits did to these rows after the plan becomes delete entries of the outputs, with the commits' snapshots.
    """
    data_files.end_blocks(tx, inputs, s)
    for block in outputs:
        file_id = add_block(tx, table_id, block, s, begin=s, given=given)
        carry_deletes(tx, table_id, file_id, block, touched, s)


def carry_deletes(tx: Transaction, table_id: int, file_id: int, block: NewBlock, touched: Touched, s: int) -> None:
    """Add delete entries to a new block for rows that commits changed before it existed, dated with their snapshots."""
    for snapshot, positions in touched_positions(touched, block):
        delete_entries.add_delete(tx, table_id, file_id, snapshot, positions, s)


def touched_positions(touched: Touched, block: NewBlock) -> Iterator[tuple[int, Any]]:
    """Yield each commit that touched rows of a block, with their positions; a row counts for the first one only."""
    before = BitMap()
    for snapshot, row_ids in sorted(touched, key=lambda each: each[0]):
        if row_ids is None:
            if rest := BitMap(range(block.record_count)) - before:
                yield snapshot, rest
            return
        ids = np.frombuffer(row_ids.to_array(), np.uint64).astype(np.int64)
        ids = ids[(ids >= block.bounds[0]) & (ids <= block.bounds[1])]
        positions = block.row_ids.positions_of(ids)
        if found := BitMap(positions[positions >= 0].tolist()) - before:
            yield snapshot, found
            before |= found


def add_block(
    tx: Transaction,
    table_id: int,
    block: NewBlock,
    s: int,
    *,
    begin: int,
    end: int | None = None,
    history: bool = False,
    given: bool = True,
) -> int:
    """Add the records of a finished block and its segments, and return the block's id.

    Rows that are already dead in the block are never visible. ``given`` means that its rows were in no block before.
    """
    placed, version = block.placed, block.versions or (s, s)
    record = BlockRecord(
        data_file_id=0, table_id=table_id, path=block.file.path, format=block.format,
        role="history" if history else "delta" if placed is not None and placed.is_delta else "data",
        row_order="row_id" if isinstance(block.row_ids, RowIds) else "key",
        size=block.file.size, record_count=block.record_count,
        row_ids=block.row_ids.to_bytes() if isinstance(block.row_ids, RowIds) and not history else b"",
        min_row_id=block.bounds[0], max_row_id=block.bounds[1],
        min_snapshot=version[0], max_snapshot=version[1], column_stats=block.column_stats,
        checksum=block.file.checksum, partition_id=None if placed is None else placed.partition_id,
        schema_snapshot=block.schema_snapshot if block.schema_snapshot >= 0 else s,  # negative: defined in this commit
        begin_snapshot=begin, end_snapshot=end, changed_in=s,
        first_key=None if placed is None else placed.first_key, last_key=None if placed is None else placed.last_key,
    )  # fmt: skip
    file_id = data_files.add_block(tx, record)
    table_heads.count_bytes(tx, table_id, block.file.size, given=given)
    live = segments.live_index_ids(tx, table_id) if block.segments else set()
    for segment in block.segments:
        if segment.index_id in live:  # the index may have been dropped while the block was written
            segments.add_segment(tx, table_id, segment, [file_id], s)
    if block.dead:
        delete_entries.add_delete(tx, table_id, file_id, 0, block.dead, s)
    return file_id
