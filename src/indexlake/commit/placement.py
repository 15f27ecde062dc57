"""Place new blocks of clustered tables whose partitions may have ended since the blocks were written.

A block stays in its partition while that is live. Otherwise the live partition that contains all its rows adopts it. A
block that straddles a new bound is cut outside the critical section, and the commit is retried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import Target
from indexlake.catalog import partitions
from indexlake.commit.absence import LookNeeded
from indexlake.partitions.ranges import Ranges

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.catalog.driver import Transaction
    from indexlake.snapshots.state import TableState


class CutNeeded(LookNeeded):
    """Raised when a block no longer fits into a single partition: leave the section, cut it, come back."""


def place(tx: Transaction, table_id: int, blocks: Iterable[NewBlock]) -> None:
    """Assign each block to a live partition inside the section, or raise ``CutNeeded``."""
    placed = [block for block in blocks if block.placed is not None]
    live = partitions.live_among(tx, {b.placed.partition_id for b in placed if b.placed is not None})
    ranges: Ranges | None = None
    for block in placed:
        assert block.placed is not None
        if block.placed.partition_id in live:
            continue
        ranges = ranges or Ranges(partitions.live_partitions(tx, table_id))
        found = ranges.adopter(block.placed.partition_id, block.placed.first_key, block.placed.last_key)
        if found is None:
            raise CutNeeded
        block.placed = replace(block.placed, partition_id=found.partition_id)


def cut(state: TableState, files: OpenFiles, blocks: Sequence[NewBlock]) -> list[NewBlock]:
    """Rewrite blocks, outside the section, so that each lies in one current partition."""
    ranges = state.ranges
    if ranges is None:
        return list(blocks)
    found: list[NewBlock] = []
    for block in blocks:
        placed = block.placed
        if placed is None or ranges.adopter(placed.partition_id, placed.first_key, placed.last_key) is not None:
            found.append(block)
            continue
        schema = state.schema.at(block.schema_snapshot)
        target = Target.of(state, block.file.writer_id).with_schema(schema, block.schema_snapshot)
        for part in target.write_rows(files.storage, _rows(block, files, schema.file)):
            part.keys_known = block.keys_known
            found.append(part)
    return found


def _rows(block: NewBlock, files: OpenFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the block's rows that the transaction has not taken back itself."""
    reader = files.reader_of(block.file.path, block.format, block.file.size, block.file.checksum, schema)
    live = np.ones(block.record_count, np.bool_)
    live[np.frombuffer(block.dead.to_array(), np.uint32)] = False
    return reader.read(schema.names, np.flatnonzero(live).astype(np.uint64) if block.dead else None)
