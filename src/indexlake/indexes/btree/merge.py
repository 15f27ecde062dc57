"""Merges several segments into one: their entries for the blocks that are kept, with new slots.

Runs are merged one range of keys at a time, so that memory is bounded however long they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from indexlake.indexes.btree.header import slot_size
from indexlake.indexes.btree.run import Run
from indexlake.indexes.btree.run_writer import RunWriter
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.btree.values import value_sections
from indexlake.indexes.btree.writer import content_of
from indexlake.indexes.keys import Key, KeyColumn
from indexlake.indexes.kind import Content, Slots
from indexlake.indexes.spool import Spool

Inputs = Sequence[tuple[Segment, Sequence[int]]]

BATCH_BYTES = 1 << 20
"""About this many bytes of keys and slots are merged at a time."""

_MOST_SPANS = 1 << 16
"""The most parts of runs that a range of keys is divided into at a time."""

_OBJECT = 64
"""Approximate overhead of a sampled key beyond its bytes."""

_LET_GO = 8
"""After this many batches, what was read of the files is released from memory."""


class _Moved(NamedTuple):
    """Maps the slots of one input to those of the new segment: which blocks are kept, and what to add to their slots.

    Kept blocks stay in their order.
    """

    starts: Slots
    kept: Slots
    added: Slots

    def moved(self, slots: Slots) -> tuple[Slots, Slots]:
        """Return which of the slots are kept, as indices, and their new slots."""
        blocks = np.searchsorted(self.starts, slots, "right") - 1
        here = np.flatnonzero(self.kept[blocks])
        return here, slots[here] + self.added[blocks[here]]


def merged(inputs: Inputs, *, filtered: bool = True) -> Content:
    """Return a segment of the blocks with these ordinals of each input, in this order."""
    starts, sources = _sources(inputs)
    ints, count = inputs[0][0].run.is_int, starts[-1]
    runs = [(segment.run, move) for segment, move in sources if len(segment.run)]
    run = RunWriter(_common(runs), ints=ints, slot_count=count, filtered=filtered)
    for number, (keys, slots) in enumerate(_in_order(runs), 1):
        run.add(keys, slots)
        if number % _LET_GO == 0:
            for segment, _ in sources:
                segment.let_go()
    partials = [(s.partial, move) for s, move in sources if s.partial is not None]
    partial = RunWriter(_common(partials), ints=False, slot_count=count)
    for keys, slots in _in_order(partials):
        partial.add(keys, slots)
        partial.note_valued(keys)
    nulls = Spool()
    for segment, move in sources:
        nulls.write(move.moved(segment.nulls())[1].astype(f"<u{slot_size(count)}"))
    schema = next((v.schema for segment, _ in inputs if (v := segment.values()) is not None), None)
    values: dict[str, Any] = {} if schema is None else value_sections(_rows(inputs), schema)
    return content_of(run, partial if partial.count else None, starts, nulls, values)


def _sources(inputs: Inputs) -> tuple[list[int], list[tuple[Segment, _Moved]]]:
    """Return the first slots of the new blocks, and the inputs in the order of their new slots."""
    starts = [0]
    sources: list[tuple[Segment, _Moved]] = []
    for segment, ordinals in inputs:
        for ascending in _ascending(ordinals):
            old = np.array(segment.starts, np.int64)
            move = _Moved(old, np.zeros(len(old) - 1, np.int64), np.zeros(len(old) - 1, np.int64))
            for ordinal in ascending:
                first, end = segment.starts[ordinal : ordinal + 2]
                move.kept[ordinal], move.added[ordinal] = 1, starts[-1] - first
                starts.append(starts[-1] + end - first)
            sources.append((segment, move))
    return starts, sources


def _ascending(ordinals: Sequence[int]) -> list[list[int]]:
    """Split ordinals into ascending stretches: a segment's blocks may have changed their order."""
    parts: list[list[int]] = []
    for before, ordinal in pairwise([None, *ordinals]):
        if before is None or ordinal is None or ordinal < before:
            parts.append([])
        parts[-1].append(ordinal)  # type: ignore[arg-type]
    return parts


