"""The postings of one clause of a query, with scores: of a term, or of anything that has been worked out before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from indexlake.indexes.bm25.collection import Chunk, Collection, Documents, Found
from indexlake.indexes.bm25.matching import Rows, match

Scores = npt.NDArray[np.float64]

SMALL = 1 << 14
_SAMPLE = 1 << 13
SEEDS = 128


class Scored(NamedTuple):
    """Documents, ascending, and the score of each."""

    documents: Documents
    scores: Scores


NOTHING = Scored(np.empty(0, np.int64), np.empty(0, np.float64))


class Leaf(Protocol):
    weight: float
    """The clause with the greatest is looked at first."""

    most: float
    """No document has a greater score."""

    top: tuple[int, Scored] | None
    """The best so many of its documents, if they are known: the better one first."""

    def bound(self, lengths: Scores) -> Scores:
        """No document of such a length has a greater score."""
        ...

    def everything(self) -> Scored: ...

    def probe(self, documents: Documents) -> tuple[Rows, Scores]:
        """Which of some documents it has (their rows), with scores."""
        ...


class SmallLeaf:
    """All postings at hand."""

    def __init__(self, scored: Scored, span: int, weight: float | None = None) -> None:
        self._scored = scored
        self._span = span
        self.top: tuple[int, Scored] | None = None
        self.most = float(scored.scores.max(initial=0.0))
        self.weight = self.most if weight is None else weight

    def bound(self, lengths: Scores) -> Scores:
        return np.full(len(lengths), self.most)

    def everything(self) -> Scored:
        return self._scored

    def probe(self, documents: Documents) -> tuple[Rows, Scores]:
        rows, ours = match(documents, self._scored.documents, self._span)
        return rows, self._scored.scores[ours]


class LargeLeaf:
    """A frequent term, whose postings stay where they are."""

    def __init__(self, collection: Collection, found: Found, weight: float) -> None:
        self._collection = collection
        self._chunks = found.chunks
        self._most = found.most
        self.weight = weight
        # A document that has a term so often is at least as long, and a shorter one has it less often.
        self.most = float(weight * collection.weigh(found.most, max(found.most, collection.shortest)))
        self.bounds = [collection.units(chunk.part.segment) * weight for chunk in self._chunks]  # of each pair
        self._best: tuple[float, Scored] | None = None  # a score, and the documents that reach it
        self.top: tuple[int, Scored] | None = None

    def bound(self, lengths: Scores) -> Scores:
        bound: Scores = self.weight * self._collection.weigh(np.minimum(self._most, np.maximum(lengths, 1)), lengths)
        return bound

    def everything(self) -> Scored:
        return _together(self._collection, self._chunks, self.weight)

    def probe(self, documents: Documents) -> tuple[Rows, Scores]:
        rows, scores = [], []
        bounds = np.searchsorted(documents, self._collection.bases).tolist()
        for chunk in self._chunks:
            part = chunk.part
            low, high = bounds[part.number], bounds[part.number + 1]
            if low < high:
                here, ours = match(documents[low:high] - part.base, chunk.slots, part.slots)
                rows.append(here + low)
                scores.append(self._collection.units(part.segment)[chunk.codes[ours]])
        if len(rows) == 1:
            return rows[0], scores[0] * self.weight
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        return np.concatenate(rows), np.concatenate(scores) * self.weight

    @cached_property
    def sample(self) -> Documents:
        """Some of the documents with the best scores."""
        chunk = max(self._chunks, key=lambda chunk: len(chunk.slots))
        codes = chunk.codes[:_SAMPLE]
        least = np.partition(codes, SEEDS)[SEEDS] if len(codes) > SEEDS else codes.max()
        rows = np.flatnonzero(codes <= least)[: 4 * SEEDS]
        slots = chunk.slots[rows]
        if chunk.unchecked is not None:
            slots = slots[chunk.unchecked[slots]]
        return slots.astype(np.int64) + chunk.part.base

    @cached_property
    def _sample_scores(self) -> Scores:
        return np.sort(self.probe(self.sample)[1])

    def reached(self, k: int) -> float:
        """A score that k documents have at least."""
        return float(self._sample_scores[-k]) if k <= len(self._sample_scores) else 0.0

    def at_least(self, least: float, rest: list[Leaf]) -> Scored:
        """The documents whose score can reach ``least`` with all that the leaves of ``rest`` could add.

        If they are few, those that need nothing of others are remembered.
        """
        known = self._best
        if known is not None and not rest and known[0] <= least:
            kept = known[1].scores >= least
            return Scored(known[1].documents[kept], known[1].scores[kept])
        documents, scores = [], []
        for chunk, weights in zip(self._chunks, self.bounds, strict=True):
            bound = weights
            for leaf in rest:
                bound = bound + leaf.bound(chunk.part.segment.pairs[1])
            passing = bound >= least
            last = len(passing) - 1 - int(passing[::-1].argmax())
            if not passing[last]:
                continue
            rows = (chunk.codes <= last).nonzero()[0]
            codes = chunk.codes[rows]
            if not passing[: last + 1].all():
                kept = passing[codes]
                rows, codes = rows[kept], codes[kept]
            slots = chunk.slots[rows]
            if chunk.unchecked is not None:
                kept = chunk.unchecked[slots]
                slots, codes = slots[kept], codes[kept]
            documents.append(slots.astype(np.int64) + chunk.part.base)
            scores.append(weights[codes])
        if not documents:
            return NOTHING
        found = Scored(np.concatenate(documents), np.concatenate(scores))
        if not rest and len(found.scores) <= SMALL:
            self._best = least, found
            self._collection.hold(2 * found.scores.nbytes)
        return found


def term_leaf(collection: Collection, term: str, boost: float) -> SmallLeaf | LargeLeaf | None:
    """The postings of a term; None: there are none."""
    known: SmallLeaf | LargeLeaf | None = collection.leaves.get((term, boost))
    if known is not None:
        return known
    found = collection.find(term)
    if not found.documents:
        return None
    weight = collection.idf(found.documents) * boost
    leaf: SmallLeaf | LargeLeaf
    if sum(len(chunk.slots) for chunk in found.chunks) > SMALL:
        leaf = LargeLeaf(collection, found, weight)
        collection.hold(sum(bound.nbytes for bound in leaf.bounds))
    else:
        scored = _together(collection, found.chunks, weight)
        leaf = SmallLeaf(scored, collection.span, weight)
        collection.hold(2 * scored.scores.nbytes)
    collection.leaves[term, boost] = leaf
    return leaf


def _together(collection: Collection, chunks: Sequence[Chunk], weight: float) -> Scored:
    documents, scores = [], []
    for chunk in chunks:
        slots, codes = chunk.slots, chunk.codes
        if chunk.unchecked is not None:
            kept = chunk.unchecked[slots]
            slots, codes = slots[kept], codes[kept]
        documents.append(slots.astype(np.int64) + chunk.part.base)
        scores.append(collection.units(chunk.part.segment)[codes])
    if not documents:
        return NOTHING
    if len(documents) == 1:
        return Scored(documents[0], scores[0] * weight)
    return Scored(np.concatenate(documents), np.concatenate(scores) * weight)
