"""What a text query is: a tree of terms, as the analyser of the index sees them.  Plain values that pickle.

A node that the analyser left nothing of (stop words, punctuation) is not there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A term, found as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """Terms that start with a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """Terms within so many edits: insertions, deletions, replacements and swaps of neighbours."""

    text: str
    edits: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """Terms at places relative to the first."""

    terms: tuple[str, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Boolean:
    """All of `must`, none of `must_not`; `should` adds to the score.  Without `must`, one of `should` is needed."""

    must: tuple[Node, ...] = ()
    should: tuple[Node, ...] = ()
    must_not: tuple[Node, ...] = ()


Node = Term | Prefix | Fuzzy | Phrase | Boolean


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query, ready to be searched with; ``root`` None finds nothing."""

    text: str
    root: Node | None
