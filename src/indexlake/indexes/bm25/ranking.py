"""Finds exactly the best k documents of clauses joined by OR, without scoring every document that matches one.

Clauses are processed in descending order of weight.  Once k scores are known, a document that none of the clauses so
far has can only get into the result if the remaining clauses can lift it there.  How much they can add depends on the
document's length, so most postings of frequent terms can be ruled out by the number of their (frequency, length) pair
alone.  The remaining candidates are looked up in the remaining clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from indexlake.indexes.bm25.collection import Documents
from indexlake.indexes.bm25.leaves import NOTHING, SEEDS, LargeLeaf, Leaf, Scored, Scores
from indexlake.indexes.bm25.matching import match

_FEW = 1000

_SLACK = 1 - 1e-9  # sums of the same numbers in a different order differ by less than this

Filter = Callable[[Documents], Documents]
"""Returns those of the documents that are not excluded."""


def best(leaves: Sequence[Leaf], k: int, span: int, given: Scored | None = None, keep: Filter | None = None) -> Scored:
    """Return the best k documents, best first; ties go to the smaller number.

    With ``given``, only these documents are ranked, and their scores are added to.
    """
    if len(leaves) == 1 and given is None and keep is None:
        return _best_of_one(leaves[0], k)
    leaves = sorted(leaves, key=lambda leaf: -leaf.weight)
    open_ = given is None
    found = NOTHING if given is None else given
    least = 0.0
    seeded = not open_
    for number, leaf in enumerate(leaves):
        rest = sum(later.most for later in leaves[number + 1 :])
        if open_ and isinstance(leaf, LargeLeaf) and not seeded:
            least = max(least, _seed(leaves, number, found, k, keep) * _SLACK)
            seeded = True
        if open_ and leaf.most + rest < least:
            open_ = False
        if len(found.documents) > k:
            found = _within_reach(found, least - leaf.most - rest)
        if not open_:
            found = _add(found, leaf)
        else:
            if isinstance(leaf, LargeLeaf):
                new = leaf.at_least(least, list(leaves[number + 1 :]))
            else:
                new = leaf.everything()
            found = _united(found, leaf, new, span, keep)
        if rest:
            least = max(least, _kth(found.scores, k) * _SLACK)
    return ranked(found, k)


def _best_of_one(leaf: Leaf, k: int) -> Scored:
    """Return the best k documents of a single clause, which caches a few of them."""
    known = leaf.top
    if known is None or known[0] < k:
        if isinstance(leaf, LargeLeaf):
            found = leaf.at_least(leaf.reached(k) * _SLACK, [])
        else:
            found = leaf.everything()
        known = k, ranked(found, k)
        if k <= _FEW:
            leaf.top = known
    documents, scores = known[1]
    return Scored(documents[:k], scores[:k])


def ranked(found: Scored, k: int) -> Scored:
    """Return the best k of the documents, in order."""
    documents, scores = found
    if len(scores) > k:
        kept = np.flatnonzero(scores >= np.partition(scores, -k)[-k]) if k else np.empty(0, np.int64)
        documents, scores = documents[kept], scores[kept]
    order = np.lexsort((documents, -scores))[:k]
    return Scored(documents[order], scores[order])


def _kth(scores: Scores, k: int) -> float:
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k > 0 else 0.0


def _within_reach(found: Scored, least: float) -> Scored:
    kept = found.scores >= least
    return found if kept.all() else Scored(found.documents[kept], found.scores[kept])


def _add(found: Scored, leaf: Leaf) -> Scored:
    """Add a clause's scores to those of the documents found so far."""
    if not len(found.documents):
        return found
    rows, scores = leaf.probe(found.documents)
    total = found.scores.copy()
    total[rows] += scores
    return Scored(found.documents, total)


def _united(found: Scored, leaf: Leaf, new: Scored, span: int, keep: Filter | None) -> Scored:
    """Add a clause's scores to the documents found so far, and add the documents that are new with it."""
    if keep is not None and len(new.documents):
        rows, _ = match(new.documents, keep(new.documents), span)
        new = Scored(new.documents[rows], new.scores[rows])
    if not len(found.documents):
        return new
    found = _add(found, leaf)
    if not len(new.documents):
        return found
    _, known = match(found.documents, new.documents, span)
    if len(known):
        fresh = np.ones(len(new.documents), np.bool_)
        fresh[known] = False
        new = Scored(new.documents[fresh], new.scores[fresh])
    documents = np.concatenate((found.documents, new.documents))
    order = np.argsort(documents, kind="stable")
    return Scored(documents[order], np.concatenate((found.scores, new.scores))[order])


def _seed(leaves: Sequence[Leaf], number: int, found: Scored, k: int, keep: Filter | None) -> float:
    """Return a score that at least k documents reach, found by scoring a few promising ones."""
    seeds = [leaf.sample for leaf in leaves[number:] if isinstance(leaf, LargeLeaf)]
    seeds.append(ranked(found, max(k, SEEDS)).documents)
    documents = np.unique(np.concatenate(seeds))
    if keep is not None:
        documents = keep(documents)
    scored = Scored(documents, np.zeros(len(documents)))
    for leaf in leaves:
        scored = _add(scored, leaf)
    return _kth(scored.scores, k)
