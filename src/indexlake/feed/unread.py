"""Blocks whose events are only in their files: which rows began or ended, and when, is known once they are opened.

Like sets of events, they are fixed once the feed is planned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from indexlake.arrow import kernels as pc
from indexlake.feed.events import NOTHING, BlockRows, Events, Ints, Listed, RowReader, positions_of
from indexlake.schema import END, ROW_ID, VERSION


@dataclass(frozen=True, slots=True)
class Unread(ABC):
    """A block that is opened when the feed comes to its first commit: its events in (first - 1, last] of rows with ids
    in [low, high)."""

    rows: BlockRows
    first: int
    last: int
    low: int
    high: int

    @abstractmethod
    def open(self, since: int, until: int) -> list[Listed]:
        """Return its events in (since, until]."""

    def within(self, since: int, until: int, low: int, high: int) -> Self | None:
        """Return the block with these events only; None if it has none."""
        low, high = max(low, self.low), min(high, self.high)
        if self.first > until or self.last <= since or low >= high:
            return None
        return replace(self, first=max(self.first, since + 1), last=min(self.last, until), low=low, high=high)

    def sample(self, snapshot: int, step: int) -> Ints:
        """Return the row id of about every ``step``-th event of a commit, as far as that is known."""
        if not self.first <= snapshot <= self.last:
            return NOTHING
        return np.linspace(self.low, self.high - 1, self._most(snapshot) // step, dtype=np.int64)

    def _most(self, snapshot: int) -> int:
        """Return how many events a commit may have."""
        return self.rows.task.record_count

    def _listed(self, events: Events, since: int, until: int, *, begins: bool) -> list[Listed]:
        return _listed_within(self.rows, events, since, until, self.low, self.high, begins=begins)


@dataclass(frozen=True, slots=True)
class KeyedBlock(Unread):
    """Rows of a block that is not in row-id order, which begin, or which end, in some commits."""

    entries: tuple[tuple[int, Any], ...]  # snapshot, positions
    begins: bool

    def open(self, since: int, until: int) -> list[Listed]:
        (row_ids,) = (c.to_numpy() for c in self.rows.hidden(ROW_ID))
        inside = [(s, positions_of(p)) for s, p in self.entries if since < s <= until]
        if not inside:
            return []
        positions = np.concatenate([p for _, p in inside])
        snapshots = np.repeat(np.array([s for s, _ in inside], np.int64), [len(p) for _, p in inside])
        events = Events(snapshots, row_ids[positions], positions)
        return self._listed(events, since, until, begins=self.begins)

    def _most(self, snapshot: int) -> int:
        return sum(len(positions) for s, positions in self.entries if s == snapshot)


@dataclass(frozen=True, slots=True)
class VersionedBlock(Unread):
    """A block whose rows were committed at different times, such as one from a dump."""

    never_visible: Any | None
    begin: int
    begin_counts: bool  # whether versions up to the block's begin are changes of that commit

    def open(self, since: int, until: int) -> list[Listed]:
        row_ids, column = self.rows.hidden(ROW_ID, VERSION)
        versions = pc.fill_null(column, self.begin).to_numpy()
        wanted = versions > (since if self.begin_counts else max(since, self.begin))
        if self.never_visible is not None:
            wanted[positions_of(self.never_visible)] = False
        positions = np.flatnonzero(wanted).astype(np.int64)
        snapshots = np.maximum(versions[positions], self.begin)
        events = Events(snapshots, row_ids.to_numpy()[positions], positions)
        return self._listed(events, since, until, begins=True)


@dataclass(frozen=True, slots=True)
class HistoryBlock(Unread):
    """Superseded versions that a job took out of the catalog: each begins and ends in commits of its own."""

    def open(self, since: int, until: int) -> list[Listed]:
        row_ids, begins, ends = (c.to_numpy() for c in self.rows.hidden(ROW_ID, VERSION, END))
        positions = np.arange(len(row_ids), dtype=np.int64)
        return [
            *self._listed(Events(begins, row_ids, positions), since, until, begins=True),
            *self._listed(Events(ends, row_ids, positions), since, until, begins=False),
        ]


def _listed_within(
    rows: RowReader, events: Events, since: int, until: int, low: int, high: int, *, begins: bool
) -> list[Listed]:
    """Return a set of the events in (since, until] of rows in [low, high), or an empty list if there are none."""
    inside = (events.snapshots > since) & (events.snapshots <= until)
    inside &= (events.row_ids >= low) & (events.row_ids < high)
    if not inside.all():
        events = Events(*(column[inside] for column in events))
    if not len(events.snapshots):
        return []
    order = np.lexsort((events.row_ids, events.snapshots))
    return [Listed(rows, Events(*(column[order] for column in events)), begins=begins)]
