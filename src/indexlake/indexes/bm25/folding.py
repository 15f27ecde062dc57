"""Merges segments without going back to the texts: chosen blocks of each become a new segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.indexes.bm25.merging import expand, merge_sources
from indexlake.indexes.bm25.run import PAGE_POSTINGS, PAGE_TERMS, Page, Postings, page_bounds
from indexlake.indexes.bm25.segment import Segment
from indexlake.indexes.bm25.writer import Documents, Writer, ordered_pairs
from indexlake.indexes.spool import Spool

_ROWS = 1 << 20


def fold(inputs: Sequence[tuple[Segment, Sequence[int]]], params: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the pieces of a segment that consists of the given blocks of each input, in this order."""
    starts = [0]
    sources = []
    lengths = Spool()
    count = length = longest = 0
    for segment, ordinals in inputs:
        for part in _ascending(ordinals):
            shifts = {}
            for ordinal in part:
                low, high = segment.starts[ordinal : ordinal + 2]
                shifts[ordinal] = starts[-1] - low
                starts.append(starts[-1] + high - low)
                for at in range(low, high, _ROWS):
                    here = _signed(segment.lengths()[at : min(at + _ROWS, high)])
                    lengths.write(here)
                    present = here[here >= 0]
                    count += len(present)
                    length += int(present.sum(dtype=np.int64))
                    longest = max(longest, int(present.max(initial=0)))
            sources.append(_SegmentSource(segment, shifts))
    documents = Documents(lengths, starts, count, length, longest)
    every = np.concatenate([source.pairs for source in sources]) if sources else np.empty(0, np.int64)
    pairs = ordered_pairs(every, documents, params["k1"], params["b"])
    last = max((segment.last_position for segment, _ in inputs), default=0)
    writer = Writer(documents, pairs, last, positions=params["positions"])
    merge_sources(sources, pairs, writer)
    return writer.pieces()


class _SegmentSource:
    """The postings of some blocks of a segment, with their slots moved to the new segment."""

    def __init__(self, segment: Segment, shifts: Mapping[int, int]) -> None:
        self._segment = segment
        frequency, length = segment.pairs
        self.pairs = frequency.astype(np.int64) << 32 | length.astype(np.int64)
        self._frequencies = frequency.astype(np.int64)
        self._starts = np.array(segment.starts, np.int64)
        self._kept = np.zeros(len(self._starts) - 1, np.bool_)
        self._shift = np.zeros(len(self._starts) - 1, np.int64)
        for ordinal, shift in shifts.items():
            self._kept[ordinal] = True
            self._shift[ordinal] = shift

    def pages(self) -> Iterator[Page]:
        terms = self._segment.header.terms
        for first in range(0, terms, PAGE_TERMS):
            end = min(first + PAGE_TERMS, terms)
            table = self._segment.entries(first, end)
            postings, positions = table["posting"].astype(np.int64), table["position"].astype(np.int64)
            names = self._segment.terms(first, end)
            for low, high in page_bounds(postings):
                yield self._page(names.slice(low, high - low), postings[low : high + 1], int(positions[low]))

    def _page(self, terms: Any, firsts: npt.NDArray[np.int64], position: int) -> Page:
        later = self._postings(int(firsts[0]), int(firsts[-1]), position)
        if self._kept.all():
            return Page(terms, np.diff(firsts), (postings for postings, _ in later))
        if len(terms) == 1 and int(firsts[1] - firsts[0]) > PAGE_POSTINGS:
            # How many postings are kept is not known until they have been read, so such a term counts as heavy.
            return Page(terms, np.diff(firsts), (postings for postings, _ in later))
        postings, kept = next(later)
        counts = np.add.reduceat(kept.astype(np.int64), firsts[:-1] - firsts[0])
        remaining = counts > 0
        return Page(terms.filter(_arrow(remaining)), counts[remaining], iter([postings]))

    def _postings(self, low: int, high: int, position: int) -> Iterator[tuple[Postings, npt.NDArray[np.bool_]]]:
        segment = self._segment
        for at in range(low, high, PAGE_POSTINGS):
            end = min(at + PAGE_POSTINGS, high)
            slots, codes = segment.slots(at, end).astype(np.int64), segment.codes(at, end)
            segment.check_codes(codes)
            block = np.searchsorted(self._starts, slots, "right") - 1
            kept = self._kept[np.minimum(block, len(self._kept) - 1)]
            moved = (slots + self._shift[np.minimum(block, len(self._kept) - 1)])[kept]
            positions = None
            if segment.header.has_positions:
                frequencies = self._frequencies[codes]
                total = int(frequencies.sum())
                positions = segment.positions(position, position + total)
                if not kept.all():
                    firsts = np.cumsum(frequencies) - frequencies
                    positions = positions[expand(firsts[kept], frequencies[kept])]
                position += total
            yield Postings(moved.astype(np.uint32), codes[kept], positions), kept


def _arrow(mask: npt.NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(mask)


def _signed(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return lengths as the builder keeps them: -1 where there is no document."""
    none = np.iinfo(lengths.dtype).max
    return np.where(lengths == none, -1, lengths.astype(np.int64)).astype(np.int32)


def _ascending(ordinals: Sequence[int]) -> list[list[int]]:
    """Split ordinals into ascending stretches."""
    if not ordinals:
        return []
    parts = [[ordinals[0]]]
    for before, ordinal in pairwise(ordinals):
        if ordinal > before:
            parts[-1].append(ordinal)
        else:
            parts.append([ordinal])
    return parts
