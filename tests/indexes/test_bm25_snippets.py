"""Snippets: the best piece of a text, its words in bold, everything else escaped."""

from __future__ import annotations

from typing import Any

from tests.indexes.bm25_oracle import FIELD, KIND, make_index


def shown(query: str, text: str | None, **params: Any) -> str | None:
    index = make_index(**params)
    (found,) = KIND.snippets(index, KIND.query(index, [FIELD], query, {}), [text])
    return found


def test_words_that_were_looked_for_are_bold() -> None:
    assert shown("late parcel", "A Late, lost parcel.") == "A <b>Late</b>, lost <b>parcel</b>."
    assert shown('"late parcel"', "late parcel") == "<b>late</b> <b>parcel</b>"
    assert shown("lat* parcle~1", "later parcel") == "<b>later</b> <b>parcel</b>"
    assert shown("+late -lost (parcel OR letter)", "late lost letter") == "<b>late</b> lost <b>letter</b>"


def test_words_are_compared_as_the_index_sees_them() -> None:
    assert shown("parcel", "Parcels", stemmer="english") == "<b>Parcels</b>"
    assert shown("creme", "Die Crème", ascii_folding=True) == "Die <b>Crème</b>"
    assert shown("arce", "march parcel", tokenizer="ngram") == "march p<b>arce</b>l"


def test_only_the_piece_of_a_word_that_was_looked_for_is_bold() -> None:
    assert shown("京都", "東京都と京都市", tokenizer="ngram", ngram=2) == "東<b>京都</b>と<b>京都</b>市"
    assert shown("東京都", "京都は東京都", tokenizer="ngram", ngram=2) == "京都は<b>東京都</b>"
    assert shown("arcel parcel", "Parcels", tokenizer="ngram") == "<b>Parcel</b>s"
    assert shown("par*", "prepare", tokenizer="ngram") == "pre<b>par</b>e"
    assert shown('"arcel lat"', "parcel later", tokenizer="ngram") == "p<b>arcel</b> <b>lat</b>er"
    assert shown("ass", "Straße", tokenizer="ngram") == "<b>Straße</b>", "one character is two in its pieces"


def test_in_a_text_without_spaces_the_piece_around_the_match_is_shown() -> None:
    found = shown("京都", "日" * 500 + "京都" + "月" * 500, tokenizer="ngram", ngram=2)
    assert found is not None
    assert "日<b>京都</b>月" in found
    assert found.startswith("… 日")
    assert found.endswith("月 …")
    assert len(found) < 180


def test_markup_in_the_text_is_escaped() -> None:
    assert shown("late", '<b>"late" & lost</b>') == "&lt;b&gt;&quot;<b>late</b>&quot; &amp; lost&lt;/b&gt;"


def test_null_and_texts_without_the_words() -> None:
    assert shown("late", None) is None
    assert shown("late", "") == ""
    assert shown("late", "nothing here") == "nothing here"
    long = "word " * 100
    assert shown("late", long) == ("word " * 32).strip() + " …"


def test_a_long_text_shows_the_piece_with_most_of_the_words() -> None:
    filler = "word " * 60
    text = f"late {filler}a late parcel was lost {filler}parcel parcel parcel {filler}"
    found = shown("late parcel lost", text)
    assert found is not None
    assert "a <b>late</b> <b>parcel</b> was <b>lost</b> word" in found
    assert found.startswith("… word")
    assert found.endswith("word …")
    assert 130 <= len(found.replace("<b>", "").replace("</b>", "")) <= 170


def test_a_word_longer_than_a_snippet_is_cut() -> None:
    found = shown("nowhere", "x" * 1000)
    assert found == "x" * 160 + " …"
    found = shown("x*", "x" * 1000)
    assert found == "<b>" + "x" * 160 + "</b> …"
