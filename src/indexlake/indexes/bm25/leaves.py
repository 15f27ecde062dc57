"""Leaves of a query: the scored postings of one term, or of a clause that has been evaluated already."""

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
    """Document numbers, ascending, and the score of each."""

    documents: Documents
    scores: Scores


NOTHING = Scored(np.empty(0, np.int64), np.empty(0, np.float64))


class Leaf(Protocol):
    weight: float
    """Clauses are processed in descending order of weight."""

    most: float
    """An upper bound of the score of any document."""

    top: tuple[int, Scored] | None
    """The best documents, best first, and how many were asked for, if they are known already."""

    def bound(self, lengths: Scores) -> Scores:
        """Return an upper bound of the score of a document of each of these lengths."""
        ...

    def everything(self) -> Scored: ...

    def probe(self, documents: Documents) -> tuple[Rows, Scores]:
        """Return which of the documents match, as indices into ``documents``, and their scores."""
        ...


class SmallLeaf:
    """A leaf with all postings scored in memory."""

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
    """A frequent term, whose postings are read and scored only as needed."""

    def __init__(self, collection: Collection, found: Found, weight: float) -> None:
        self._collection = collection
        self._chunks = found.chunks
        self._most = found.most
        self.weight = weight
        # A document is no shorter than a term's occurrences, and a shorter one does not have more of them.
        self.most = float(weight * collection.weigh(found.most, max(found.most, collection.shortest)))
        self.bounds = [collection.units(chunk.part.segment) * weight for chunk in self._chunks]  # by pair
        self._best: tuple[float, Scored] | None = None  # a score, and all documents that reach it
        self.top: tuple[int, Scored] | None = None

    def bound(self, lengths: Scores) -> Scores:
        bound: Scores = self.weight * self._collection.weigh(np.minimum(self._most, np.maximum(lengths, 1)), lengths)
        return bound

    def everything(self) -> Scored:
        return _score_all(self._collection, self._chunks, self.weight)

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
        """Return some of the documents with the best scores."""
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
        """Return a score that at least k documents reach, or 0 if that is not known."""
        return float(self._sample_scores[-k]) if k <= len(self._sample_scores) else 0.0

    def at_least(self, least: float, rest: list[Leaf]) -> Scored:
        """Return the documents whose score could reach ``least`` with everything that the leaves in ``rest`` might add.

        With no ``rest``, the answer is cached if it is small.
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
    """Return the leaf of a term, or None if no document has it."""
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
        scored = _score_all(collection, found.chunks, weight)
        leaf = SmallLeaf(scored, collection.span, weight)
        collection.hold(2 * scored.scores.nbytes)
    collection.leaves[term, boost] = leaf
    return leaf


def _score_all(collection: Collection, chunks: Sequence[Chunk], weight: float) -> Scored:
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
