"""A piece of a statement as it was written, and how it is passed on.

When it is passed on, parameters are spelt in one way (``$name``, ``$1``), and further spans, such as table names, may
be replaced.  ``Spliced`` remembers where each piece came from, so that errors can be located in the original.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from indexlake.sql.parse.tokens import Source, Token, text_literal, tokenize

Edit = tuple[int, int, str]  # start and end in the original, and the new text


@dataclass(frozen=True, eq=False)
class Fragment:
    """Consecutive tokens of a text."""

    source: Source
    tokens: Sequence[Token]
    question_marks: dict[int, int]  # start of a `?` -> its number in the whole text

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end

    def key(self, token: Token) -> str:
        """Return the name or number of a parameter."""
        if token.text == "?":
            return str(self.question_marks[token.start])
        return token.text[1:]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that the fragment uses, each once."""
        return tuple(dict.fromkeys(self.key(t) for t in self.tokens if t.kind == "parameter"))

    def parameter_edits(self) -> list[Edit]:
        return [(t.start, t.end, f"${self.key(t)}") for t in self.tokens if t.kind == "parameter"]

    def _literal_edits(self) -> list[Edit]:
        """To DuckDB, ``x'61'`` is the text ``x61``; other readers do not have such literals."""
        found = (t for t in self.tokens if t.kind == "string" and t.text[0] in "xXbB")
        return [(t.start, t.end, text_literal(t.text[0].lower() + t.value)) for t in found]

    def spliced(self, edits: Sequence[Edit] = (), prefix: str = "", suffix: str = "") -> Spliced:
        """Return a copy with edits, which take precedence over the replacement of parameters they cover."""
        covered = [(start, end) for start, end, _ in edits]
        own = [
            e for e in (*self.parameter_edits(), *self._literal_edits()) if not any(a <= e[0] < b for a, b in covered)
        ]
        copy = _Splicer()
        copy.add(prefix, self.start, False)
        place = self.start
        for start, end, new in sorted([*edits, *own]):
            copy.add(self.source.text[place:start], place, True)
            copy.add(new, start, False)
            place = end
        copy.add(self.source.text[place : self.end], place, True)
        copy.add(suffix, self.end, False)
        return copy.done()

    @property
    def text(self) -> str:
        """The fragment with its parameters spelt in one way."""
        return self.spliced().text

    @property
    def is_default(self) -> bool:
        """Whether it consists of just the word ``default``."""
        return len(self.tokens) == 1 and self.tokens[0].is_word("default")

    def has_word(self, *words: str) -> bool:
        return any(t.is_word(*words) for t in self.tokens)

    def calls(self, function: str) -> bool:
        following = zip(self.tokens, self.tokens[1:], strict=False)
        return any(t.is_word(function) and after.is_symbol("(") for t, after in following)


@dataclass(frozen=True, slots=True)
class Spliced:
    """A text made of pieces of another one."""

    text: str
    starts: tuple[int, ...]  # of the pieces, in this text
    origins: tuple[tuple[int, bool], ...]  # place in the original, and whether copied from there

    def original(self, place: int) -> int:
        """Return the place in the original that a place in this text comes from."""
        n = max(0, bisect_right(self.starts, place) - 1)
        origin, copied = self.origins[n]
        return origin + (place - self.starts[n] if copied else 0)


class _Splicer:
    """Builds a text, recording the origin of each piece."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._origins: list[tuple[int, bool]] = []
        self._length = 0

    def add(self, piece: str, origin: int, copied: bool) -> None:
        if piece:
            self._pieces.append(piece)
            self._starts.append(self._length)
            self._origins.append((origin, copied))
            self._length += len(piece)

    def done(self) -> Spliced:
        return Spliced("".join(self._pieces), tuple(self._starts), tuple(self._origins))


def edited(fragment: Fragment, edits: Sequence[Edit]) -> Fragment:
    """Return the edited fragment as a text of its own, whose errors are located in the original."""
    if not edits:
        return fragment
    made = fragment.spliced(edits)
    whole = Source(made.text, (fragment.source, made.original))
    return Fragment(whole, tokenize(whole), {})


def composed(parts: Sequence[str | Fragment], source: Source, prefix: Fragment | None = None) -> Fragment:
    """Return a text made of pieces of ``source``, after a ``with`` if given; errors are located in ``source``."""
    copy = _Splicer()
    parts = parts if prefix is None else [prefix, " ", *parts]
    last = next((part.start for part in parts if isinstance(part, Fragment)), 0)
    for part in parts:
        if isinstance(part, str):
            copy.add(part, last, False)
            continue
        inner = part.spliced()
        ends = [*inner.starts[1:], len(inner.text)]
        for start, end, (origin, copied) in zip(inner.starts, ends, inner.origins, strict=True):
            copy.add(inner.text[start:end], origin, copied)
        last = part.end
    made = copy.done()
    whole = Source(made.text, (source, made.original))
    return Fragment(whole, tokenize(whole), {})
