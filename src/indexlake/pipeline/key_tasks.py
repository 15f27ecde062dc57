"""Comparing keys of blocks that are too many for memory, through the blocks' own sorted segments.

Two questions, each cut into tasks that a runner distributes: is a key in several of the new blocks (by ranges of keys,
so that each task sorts a few million), and is a key in an existing block (by blocks of the table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from indexlake.blocks.delete_vector import is_among, positions_from_bytes
from indexlake.blocks.new_block import NewBlock
from indexlake.indexes.index import Index
from indexlake.indexes.keys import Key, KeyColumn, key_to_bytes
from indexlake.indexes.kind import SegmentFile
from indexlake.storage import Storage

if TYPE_CHECKING:
    from indexlake.commit.wanted import Holder
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.kind import KeySegment
    from indexlake.pipeline.runner import Runner
    from indexlake.snapshots.state import TableState

KEYS_PER_TASK = 4_000_000
SAMPLES_PER_TASK = 16
MOST_HOLDERS = 1_000
"""One holder is enough to refuse a load; some may be deleted by the time it commits."""


@dataclass(frozen=True, slots=True)
class RepeatTask:
    """Looks for a key of the range that is in more than one row."""

    index: Index
    segments: tuple[SegmentFile, ...]
    low: Key | None
    high: Key | None


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """Looks for keys of the new segments that a block of the table holds."""

    index: Index
    file_id: int
    old: SegmentFile
    ordinal: int  # of the block in its segment
    deleted: bytes | None  # serialised positions
    new: tuple[SegmentFile, ...]


def first_repeated(
    storage: Storage, index: Index, blocks: Sequence[NewBlock], runner: Runner, check: Callable[[], None]
) -> Key | None:
    """Return a key of the index that is in two rows of the blocks, or None."""
    segments = _segments(index, blocks)
    opened = [index.open(storage, s) for s in segments]
    for segment in opened:
        if not segment.unique:
            return _repeated(segment.keys())
    bounds = sorted((s.min_key, s.max_key) for s in segments)
    if all(before[1] < after[0] for before, after in pairwise(bounds)):
        return None
    tasks = [RepeatTask(index, tuple(segments), low, high) for low, high in ranges(opened)]
    return next((key for key in runner.map(run_repeat, tasks, check) if key is not None), None)


def _segments(index: Index, blocks: Sequence[NewBlock]) -> list[SegmentFile]:
    return [s for b in blocks if (s := b.segment(index.index_id)) is not None]


def ranges(segments: Sequence[KeySegment]) -> Iterator[tuple[Key | None, Key | None]]:
    """Yield ranges of keys that each hold about as many as a task should sort."""
    total = sum(map(len, segments))
    pieces = -(-total // KEYS_PER_TASK)
    samples = sorted(
        key
        for segment in segments
        for key in segment.sample(max(2, SAMPLES_PER_TASK * pieces * len(segment) // max(total, 1)))
    )
    cuts = sorted({samples[len(samples) * n // pieces] for n in range(1, pieces)})
    yield from zip([None, *cuts], [*cuts, None], strict=True)


def run_repeat(storage: Storage, task: RepeatTask, check: Callable[[], None]) -> Key | None:
    parts = []
    for record in task.segments:
        if _outside(record, task.low, task.high):
            continue
        check()
        segment = task.index.open(storage, record)
        first, end = segment.rows_between(task.low, task.high)
        parts.append(segment.keys(first, end))
    return _repeated(KeyColumn.concat(parts)) if parts else None


def _outside(segment: SegmentFile, low: Key | None, high: Key | None) -> bool:
    return (low is not None and segment.max_key < key_to_bytes(low)) or (
        high is not None and segment.min_key >= key_to_bytes(high)
    )


def _repeated(keys: KeyColumn) -> Key | None:
    again = keys.first_duplicate()
    return None if again is None else keys[again]


def probe_tasks(state: TableState, coverage: Coverage, blocks: Sequence[NewBlock], since: int) -> list[ProbeTask]:
    """Return a task for each live block written after ``since`` whose keys may be among the new ones."""
    index = coverage.index
    segments = _segments(index, blocks)
    tasks = []
    for block in state.blocks.records:
        link = coverage.links.get(block.data_file_id)
        covered = link is not None and block.data_file_id not in coverage.gaps
        if link is None or not covered or block.changed_in <= since or not block.visible_at(state.at):
            continue
        old = link.segment
        new = tuple(s for s in segments if s.min_key <= old.max_key and old.min_key <= s.max_key)
        if new:
            log = state.deletes.get(block.data_file_id)
            gone = log.at(state.at) if log is not None else None
            dead = gone.serialize() if gone else None
            tasks.append(ProbeTask(index, block.data_file_id, old, link.ordinal, dead, new))
    return tasks


def run_probe(storage: Storage, task: ProbeTask, check: Callable[[], None]) -> list[Holder]:
    """Return the holders of new keys in a block, looking up the keys of the smaller segment in the larger one."""
    old = task.index.open(storage, task.old)
    dead = BitMap() if task.deleted is None else positions_from_bytes(task.deleted)
    found: list[Holder] = []
    for record in task.new:
        check()
        new = task.index.open(storage, record)
        if len(new) <= len(old):
            keys = new.keys()
            indices, slots = old.find_many(keys)
        else:
            keys = old.keys()
            indices, _ = new.find_many(keys)
            slots = old.key_slots()[indices]
        start, end = old.starts[task.ordinal], old.starts[task.ordinal + 1]
        positions = slots - start
        here = (slots >= start) & (slots < end)
        alive = np.flatnonzero(here & ~is_among(np.where(here, positions, 0), dead))[: MOST_HOLDERS - len(found)]
        found += [(task.file_id, int(positions[n]), keys[int(indices[n])]) for n in alive.tolist()]
        if len(found) >= MOST_HOLDERS:
            break
    return found
