"""Reads text queries.

    late parcel           either word, better both         +late parcel -lost    must have, may have, must not have
    late AND parcel       both                             late AND NOT lost     one without the other
    (late OR lost) AND parcel                              "late parcel"         one after the other
    late*                 words that begin with late       parcle~, parcle~1     words spelled almost like that

AND binds more tightly than OR; words side by side are joined by `operator`, "or" by default.  NOT and - always exclude.
Inside quotes nothing has a meaning of its own.  ``word~`` allows no edit in words of up to two characters, one in words
of up to five and two in longer ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from indexlake.errors import ExpressionError
from indexlake.indexes.bm25.analysis import Analyser, analyser_of
from indexlake.indexes.bm25.other_syntax import refusal
from indexlake.indexes.bm25.query import Boolean, Fuzzy, Node, Phrase, Prefix, Term, TextQuery

_TOKEN = re.compile(r'\s+|(?P<open>\()|(?P<close>\))|(?P<phrase>"[^"]*")|(?P<quote>")|(?P<word>[^\s()"]+)')
_FUZZY = re.compile(r"(?P<word>.*)~(?P<edits>[^~]*)", re.DOTALL)
_OPERATORS = frozenset({"AND", "OR", "NOT"})
_DEEPEST = 50
_LONGEST_FUZZY = 64


class _Token(NamedTuple):
    kind: str  # open, close, phrase, word, must, not, AND, OR, NOT, end
    text: str
    at: int


def parse(query: Any, options: Mapping[str, Any], params: Mapping[str, Any]) -> TextQuery:
    for name in options:
        if name != "operator":
            raise ExpressionError(f"A text search has no option {name!r}; it has operator='or' or 'and'.")
    operator = options.get("operator", "or")
    if operator not in ("or", "and"):
        raise ExpressionError(f"The option 'operator' is 'or' or 'and', not {operator!r}.")
    if not isinstance(query, str):
        raise ExpressionError(f"A text query is a string such as 'late parcel', not {query!r}.")
    if not query.strip():
        raise ExpressionError(
            "The text query is empty. Write the words to look for, such as 'late parcel'.", text=query
        )
    words = query.split()
    if query.isascii() and all(map(str.isalnum, words)) and not _OPERATORS.intersection(words):
        return TextQuery(query, _plain(words, operator == "and", params))
    return TextQuery(query, _Parser(query, operator == "and", params).parse())


def _plain(words: Sequence[str], all_words: bool, params: Mapping[str, Any]) -> Node | None:
    """Return what `_Parser` makes of words without any syntax, but faster: most queries are like that."""
    analyser = analyser_of(params)
    found = [
        _in_a_row([(term, place) for place, term in enumerate(analyser.terms(word))], params["positions"])
        for word in words
    ]
    nodes = tuple([node for node in found if node is not None])
    if len(nodes) <= 1:
        return nodes[0] if nodes else None
    return Boolean(must=nodes) if all_words else Boolean(should=nodes)


def _in_a_row(terms: Sequence[tuple[str, int]], has_positions: bool) -> Node | None:
    if len(terms) <= 1:
        return Term(terms[0][0]) if terms else None
    if not has_positions:
        return Boolean(must=tuple(Term(term) for term, _ in terms))
    first = terms[0][1]
    return Phrase(tuple(term for term, _ in terms), tuple(place - first for _, place in terms))


class _Clause(NamedTuple):
    """A part of a query and its sign.  Without a node, the analyser dropped all of it."""

    node: Node | None
    sign: str  # must, not or ""


class _Parser:
    def __init__(self, text: str, all_words: bool, params: Mapping[str, Any]) -> None:
        self._text = text
        self._all_words = all_words
        self._analyser: Analyser = analyser_of(params)
        self._has_positions: bool = params["positions"]
        self._tokens = self._cut()
        self._next = 0
        self._depth = 0

    def parse(self) -> Node | None:
        found = self._either()
        if (token := self._peek()).kind == "close":
            raise self._error(token.at, "there is no '(' for this ')'. Remove it, or open the group with a '('")
        return found

    # Tokens

    def _cut(self) -> list[_Token]:
        tokens = []
        for match in _TOKEN.finditer(self._text):
            kind = match.lastgroup
            if kind == "quote":
                raise self._error(match.start(), "the quote is not closed. End the phrase with a second '\"'")
            if kind == "word":
                tokens += self._word_tokens(match[0], match.start())
            elif kind is not None:
                tokens.append(_Token(kind, match[0], match.start()))
        tokens.append(_Token("end", "", len(self._text)))
        return tokens

    def _word_tokens(self, word: str, at: int) -> list[_Token]:
        if word in _OPERATORS:
            return [_Token(word, word, at)]
        if word[0] in "+-":
            sign = _Token("must" if word[0] == "+" else "not", word[0], at)
            if word.strip("+-") and word[1] in "+-":
                raise self._error(at, "there are several signs before a word. Write one, or put the word in quotes")
            if word.strip("+-"):
                return [sign, _Token("word", word[1:], at + 1)]
            if len(word) == 1 and self._text.startswith(("(", '"'), at + 1):
                return [sign]
            if len(word) == 1:
                raise self._error(
                    at, f"there is no word right after this '{word}'. Write '{word}late' without a space, or leave "
                    f"the '{word}' out"
                )  # fmt: skip
        return [_Token("word", word, at)]

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    # Structure

    def _either(self) -> Node | None:
        """Parse clauses joined by OR, or side by side where that means OR."""
        start = self._peek().at
        clauses = [self._all()]
        while (token := self._peek()).kind not in ("end", "close"):
            if token.kind == "OR":
                self._take()
            clauses.append(self._all())
        return self._joined(clauses, start)

    def _joined(self, clauses: list[_Clause], start: int) -> Node | None:
        if all(clause.sign == "not" for clause in clauses):
            raise self._error(start, "there is nothing to exclude from. Write what to find as well: 'parcel NOT late'")
        must = tuple(c.node for c in clauses if c.sign == "must" and c.node is not None)
        should = tuple(c.node for c in clauses if not c.sign and c.node is not None)
        must_not = tuple(c.node for c in clauses if c.sign == "not" and c.node is not None)
        if not must and not should:
            return None
        if len(must) + len(should) == 1 and not must_not:
            return (must or should)[0]
        return Boolean(must, should, must_not)

    def _all(self) -> _Clause:
        """Parse clauses joined by AND, or side by side where that means AND."""
        start = self._peek().at
        clauses = [self._clause()]
        while (token := self._peek()).kind == "AND" or (
            self._all_words and token.kind not in ("end", "close", "OR", "AND")
        ):
            if token.kind == "AND":
                self._take()
            clauses.append(self._clause())
        if len(clauses) == 1:
            return clauses[0]
        signed = [_Clause(clause.node, clause.sign or "must") for clause in clauses]
        return _Clause(self._joined(signed, start), "")

    def _clause(self) -> _Clause:
        token = self._take()
        if token.kind in ("NOT", "not"):
            if self._peek().kind in ("NOT", "not"):
                raise self._error(token.at, "this is excluded twice. Write NOT or '-' once")
            return _Clause(self._clause().node, "not")
        if token.kind == "must":
            return _Clause(self._clause().node, "must")
        if token.kind == "open":
            return _Clause(self._group(token), "")
        if token.kind == "phrase":
            return _Clause(self._phrase(token), "")
        if token.kind == "word":
            return _Clause(self._word(token), "")
        if token.kind == "close":
            raise self._error(token.at, "there is nothing before this ')'. Write words between the parentheses")
        if token.kind == "end":
            raise self._error(
                token.at, "a word, a phrase or a group is missing here. Add one, or remove what comes before"
            )
        raise self._error(
            token.at, f"there is nothing before or after this {token.kind}. Write 'a {token.kind} b', or "
            f"'{token.kind.lower()}' to find the word itself"
        )  # fmt: skip

    def _group(self, opened: _Token) -> Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(opened.at, f"more than {_DEEPEST} parentheses are nested here. Write it with fewer")
        found = self._either()
        if self._take().kind != "close":
            raise self._error(opened.at, "this '(' is not closed. Close the group with a ')'")
        self._depth -= 1
        return found

    # Words

    def _phrase(self, token: _Token) -> Node | None:
        after = self._peek()
        if after.kind == "word" and after.at == token.at + len(token.text) and after.text[0] in "*~":
            raise self._error(after.at, "a phrase is exact. Leave this out, or write the words without quotes")
        if not token.text[1:-1].strip():
            raise self._error(token.at, "there is no word between the quotes. Write one, or leave the quotes out")
        terms = self._terms(token.text[1:-1])
        if len(terms) > 1 and not self._has_positions:
            raise self._error(
                token.at, "the index keeps no positions, so it cannot find phrases. Join the words with AND, without "
                "quotes, or create the index with positions=True"
            )  # fmt: skip
        return _in_a_row(terms, self._has_positions)

    def _word(self, token: _Token) -> Node | None:
        text, at = token.text, token.at
        follows = self._text[at + len(text) : at + len(text) + 1]
        if (wrong := refusal(text, follows, self._analyser.is_one_word(text))) is not None:
            raise self._error(at, wrong)
        if text.endswith("*") and not set(text) <= {"*"}:
            return self._prefix(text[:-1], at)
        if "*" in text:
            if set(text) <= {"*"}:
                raise self._error(at, "a '*' comes after the beginning of a word. Write 'late*'")
            if text.startswith("*") and self._analyser.is_one_word(text[1:]):
                raise self._error(at, "a '*' can only stand at the end of a word. Write 'late*'; an index with "
                                  "tokenizer='ngram' finds parts of words")  # fmt: skip
        if (match := _FUZZY.fullmatch(text)) and (self._analyser.is_one_word(match["word"]) or not match["word"]):
            return self._fuzzy(match["word"], match["edits"], at)
        return _in_a_row(self._terms(text), self._has_positions)

    def _prefix(self, text: str, at: int) -> Node | None:
        if not self._analyser.is_one_word(text) or "*" in text:
            raise self._error(at, f"{text + '*'!r} is more than one word. Put the '*' after a single word: 'late*'")
        plain = self._analyser.normalise(text)
        if self._analyser.cuts(plain):
            return _in_a_row(self._terms(text), self._has_positions)
        return Prefix(plain)

    def _fuzzy(self, text: str, edits: str, at: int) -> Node | None:
        if not text:
            raise self._error(at, "a '~' comes after a word. Write 'parcel~' or 'parcel~1'")
        if edits not in ("", "0", "1", "2"):
            raise self._error(at, f"{edits!r} is not a number of edits. Write 'parcel~', 'parcel~1' or 'parcel~2'")
        plain = self._analyser.normalise(text)
        if self._analyser.cuts(plain):
            raise self._error(at, "the tokenizer 'ngram' keeps pieces of words, not words. Leave the '~' out")
        if len(plain) > _LONGEST_FUZZY:
            raise self._error(
                at,
                f"a fuzzy word has at most {_LONGEST_FUZZY} characters. Write 'parcel*' for words that begin with it",
            )
        allowed = int(edits) if edits else (0 if len(plain) <= 2 else 1 if len(plain) <= 5 else 2)
        return Fuzzy(plain, allowed)

    def _terms(self, text: str) -> list[tuple[str, int]]:
        return [(word.term, word.place) for word in self._analyser.words(text)]

    def _error(self, at: int, what: str) -> ExpressionError:
        place = f"{self._text[max(0, at - 20) : at]}⟦here⟧{self._text[at : at + 20]}"
        return ExpressionError(
            f"The text query cannot be read at character {at + 1}, {place!r}: {what}.", text=self._text
        )
