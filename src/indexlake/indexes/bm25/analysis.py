"""From text to terms, in the same way at build time and at query time, in memory and in files.

A text is split into words, each word is normalised (case, accents), stop words are dropped, and the rest may be
stemmed.  Two methods give the same result: `Analyser.tokens` takes a whole column at once, over its UTF-8 bytes, and
normalises each distinct word once; `Analyser.words` takes one text and also says where in it the words are.

Dropped stop words still take up a place: in "state of the art", `art` is three places after `state`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.bm25.params import stemmer_module
from indexlake.indexes.bm25.stop_words import STOP_WORDS

_FOLDED = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "AE",
                         "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH", "ð": "d", "ı": "i"})  # fmt: skip
_ASCII_WORDS = re.compile("[0-9A-Za-z]+")


class Tokens(NamedTuple):
    """The tokens of a column of texts, in order: term (an index into `terms`), row, and place in the text of each."""

    terms: list[str]
    codes: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


class Word(NamedTuple):
    """A word of a text, or an n-gram of one: where it is written, and its term with its place."""

    start: int
    end: int
    term: str
    place: int


def analyser_of(params: Mapping[str, Any]) -> Analyser:
    """Return the analyser for the parameters of an index definition."""
    words = params["stop_words"]
    listed = words if isinstance(words, str) else tuple(words or ())
    return _analyser(
        params["tokenizer"], params["ngram"], params["lowercase"], params["ascii_folding"], params["stemmer"], listed
    )


@lru_cache(maxsize=64)
def _analyser(*params: Any) -> Analyser:
    return Analyser(*params)


class Analyser:
    """Splits texts into terms as one index defines it.  Safe to share between threads."""

    def __init__(
        self,
        tokenizer: str,
        ngram: int | None,
        lowercase: bool,
        ascii_folding: bool,
        stemmer: str | None,
        stop_words: str | tuple[str, ...],
    ) -> None:
        self._lowercase = lowercase
        self._fold = ascii_folding
        self._language = stemmer
        self._gram = ngram or 0
        self._simple = tokenizer != "whitespace"
        self._is_inside = _is_word if self._simple else _is_not_space
        words = STOP_WORDS[stop_words] if isinstance(stop_words, str) else stop_words
        self._stop_words = frozenset(map(self.normalise, words))
        table = bytearray(range(256))
        for code in range(128):
            char = chr(code)
            table[code] = 0 if not self._is_inside(char) else ord(char.lower() if self._lowercase else char)
        self._table = bytes(table)

    # One text

    def words(self, text: str) -> list[Word]:
        """Return the words of one text that have a term, in order."""
        found = []
        place = 0
        for start, end in self.spans(text):
            terms = self.terms(text[start:end])
            aligned = len(terms) > 1 and self._keeps_places(text[start:end])
            for at, term in enumerate(terms):
                first, last = (start + at, start + at + self._gram) if aligned else (start, end)
                found.append(Word(first, last, term, place + at))
            place += len(terms) + 1 if self._gram else 1
        return found

    def _keeps_places(self, word: str) -> bool:
        """Return whether each character of a word is one character of the normalised word."""
        each = [self.normalise(char) for char in word]
        return all(len(char) == 1 for char in each) and "".join(each) == self.normalise(word)

    def normalise(self, word: str) -> str:
        """Return a normalised but unstemmed word, which is what prefix and fuzzy queries compare."""
        if word.isascii():
            return word.lower() if self._lowercase else word
        if self._lowercase:
            word = word.casefold()
        if self._fold:
            plain = unicodedata.normalize("NFKD", word.translate(_FOLDED))
            word = "".join(char for char in plain if unicodedata.category(char) != "Mn")
        return unicodedata.normalize("NFC", word)

    def cuts(self, word: str) -> bool:
        """Return whether a normalised word is split into several n-grams."""
        return bool(self._gram) and len(word) > self._gram

    def is_one_word(self, text: str) -> bool:
        """Return whether a text is a single word from its first to its last character."""
        return bool(text) and all(map(self._is_inside, text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each word of one text, in order."""
        if self._simple and text.isascii():
            return [match.span() for match in _ASCII_WORDS.finditer(text)]
        inside = [self._is_inside(char) for char in text]
        edges = [at for at in range(len(text) + 1) if (at and inside[at - 1]) != (at < len(text) and inside[at])]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def terms(self, word: str) -> list[str]:
        """Return the terms of one word as written in the text: none, one, or its n-grams."""
        plain = self.normalise(word)
        if not plain or plain in self._stop_words:
            return []
        if self._gram:
            return [plain[at : at + self._gram] for at in range(max(1, len(plain) - self._gram + 1))]
        return [self._stem(plain)] if self._language else [plain]

    def _stem(self, word: str) -> str:
        # Made for each call: a stemmer is cheap, but not safe to share between threads.
        return str(stemmer_module().Stemmer(self._language).stemWord(word))

    # Many texts

    def tokens(self, texts: Any) -> Tokens:
        """Return the tokens of a column of type string or large_string; nulls have none."""
        starts, ends, data, first = self._cut(texts)
        rows = np.repeat(np.arange(len(texts)), np.diff(first))
        places = np.arange(len(starts)) - np.repeat(first[:-1], np.diff(first))
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        words = pa.Array.from_buffers(
            pa.large_string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ).dictionary_encode()
        codes = np.asarray(words.indices).astype(np.int64, copy=False)
        if self._gram:
            return self._in_pieces(words.dictionary.to_pylist(), codes, rows, first)
        return self._normalised(words.dictionary.to_pylist(), codes, rows, places)

    def _cut(self, texts: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the start and end of each word, the bytes of all words joined, and the first word of each text."""
        texts = pc.fill_null(texts.cast(pa.large_string()), "")
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
        joined = pc.binary_join(whole, pa.scalar("\0", pa.large_string()))[0].as_buffer()
        data = np.frombuffer(bytearray(bytes(joined).translate(self._table)), np.uint8)
        inside = data != 0
        if len(data) and int(data.max()) >= 0x80:
            self._clear_separators(data, inside)
        edges = np.flatnonzero(np.diff(inside.view(np.int8), prepend=np.int8(0), append=np.int8(0)))
        starts, ends = edges[::2], edges[1::2]
        sizes = np.asarray(pc.binary_length(texts)).astype(np.int64)
        text_starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(sizes + 1, out=text_starts[1:])
        return starts, ends, data[inside], np.searchsorted(starts, text_starts)

    def _clear_separators(self, data: npt.NDArray[np.uint8], inside: npt.NDArray[np.bool_]) -> None:
        """Clear `inside` for the non-ASCII characters that are not part of words."""
        leads = np.flatnonzero(data >= 0xC0)
        first = data[leads].astype(np.uint32)
        sizes = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
        codes = first & np.array([0, 0, 0x1F, 0x0F, 0x07], np.uint32)[sizes]
        for further in (1, 2, 3):
            longer = sizes > further
            codes[longer] = codes[longer] << np.uint32(6) | (data[leads[longer] + further] & np.uint32(0x3F))
        different, which = np.unique(codes, return_inverse=True)
        out = np.array([not self._is_inside(chr(code)) for code in different.tolist()], np.bool_)[which]
        for further in range(4):
            here = out & (sizes > further)
            inside[leads[here] + further] = False

    def _normalised(
        self, words: list[str], codes: npt.NDArray[Any], rows: npt.NDArray[Any], places: npt.NDArray[Any]
    ) -> Tokens:
        terms = [word if word.isascii() and self._lowercase else self.normalise(word) for word in words]
        left_out = [not term or term in self._stop_words for term in terms]
        if self._language:
            terms = stemmer_module().Stemmer(self._language).stemWords(terms)
        if any(left_out):
            kept = ~np.array(left_out, np.bool_)[codes]
            codes, rows, places = codes[kept], rows[kept], places[kept]
        return Tokens(terms, codes, rows, places)

    def _in_pieces(
        self, words: list[str], codes: npt.NDArray[Any], rows: npt.NDArray[Any], first: npt.NDArray[Any]
    ) -> Tokens:
        numbers: dict[str, int] = {}
        pieces = [[numbers.setdefault(piece, len(numbers)) for piece in self.terms(word)] for word in words]
        counts_by_word = np.array([len(piece) for piece in pieces], np.int64)
        flat = np.array([number for piece in pieces for number in piece], np.int64)
        flat_first = np.cumsum(counts_by_word) - counts_by_word
        counts = counts_by_word[codes]
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        moved = np.concatenate(([0], np.cumsum(counts + 1)))  # each word takes one place more than it has pieces
        places = moved[:-1] - np.repeat(moved[first[:-1]], np.diff(first))
        return Tokens(
            list(numbers),
            flat[np.repeat(flat_first[codes], counts) + within],
            np.repeat(rows, counts),
            np.repeat(places, counts) + within,
        )


def _is_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN"


def _is_not_space(char: str) -> bool:
    return not char.isspace() and char != "\0"
