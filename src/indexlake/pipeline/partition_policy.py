"""When and how the partitions of a clustered table are reshaped.

Deltas are merged when they have as many rows as the data, at a different ratio for each partition, so that they do not
all merge at once. Before that, many deltas of one size are folded into one. A merge whose result is too large for one
partition makes several. Blocks that do not overlap need not be rewritten to separate them: a bound between them is
enough. Small neighbours are joined. Sizes are in rows; if rows are large, the target is what fits into the table's
bytes.

A choice is a list of steps, each about neighbouring partitions that no other step concerns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from indexlake.blocks.block import BlockRecord
from indexlake.config import TableConfig
from indexlake.partitions.partition import Partition
from indexlake.snapshots.state import TableState

FOLD = 16
"""How many deltas of one size class become one delta of the next."""

SMALLEST_MERGE = 100_000
"""Fewer delta rows are not merged into data, unless they are a quarter of a partition."""

JITTER = 0.3
SPLIT_ABOVE, MOVE_FROM, JOIN_BELOW = 1.5, 0.5, 0.25
"""Fractions of the target: a partition above the first is split, a lone delta from the second on becomes data,
neighbours that together are below the third are joined."""

APPENDED = 0.9
"""If this share of the delta rows comes after the data, a merge fills its partitions from the left."""

DELETED = 0.5
"""A partition with this share of its rows deleted, not counting those replaced by deltas, is rewritten."""

Kind = Literal["merge", "fold", "move", "cut", "join"]
Beyond = Callable[["Part"], int]
"""Returns how many delta rows of a partition come after its data."""


@dataclass(frozen=True, slots=True)
class Part:
    """One live partition with its blocks."""

    partition: Partition
    data: tuple[BlockRecord, ...]
    deltas: tuple[BlockRecord, ...]
    deleted: int

    @property
    def blocks(self) -> tuple[BlockRecord, ...]:
        return (*self.data, *self.deltas)

    @property
    def data_rows(self) -> int:
        return sum(b.record_count for b in self.data)

    @property
    def delta_rows(self) -> int:
        return sum(b.record_count for b in self.deltas)

    @property
    def live_rows(self) -> int:
        return self.data_rows + self.delta_rows - self.deleted

    @property
    def luck(self) -> float:
        """A number between 0 and 1, always the same for a partition."""
        return random.Random(self.partition.partition_id).random()

    def target(self, config: TableConfig) -> int:
        """Return how many rows the partition should have."""
        rows = self.data_rows + self.delta_rows
        size = sum(b.size for b in self.blocks)
        return config.partition_row_count if not size else min(
            config.partition_row_count, max(1, config.partition_bytes * rows // size)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with neighbouring partitions."""

    kind: Kind
    parts: tuple[Part, ...]
    inputs: tuple[BlockRecord, ...] = ()  # whose rows are rewritten
    sizes: tuple[int, ...] = ()  # rows of each new partition but the last; empty: there is one
    bounds: tuple[bytes, ...] = field(default=())  # of a cut

    @property
    def changes_ranges(self) -> bool:
        return bool(self.sizes or self.bounds) or len(self.parts) > 1


def parts_of(state: TableState) -> list[Part]:
    """Return the live partitions in key order."""
    assert state.ranges is not None
    data: dict[int, list[BlockRecord]] = {}
    deltas: dict[int, list[BlockRecord]] = {}
    for block in state.blocks.records:
        if block.partition_id is not None and block.end_snapshot is None:
            (deltas if block.role == "delta" else data).setdefault(block.partition_id, []).append(block)
    found = []
    for partition in state.ranges.live:
        own = data.get(partition.partition_id, []), deltas.get(partition.partition_id, [])
        logs = [state.deletes.get(b.data_file_id) for blocks in own for b in blocks]
        deleted = sum(log.count_at(state.at) for log in logs if log is not None)
        found.append(Part(partition, tuple(own[0]), tuple(own[1]), deleted))
    return found


def due(state: TableState, beyond: Beyond) -> list[Step]:
    return due_among(parts_of(state), state.table.config, beyond)


def due_among(parts: Sequence[Part], config: TableConfig, beyond: Beyond) -> list[Step]:
    """Return the same, given all partitions of a table in key order."""
    steps = [step for part in parts if (step := _due(part, config, len(parts), beyond)) is not None]
    busy = {p.partition.partition_id for step in steps for p in step.parts}
    return [*steps, *_joins(parts, busy, config)]


def everything(state: TableState, beyond: Beyond) -> list[Step]:
    """Return the steps that merge all deltas and deleted rows, due or not."""
    config = state.table.config
    found: list[Step] = []
    for part in parts_of(state):
        target = part.target(config)
        step = _cut(part, target) or _move(part, 1, target)
        if step is None and (part.deltas or part.deleted or len(part.data) > 1 or _is_large(part, target)):
            step = merge(part, target, beyond)
        if step is not None:
            found.append(step)
    return found


def splits(state: TableState, beyond: Beyond) -> list[Step]:
    """Return the steps that split partitions larger than they should be."""
    config = state.table.config
    large = [part for part in parts_of(state) if _is_large(part, part.target(config))]
    return [_cut(part, part.target(config)) or merge(part, part.target(config), beyond) for part in large]


