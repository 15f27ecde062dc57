"""Compaction: small and delete-heavy blocks become full ones.

Blocks are taken in row-id order, so that the row ids of new ones hardly overlap. The last group is compacted even if it
does not fill a block; a single small block with nothing deleted is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from indexlake.blocks.stream import BLOCK_BYTES
from indexlake.pipeline.job import Watched
from indexlake.pipeline.reshape import ReshapeResult, merge
from indexlake.pipeline.rewrite import RewriteGroup, RewriteResult, rewrite
from indexlake.pipeline.runner import Runner

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState

SMALL = 0.5
"""A block with fewer live rows, and fewer bytes, than this fraction of a full one is small."""

DELETE_HEAVY = 0.2
"""A block with at least this share of its rows deleted is worth rewriting."""

MOST_INPUTS = 1_000
"""How many blocks one task reads at most; very small ones take several rounds to make a full one."""


def compact(lake: Lake, table_id: int, runner: Runner, **watched: Unpack[Watched]) -> RewriteResult | ReshapeResult:
    """Rewrite blocks that are small or full of deleted rows; in a clustered table merge everything."""
    if lake._readings.latest(table_id).ranges is not None:
        return merge(lake, table_id, runner, **watched)
    return rewrite(lake, table_id, "compact", groups_to_compact, runner, **watched)


def groups_to_compact(state: TableState, snapshot: int) -> list[RewriteGroup]:
    """Return the groups of blocks that are worth rewriting as one."""
    if state.ranges is not None:
        return []  # it is merged, or was clustered meanwhile
    by_format: dict[str, list[tuple[BlockRecord, int]]] = {}
    full = state.table.config.block_row_count
    for block in live_blocks(state, snapshot):
        dead = deleted_rows(state, block, snapshot)
        small = block.record_count - dead < SMALL * full and block.size < SMALL * BLOCK_BYTES
        if small or dead >= DELETE_HEAVY * block.record_count:
            by_format.setdefault(lasting_format(state, block), []).append((block, dead))
    return [
        ([block for block, _ in group], format)
        for format, blocks in by_format.items()
        for group in _groups(blocks, full)
        if len(group) > 1 or group[0][1] or group[0][0].format != format
    ]


def lasting_format(state: TableState, block: BlockRecord) -> str:
    """Return the format to rewrite a block in: its own, but for small Arrow blocks the one set for the table."""
    return state.table.config.dump_format if block.format == "ipc" else block.format


def live_blocks(state: TableState, snapshot: int) -> list[BlockRecord]:
    """Return the current data blocks."""
    visible = state.blocks.visible_at(snapshot)
    return [
        b
        for b, seen in zip(state.blocks.records, visible, strict=True)
        if seen and b.end_snapshot is None and b.role == "data"
    ]


def deleted_rows(state: TableState, block: BlockRecord, snapshot: int) -> int:
    log = state.deletes.get(block.data_file_id)
    return log.count_at(snapshot) if log is not None else 0


def _groups(blocks: Sequence[tuple[BlockRecord, int]], full: int) -> Iterator[list[tuple[BlockRecord, int]]]:
    """Group neighbours in row-id order, as many as fill a block by rows or by bytes."""
    group: list[tuple[BlockRecord, int]] = []
    rows = size = 0
    for block, dead in sorted(blocks, key=lambda pair: pair[0].min_row_id):
        live = block.record_count - dead
        if group and (rows + live > full or size + block.size > BLOCK_BYTES or len(group) == MOST_INPUTS):
            yield group
            group, rows, size = [], 0, 0
        group.append((block, dead))
        rows += live
        size += block.size
    if group:
        yield group
