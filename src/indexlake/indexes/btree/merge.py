"""One segment from several: their entries for the blocks that are kept, with new slots.

Runs are merged a range of keys at a time, so that memory is bounded however long they are.
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

BATCH_BYTES = 2 << 20
"""About so many bytes of keys and slots are merged at a time."""

_LET_GO = 8
"""After so many times what was read of the files does not stay in memory."""


class _Moved(NamedTuple):
    """How slots of one input become those of the new segment: what to add, for each block that is kept.

    Those that are kept stay in their order.
    """

    starts: Slots
    kept: Slots
    added: Slots

    def moved(self, slots: Slots) -> tuple[Slots, Slots]:
        """(which of the slots are kept, their new slots)."""
        blocks = np.searchsorted(self.starts, slots, "right") - 1
        here = np.flatnonzero(self.kept[blocks])
        return here, slots[here] + self.added[blocks[here]]


def merged(inputs: Inputs, *, filtered: bool = True) -> Content:
    """The entries of the blocks with these ordinals of each segment, in this order."""
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
    """The first slots of the new blocks, and the inputs in the order of their new slots."""
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
    """Cut where they do not ascend: blocks of one segment may have changed their order."""
    parts: list[list[int]] = []
    for before, ordinal in pairwise([None, *ordinals]):
        if before is None or ordinal is None or ordinal < before:
            parts.append([])
        parts[-1].append(ordinal)  # type: ignore[arg-type]
    return parts


def _common(runs: Sequence[tuple[Run, _Moved]]) -> bytes:
    """What all keys start with."""
    ends = [key for run, _ in runs if not run.is_int for key in run.keys_at([0, len(run) - 1])]
    return KeyColumn.from_keys(ends, ints=False).common_prefix()


def _in_order(runs: Sequence[tuple[Run, _Moved]]) -> Iterator[tuple[KeyColumn, Slots]]:
    """The kept keys of all runs in order, with their new slots, some at a time; slots of equal keys ascend."""
    total = sum(len(run) for run, _ in runs)
    if not total:
        return
    rows = max(1, BATCH_BYTES * total // (8 * total + sum(run.key_bytes for run, _ in runs)))
    first = [0] * len(runs)
    for bound in [*_cuts([run for run, _ in runs], rows), None]:
        end = [len(run) if bound is None else run.row_of(bound) for run, _ in runs]
        count = sum(end) - sum(first)
        if count > 2 * rows and _is_one_key(runs, first, end):
            for (run, move), low, high in zip(runs, first, end, strict=True):
                for at in range(low, high, rows):
                    yield _kept(run, move, at, min(at + rows, high))
        elif count:
            parts = [_kept(run, move, low, high) for (run, move), low, high in zip(runs, first, end, strict=True)]
            keys, slots = KeyColumn.concat([k for k, _ in parts]), np.concatenate([s for _, s in parts])
            order = keys.argsort()
            yield keys.take(order), slots[order]
        first = end


def _cuts(runs: Sequence[Run], rows: int) -> list[Key]:
    """Keys that cut all runs into ranges of up to about so many rows; a key that has more lies alone."""
    step = max(1, rows // len(runs))
    samples: list[Any] = sorted([key for run in runs for key in run.keys_at(list(range(0, len(run), step)))])
    cuts: list[Key] = []
    for n in range(len(runs), len(samples), len(runs)):
        key = samples[n]
        if key == samples[n - len(runs)]:  # it fills a range: the next one begins behind it
            key = key + 1 if isinstance(key, int) else key + b"\x00"
        if not cuts or key > cuts[-1]:
            cuts.append(key)
    return cuts


def _is_one_key(runs: Sequence[tuple[Run, _Moved]], first: Sequence[int], end: Sequence[int]) -> bool:
    spans = [(run, low, high) for (run, _), low, high in zip(runs, first, end, strict=True) if low < high]
    return len({key for run, low, high in spans for key in run.keys_at([low, high - 1])}) == 1


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
