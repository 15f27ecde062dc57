"""Runs: the tokens of a stretch of rows, sorted into postings.

A run holds as many tokens as fit the budget, so a build needs the same memory however many rows there are.  If there is
more than one run, they wait in temporary files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.bm25.writer import Batch, Pairs, string_parts
from indexlake.indexes.spool import Spool

PAGE_TERMS = 4096
PAGE_POSTINGS = 1 << 15


class Postings(NamedTuple):
    """Postings of one or more terms in order, with their positions."""

    slots: npt.NDArray[Any]
    codes: npt.NDArray[Any]
    positions: npt.NDArray[Any] | None


class Page(NamedTuple):
    """Terms in order, the number of postings of each, and the postings, in portions if there is only one term."""

    terms: Any
    counts: npt.NDArray[np.int64]
    postings: Iterator[Postings]


class TokenBuffer:
    """Tokens in the order of the rows."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._tokens: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]] = []
        self.count = 0

    def add(self, terms: list[str], codes: npt.NDArray[Any], slots: npt.NDArray[Any], places: npt.NDArray[Any]) -> None:
        numbers = self._numbers
        ours = np.array([numbers.setdefault(term, len(numbers)) for term in terms], np.uint32)
        self._tokens.append((ours[codes], slots.astype(np.uint32), places.astype(np.uint32)))
        self.count += len(codes)

    def run(self, lengths: npt.NDArray[np.int64], first_slot: int, *, positions: bool) -> tuple[Batch, Pairs]:
        """Return all postings in the order of the terms, and the pairs that their codes refer to.

        ``lengths`` are the document lengths of the slots from ``first_slot`` on.
        """
        terms, ranks = self._sorted_terms()
        if not self.count:
            none = np.empty(0, np.uint32)
            return Batch(
                terms.slice(0, 0), np.empty(0, np.int64), none, none, none if positions else None
            ), none.astype(np.int64)
        numbers = np.concatenate([numbers for numbers, _, _ in self._tokens])
        order = _stable_order(ranks[numbers], len(ranks))
        sorted_ranks = ranks[numbers][order]
        slots = np.concatenate([slots for _, slots, _ in self._tokens])[order]
        new = np.ones(len(order), np.bool_)
        np.logical_or(sorted_ranks[1:] != sorted_ranks[:-1], slots[1:] != slots[:-1], out=new[1:])
        firsts = np.flatnonzero(new)
        frequencies = np.diff(firsts, append=len(order))
        slots = slots[firsts]
        counts = np.bincount(sorted_ranks[firsts], minlength=len(ranks)).astype(np.int64)
        places = np.concatenate([places for _, _, places in self._tokens])[order] if positions else None
        pairs, codes = number_pairs(frequencies, lengths[slots - np.uint32(first_slot)])
        # A term whose tokens were all dropped as stop words has no postings.
        if not counts.all():
            terms, counts = terms.filter(pa.array(counts > 0)), counts[counts > 0]
        return Batch(terms, counts, slots, codes, places), pairs

    def _sorted_terms(self) -> tuple[Any, npt.NDArray[np.uint32]]:
        terms = pa.array(list(self._numbers), pa.large_string())
        order = np.asarray(pc.array_sort_indices(terms)).astype(np.int64)
        ranks = np.empty(len(order), np.uint32)
        ranks[order] = np.arange(len(order), dtype=np.uint32)
        return terms.take(pa.array(order)), ranks


class SpilledRun:
    """A run in a temporary file, page by page."""

    def __init__(self, batch: Batch, pairs: Pairs) -> None:
        self.pairs = pairs
        self._frequencies = pairs >> 32
        self._spool = spool = Spool()
        self._has_positions = batch.positions is not None
        firsts = np.concatenate(([0], np.cumsum(batch.counts)))
        occurrences = np.concatenate(([0], np.cumsum(self._frequencies[batch.codes])))
        self._pages: list[tuple[int, int, int, int, int, int]] = []
        for first, end in page_bounds(firsts):
            offsets, data = string_parts(batch.terms.slice(first, end - first))
            low, high = int(firsts[first]), int(firsts[end])
            places = (spool.write(offsets), spool.write(data), spool.write(batch.counts[first:end]))
            self._pages.append((end - first, *places, low, high))
        self._slots_at = spool.write(batch.slots)
        self._codes_at = spool.write(batch.codes)
        if batch.positions is not None:
            self._positions_at = spool.write(batch.positions)
            self._first_positions = [int(occurrences[low]) for *_, low, _ in self._pages]

    def pages(self) -> Iterator[Page]:
        read = self._spool.read
        for number, (count, offsets_at, data_at, counts_at, low, high) in enumerate(self._pages):
            offsets = read(offsets_at, count + 1, np.int64)
            terms = string_array(offsets, read(data_at, int(offsets[-1]), np.uint8))
            yield Page(terms, read(counts_at, count, np.int64), self._postings(number, low, high))

    def _postings(self, page: int, low: int, high: int) -> Iterator[Postings]:
        at_position = self._first_positions[page] if self._has_positions else 0
        for at in range(low, high, PAGE_POSTINGS):
            count = min(PAGE_POSTINGS, high - at)
            slots = self._spool.read(self._slots_at + 4 * at, count, np.uint32)
            codes = self._spool.read(self._codes_at + 4 * at, count, np.uint32)
            positions = None
            if self._has_positions:
                occurrences = int(self._frequencies[codes].sum())
                positions = self._spool.read(self._positions_at + 4 * at_position, occurrences, np.uint32)
                at_position += occurrences
            yield Postings(slots, codes, positions)


def page_bounds(firsts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Split terms into pages of few terms and few postings; a term with more postings gets a page of its own."""
    at, end = 0, len(firsts) - 1
    while at < end:
        last = int(np.searchsorted(firsts, firsts[at] + PAGE_POSTINGS, "right")) - 1
        stop = min(max(last, at + 1), at + PAGE_TERMS, end)
        yield at, stop
        at = stop


def string_array(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Any:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def number_pairs(frequencies: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> tuple[Pairs, npt.NDArray[np.uint32]]:
    """Return the distinct pairs of frequency and length, and for each posting the number of its pair."""
    if not len(frequencies):
        return np.empty(0, np.int64), np.empty(0, np.uint32)
    width = int(lengths.max()) + 1
    most = int(frequencies.max()) + 1
    keys = frequencies.astype(np.int64) * width + lengths
    if most * width <= 1 << 22:
        seen = np.zeros(most * width, np.bool_)
        seen[keys] = True
        different = np.flatnonzero(seen)
        numbers = np.empty(most * width, np.uint32)
        numbers[different] = np.arange(len(different), dtype=np.uint32)
        codes = numbers[keys]
    else:
        different, inverse = np.unique(keys, return_inverse=True)
        codes = inverse.astype(np.uint32)
    return (different // width) << 32 | different % width, codes


def _stable_order(ranks: npt.NDArray[np.uint32], count: int) -> npt.NDArray[np.int64]:
    """Return the order by rank.  Sorting 16 bits at a time by counting is many times faster than comparing."""
    order = np.argsort(ranks.astype(np.uint16), kind="stable")
    if count > 1 << 16:
        high = (ranks >> np.uint32(16)).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order
