"""From text to terms: one text and a whole column are analysed alike, in every script."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.indexes.bm25.analysis import Analyser, analyser_of
from tests.indexes.bm25_oracle import FIELD, KIND, found, make_index

EVERY = [
    {},
    {"lowercase": False},
    {"tokenizer": "whitespace"},
    {"tokenizer": "ngram"},
    {"tokenizer": "ngram", "ngram": 2, "stop_words": ["abc", "ÉTÉ"], "ascii_folding": True},
    {"stemmer": "english", "stop_words": "english"},
    {"stemmer": "german", "ascii_folding": True, "stop_words": "german"},
    {"ascii_folding": True, "lowercase": False},
]
odd = st.sampled_from("aAbéÉe\u0301ßſİıΣςσøŁæ日本हि\u200d٣½_-'\0 \t\u2003\u00a0🙂\U0001d518")
written = st.lists(st.one_of(st.none(), st.text(odd, max_size=12), st.text(max_size=12)), max_size=8)


def analyser(**params: Any) -> Analyser:
    return analyser_of(make_index(**params).params)


def of_column(made: Analyser, column: Any) -> list[list[tuple[str, int]]]:
    tokens = made.tokens(column)
    rows: list[list[tuple[str, int]]] = [[] for _ in range(len(column))]
    for code, row, place in zip(tokens.codes.tolist(), tokens.rows.tolist(), tokens.places.tolist(), strict=True):
        rows[row].append((tokens.terms[code], place))
    return rows


def of_texts(made: Analyser, texts: list[str | None]) -> list[list[tuple[str, int]]]:
    return [[(word.term, word.place) for word in made.words(text)] if text else [] for text in texts]


@pytest.mark.parametrize("params", EVERY, ids=str)
@settings(max_examples=150, deadline=None)
@given(texts=written)
def test_a_column_is_analysed_like_each_of_its_texts(params: dict[str, Any], texts: list[str | None]) -> None:
    made = analyser(**params)
    assert of_column(made, pa.array(texts, pa.string())) == of_texts(made, texts)
    sliced = pa.array(["x y", *texts, "z"], pa.large_string()).slice(1, len(texts))
    assert of_column(made, sliced) == of_texts(made, texts)


@settings(max_examples=100, deadline=None)
@given(text=st.text(odd, max_size=20))
def test_the_spans_of_words_are_those_of_the_text(text: str) -> None:
    words = analyser(lowercase=False).words(text)
    for word in words:
        assert text[word.start : word.end] == "".join(c for c in text[word.start : word.end] if not c.isspace())
    assert [word.start for word in words] == sorted(word.start for word in words)


def terms(text: str, **params: Any) -> list[str]:
    return [word.term for word in analyser(**params).words(text)]


def test_words_are_letters_marks_and_digits() -> None:
    assert terms("Don't pay 3.50, snake_case!") == ["don", "t", "pay", "3", "50", "snake", "case"]
    assert terms("Straße ΣΊΣΥΦΟΣ") == ["strasse", "σίσυφοσ"]
    assert terms("e\u0301te\u0301 ÉTÉ") == ["été", "été"]
    assert terms("हिन्दी 日本語") == ["हिन्दी", "日本語"]


def test_the_other_tokenizers() -> None:
    assert terms("Don't pay\u2003C++", tokenizer="whitespace") == ["don't", "pay", "c++"]
    assert terms("Parcel of it", tokenizer="ngram") == ["par", "arc", "rce", "cel", "of", "it"]
    assert terms("日本語版", tokenizer="ngram", ngram=2) == ["日本", "本語", "語版"]


def test_case_accents_stems_and_stop_words() -> None:
    assert terms("Late LATE", lowercase=False) == ["Late", "LATE"]
    assert terms("Crème Łódź smørrebrød œuvre", ascii_folding=True) == ["creme", "lodz", "smorrebrod", "oeuvre"]
    assert terms("the running parcels", stemmer="english", stop_words="english") == ["run", "parcel"]
    assert terms("Der späte Paketbote", stop_words=["DER"]) == ["späte", "paketbote"]


def test_a_query_is_analysed_like_the_texts() -> None:
    rows = ["The running Parcels", "ran", "Crème"]
    index = make_index(stemmer="english", stop_words="english", ascii_folding=True)
    assert found(index, rows, "parcel") == [0]
    assert found(index, rows, "PARCELS run") == [0]
    assert found(index, rows, "crême") == [2]
    assert found(index, rows, '"running parcel"') == [0]


def test_pieces_of_words_find_parts_of_words() -> None:
    index = make_index(tokenizer="ngram")
    rows = ["the parcel", "march", "par cel", "日本語版"]
    assert found(index, rows, "arce") == [0]
    assert found(index, rows, "parcel") == [0]
    assert found(index, rows, "pa*") == [0, 2]
    assert found(index, rows, "parc*") == [0]
    assert found(index, rows, "日本語") == [3]
    with pytest.raises(Exception, match=r"keeps pieces of words, not words\. Leave the '~' out"):
        KIND.query(index, [FIELD], "parcel~1", {})
