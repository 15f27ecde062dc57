"""All parts of one search together: which documents there are, and how often terms occur in them.

Documents are numbered across parts: a document's number is its slot plus the number of slots in the parts before. Rows
that are not live are ignored.  Rows that are live but not wanted count in the statistics but are not found.  The latest
collections (one of all live rows, one of some) are cached together with the terms that were looked up, as long as their
parts stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexlake.indexes.bm25.liveness import liveness
from indexlake.indexes.bm25.segment import Entry, Segment, saturation
from indexlake.indexes.kind import Part

Documents = npt.NDArray[np.int64]

_HELD = 32 << 20
_CHUNK = 512
"""Rough size of a chunk whose arrays stay in the file."""


class Chunk(NamedTuple):
    """Postings of a term in one part.  If there is a mask, the slots still have to be checked against it."""

    part: LivePart
    slots: npt.NDArray[Any]
    codes: npt.NDArray[Any]
    unchecked: npt.NDArray[np.bool_] | None


class LivePart:
    """A part of the search, and the number of its first document."""

    def __init__(self, part: Part, number: int, base: int) -> None:
        self.segment: Segment = part.segment
        self.number = number
        self.base = base
        self.slots = self.segment.header.slots
        self._liveness = liveness(self.segment, part.live)
        self._wanted = part.wanted
        self.mask = self._liveness.mask if part.wanted is None else part.wanted  # documents that may be found

    def statistics(self) -> tuple[int, int]:
        """Return the number of live documents and their total length."""
        return self._liveness.statistics

    def chunk(self, entry: Entry) -> tuple[Chunk, int]:
        """Return the term's postings that may be found, and the number of live documents that have the term."""
        slots = self.segment.slots(entry.first, entry.end)
        codes = self.segment.codes(entry.first, entry.end)
        rows, count = self._liveness.live_postings(entry, slots)
        if self._wanted is not None:
            rows = np.flatnonzero(self._wanted[slots])
        elif count == len(slots):
            return Chunk(self, slots, codes, None), count
        if rows is None:
            return Chunk(self, slots, codes, self.mask), count
        return Chunk(self, slots[rows], codes[rows], None), count


class Found(NamedTuple):
    """A term in all parts: its postings, the number of live documents that have it, and its greatest frequency."""

    chunks: Sequence[Chunk]
    documents: int
    most: int


class Collection:
    """All parts of one search."""

    def __init__(self, parts: Sequence[Part], params: Mapping[str, Any]) -> None:
        self._given = tuple(parts)
        self._some = any(part.wanted is not None for part in parts)  # whether only some of the live rows may be found
        self.parts: list[LivePart] = []
        self.bases = np.zeros(len(parts) + 1, np.int64)
        for number, part in enumerate(parts):
            self.parts.append(LivePart(part, number, int(self.bases[number])))
            self.bases[number + 1] = self.bases[number] + self.parts[-1].slots
        statistics = [part.statistics() for part in self.parts]
        self.count = sum(count for count, _ in statistics)
        length = sum(length for _, length in statistics)
        self.average = length / self.count if length else 1.0
        self.shortest = min((part.segment.shortest for part in self.parts if part.segment.header.pairs), default=0.0)
        self.k1: float = params["k1"]
        self.b: float = params["b"]
        self.span = int(self.bases[-1])  # all document numbers are below this
        self._found: dict[str, Found] = {}
        self._held = 0
        self._units: dict[int, npt.NDArray[np.float64]] = {}
        self.leaves: dict[tuple[str, float], Any] = {}

    @staticmethod
    def of(parts: Sequence[Part], params: Mapping[str, Any]) -> Collection:
        """Return the collection of these parts, at least one, from the cache if possible."""
        first: Segment = parts[0].segment
        for last in first.last_collections:
            if len(last._given) == len(parts) and all(map(is_, last._given, parts)):
                return last
        made = Collection(parts, params)
        if all(mask is None or not mask.flags.writeable for part in parts for mask in (part.live, part.wanted)):
            first.last_collections = (made, *[last for last in first.last_collections if last._some != made._some])
        return made

    def hold(self, size: int) -> None:
        """Note that ``size`` more bytes are cached, and empty the cache if it has grown too large."""
        self._held += size
        if self._held > _HELD:
            self._found.clear()
            self.leaves.clear()
            self._held = size

    def find(self, term: str) -> Found:
        """Return a term's postings in all parts."""
        found = self._found.get(term)
        if found is None:
            chunks, count, most = [], 0, 0
            for part in self.parts:
                entry = part.segment.find(term)
                if entry is not None:
                    chunk, here = part.chunk(entry)
                    count += here
                    if here and len(chunk.slots):
                        chunks.append(chunk)
                        most = max(most, entry.most)
            found = Found(chunks, count, most)
            self.hold(sum(_CHUNK + (c.slots.nbytes + c.codes.nbytes) * c.slots.flags.owndata for c in chunks))
            self._found[term] = found
        return found

    def idf(self, count: int) -> float:
        """Return the inverse document frequency of a term that ``count`` documents have."""
        return float(np.log1p((self.count - count + 0.5) / (count + 0.5)))

    def units(self, segment: Segment) -> npt.NDArray[np.float64]:
        """Return the weight of a posting with each (frequency, length) pair, before multiplication with the idf."""
        found = self._units.get(id(segment))
        if found is None:
            found = self._units[id(segment)] = segment.units(self.k1, self.b, self.average)
        return found

    def weigh(self, frequency: Any, length: Any) -> Any:
        """Return the BM25 weight without the idf."""
        return saturation(frequency, length, self.k1, self.b, self.average)
