"""Snippets: the best piece of a text that was found, with the matching words in bold.

The text is escaped for HTML; the only tags are ``<b>`` and ``</b>``.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from indexlake.indexes.bm25.analysis import Analyser, Word
from indexlake.indexes.bm25.expansion import edits_between
from indexlake.indexes.bm25.query import Boolean, Fuzzy, Node, Phrase, Prefix, Term, TextQuery

WIDTH = 160
"""The approximate number of characters to show."""


def snippet(query: TextQuery, analyser: Analyser, text: str) -> str:
    """Return the piece of the text with the most matching words, or its start if there are none."""
    words = analyser.words(text)
    leaves = list(_leaves(query.root)) if query.root is not None else []
    known: dict[str, frozenset[int]] = {}
    marked = []
    for word in words:
        name = text[word.start : word.end]
        if name not in known:
            known[name] = frozenset(number for number, leaf in enumerate(leaves) if _is_of(word, leaf))
        if known[name]:
            marked.append((word, known[name]))
    start, end = _piece(text, words, marked)
    shown = []
    at = start
    for word, _ in marked:
        if start <= word.start and word.end <= end:
            shown += [escape(text[at : word.start]), "<b>", escape(text[word.start : word.end]), "</b>"]
            at = word.end
    shown.append(escape(text[at:end]))
    return f"{'… ' if start else ''}{''.join(shown)}{' …' if end < len(text) else ''}"


def _leaves(node: Node) -> Iterator[Term | Prefix | Fuzzy | Phrase]:
    """Yield the clauses that a text may match, leaving out those that must not."""
    if isinstance(node, Boolean):
        for clause in (*node.must, *node.should):
            yield from _leaves(clause)
    else:
        yield node


def _is_of(word: Word, leaf: Term | Prefix | Fuzzy | Phrase) -> bool:
    terms = {term for term, _ in word.terms}
    if not terms:
        return False
    if isinstance(leaf, Term):
        return leaf.text in terms
    if isinstance(leaf, Prefix):
        return any(term.startswith(leaf.text) for term in terms)
    if isinstance(leaf, Fuzzy):
        return bool((edits_between(sorted(terms), leaf.text) <= leaf.edits).any())
    return terms <= set(leaf.terms) or terms >= set(leaf.terms)


def _piece(text: str, words: list[Word], marked: list[tuple[Word, frozenset[int]]]) -> tuple[int, int]:
    """Return start and end of the best piece: the one with most distinct clauses, then most words, then the first."""
    if len(text) <= WIDTH:
        return 0, len(text)
    best = (0, 0)
    low, high = 0, 0
    end = 0
    for first, (word, _) in enumerate(marked):
        end = max(end, first)
        while end < len(marked) and marked[end][0].end <= word.start + WIDTH:
            end += 1
        inside = marked[first:end]
        worth = len(frozenset().union(*(clauses for _, clauses in inside))), len(inside)
        if worth > best:
            best = worth
            low, high = word.start, inside[-1][0].end
    spare = max(0, WIDTH - (high - low)) // 2
    start = _word_start(words, max(0, low - spare), low)
    stop = start + WIDTH
    if stop >= len(text):
        return start, len(text)
    ends = [word.end for word in words if start < word.end <= stop]
    return start, max(ends[-1] if ends else stop, min(high, stop))


def _word_start(words: list[Word], at: int, latest: int) -> int:
    """Return the start of the first word at or after a place."""
    if not at:
        return 0
    return next((word.start for word in words if at <= word.start <= latest), at)
