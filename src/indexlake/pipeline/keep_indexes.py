"""Automatic maintenance of indexes: missing segments are built and small ones folded, separately for each index.

A failure is logged and shown in ``t.indexes()``; it holds up neither other indexes nor any write.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Unpack

from indexlake.pipeline.build_index import build_index, live_gaps
from indexlake.pipeline.job import JobBusy, JobStopped, Watched
from indexlake.pipeline.merge_index import due_folds, merge_index

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.pipeline.runner import Runner

log = logging.getLogger("indexlake")


class Kept(dict[str, str]):
    """What was done for each index, by name."""

    def __str__(self) -> str:
        return "; ".join(f"{name}: {done}" for name, done in self.items())


def keep(lake: Lake, table_id: int, runner: Runner | None = None, **watched: Unpack[Watched]) -> Kept:
    """Build, publish and fold what is due."""
    done = Kept()
    state = lake._readings.latest(table_id)
    for coverage in state.indexes.values():
        index = coverage.index
        if index.end_snapshot is not None:
            continue
        try:
            if live_gaps(state, index.index_id) or (index.unique and index.enforced_snapshot is None):
                done[index.name] = str(build_index(lake, table_id, index.index_id, runner, **watched))
            if due_folds(state, coverage):
                folded = merge_index(lake, table_id, index.index_id, runner, **watched)
                done[index.name] = "; ".join(filter(None, (done.get(index.name), str(folded))))
        except (JobBusy, JobStopped):
            continue
        except Exception as error:  # whatever the kind raises, which may be of another package
            log.warning("index %r of table %s could not be kept: %s", index.name, state.table.full_name, error)
    return done
