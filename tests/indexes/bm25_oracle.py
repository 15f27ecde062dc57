"""BM25 in plain Python, one document after the other: what the index must find.  And makers of what tests need."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.indexes.bm25.kind import Bm25
from indexlake.indexes.bm25.query import Boolean, Fuzzy, Phrase, Prefix, Term
from indexlake.indexes.index import Index
from indexlake.indexes.kind import Hits, Part
from indexlake.schema.table_schema import Field
from indexlake.storage.input_file import in_memory

KIND = Bm25()
FIELD = Field(1, "note", pa.string(), True)
K1, B = 1.2, 0.75


def make_index(**params: Any) -> Index:
    return Index(
        index_id=1,
        name="by_note",
        kind="bm25",
        key_field_ids=(1,),
        include_field_ids=(),
        unique=False,
        params=KIND.define([FIELD], [], False, params),
        begin_snapshot=0,
        end_snapshot=None,
        enforced_snapshot=None,
        changed_in=0,
    )


def make_bytes(index: Index, *blocks: Sequence[str | None]) -> bytes:
    builder = KIND.builder(index, [FIELD], lasting=True)
    for texts in blocks:
        builder.add([pa.array(texts, pa.string())])
        builder.end_block()
    return b"".join(bytes(piece) for piece in builder.content().pieces)


def make_segment(index: Index, *blocks: Sequence[str | None]) -> Any:
    return KIND.open(index, in_memory([make_bytes(index, *blocks)]))


def find(index: Index, parts: Sequence[Part], text: str, k: int = 10, **options: Any) -> Hits:
    return KIND.search(index, KIND.query(index, [FIELD], text, options), parts, k)


def found(index: Index, texts: Sequence[str | None], query: str, **options: Any) -> list[int]:
    """The rows that a query finds in one segment, in the order of the rows."""
    return sorted(
        find(index, [Part(make_segment(index, texts), None)], query, len(texts) + 1, **options).slots.tolist()
    )


class Oracle:
    """Live documents, each with its key; ``None`` is a row without a document."""

    def __init__(self, documents: Sequence[tuple[Any, str | None]]) -> None:
        self.words = {key: re.findall(r"[^\W_]+", text.lower()) for key, text in documents if text is not None}
        self.counts = {key: Counter(words) for key, words in self.words.items()}
        self.average = sum(map(len, self.words.values())) / max(len(self.words), 1) or 1.0

    def ranking(self, root: Any) -> list[tuple[Any, float]]:
        scores = self.scores(root) if root is not None else {}
        return sorted(scores.items(), key=lambda item: (-item[1], item[0]))

    def scores(self, node: Any) -> dict[Any, float]:
        if isinstance(node, Term):
            return self._weighed({node.text: 1.0})
        if isinstance(node, Prefix):
            return self._weighed({term: 1.0 for term in self._terms() if term.startswith(node.text)})
        if isinstance(node, Fuzzy):
            edits = {term: distance(term, node.text) for term in self._terms()}
            size = len(node.text) + 2
            return self._weighed({term: 1 - edit / size for term, edit in edits.items() if edit <= node.edits})
        if isinstance(node, Phrase):
            return self._phrase(node)
        return self._boolean(node)

    def _terms(self) -> set[str]:
        return {word for counts in self.counts.values() for word in counts}

    def _idf(self, term: str) -> float:
        have = sum(term in counts for counts in self.counts.values())
        return math.log(1 + (len(self.words) - have + 0.5) / (have + 0.5))

    def _score(self, idf: float, frequency: float, length: int) -> float:
        return idf * (K1 + 1) * frequency / (frequency + K1 * (1 - B + B * length / self.average))

    def _weighed(self, terms: dict[str, float]) -> dict[Any, float]:
        if not terms:
            return {}
        idf = min(map(self._idf, terms))
        scores = {}
        for key, counts in self.counts.items():
            frequency = sum(counts[term] * weight for term, weight in terms.items() if term in counts)
            if frequency:
                scores[key] = self._score(idf, frequency, len(self.words[key]))
        return scores

    def _phrase(self, node: Phrase) -> dict[Any, float]:
        idf = sum(map(self._idf, node.terms))
        scores = {}
        for key, words in self.words.items():
            frequency = 0
            for start in range(len(words)):
                pairs = zip(node.terms, node.places, strict=True)
                frequency += all(start + at < len(words) and words[start + at] == term for term, at in pairs)
            if frequency:
                scores[key] = self._score(idf, frequency, len(words))
        return scores

    def _boolean(self, node: Boolean) -> dict[Any, float]:
        total: dict[Any, float] = {}
        must = [self.scores(clause) for clause in node.must]
        should = [self.scores(clause) for clause in node.should]
        excluded = {key for clause in node.must_not for key in self.scores(clause)}
        for key in self.words:
            here = all(key in scores for scores in must) if must else any(key in scores for scores in should)
            if here and key not in excluded:
                total[key] = sum(scores.get(key, 0.0) for scores in (*must, *should))
        return total


def distance(one: str, other: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours between two words."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def assert_same(hits: Hits, expected: list[tuple[Any, float]], k: int) -> None:
    """The hits are the best k; documents whose scores do not differ may stand in any order of (part, slot)."""
    keys = list(zip(hits.parts.tolist(), hits.slots.tolist(), strict=True))
    assert len(keys) == len(set(keys)) == min(k, len(expected))
    np.testing.assert_allclose(hits.scores, [score for _, score in expected[:k]], rtol=1e-9)
    by_key = dict(expected)
    np.testing.assert_allclose(hits.scores, [by_key[key] for key in keys], rtol=1e-9)
    for (score, key), (next_score, next_key) in zip(
        zip(hits.scores, keys, strict=True), list(zip(hits.scores, keys, strict=True))[1:], strict=False
    ):
        assert score > next_score or (score == next_score and key < next_key)
