"""Expands a prefix or a fuzzy word to the terms it stands for, over all parts.

There are at most 128 terms: for a prefix those that most live documents have, for a fuzzy word the closest first. The
choice does not depend on how documents are spread over parts, nor on dead rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.bm25.collection import Collection
from indexlake.indexes.bm25.query import Fuzzy, Prefix

MOST_TERMS = 128

_PAGE = 1 << 16

Weighted = list[tuple[str, float]]


def expand_prefix(collection: Collection, node: Prefix) -> Weighted:
    """Return the most frequent terms that start with the prefix."""
    low = node.text.encode()
    counts: Counter[str] = Counter()
    for part in collection.parts:
        segment = part.segment
        first = segment.first_from(low)
        end = segment.first_from(low + b"\xff")  # no UTF-8 text contains this byte
        if first < end:
            sizes = np.diff(segment.entries(first, end)["posting"].astype(np.int64))
            counts.update(dict(zip(segment.terms(first, end).to_pylist(), sizes.tolist(), strict=True)))
    return [(term, 1.0) for term in _most_frequent(collection, counts, counts, MOST_TERMS)]


def expand_fuzzy(collection: Collection, node: Fuzzy) -> Weighted:
    """Return the terms within the allowed number of edits; each edit lowers a term's weight."""
    by_edits: list[Counter[str]] = [Counter() for _ in range(node.edits + 1)]
    for part in collection.parts:
        segment = part.segment
        for first in range(0, segment.header.terms, _PAGE):
            end = min(first + _PAGE, segment.header.terms)
            terms = segment.terms(first, end)
            sizes = np.asarray(pc.utf8_length(terms))
            near = np.flatnonzero(np.abs(sizes - len(node.text)) <= node.edits)
            if not len(near):
                continue
            names = terms.take(pa.array(near)).to_pylist()
            edits = edits_between(names, node.text)
            postings = segment.entries(first, end)["posting"].astype(np.int64)
            for row in np.flatnonzero(edits <= node.edits).tolist():
                at = int(near[row])
                by_edits[int(edits[row])][names[row]] += int(postings[at + 1] - postings[at])
    found: Weighted = []
    for edits_taken, counts in enumerate(by_edits):
        weight = 1.0 - edits_taken / (len(node.text) + 2)
        room = MOST_TERMS - len(found)
        found += [(term, weight) for term in _most_frequent(collection, counts, counts, room)]
    return found


def _most_frequent(collection: Collection, terms: Iterable[str], counts: Counter[str], most: int) -> list[str]:
    """Return the terms that most live documents have; few are checked, as postings give an upper bound."""
    found: list[tuple[int, str]] = []
    for term in sorted(terms, key=lambda term: (-counts[term], term)):
        if len(found) >= most and -counts[term] > found[most - 1][0]:
            break
        live = collection.find(term).documents
        if live:
            found.append((-live, term))
            if len(found) >= most:
                found.sort()
    return [term for _, term in sorted(found)[:most]]


def edits_between(terms: list[str], word: str) -> npt.NDArray[np.int16]:
    """Return the number of edits between each term and the word; swapping two neighbours is one edit."""
    sizes = np.array([len(term) for term in terms])
    width = int(sizes.max())
    letters = np.array(terms, dtype=f"<U{max(width, 1)}").view(np.uint32).reshape(len(terms), -1).T
    target = [ord(char) for char in word]
    result = np.where(sizes == 0, len(word), 0).astype(np.int16)
    row = np.repeat(np.arange(len(target) + 1, dtype=np.int16)[:, None], len(terms), 1)
    before = before_that = row
    for at in range(width):
        before_that, before = before, row
        row = np.empty_like(before)
        row[0] = at + 1
        for place, letter in enumerate(target, 1):
            cost = np.minimum(before[place] + 1, row[place - 1] + 1)
            np.minimum(cost, before[place - 1] + (letters[at] != letter), out=cost)
            if at and place > 1:
                swapped = _swapped(letters, at, target, place)
                np.minimum(cost, np.where(swapped, before_that[place - 2] + 1, cost), out=cost)
            row[place] = cost
        result = np.where(sizes == at + 1, row[-1], result)
    return result


def _swapped(letters: npt.NDArray[np.uint32], at: int, target: list[int], place: int) -> npt.NDArray[np.bool_]:
    """Return for which terms the last two letters are the target's in reverse order."""
    swapped: npt.NDArray[np.bool_] = (letters[at] == target[place - 2]) & (letters[at - 1] == target[place - 1])
    return swapped
