"""Keys of blocks that are too many for memory, compared through the blocks' own sorted segments.

Two questions, each cut into tasks that a runner spreads: is a key in several of the new blocks (by ranges of keys, so
that each task sorts a few million), and is a key in a block that the table has already (by blocks of the table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from indexlake.blocks.checksum import Checksums
from indexlake.blocks.delete_vector import is_among, positions_from_bytes
from indexlake.blocks.new_block import NewBlock, NewSegment
from indexlake.keys.encoding import Key, KeyColumn, key_to_bytes
from indexlake.keys.segment import Segment, open_segment
from indexlake.storage import Storage

if TYPE_CHECKING:
    from indexlake.pipeline.runner import Runner
    from indexlake.state import TableState

KEYS_PER_TASK = 4_000_000
SAMPLES_PER_TASK = 16
MOST_HOLDERS = 1_000
"""One holder is enough to refuse a load; some may be deleted by the time it commits."""

Holder = tuple[int, int, Key]
"""Data file id, position, key."""


@dataclass(frozen=True, slots=True)
class RepeatTask:
    """Is a key of the range in more than one row?"""

    segments: tuple[NewSegment, ...]
    low: Key | None
    high: Key | None


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """Which keys of the new segments does a block of the table hold?"""

    file_id: int
    old: NewSegment
    deleted: bytes | None  # serialised positions
    new: tuple[NewSegment, ...]


def first_repeated(
    storage: Storage, blocks: Sequence[NewBlock], runner: Runner, check: Callable[[], None]
) -> Key | None:
    """A key that is in two rows of the blocks, or None."""
    segments = [b.segment for b in blocks if b.segment is not None]
    opened = [_open(storage, s) for s in segments]
    for segment in opened:
        if not segment.unique:
            return _repeated(segment.keys())
    bounds = sorted((s.min_key, s.max_key) for s in segments)
    if all(before[1] < after[0] for before, after in pairwise(bounds)):
        return None
    tasks = [RepeatTask(tuple(segments), low, high) for low, high in _ranges(opened)]
    return next((key for key in runner.map(run_repeat, tasks, check) if key is not None), None)


def _ranges(segments: Sequence[Segment]) -> Iterator[tuple[Key | None, Key | None]]:
    """Ranges of keys that hold about as many as a task should sort."""
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
        segment = _open(storage, record)
        first, end = segment.rows_between(task.low, task.high)
        parts.append(segment.keys().slice(first, end - first))
    return _repeated(KeyColumn.concat(parts)) if parts else None


def _outside(segment: NewSegment, low: Key | None, high: Key | None) -> bool:
    return (low is not None and segment.max_key < key_to_bytes(low)) or (
        high is not None and segment.min_key >= key_to_bytes(high)
    )


def _repeated(keys: KeyColumn) -> Key | None:
    again = keys.first_duplicate()
    return None if again is None else keys[again]


def probe_tasks(state: TableState, blocks: Sequence[NewBlock], since: int) -> list[ProbeTask]:
    """One for each live block written after ``since`` whose keys may be among the new ones."""
    segments = [b.segment for b in blocks if b.segment is not None]
    tasks = []
    for block in state.blocks.records:
        old = state.segments.get(block.data_file_id)
        if old is None or block.changed_in <= since or not block.visible_at(state.at):
            continue
        new = tuple(s for s in segments if s.min_key <= old.max_key and old.min_key <= s.max_key)
        if new:
            log = state.deletes.get(block.data_file_id)
            gone = log.at(state.at) if log is not None else None
            record = NewSegment.of(old)
            tasks.append(ProbeTask(block.data_file_id, record, gone.serialize() if gone else None, new))
    return tasks


def run_probe(storage: Storage, task: ProbeTask, check: Callable[[], None]) -> list[Holder]:
    """The smaller of two segments drives."""
    old = _open(storage, task.old)
    dead = BitMap() if task.deleted is None else positions_from_bytes(task.deleted)
    found: list[Holder] = []
    for record in task.new:
        check()
        new = _open(storage, record)
        if len(new) <= len(old):
            keys = new.keys()
            indices, positions = old.find_many(keys)
        else:
            keys = old.keys()
            indices, _ = new.find_many(keys)
            positions = old.positions()[indices]
        alive = np.flatnonzero(~is_among(positions, dead))[: MOST_HOLDERS - len(found)]
        found += [(task.file_id, int(positions[n]), keys[int(indices[n])]) for n in alive.tolist()]
        if len(found) >= MOST_HOLDERS:
            break
    return found


def _open(storage: Storage, record: NewSegment) -> Segment:
    file = record.file
    return open_segment(storage, file.path, file.size, Checksums.from_bytes(file.checksum))
