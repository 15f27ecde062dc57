"""One segment from several: their entries for the blocks that are kept, with new slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from indexlake.indexes.btree.run import Run
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.btree.values import value_sections
from indexlake.indexes.btree.writer import Entries
from indexlake.indexes.keys import KeyColumn
from indexlake.indexes.kind import Slots

Inputs = Sequence[tuple[Segment, Sequence[int]]]


class _Moved(NamedTuple):
    """How the slots of one input become those of the new segment: what to add, for each block that is kept."""

    starts: Slots
    kept: Slots
    added: Slots

    def moved(self, slots: Slots) -> tuple[Slots, Slots]:
        """(which of the slots are kept, their new slots)."""
        blocks = np.searchsorted(self.starts, slots, "right") - 1
        here = np.flatnonzero(self.kept[blocks])
        return here, slots[here] + self.added[blocks[here]]


def merged(inputs: Inputs) -> Entries:
    """The entries of the blocks with these ordinals of each segment, in this order."""
    starts = [0]
    moves: list[_Moved] = []
    for segment, ordinals in inputs:
        old = np.array(segment.starts, np.int64)
        move = _Moved(old, np.zeros(len(old) - 1, np.int64), np.zeros(len(old) - 1, np.int64))
        for ordinal in ordinals:
            first, end = segment.starts[ordinal : ordinal + 2]
            move.kept[ordinal], move.added[ordinal] = 1, starts[-1] - first
            starts.append(starts[-1] + end - first)
        moves.append(move)
    keys, slots = _together([segment.run for segment, _ in inputs], moves)
    partial_keys, partial_slots = None, np.zeros(0, np.int64)
    if any(segment.partial is not None for segment, _ in inputs):
        some = [(s.partial, m) for (s, _), m in zip(inputs, moves, strict=True) if s.partial is not None]
        partial_keys, partial_slots = _together([run for run, _ in some], [move for _, move in some])
    nulls = [move.moved(segment.nulls())[1] for (segment, _), move in zip(inputs, moves, strict=True)]
    schema = next((v.schema for segment, _ in inputs if (v := segment.values()) is not None), None)
    values = {} if schema is None else value_sections(_rows(inputs), schema)
    return Entries(keys, slots, starts, partial_keys, partial_slots, np.sort(np.concatenate(nulls)), values)


def _together(runs: Sequence[Run], moves: Sequence[_Moved]) -> tuple[KeyColumn, Slots]:
    """The kept keys of all runs, so that the slots of equal keys ascend; runs that are in order stay so."""
    keys: list[KeyColumn] = []
    slots: list[Slots] = []
    for run, move in zip(runs, moves, strict=True):
        here, new = move.moved(run.slots())
        keys.append(run.keys() if len(here) == len(run) else run.keys().take(here))
        slots.append(new)
    found, places = KeyColumn.concat(keys), np.concatenate(slots)
    if all(bool((np.diff(move.added[move.kept > 0]) >= 0).all()) for move in moves):
        return found, places
    order = np.argsort(places, kind="stable")  # blocks of one segment have changed their order
    return found.take(order), places[order]


def _rows(inputs: Inputs) -> Iterator[pa.RecordBatch]:
    for segment, ordinals in inputs:
        values = segment.values()
        assert values is not None
        for ordinal in ordinals:
            yield from values.between(*segment.starts[ordinal : ordinal + 2])
