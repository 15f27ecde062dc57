"""What is due for a table: the same rules for the background work of an open lake and for ``pipeline.run``.

Hot rows are dumped when their number, including superseded versions, reaches the table's limit; of live and superseded
versions, only a kind that makes up at least half of the limit moves. Compaction is due when it would remove several
blocks, or as many deleted rows as a good part of a block; anything less is not worth rewriting rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake.pipeline.compact import DELETE_HEAVY, deleted_rows, groups_to_compact

if TYPE_CHECKING:
    from indexlake.lake import Lake

FEWER_BLOCKS = 8
"""Compaction is due when it reduces the number of blocks by this many."""


class HotStoreFill:
    """How full the hot store of a table is."""

    def __init__(self, lake: Lake, table_id: int) -> None:
        with lake._readings.open(table_id) as reading:
            self.live, self.dead = reading.hot.sizes()
        self.limit = reading.state.table.config.inline_row_count_limit

    @property
    def count(self) -> int:
        return self.live + self.dead

    @property
    def due(self) -> bool:
        return self.count >= self.limit

    @property
    def live_due(self) -> bool:
        return 2 * self.live >= self.limit

    @property
    def history_due(self) -> bool:
        return 2 * self.dead >= self.limit


def compaction_is_due(lake: Lake, table_id: int) -> bool:
    state = lake._readings.latest(table_id)
    if state.ranges is not None:
        return False  # it is merged instead
    full = state.table.config.block_row_count
    fewer = dead = 0
    for blocks, _ in groups_to_compact(state, state.at):
        gone = sum(deleted_rows(state, block, state.at) for block in blocks)
        live = sum(block.record_count for block in blocks) - gone
        fewer += len(blocks) - -(-live // full)
        dead += gone
    return fewer >= FEWER_BLOCKS or dead >= DELETE_HEAVY * full
