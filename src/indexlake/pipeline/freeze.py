"""Freeze and thaw: turn warm blocks into cold Parquet, which every engine reads, and back.

Each block becomes one block, without its deleted rows. Frozen tables give the same answers; point reads are slower.
Blocks of clustered tables stay sorted by key, in their partitions; those that wait for a merge are not frozen.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from indexlake.catalog import commits
from indexlake.pipeline.compact import live_blocks
from indexlake.pipeline.job import Watched
from indexlake.pipeline.rewrite import RewriteGroup, RewriteResult, rewrite
from indexlake.pipeline.runner import Runner

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState

COLD = "parquet"


def freeze(
    lake: Lake, table_id: int, runner: Runner, *, older_than: timedelta = timedelta(0), **watched: Unpack[Watched]
) -> RewriteResult:
    """Rewrite warm blocks as Parquet if all their rows were written longer ago than ``older_than``."""
    with lake.catalog.read() as r:
        newest = commits.snapshot_at_time(r, lake._clock() - int(older_than.total_seconds() * 1e6))
    if newest is None:
        return RewriteResult()

    def choose(state: TableState, snapshot: int) -> list[RewriteGroup]:
        return [([b], COLD) for b in live_blocks(state, snapshot) if b.format != COLD and b.max_snapshot <= newest]

    return rewrite(lake, table_id, "freeze", choose, runner, **watched)


def thaw(lake: Lake, table_id: int, runner: Runner, **watched: Unpack[Watched]) -> RewriteResult:
    """Rewrite Parquet blocks as warm ones."""

    def choose(state: TableState, snapshot: int) -> list[RewriteGroup]:
        warm = "vortex" if state.ranges is None else "ipc"
        return [([b], warm) for b in live_blocks(state, snapshot) if b.format == COLD]

    return rewrite(lake, table_id, "thaw", choose, runner, **watched)
