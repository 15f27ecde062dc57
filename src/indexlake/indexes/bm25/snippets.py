"""Snippets: the best piece of a text that was found, with the matching words in bold.

The text is escaped for HTML; the only tags are ``<b>`` and ``</b>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from indexlake.indexes.bm25.analysis import Analyser, Word
from indexlake.indexes.bm25.expansion import edits_between
from indexlake.indexes.bm25.query import Boolean, Fuzzy, Node, Phrase, Prefix, Term, TextQuery

WIDTH = 160
"""The approximate number of characters to show."""

Leaf = Term | Prefix | Fuzzy | Phrase


class Mark(NamedTuple):
    """A part of a text that is in bold, and the numbers of the clauses that it matches."""

    start: int
    end: int
    clauses: frozenset[int]


def snippet(query: TextQuery, analyser: Analyser, text: str) -> str:
    """Return the piece of the text with the most matching words, or its start if there are none."""
    leaves = list(_leaves(query.root)) if query.root is not None else []
    marks = _marks(analyser.words(text), leaves)
    start, end = _piece(text, analyser.spans(text), marks)
    shown = []
    at = start
    for mark in marks:
        if start <= mark.start < end:
            stop = min(mark.end, end)
            shown += [escape(text[at : mark.start]), "<b>", escape(text[mark.start : stop]), "</b>"]
            at = stop
    shown.append(escape(text[at:end]))
    return f"{'… ' if start else ''}{''.join(shown)}{' …' if end < len(text) else ''}"


def _leaves(node: Node) -> Iterator[Leaf]:
    """Yield the clauses that a text may match, leaving out those that must not."""
    if isinstance(node, Boolean):
        for clause in (*node.must, *node.should):
            yield from _leaves(clause)
    else:
        yield node


def _marks(words: Sequence[Word], leaves: Sequence[Leaf]) -> list[Mark]:
    """Return what matches, in order; n-grams that overlap are one mark."""
    known: dict[str, frozenset[int]] = {}
    clauses = []
    for word in words:
        if word.term not in known:
            known[word.term] = frozenset(n for n, leaf in enumerate(leaves) if _is_of(word.term, leaf))
        clauses.append(set(known[word.term]))
    by_place = {word.place: number for number, word in enumerate(words)}
    for n, leaf in enumerate(leaves):
        if not isinstance(leaf, Phrase):
            continue
        for first in words:
            row = [by_place.get(first.place + place) for place in leaf.places]
            found = [number for number in row if number is not None]
            if len(found) == len(row) and tuple(words[number].term for number in found) == leaf.terms:
                for number in found:
                    clauses[number].add(n)
    marks: list[Mark] = []
    for word, matched in zip(words, clauses, strict=True):
        if matched and marks and word.start < marks[-1].end:
            last = marks.pop()
            marks.append(Mark(last.start, max(last.end, word.end), last.clauses | matched))
        elif matched:
            marks.append(Mark(word.start, word.end, frozenset(matched)))
    return marks


def _is_of(term: str, leaf: Leaf) -> bool:
    if isinstance(leaf, Prefix):
        return term.startswith(leaf.text)
    if isinstance(leaf, Fuzzy):
        return bool((edits_between([term], leaf.text) <= leaf.edits).any())
    return isinstance(leaf, Term) and leaf.text == term


def _piece(text: str, words: Sequence[tuple[int, int]], marks: Sequence[Mark]) -> tuple[int, int]:
    """Return start and end of the best piece: the one with most distinct clauses, then most words, then the first."""
    if len(text) <= WIDTH:
        return 0, len(text)
    best = (0, 0)
    low, high = 0, 0
    end = 0
    for first, mark in enumerate(marks):
        end = max(end, first + 1)
        while end < len(marks) and marks[end].end <= mark.start + WIDTH:
            end += 1
        inside = marks[first:end]
        worth = len(frozenset().union(*(one.clauses for one in inside))), len(inside)
        if worth > best:
            best = worth
            low, high = mark.start, inside[-1].end
    spare = max(0, WIDTH - (high - low)) // 2
    start = _word_start(words, max(0, low - spare), low)
    stop = start + WIDTH
    if stop >= len(text):
        return start, len(text)
    ends = [last for _, last in words if start < last <= stop]
    return start, max(ends[-1] if ends else stop, min(high, stop))


def _word_start(words: Sequence[tuple[int, int]], at: int, latest: int) -> int:
    """Return the start of the first word at or after a place."""
    if not at:
        return 0
    return next((start for start, _ in words if at <= start <= latest), at)
