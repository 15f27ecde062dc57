"""Searches all parts at once, using statistics of the documents that are live in any of them.

The terms of a prefix or a fuzzy word count as one: their frequencies in a document are added up (for a fuzzy word
weighted by the number of edits), and the most frequent of them decides how rare the clause is.  A phrase counts as
often as it occurs, and its idf is the sum of those of its terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from indexlake.indexes.bm25.collection import Collection, Documents
from indexlake.indexes.bm25.expansion import expand_fuzzy, expand_prefix
from indexlake.indexes.bm25.leaves import NOTHING, Leaf, Scored, Scores, SmallLeaf, term_leaf
from indexlake.indexes.bm25.matching import match
from indexlake.indexes.bm25.phrase import phrase_frequencies
from indexlake.indexes.bm25.query import Boolean, Fuzzy, Node, Phrase, Prefix, Term, TextQuery
from indexlake.indexes.bm25.ranking import best, ranked
from indexlake.indexes.kind import Hits, Part

_DENSE = 16  # with more than one posting for this many documents, an array of sums is cheaper than sorting


def search(query: TextQuery, parts: Sequence[Part], k: int, params: Mapping[str, Any]) -> Hits:
    """Return the best k live documents of all parts."""
    scored = NOTHING
    if query.root is not None and parts and k > 0:
        collection = Collection.of(parts, params)
        scored = _Search(collection).best(query.root, k)
        bases = collection.bases
    else:
        bases = np.zeros(1, np.int64)
    numbers = np.searchsorted(bases, scored.documents, "right") - 1
    return Hits(numbers.astype(np.int64), scored.documents - bases[numbers], scored.scores)


class _Search:
    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._span = collection.span

    def best(self, root: Node, k: int) -> Scored:
        if not isinstance(root, Boolean):
            root = Boolean(should=(root,))
        keep = (lambda documents: self._without(documents, root.must_not)) if root.must_not else None
        given = None
        if root.must:
            given = self._all(root.must, None)
            if keep is not None:
                rows, _ = match(given.documents, keep(given.documents), self._span)
                given = Scored(given.documents[rows], given.scores[rows])
            if not root.should:
                return ranked(given, k)
        return best(self._leaves(root.should), k, self._span, given, keep)

    def _leaves(self, nodes: Sequence[Node]) -> list[Leaf]:
        """Return a leaf for each clause; a term that occurs twice counts twice."""
        found: list[Leaf] = []
        times_of: dict[Node, int] = {}
        for node in nodes:
            times_of[node] = times_of.get(node, 0) + 1
        for node, times in times_of.items():
            if isinstance(node, Term):
                leaf = term_leaf(self._collection, node.text, times)
                if leaf is not None:
                    found.append(leaf)
                continue
            scored = self._every(node, None)
            if len(scored.documents):
                found.append(SmallLeaf(Scored(scored.documents, scored.scores * times), self._span))
        return found

    # All documents of a clause, or those among the given ones

    def _every(self, node: Node, within: Documents | None) -> Scored:
        if isinstance(node, Term):
            return self._term(node, within)
        if isinstance(node, Phrase):
            return self._phrase(node, within)
        if isinstance(node, Boolean):
            return self._boolean(node, within)
        return _only(self._expanded(node), within, self._span)

    def _term(self, node: Term, within: Documents | None) -> Scored:
        leaf = term_leaf(self._collection, node.text, 1)
        if leaf is None:
            return NOTHING
        if within is None:
            return leaf.everything()
        rows, scores = leaf.probe(within)
        return Scored(within[rows], scores)

    def _phrase(self, node: Phrase, within: Documents | None) -> Scored:
        counts = [self._collection.find(term).documents for term in node.terms]
        if not all(counts):
            return NOTHING
        documents, frequencies, lengths = phrase_frequencies(self._collection, node, within)
        weight = sum(map(self._collection.idf, counts))
        return Scored(documents, weight * self._collection.weigh(frequencies, lengths))

    def _expanded(self, node: Prefix | Fuzzy) -> Scored:
        collection = self._collection
        terms = expand_fuzzy(collection, node) if isinstance(node, Fuzzy) else expand_prefix(collection, node)
        if not terms:
            return NOTHING
        documents, frequencies, lengths = [], [], []
        for term, weight in terms:
            for chunk in collection.find(term).chunks:
                slots, codes = chunk.slots, chunk.codes
                if chunk.unchecked is not None:
                    kept = chunk.unchecked[slots]
                    slots, codes = slots[kept], codes[kept]
                frequency, length = chunk.part.segment.pairs
                documents.append(slots.astype(np.int64) + chunk.part.base)
                frequencies.append(frequency[codes] * weight)
                lengths.append(length[codes])
        if not documents:
            return NOTHING
        found, total, length = _deduplicated(
            np.concatenate(documents), np.concatenate(frequencies), np.concatenate(lengths), self._span
        )
        weight = collection.idf(max(collection.find(term).documents for term, _ in terms))
        return Scored(found, weight * collection.weigh(total, length))

    def _boolean(self, node: Boolean, within: Documents | None) -> Scored:
        if node.must:
            found = self._all(node.must, within)
            for clause in node.should:
                found = _sum(found, self._every(clause, found.documents), self._span, unite=False)
        else:
            found = NOTHING
            for clause in node.should:
                found = _sum(found, self._every(clause, within), self._span, unite=True)
        return _only(found, self._without(found.documents, node.must_not), self._span) if node.must_not else found

    def _all(self, clauses: Sequence[Node], within: Documents | None) -> Scored:
        """Return the documents that satisfy all clauses, starting with the rarest."""
        found: Scored | None = None
        for clause in sorted(clauses, key=self._cost):
            here = self._every(clause, within if found is None else found.documents)
            if found is not None:
                rows, _ = match(found.documents, here.documents, self._span)
                here = Scored(here.documents, found.scores[rows] + here.scores)
            found = here
        assert found is not None
        return found

    def _cost(self, node: Node) -> int:
        if isinstance(node, Term):
            return self._collection.find(node.text).documents
        if isinstance(node, Phrase):
            return min(self._collection.find(term).documents for term in node.terms)
        return self._span

    def _without(self, documents: Documents, clauses: Sequence[Node]) -> Documents:
        for clause in clauses:
            excluded = self._every(clause, documents).documents
            rows, _ = match(documents, excluded, self._span)
            kept = np.ones(len(documents), np.bool_)
            kept[rows] = False
            documents = documents[kept]
        return documents


def _only(found: Scored, within: Documents | None, span: int) -> Scored:
    if within is None:
        return found
    rows, _ = match(found.documents, within, span)
    return Scored(found.documents[rows], found.scores[rows])


def _deduplicated(
    documents: Documents, frequencies: Scores, lengths: Scores, span: int
) -> tuple[Documents, Scores, Scores]:
    """Merge documents that occur several times: return each once, with the sum of its frequencies and its length."""
    if len(documents) * _DENSE > span:
        sums: Scores = np.bincount(documents, frequencies, span).astype(np.float64, copy=False)
        by_document = np.empty(span)
        by_document[documents] = lengths
        present = np.flatnonzero(sums).astype(np.int64, copy=False)
        return present, sums[present], by_document[present]
    found, first, which = np.unique(documents, return_index=True, return_inverse=True)
    return found, np.bincount(which, frequencies, len(found)).astype(np.float64, copy=False), lengths[first]


def _sum(found: Scored, more: Scored, span: int, *, unite: bool) -> Scored:
    """Add the scores of documents in both.  With ``unite``, also include documents that only ``more`` has."""
    rows, others = match(found.documents, more.documents, span)
    scores = found.scores.copy()
    scores[rows] += more.scores[others]
    if not unite or len(others) == len(more.documents):
        return Scored(found.documents, scores)
    fresh = np.ones(len(more.documents), np.bool_)
    fresh[others] = False
    documents = np.concatenate((found.documents, more.documents[fresh]))
    order = np.argsort(documents, kind="stable")
    return Scored(documents[order], np.concatenate((scores, more.scores[fresh]))[order])
