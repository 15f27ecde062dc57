"""SQL text as tokens with their places, following DuckDB's lexical rules.

Statements are split at semicolons and parsed by keyword on this level, so that every expression reaches the engine
exactly as it was written.  ``Source`` turns a place in the text into a line, a column and an excerpt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

from indexlake.errors import ExpressionError
from indexlake.sql.parse.refused_calls import refuse_calls

Kind = Literal["word", "name", "string", "number", "parameter", "symbol"]

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$)
    | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<string>(?:[xXbB])?'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<parameter>\$\w+|\?\d*)
    | (?P<number>(?:0[xX][0-9a-fA-F_]+|(?:\d[\d_]*)?\.\d[\d_]*(?:[eE][+-]?\d+)?|\d[\d_]*\.?(?:[eE][+-]?\d+)?))
    | (?P<word>(?:[^\W\d]|[^\x00-\x7f\s\u200b-\u200f\u2060\ufeff])(?:[\w$]|[^\x00-\x7f\s\u200b-\u200f\u2060\ufeff])*)
    | (?P<symbol>::|=>|->>|->|<=|>=|<>|!=|\|\||:=|//|\*\*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


_LOWER = str.maketrans({chr(upper): chr(upper + 32) for upper in range(ord("A"), ord("Z") + 1)})


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` is what was written; ``value`` is the name or string it means, or a word in lower case."""

    kind: Kind
    text: str
    value: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.value in words

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


class Source:
    """A whole text, used to locate errors in it.

    A text derived from another one has an ``origin``: its errors are located in the original.
    """

    def __init__(self, text: str, origin: tuple[Source, Callable[[int], int]] | None = None) -> None:
        self.text = text
        self._origin = origin

    def fail(self, problem: str, place: int | None = None) -> NoReturn:
        raise self.error(problem, place)

    def error(self, problem: str, place: int | None = None) -> ExpressionError:
        if self._origin is not None:
            original, place_of = self._origin
            return original.error(problem, None if place is None else place_of(place))
        where = "" if place is None else f"\n{self.excerpt(place)}"
        return ExpressionError(f"{problem}{where}", text=self.text)

    def excerpt(self, place: int) -> str:
        """Return the line, with a mark under the place."""
        place = max(0, min(place, len(self.text)))
        first = self.text.rfind("\n", 0, place) + 1
        last = self.text.find("\n", place)
        line = self.text[first : len(self.text) if last < 0 else last]
        column = place - first
        begin = max(0, column - 60)
        shown = ("…" if begin else "") + line[begin : begin + 100] + ("…" if len(line) > begin + 100 else "")
        number = self.text.count("\n", 0, place) + 1
        head = f"line {number}: "
        return f"{head}{shown}\n{' ' * (len(head) + column - begin + bool(begin))}^"


def tokenize(source: Source) -> list[Token]:
    """Return all tokens except white space and comments.  Calls of refused functions raise an error."""
    text, place, found = source.text, 0, []
    while place < len(text):
        match = _TOKEN.match(text, place)
        assert match is not None
        kind, end = match.lastgroup, match.end()
        if kind == "comment":
            end = _comment_end(source, place)
        elif kind in ("dollar", "tag"):
            kind = "string"
            mark = match.group("dollar")
            closing = text.find(mark, match.end())
            if closing < 0:
                source.fail("This quoted string is not closed.", place)
            end = closing + len(mark)
            found.append(Token("string", text[place:end], text[match.end() : closing], place, end))
            place = end
            continue
        elif kind == "symbol" and match.group() in ("'", '"'):
            quote = match.group()
            source.fail(f"This quote is never closed. Inside quotes, write {quote} as {quote * 2}.", place)
        if kind not in ("space", "comment"):
            written = match.group()
            found.append(Token(_KINDS[str(kind)], written, _value(str(kind), written), place, end))
        place = end
    refuse_calls(source, found, lambda inner, at: tokenize(Source(inner, (source, lambda _: at))))
    return found


_KINDS: dict[str, Kind] = {
    "escaped": "string", "string": "string", "name": "name", "parameter": "parameter", "number": "number",
    "word": "word", "symbol": "symbol",
}  # fmt: skip


def _value(kind: str, written: str) -> str:
    if kind == "name":
        return written[1:-1].replace('""', '"')
    if kind == "string":
        return written[written.index("'") + 1 : -1].replace("''", "'")
    if kind == "word":
        return written.lower()
    return written


def _comment_end(source: Source, start: int) -> int:
    """Return where a comment ends; comments nest."""
    depth, place = 0, start
    while match := _COMMENT_EDGE.search(source.text, place):
        depth += 1 if match.group() == "/*" else -1
        place = match.end()
        if not depth:
            return place
    raise source.error("This comment is not closed.", start)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def folded(text: str) -> str:
    """Return a text with its words in lower case, except in quotes."""
    pieces, place = [], 0
    for token in tokenize(Source(text)):
        if token.kind == "word":
            pieces += [text[place : token.start], token.text.translate(_LOWER)]
            place = token.end
    return "".join([*pieces, text[place:]])
