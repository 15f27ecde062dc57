"""Runs the plan of a feed: changes in order, a window of commits at a time.

Changes are ordered by commit; within a commit, what ends (deletes, the old rows of updates) comes before what begins
(the new rows of updates, inserts); then by row id. The order does not depend on where rows are, so a feed is the same
before and after any job. A window holds as many commits as fit; a commit too large for one is cut by row id and
streams.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.formats.batches import distinct
from indexlake.feed.active import Active
from indexlake.feed.events import EVERY_ID, Events, EventSet, Ints
from indexlake.feed.plan import FeedPlan
from indexlake.schema import ROW_ID
from indexlake.schema.change_columns import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    SNAPSHOT_ID,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)
from indexlake.types.selection import gather

FIRST_ROWS = 8_192
MOST_ROWS = 131_072
WINDOW_BYTES = 32 << 20
"""A window gets as many rows as fit into this, judged by the width of rows seen so far."""

_TYPES = (DELETE, UPDATE_PREIMAGE, INSERT, UPDATE_POSTIMAGE)


class Window(NamedTuple):
    """The changes of the commits in (after, upto] to rows with ids in [low, high)."""

    after: int
    upto: int
    low: int = 0
    high: int = EVERY_ID
    begins: bool | None = None  # for a commit that is cut: only what begins, or only what ends


class Feed:
    """One run of a plan."""

    def __init__(self, plan: FeedPlan, schema: pa.Schema) -> None:
        self._plan = plan
        self._schema = schema  # of the rows that readers return
        self._active = Active(plan)
        self._room = FIRST_ROWS

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the rows, then change type, snapshot and row id."""
        for window in self._windows():
            size = rows = 0
            for batch in self._changes(window):
                size, rows = size + batch.nbytes, rows + batch.num_rows
                yield batch
            if rows:
                self._room = max(1, min(MOST_ROWS, 4 * self._room, WINDOW_BYTES * rows // max(1, size)))

    # ------------------------------------------------------------ cutting

    def _windows(self) -> Iterator[Window]:
        at, until = self._plan.since, self._plan.until
        while at < until:
            limit = self._active.advance(at)
            first = self._active.first_after(at)
            if first > limit:
                at = limit
                continue
            upto = self._active.last_that_fits(at, first, limit, self._room)
            if upto is None:
                yield from self._slices(first)
                at = first
            else:
                yield Window(at, upto)
                at = upto

    def _slices(self, snapshot: int) -> Iterator[Window]:
        """Cut one large commit by ranges of row ids: first what ends, then what begins."""
        event_sets = [s for s in self._active.event_sets() if s.first <= snapshot <= s.last]

        def below(row_id: int) -> int:
            return sum(s.below(snapshot, row_id) for s in event_sets)

        for begins in sorted({s.begins for s in event_sets if s.below(snapshot, EVERY_ID)}):
            low, done = 0, 0
            while low < EVERY_ID:
                # The largest end of a range that still fits; a row has at most two events.
                wanted = done + max(2, self._room)
                high = low + 1 + bisect_left(range(low + 1, EVERY_ID), True, key=lambda x: below(x + 1) > wanted)
                yield Window(snapshot - 1, snapshot, low, high, begins)
                low, done = high, below(high)

    # ------------------------------------------------------------ reading

    def _changes(self, window: Window) -> Iterator[pa.RecordBatch]:
        parts: list[tuple[EventSet, Events]] = []
        for event_set in self._active.event_sets():
            if event_set.first <= window.upto and event_set.last > window.after:
                events = event_set.events(window.after, window.upto, window.low, window.high)
                if len(events.snapshots):
                    parts.append((event_set, events))
        if not parts:
            return
        snapshots = np.concatenate([events.snapshots for _, events in parts])
        row_ids = np.concatenate([events.row_ids for _, events in parts])
        begins = np.repeat([s.begins for s, _ in parts], [len(e.snapshots) for _, e in parts])
        order = _ordered(snapshots, begins, row_ids)
        paired = _paired(snapshots, begins, row_ids)
        if window.begins is not None:
            order = order[begins[order] == window.begins]
            parts = [part for part in parts if part[0].begins == window.begins]
            if not parts:
                return
        types = pa.array(_TYPES).take(pa.array(2 * begins[order].astype(np.int8) + paired[order]))
        extra = [types, pa.array(snapshots[order]), pa.array(row_ids[order])]
        start = 0
        for batch in self._rows(parts, _places(order, begins, window.begins)):
            here = [column.slice(start, batch.num_rows) for column in extra]
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([*batch.columns, *here], schema=feed_schema(self._schema))

    def _rows(self, parts: Sequence[tuple[EventSet, Events]], order: Ints) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all parts, numbered consecutively, in the given order."""
        if not len(self._schema):
            yield _without_columns(len(order))
            return
        batches: list[pa.RecordBatch] = []
        places: list[Ints] = []
        read = 0
        for event_set, events in parts:
            positions, inverse = distinct(events.positions)
            batches += event_set.rows.read(positions)
            places.append((np.arange(len(positions)) if inverse is None else inverse) + read)
            read += len(positions)
        assert sum(batch.num_rows for batch in batches) == read, "rows of the feed are nowhere"
        wanted = np.concatenate(places)[order]
        if len(wanted) == read and bool((wanted == np.arange(read)).all()):
            yield from batches
        else:
            yield from gather(batches, pa.array(wanted), self._schema)


def feed_schema(rows: pa.Schema) -> pa.Schema:
    """Return the columns of a change."""
    return pa.schema(
        [
            *rows,
            pa.field(CHANGE_TYPE, pa.string(), False),
            pa.field(SNAPSHOT_ID, pa.int64(), False),
            pa.field(ROW_ID, pa.int64(), False),
        ]
    )


def _ordered(snapshots: Ints, begins: npt.NDArray[np.bool_], row_ids: Ints) -> Ints:
    step = np.diff(snapshots)
    turn = np.diff(begins.astype(np.int8))
    sorted_already = (step > 0) | ((step == 0) & ((turn > 0) | ((turn == 0) & (np.diff(row_ids) > 0))))
    if sorted_already.all():
        return np.arange(len(snapshots))
    return np.lexsort((row_ids, begins, snapshots))


def _paired(snapshots: Ints, begins: npt.NDArray[np.bool_], row_ids: Ints) -> npt.NDArray[np.bool_]:
    """Return which events are half of an update: in the same commit a version of the row ends and another begins."""
    paired = np.zeros(len(snapshots), np.bool_)
    if begins.all() or not begins.any():
        return paired
    order = np.lexsort((begins, row_ids, snapshots))
    same = (np.diff(snapshots[order]) == 0) & (np.diff(row_ids[order]) == 0)
    paired[order[:-1][same]] = True
    paired[order[1:][same]] = True
    return paired


def _places(order: Ints, begins: npt.NDArray[np.bool_], kept: bool | None) -> Ints:
    """Return the order among the kept events only."""
    if kept is None:
        return order
    place = np.cumsum(begins == kept) - 1
    return place[order]


def _without_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
