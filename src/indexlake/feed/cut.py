"""Cuts the plan of a feed into portions that can be read independently of each other, anywhere and in any order.

A portion is the plan of some commits, or of some rows of one large commit. Commits report how many rows they changed,
so cutting opens no block. Both halves of an update are in one portion, because they have the same row id. A portion may
be larger than the others if the row ids of a large commit are distributed unevenly in blocks that are not opened here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import numpy as np

from indexlake.catalog.commits import RowCounts
from indexlake.feed.events import EVERY_ID
from indexlake.feed.plan import FeedPlan

LEAST_CHANGES = 100_000
"""A portion has at least so many changes, unless the feed has fewer."""
MOST_CHANGES = 1_000_000
"""A portion has at most about so many changes."""

_SAMPLES = 64
"""How many row ids are looked at to find where a portion ends."""


def cut(plan: FeedPlan, commits: Sequence[RowCounts], parallelism: int) -> Iterator[FeedPlan]:
    """Yield the portions, a multiple of ``parallelism`` if there are more; ``commits`` are those that changed rows."""
    total = sum(_events(commit) for commit in commits)
    waves = max(1, ceil(total / MOST_CHANGES / parallelism))
    number = max(1, min(waves * parallelism, ceil(total / LEAST_CHANGES)))
    for part in _cut(plan, commits, max(1, ceil(total / number))):
        if part.known or part.unread:
            yield part


def _cut(plan: FeedPlan, commits: Sequence[RowCounts], size: int) -> Iterator[FeedPlan]:
    since = last = plan.since
    held = 0
    for commit in commits:
        more = _events(commit)
        if held and held + more > size:
            yield plan.within(since, last)
            since, held = last, 0
        last = commit.snapshot
        held += more
        if held > size:  # this commit alone
            part = plan.within(since, last)
            for low, high in _ranges(part, last, size, ceil(held / size)):
                yield part.within(since, last, low, high)
            since, held = last, 0
    if since < plan.until:
        yield plan.within(since, plan.until)


def _events(commit: RowCounts) -> int:
    return commit.inserted + 2 * commit.updated + commit.deleted


def _ranges(part: FeedPlan, snapshot: int, size: int, number: int) -> Iterable[tuple[int, int]]:
    """Return ranges of row ids with similar numbers of events in a commit."""
    step = max(1, size // _SAMPLES)
    found = [s.sample(snapshot, step) for s in part.known] + [b.sample(snapshot, step) for b in part.unread]
    ids = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
    bounds = np.unique(ids[np.arange(1, number) * len(ids) // number]).tolist() if len(ids) else []
    return zip([0, *bounds], [*bounds, EVERY_ID], strict=True)
