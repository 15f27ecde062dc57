"""The parameters of a full-text index: what they are by default, and the check of a new definition.

tokenizer      "words" (runs of Unicode letters, marks and digits), "whitespace" (everything between white space), or
               "ngram" (pieces of `ngram` characters of every word: finds parts of words, and texts without spaces)
ngram          the number of characters of a piece, 2 to 8; 3 by default, and None with another tokenizer
lowercase      case does not matter (Unicode case folding)
ascii_folding  accents do not matter: "é" is "e", "ø" is "o"
stemmer        None, or a Snowball language such as "english": "parcels" finds "parcel".  Needs the extra `text`
stop_words     None, "english", "german", "french", "spanish", or a list of words that are left out
k1, b          BM25: how fast a repeated word saturates, and how much the length of a text matters
positions      whether phrases can be found
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from indexlake.errors import MissingExtraError, SchemaError
from indexlake.indexes.bm25.stop_words import STOP_WORDS
from indexlake.indexes.kind import refuse_params, whole_number

DEFAULTS: dict[str, Any] = {
    "tokenizer": "words",
    "ngram": None,
    "lowercase": True,
    "ascii_folding": False,
    "stemmer": None,
    "stop_words": None,
    "k1": 1.2,
    "b": 0.75,
    "positions": True,
}
TOKENIZERS = ("ngram", "whitespace", "words")


def checked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with defaults filled in; raise a ``SchemaError`` that lists the choices if one is wrong."""
    refuse_params("bm25", params, DEFAULTS)
    found = {**DEFAULTS, **params}
    if found["tokenizer"] not in TOKENIZERS:
        raise SchemaError(f"There is no tokenizer {found['tokenizer']!r}; there are {', '.join(TOKENIZERS)}.")
    for name in ("lowercase", "ascii_folding", "positions"):
        if not isinstance(found[name], bool):
            raise SchemaError(f"The parameter {name!r} is True or False, not {found[name]!r}.")
    found["ngram"] = _ngram(found["ngram"], found["tokenizer"])
    if not _is_number(found["k1"]) or not 0 <= found["k1"] <= 1000:
        raise SchemaError(f"The parameter 'k1' is a number from 0 to 1000, usually 1.2, not {found['k1']!r}.")
    if not _is_number(found["b"]) or not 0 <= found["b"] <= 1:
        raise SchemaError(f"The parameter 'b' is a number from 0 to 1, usually 0.75, not {found['b']!r}.")
    found["k1"], found["b"] = float(found["k1"]), float(found["b"])
    found["stemmer"] = _stemmer(found["stemmer"])
    found["stop_words"] = _stop_words(found["stop_words"])
    if found["tokenizer"] == "ngram" and found["stemmer"] is not None:
        raise SchemaError("The tokenizer 'ngram' cuts words into pieces, which have no stem. Leave the stemmer out.")
    return found


def stemmer_module() -> Any:
    try:
        import Stemmer
    except ImportError:
        raise MissingExtraError(
            "A stemmer needs PyStemmer. Install it with: pip install 'indexlake[text]'", extra="text"
        ) from None
    return Stemmer


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _ngram(given: Any, tokenizer: str) -> int | None:
    if tokenizer != "ngram":
        if given is not None:
            raise SchemaError(
                f"The parameter 'ngram' is only for tokenizer='ngram', not for {tokenizer!r}. Leave it out, or add "
                "tokenizer='ngram'."
            )
        return None
    size = 3 if given is None else whole_number(given)
    if size is None or not 2 <= size <= 8:
        raise SchemaError(f"The parameter 'ngram' is a whole number from 2 to 8, not {given!r}.")
    return size


def _stemmer(language: Any) -> str | None:
    if language is None:
        return None
    known: list[str] = sorted(stemmer_module().algorithms())
    if not isinstance(language, str) or language.lower() not in known:
        raise SchemaError(f"There is no stemmer {language!r}; there are {', '.join(known)}, and None.")
    return language.lower()


def _stop_words(words: Any) -> str | list[str] | None:
    if words is None:
        return None
    if isinstance(words, str):
        if words.lower() not in STOP_WORDS:
            raise SchemaError(
                f"There are no stop words for {words!r}; there are some for {', '.join(sorted(STOP_WORDS))}. Give a "
                "list of words for another language, or None."
            )
        return words.lower()
    if not isinstance(words, list | tuple | set | frozenset) or not all(isinstance(word, str) for word in words):
        raise SchemaError(f"The parameter 'stop_words' is None, a language or a list of words, not {words!r}.")
    return sorted(set(words))
