"""The parsed form of a text query: a tree of terms, as the analyser of the index sees them.  Plain picklable values.

Parts that the analyser drops altogether (stop words, punctuation) have no node.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One exact term."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """All terms that start with the text."""

    text: str


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """All terms within ``edits`` insertions, deletions, replacements and swaps of neighbours."""

    text: str
    edits: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """Terms at the given places, relative to the first term."""

    terms: tuple[str, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Boolean:
    """All of `must`, none of `must_not`; `should` adds to the score.  Without `must`, one of `should` must match."""

    must: tuple[Node, ...] = ()
    should: tuple[Node, ...] = ()
    must_not: tuple[Node, ...] = ()


Node = Term | Prefix | Fuzzy | Phrase | Boolean


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query that is ready to run; if ``root`` is None it finds nothing."""

    text: str
    root: Node | None
