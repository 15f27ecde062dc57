"""The events that a running feed still has ahead of it: those already known, and those of blocks currently open.

A block whose events are only in its file is opened when the feed reaches the first commit that may concern it, and
closed after the last. If the open blocks hold too many events, they keep only those of the next commits and are opened
again later: memory stays bounded, however far back the rows of a block reach.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from indexlake.feed.events import EventSet, Listed
from indexlake.feed.plan import FeedPlan
from indexlake.feed.unread import Unread

_first = attrgetter("first")

MOST_LISTED = 4_000_000
"""How many events open blocks may hold together, at 24 bytes each."""

NONE = int(np.iinfo(np.int64).max)
"""Greater than every commit number: there is no such commit."""


class Active:
    """Moves forward only: ``advance`` tells up to which commit all events are available."""

    def __init__(self, plan: FeedPlan) -> None:
        self._until = plan.until
        self._known = list(plan.known)
        self._tally = Tally(plan.known)
        self._waiting = sorted(plan.unread, key=_first)
        self._open: list[_Opened] = []
        self._cut = plan.until  # open blocks hold the events up to this commit

    def event_sets(self) -> Iterator[EventSet]:
        yield from self._known
        for opened in self._open:
            yield from opened.event_sets

    def advance(self, at: int) -> int:
        """Drop events up to the commit ``at``; return the commit up to which windows may reach now."""
        self._known = [s for s in self._known if s.last > at]
        self._open = [opened for opened in self._open if opened.tally.last > at]
        if at >= self._cut:
            self._cut = self._until
        while self._waiting and self._waiting[0].first <= at + 1:
            block = self._waiting.pop(0)
            if self._cut < self._until:
                self._wait([block])
            self._open.append(_Opened(block, block.open(at, self._cut)))
            if sum(opened.size for opened in self._open) > MOST_LISTED:
                self._shorten(at)
        return min(self._cut, self._waiting[0].first - 1 if self._waiting else self._until)

    def _shorten(self, at: int) -> None:
        """Keep only the events up to an earlier commit, so that open blocks hold fewer."""
        snapshots = np.sort(np.concatenate([s.snapshots for opened in self._open for s in opened.event_sets]))
        cut = max(at + 1, int(snapshots[MOST_LISTED // 2]) - 1)
        if cut >= self._cut:
            return  # they all belong to one commit
        self._cut = cut
        open_rows = {id(opened.block.rows) for opened in self._open}
        self._waiting = [block for block in self._waiting if id(block.rows) not in open_rows]
        self._wait([opened.block for opened in self._open])
        self._open = [opened.shortened(cut) for opened in self._open]

    def _wait(self, blocks: Sequence[Unread]) -> None:
        """Queue blocks to be opened again after the cut."""
        self._waiting = sorted([*self._waiting, *(replace(b, first=self._cut + 1) for b in blocks)], key=_first)

    # ------------------------------------------------------------ counts

    def first_after(self, snapshot: int) -> int:
        """Return the next commit with events; ``NONE`` if none is known."""
        return min(tally.first_after(snapshot) for tally in self._tallies())

    def last_that_fits(self, after: int, first: int, limit: int, room: int) -> int | None:
        """Return the last commit up to ``limit`` that fits into a window beginning after ``after``, or None."""
        tallies = list(self._tallies())
        done = sum(tally.upto(after) for tally in tallies)

        def too_many(snapshot: int) -> bool:
            return sum(tally.upto(snapshot) for tally in tallies) - done > room

        upto = first - 1 + bisect_left(range(first, limit + 1), True, key=too_many)
        return upto if upto >= first else None

    def _tallies(self) -> Iterator[Tally]:
        yield self._tally
        for opened in self._open:
            yield opened.tally


class _Opened:
    def __init__(self, block: Unread, event_sets: Sequence[Listed]) -> None:
        self.block = block
        self.event_sets = event_sets
        self.tally = Tally(event_sets)
        self.size = sum(len(s.snapshots) for s in event_sets)

    def shortened(self, upto: int) -> _Opened:
        return _Opened(self.block, [kept for s in self.event_sets if (kept := s.shortened(upto)) is not None])


class Tally:
    """The cumulative number of events of several sets, by commit."""

    def __init__(self, event_sets: Sequence[EventSet]) -> None:
        found = [s.counts() for s in event_sets] or [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        self._snapshots, place = np.unique(np.concatenate([s for s, _ in found]), return_inverse=True)
        counts = np.zeros(len(self._snapshots), np.int64)
        np.add.at(counts, place, np.concatenate([c for _, c in found]))
        self._upto = np.concatenate(([0], np.cumsum(counts)))
        self.last = int(self._snapshots[-1]) if len(self._snapshots) else 0

    def first_after(self, snapshot: int) -> int:
        at = int(np.searchsorted(self._snapshots, snapshot, "right"))
        return int(self._snapshots[at]) if at < len(self._snapshots) else NONE

    def upto(self, snapshot: int) -> int:
        return int(self._upto[np.searchsorted(self._snapshots, snapshot, "right")])