def split_at(state: TableState, key: bytes) -> list[Step]:
    """Return the step that makes a new bound at a key, or none if there is one already."""
    for part in parts_of(state):
        if part.partition.holds(key, key) and part.partition.begin_key != key:
            across = [b for b in part.blocks if _first(b) < key <= _last(b)]
            if not across:
                return [Step("cut", (part,), bounds=(key,))]
            return [Step("merge", (part,), part.blocks, bounds=(key,))]
    return []


def _due(part: Part, config: TableConfig, count: int, beyond: Beyond) -> Step | None:
    target = part.target(config)
    if (step := _cut(part, target) or _move(part, MOVE_FROM * target, target)) is not None:
        return step
    if part.data_rows > SPLIT_ABOVE * target and _is_large(part, target):
        return merge(part, target, beyond)  # rows came in one large block, or the table wants smaller partitions
    grown, limit = part.delta_rows, config.delta_row_limit
    ratio = config.merge_ratio * (1 + JITTER * (2 * part.luck - 1))
    least = target if not part.data else min(SMALLEST_MERGE, target / 4)
    if grown >= max(ratio * part.data_rows, least) or (limit is not None and grown >= limit):
        if part.data and part.data_rows >= target / 2 and limit is None and _is_appended(part):
            return _fold(part, config, count)  # wait until what was appended is a partition of its own
        return merge(part, target, beyond)
    if part.deleted - grown >= max(DELETED * part.data_rows, 1):
        return merge(part, target, beyond)
    return _fold(part, config, count)


def merge(part: Part, target: int, beyond: Beyond) -> Step:
    """Return the step that merges a partition into one sorted data block, or several if there are too many rows."""
    rows = part.live_rows
    sizes: tuple[int, ...] = ()
    if _is_large(part, target):
        if part.data and beyond(part) >= APPENDED * part.delta_rows > 0:
            full = max(1, -(-(rows - target // 4) // target) - 1)  # the rest is at least a quarter of a partition
            sizes = (target,) * full
        else:
            count = -(-rows // target)
            at = [rows * n // count for n in range(count)]
            sizes = tuple(b - a for a, b in pairwise(at))
    return Step("merge", (part,), part.blocks, sizes)


def _is_large(part: Part, target: int) -> bool:
    return part.live_rows > SPLIT_ABOVE * target


def _is_appended(part: Part) -> bool:
    last = max(map(_last, part.data))
    return all(_first(delta) > last for delta in part.deltas)


def _cut(part: Part, target: int) -> Step | None:
    """Return bounds between blocks that do not overlap, if that makes parts of a good size."""
    runs = list(_runs(part.blocks))
    bounds: list[bytes] = []
    held, left = 0, sum(rows for _, rows in runs)
    least = target if part.data else MOVE_FROM * target  # what is appended to data waits until it fills a partition
    for first, rows in runs:
        if held >= MOVE_FROM * target and left >= least and held + rows > target:
            bounds.append(first)
            held = 0
        held += rows
        left -= rows
    return Step("cut", (part,), bounds=tuple(bounds)) if bounds else None


def _runs(blocks: Sequence[BlockRecord]) -> Iterator[tuple[bytes, int]]:
    """Group blocks that overlap: yield their first key and their rows."""
    first, last, rows = b"", b"", 0
    for block in sorted(blocks, key=_first):
        if rows and _first(block) > last:
            yield first, rows
            rows = 0
        if not rows:
            first, last = _first(block), b""
        last = max(last, _last(block))
        rows += block.record_count
    if rows:
        yield first, rows


def _move(part: Part, least: float, target: int) -> Step | None:
    """Return the step that turns a lone delta into data, unless it is too large for one partition."""
    alone = not part.data and len(part.deltas) == 1
    if alone and part.delta_rows >= least and not _is_large(part, target):
        return Step("move", (part,))
    return None


def _fold(part: Part, config: TableConfig, count: int) -> Step | None:
    """Return the step that folds the first class with enough deltas."""
    smallest = FOLD * config.inline_row_count_limit / count
    classes: dict[int, list[BlockRecord]] = {}
    for delta in part.deltas:
        size, number = float(delta.record_count), 0
        while size >= smallest:
            size, number = size / FOLD, number + 1
        classes.setdefault(number, []).append(delta)
    for group in classes.values():
        if len(group) >= FOLD:
            return Step("fold", (part,), tuple(group))
    return None


def _joins(parts: Sequence[Part], busy: set[int], config: TableConfig) -> list[Step]:
    steps: list[Step] = []
    group: list[Part] = []
    for part in parts:
        if part.partition.partition_id in busy:
            group = []
            continue
        rows = sum(p.live_rows for p in group) + part.live_rows
        if group and rows < JOIN_BELOW * min(p.target(config) for p in (*group, part)):
            group.append(part)
            if len(group) > 2:
                steps.pop()
            steps.append(join(group))
        else:
            group = [part]
    return steps


def join(parts: Sequence[Part]) -> Step:
    """Return the step that joins partitions; nothing is written if only one of them has rows."""
    filled = [part for part in parts if part.blocks]
    return Step("join", tuple(parts), tuple(b for p in filled for b in p.blocks) if len(filled) > 1 else ())


def _first(block: BlockRecord) -> bytes:
    assert block.first_key is not None
    return block.first_key


def _last(block: BlockRecord) -> bytes:
    assert block.last_key is not None
    return block.last_key
