"""Find rows that a write-set closes and that a job has moved since they were read.

In a block ordered by row id, the section itself finds them again (``effects``). In a block sorted by key, a row id does
not determine the position, so the row ids of blocks added since are read outside the section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexlake.catalog import data_files
from indexlake.commit.absence import LookNeeded

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.catalog.driver import Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.commit.write_set import TableWrites
    from indexlake.snapshots.reading import Reading

_FEW = 1_000
"""Up to this many hot rows are checked one by one for whether they are still there; beyond that all count as moved."""


def check(tx: Transaction, head: Head, writes: TableWrites) -> None:
    """Raise ``LookNeeded`` inside the section if rows may have moved to a block that has not been searched yet."""
    if (
        writes.closed
        and head.blocks_changed_in > writes.located_at
        and data_files.has_new_keyed_blocks(tx, writes.state.table.table_id, writes.located_at)
    ):
        raise LookNeeded


def locate(writes: TableWrites, reading: Reading, files: OpenFiles, base: int) -> None:
    """Find, outside the section, the rows that have moved to blocks sorted by key."""
    state = reading.state
    if writes.closed and not writes.truncate:
        moved = _moved(writes, reading)
        writes.places.clear()
        for block in state.blocks.records if len(moved) else ():
            if block.row_order == "row_id" or block.end_snapshot is not None or block.changed_in <= base:
                continue
            ids = moved[(moved >= block.min_row_id) & (moved <= block.max_row_id)]
            positions = state.addresses(block, files).positions_of(ids) if len(ids) else ids
            here = positions >= 0
            if here.any():
                writes.places[block.data_file_id] = (ids[here], positions[here])
    writes.located_at = state.at


def _moved(writes: TableWrites, reading: Reading) -> npt.NDArray[np.int64]:
    """Return the sorted ids of closed rows that have moved or may have moved."""
    found: list[int] = []
    for file_id, positions in writes.block_closes.items():
        record = reading.state.blocks.record(file_id)
        if record is None or record.end_snapshot is not None:
            found += writes.addresses[file_id].row_ids_at(np.frombuffer(positions.to_array(), np.uint32)).tolist()
    few = len(writes.hot_closes) <= _FEW
    found += [row for row, begin in writes.hot_closes.items() if not (few and reading.hot.is_live(row, begin))]
    return np.array(sorted(found), np.int64)
