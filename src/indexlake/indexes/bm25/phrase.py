"""Counts how often a phrase occurs in documents by comparing the places of its terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.indexes.bm25.collection import Collection, Documents, LivePart
from indexlake.indexes.bm25.matching import match
from indexlake.indexes.bm25.merging import expand
from indexlake.indexes.bm25.query import Phrase
from indexlake.indexes.bm25.segment import Entry

Numbers = npt.NDArray[np.float64]


def phrase_frequencies(
    collection: Collection, phrase: Phrase, within: Documents | None
) -> tuple[Documents, Numbers, Numbers]:
    """Return the live documents that have the phrase, how often each has it, and their lengths."""
    documents, frequencies, lengths = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
    bounds = None if within is None else np.searchsorted(within, collection.bases).tolist()
    for part in collection.parts:
        entries = [part.segment.find(term) for term in phrase.terms]
        present = [entry for entry in entries if entry is not None]
        if len(present) < len(entries):
            continue
        wanted = None
        if within is not None and bounds is not None:
            wanted = within[bounds[part.number] : bounds[part.number + 1]] - part.base
        found, frequency, length = _in_part(part, present, phrase.places, wanted)
        documents.append(found + part.base)
        frequencies.append(frequency)
        lengths.append(length)
    return np.concatenate(documents), np.concatenate(frequencies), np.concatenate(lengths)


def _in_part(
    part: LivePart, entries: list[Entry], places: tuple[int, ...], wanted: Documents | None
) -> tuple[Documents, Numbers, Numbers]:
    segment = part.segment
    by_size = sorted(set(entries), key=lambda entry: entry.end - entry.first)
    slots: npt.NDArray[Any] = segment.slots(by_size[0].first, by_size[0].end)
    if wanted is not None:
        slots = slots[match(wanted, slots, part.slots)[1]]
    elif part.mask is not None:
        slots = slots[part.mask[slots]]
    for entry in by_size[1:]:
        slots = slots[match(slots, segment.slots(entry.first, entry.end), part.slots)[0]]
    last = max(places)
    common: npt.NDArray[np.int64] | None = None
    lengths = np.empty(0)
    for entry, place in sorted(zip(entries, places, strict=True), key=lambda pair: pair[0].end - pair[0].first):
        _, rows = match(slots, segment.slots(entry.first, entry.end), part.slots)
        frequency, length = segment.pairs
        codes = segment.codes(entry.first, entry.end)
        counts = frequency[codes].astype(np.int64)
        firsts = np.cumsum(counts) - counts
        here = expand(firsts[rows], counts[rows])
        positions = segment.positions(entry.first_position, entry.end_position)[here].astype(np.int64)
        # Where the phrase would start if this is its term, with the document in the upper half.
        starts = np.repeat(np.arange(len(rows)), counts[rows]) << 33 | positions + (last - place)
        common = starts if common is None else _in_both(starts, common)
        lengths = length[codes[rows]]
    assert common is not None
    frequencies = np.bincount(common >> 33, minlength=len(slots))
    matched = np.flatnonzero(frequencies)
    return slots[matched].astype(np.int64), frequencies[matched].astype(np.float64), lengths[matched]


def _in_both(some: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers in both ascending arrays.  Sorting their concatenation is fast: it is two sorted runs."""
    every = np.concatenate((some, others))
    every.sort(kind="stable")
    twice: npt.NDArray[np.int64] = every[1:][every[1:] == every[:-1]]
    return twice