def _common(runs: Sequence[tuple[Run, _Moved]]) -> bytes:
    """Return the prefix that all keys of the runs share."""
    ends = [key for run, _ in runs if not run.is_int for key in run.keys_at([0, len(run) - 1])]
    return KeyColumn.from_keys(ends, ints=False).common_prefix()


def _in_order(runs: Sequence[tuple[Run, _Moved]]) -> Iterator[tuple[KeyColumn, Slots]]:
    """Yield the kept keys of all runs in batches, in order, with their new slots; slots of equal keys ascend."""
    moves = [move for _, move in runs]
    waiting = [[(run, 0, len(run)) for run, _ in runs]] if runs else []
    while waiting:
        spans = waiting.pop()
        if sum(map(_size, spans)) <= 2 * BATCH_BYTES or sum(end - first for _, first, end in spans) == 1:
            parts = [_kept(run, move, first, end) for (run, first, end), move in zip(spans, moves, strict=True)]
            keys, slots = KeyColumn.concat([k for k, _ in parts]), np.concatenate([s for _, s in parts])
            order = keys.argsort()
            yield keys.take(order), slots[order]
        elif _is_one_key(spans):
            for each, move in zip(spans, moves, strict=True):
                run, first, end = each
                rows = max(1, BATCH_BYTES * (end - first) // max(1, _size(each)))
                for at in range(first, end, rows):
                    yield _kept(run, move, at, min(at + rows, end))
        else:
            waiting += reversed(_divided(spans))


_Span = tuple[Run, int, int]
"""A run, and the range of its rows from one to another."""


def _size(span: _Span) -> int:
    run, first, end = span
    return 8 * (end - first) + run.bytes_between(first, end)


def _divided(spans: Sequence[_Span]) -> list[list[_Span]]:
    """Split the spans into two or more ranges of keys, most of them about the size of a batch."""
    rows, size = sum(end - first for _, first, end in spans), sum(map(_size, spans))
    pieces = min(size // BATCH_BYTES, _MOST_SPANS // len(spans)) + 1
    sampled = min(pieces * len(spans), BATCH_BYTES // (size // rows + _OBJECT)) + 1
    step = -(-rows // sampled)
    sample: list[Any] = []
    seen = 0
    for run, first, end in spans:
        sample += run.keys_at(list(range(first + -seen % step, end, step)))
        seen += end - first
    sample.sort()
    last: Any = min(run.keys_at([first])[0] for run, first, end in spans if first < end)
    cuts: list[Key] = []
    every = -(-len(sample) // pieces)
    for key in sample[every - 1 :: every]:
        if key == last:  # this key fills a whole range, so the next one begins after it
            key = key + 1 if isinstance(key, int) else key + b"\x00"
        if key > last:
            last = key
            cuts.append(key)
    found: list[list[_Span]] = []
    starts = [first for _, first, _ in spans]
    for bound in [*cuts, None]:
        ends = [end if bound is None else run.row_of(bound) for run, _, end in spans]
        found.append([(run, low, high) for (run, _, _), low, high in zip(spans, starts, ends, strict=True)])
        starts = ends
    return found


def _is_one_key(spans: Sequence[_Span]) -> bool:
    return len({key for run, first, end in spans if first < end for key in run.keys_at([first, end - 1])}) == 1


def _kept(run: Run, move: _Moved, first: int, end: int) -> tuple[KeyColumn, Slots]:
    keys = run.keys(first, end)
    here, slots = move.moved(run.slots(first, end))
    return keys if len(here) == len(keys) else keys.take(here), slots


def _rows(inputs: Inputs) -> Iterator[pa.RecordBatch]:
    for segment, ordinals in inputs:
        values = segment.values()
        assert values is not None
        for ordinal in ordinals:
            yield from values.between(*segment.starts[ordinal : ordinal + 2])
