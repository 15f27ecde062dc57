"""Merges runs or segments into one segment, a few pages of each at a time.

Sources come in the order of their slots, so all postings of a term in one source precede those in the next. Postings
therefore never need sorting; they are only concatenated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.bm25.run import Page, Postings
from indexlake.indexes.bm25.writer import Batch, Pairs, Writer


class Source(Protocol):
    """Postings in the order of their terms.  Codes are indices into the source's own pairs."""

    pairs: Pairs

    def pages(self) -> Iterator[Page]: ...


def merge_sources(sources: Sequence[Source], pairs: Pairs, writer: Writer) -> None:
    """Write all sources.  ``pairs`` are all pairs that occur in any of them, in the writer's order."""
    order = np.argsort(pairs)
    heads = []
    for source in sources:
        numbers = order[np.searchsorted(pairs, source.pairs, sorter=order)].astype(np.uint32)
        heads.append(_Head(source.pages(), numbers, pairs >> 32))
    while heads := [head for head in heads if head.load()]:
        bound = min(head.last() for head in heads)
        heavy = min((head.first() for head in heads if head.heavy), default=None)
        if heavy is None or heavy > bound:
            _write([head.take(bound, inclusive=True) for head in heads], pairs >> 32, writer)
        else:
            _write([head.take(heavy, inclusive=False) for head in heads], pairs >> 32, writer)
            _write_one(heavy, [head for head in heads if head.load() and head.first() == heavy], writer)


class _Head:
    """The current page of a source, and how far it has been taken."""

    def __init__(self, pages: Iterator[Page], numbers: npt.NDArray[np.uint32], frequencies: npt.NDArray[Any]) -> None:
        self._pages = pages
        self._numbers = numbers
        self._frequencies = frequencies
        self._terms: Any = None
        self._row = self._count = 0
        self.heavy = False

    def load(self) -> bool:
        """Make sure there is a page with terms left.  Return False at the end of the source."""
        while self._row == self._count:
            page = next(self._pages, None)
            if page is None:
                return False
            self._terms, self._counts, self._later = page
            self._row, self._count = 0, len(page.terms)
            self.heavy = False
            if self._count:
                self._start()
        return True

    def _start(self) -> None:
        first = next(self._later)
        self.heavy = len(first.slots) < int(self._counts.sum())
        self._postings = Postings(first.slots, self._numbers[first.codes], first.positions)
        if not self.heavy:
            self._firsts = np.concatenate(([0], np.cumsum(self._counts)))
            occurrences = np.concatenate(([0], np.cumsum(self._frequencies[self._postings.codes])))
            self._first_positions = occurrences[self._firsts]

    def first(self) -> str:
        return str(self._terms[self._row].as_py())

    def last(self) -> str:
        return str(self._terms[self._count - 1].as_py())

    def take(self, bound: str, *, inclusive: bool) -> Batch | None:
        """Take the terms up to a bound from the page.  None if there are none, or if the page is heavy."""
        if self.heavy:
            return None
        row = self._row
        if inclusive and self.last() == bound:
            end = self._count
        else:
            limit = bound.encode()
            end = row
            high = self._count
            while end < high:
                middle = (end + high) // 2
                term = bytes(self._terms[middle].as_buffer())
                if term < limit or (inclusive and term == limit):
                    end = middle + 1
                else:
                    high = middle
        if end == row:
            return None
        self._row = end
        low, high = int(self._firsts[row]), int(self._firsts[end])
        slots, codes, positions = self._postings
        if positions is not None:
            positions = positions[int(self._first_positions[row]) : int(self._first_positions[end])]
        return Batch(
            self._terms.slice(row, end - row), self._counts[row:end], slots[low:high], codes[low:high], positions
        )

    def take_one(self) -> Iterator[Batch]:
        """Yield all postings of the next term."""
        if not self.heavy:
            found = self.take(self.first(), inclusive=True)
            assert found is not None
            yield found
            return
        terms, counts = self._terms, self._counts
        self._row = self._count
        yield Batch(terms, counts, *self._postings)
        for slots, codes, positions in self._later:
            yield Batch(terms, counts, slots, self._numbers[codes], positions)


def _write(found: Sequence[Batch | None], frequencies: npt.NDArray[np.int64], writer: Writer) -> None:
    batches = [batch for batch in found if batch is not None]
    if len(batches) <= 1:
        if batches:
            writer.add(batches[0])
        return
    encoded = pa.concat_arrays([batch.terms for batch in batches]).dictionary_encode()
    by_term = np.asarray(pc.array_sort_indices(encoded.dictionary)).astype(np.int64)
    ranks = np.empty(len(by_term), np.int64)
    ranks[by_term] = np.arange(len(by_term))
    rank = ranks[np.asarray(encoded.indices)]
    order = np.argsort(rank, kind="stable")
    counts = np.concatenate([batch.counts for batch in batches])
    codes = np.concatenate([batch.codes for batch in batches])
    firsts = np.cumsum(counts) - counts
    rows = expand(firsts[order], counts[order])
    positions = None
    if batches[0].positions is not None:
        occurrences = np.add.reduceat(frequencies[codes], firsts)
        places = expand((np.cumsum(occurrences) - occurrences)[order], occurrences[order])
        positions = np.concatenate([batch.positions for batch in batches if batch.positions is not None])[places]
    writer.add(
        Batch(
            encoded.dictionary.take(pa.array(by_term)),
            np.bincount(rank, counts, len(by_term)).astype(np.int64),
            np.concatenate([batch.slots for batch in batches])[rows],
            codes[rows],
            positions,
        )
    )


def _write_one(term: str, heads: Sequence[_Head], writer: Writer) -> None:
    count = occurrences = most = 0
    for head in heads:
        for batch in head.take_one():
            frequencies = writer.add_postings(batch)
            count += len(frequencies)
            occurrences += int(frequencies.sum())
            most = max(most, int(frequencies.max(initial=0)))
    if count:
        numbers = [np.array([number], np.int64) for number in (count, occurrences, most)]
        writer.end_terms(pa.array([term], pa.large_string()), *numbers)


def expand(firsts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers first, first + 1, … of each range, one range after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: npt.NDArray[np.int64] = np.arange(total) + np.repeat(firsts - (ends - counts), counts)
    return found
