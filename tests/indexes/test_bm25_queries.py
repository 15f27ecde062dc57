"""Text queries: what every form means, and what is said about one that cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import ExpressionError, MissingExtraError, SchemaError
from indexlake.indexes.bm25 import params as bm25_params
from indexlake.indexes.bm25.query import Boolean, Fuzzy, Phrase, Prefix, Term
from indexlake.schema.table_schema import Field
from tests.indexes.bm25_oracle import FIELD, KIND, found, make_index

a, b, c, d = map(Term, "abcd")


def parsed(text: Any, index: Any = None, **options: Any) -> Any:
    return KIND.query(index or make_index(), [FIELD], text, options).root


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", a),
        ("a b", Boolean(should=(a, b))),
        ("a OR b", Boolean(should=(a, b))),
        ("a AND b", Boolean(must=(a, b))),
        ("a b AND c", Boolean(should=(a, Boolean(must=(b, c))))),
        ("a OR b AND c OR d", Boolean(should=(a, Boolean(must=(b, c)), d))),
        ("(a OR b) AND c", Boolean(must=(Boolean(should=(a, b)), c))),
        ("+a b -c", Boolean((a,), (b,), (c,))),
        ("a NOT b", Boolean((), (a,), (b,))),
        ("a AND NOT b", Boolean((a,), (), (b,))),
        ("a AND -b AND c", Boolean((a, c), (), (b,))),
        ("a -(b c)", Boolean((), (a,), (Boolean(should=(b, c)),))),
        ('a -"b c"', Boolean((), (a,), (Phrase(("b", "c"), (0, 1)),))),
        ('"a b"', Phrase(("a", "b"), (0, 1))),
        ('"a"', a),
        ('a"b"c', Boolean(should=(a, b, c))),
        ("((a))", a),
        ("and or not", Boolean(should=(Term("and"), Term("or"), Term("not")))),
        ("A-B", Phrase(("a", "b"), (0, 1))),
        ("a -- b", Boolean(should=(a, b))),
        ("don't", Phrase(("don", "t"), (0, 1))),
        ("e-mail", Phrase(("e", "mail"), (0, 1))),
        ("3:45", Phrase(("3", "45"), (0, 1))),
        ("Re: a", Boolean(should=(Term("re"), a))),
        ("R&D", Phrase(("r", "d"), (0, 1))),
        ("a & b | c", Boolean(should=(a, b, c))),
        ("What? a!", Boolean(should=(Term("what"), a))),
        ("a^b", Phrase(("a", "b"), (0, 1))),
        ("http://x", Phrase(("http", "x"), (0, 1))),
        ('"!a" "b:c"', Boolean(should=(a, Phrase(("b", "c"), (0, 1))))),
        ("a !? b", Boolean(should=(a, b))),
        ("c++", c),
        ("Late*", Prefix("late")),
        ("Parcle~", Fuzzy("parcle", 2)),
        ("parce~", Fuzzy("parce", 1)),
        ("ab~", Fuzzy("ab", 0)),
        ("parcle~1", Fuzzy("parcle", 1)),
        ("+late* -parcle~2", Boolean((Prefix("late"),), (), (Fuzzy("parcle", 2),))),
        ('"(a AND) b* ~"', Phrase(("a", "and", "b"), (0, 1, 2))),
        ("!!", None),
        ("!! -a", None),
    ],
)
def test_a_query_means(text: str, expected: Any) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", Boolean(must=(a, b))),
        ("a b OR c", Boolean(should=(Boolean(must=(a, b)), c))),
        ("a -b c", Boolean((a, c), (), (b,))),
        ("a (b OR c)", Boolean(must=(a, Boolean(should=(b, c))))),
    ],
)
def test_words_side_by_side_are_joined_by_the_operator(text: str, expected: Any) -> None:
    assert parsed(text, operator="and") == expected


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ('late "parcel', "late ⟦here⟧", "the quote is not closed. End the phrase with a second"),
        ("(late", "'⟦here⟧(late'", "this '(' is not closed. Close the group with a ')'"),
        ("late)", "late⟦here⟧)", "there is no '(' for this ')'"),
        ("()", "(⟦here⟧)", "Write words between the parentheses"),
        ("NOT late", "'⟦here⟧NOT late'", "there is nothing to exclude from. Write what to find as well"),
        ("-late -lost", "'⟦here⟧-late", "nothing to exclude from"),
        ("a AND (NOT b)", "AND (⟦here⟧NOT b", "nothing to exclude from"),
        ("a NOT", "NOT⟦here⟧", "is missing here"),
        ("a NOT -b", "a ⟦here⟧NOT", "excluded twice"),
        (
            "AND late",
            "'⟦here⟧AND",
            "nothing before or after this AND. Write 'a AND b', or 'and' to find the word itself",
        ),
        ("a OR OR b", "OR ⟦here⟧OR", "nothing before or after this OR"),
        ("a OR", "OR⟦here⟧", "is missing here"),
        ("*", "'⟦here⟧*'", "comes after the beginning of a word. Write 'late*'"),
        ("**", "'⟦here⟧**'", "comes after the beginning of a word"),
        ("a *ate", "a ⟦here⟧*ate", "only stand at the end of a word"),
        ("la-te*", "'⟦here⟧la-te*", "is more than one word"),
        ("~", "'⟦here⟧~'", "comes after a word. Write 'parcel~'"),
        ("late~3", "'⟦here⟧late~3'", "'3' is not a number of edits. Write 'parcel~', 'parcel~1' or 'parcel~2'"),
        ("x" * 65 + "~", "'⟦here⟧xxx", "a fuzzy word has at most 64 characters"),
        ('"late parcel"~2', '"late parcel"⟦here⟧~2', "a phrase is exact"),
        ("NOT " * 1000 + "a", "'⟦here⟧NOT", "excluded twice. Write NOT or '-' once"),
        ("a " + "NOT " * 1000, "a ⟦here⟧NOT", "excluded twice"),
        ("a !late", "a ⟦here⟧!late", "Write '-late' or 'NOT late', or put it in quotes"),
        ("a !(b c)", "a ⟦here⟧!(b", "Write '-(…)' or 'NOT (…)'"),
        ('a !"b c"', 'a ⟦here⟧!"b', "'!' does not exclude"),
        ("late && parcel", "late ⟦here⟧&&", "&& is not an operator. Write 'late AND parcel'"),
        ("late || parcel", "late ⟦here⟧||", "|| is not an operator. Write 'late OR parcel'"),
        ("late^2", "'⟦here⟧late^2'", "boosts (^) are not supported. Leave ^2 out"),
        ('"a b"^2.5', '"a b"⟦here⟧^2.5', "Leave ^2.5 out"),
        ("(a b)^2", "(a b)⟦here⟧^2", "Leave ^2 out"),
        ("late~1^2", "⟦here⟧late~1^2", "Leave ^2 out"),
        ("note:late", "'⟦here⟧note:late", "a search is on one column. Leave 'note:' out"),
        ("-note:late* a", "-⟦here⟧note:late*", "Leave 'note:' out"),
        ('note:"late parcel"', "⟦here⟧note:", "Leave 'note:' out"),
        ("p?rcel", "'⟦here⟧p?rcel'", "'?' is not a wildcard; only a '*' at the end of a word is"),
        ("?arcel", "'⟦here⟧?arcel'", "'?' is not a wildcard"),
        ("par*el", "'⟦here⟧par*el'", "only stand at the end of a word"),
        ("+", "'⟦here⟧+'", "no word right after this '+'. Write '+late' without a space"),
        ("late -", "late ⟦here⟧-", "no word right after this '-'"),
        ("a - late", "a ⟦here⟧- late", "Write '-late' without a space"),
        ("+-late", "'⟦here⟧+-late'", "several signs before a word"),
        ('""', "'⟦here⟧\"\"'", "no word between the quotes"),
        ('a " "', 'a ⟦here⟧" "', "no word between the quotes"),
        ("(" * 60 + "a" + ")" * 60, "(⟦here⟧(", "more than 50 parentheses are nested"),
    ],
)
def test_what_cannot_be_read_is_shown_with_its_place(text: str, place: str, what: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        parsed(text)
    assert place in str(raised.value)
    assert what in str(raised.value)
    assert raised.value.text == text


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_query_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"The text query is empty\. Write the words to look for"):
        parsed(text)


@pytest.mark.parametrize("query", [7, None, ["late"], b"late"])
def test_a_query_is_text(query: Any) -> None:
    with pytest.raises(ExpressionError, match="A text query is a string such as 'late parcel', not"):
        parsed(query)


def test_options_are_checked() -> None:
    with pytest.raises(ExpressionError, match="has no option 'slop'; it has operator='or' or 'and'"):
        parsed("a", slop=2)
    with pytest.raises(ExpressionError, match="'operator' is 'or' or 'and', not 'xor'"):
        parsed("a", operator="xor")


@pytest.mark.parametrize("operator", ["or", "and"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"stop_words": "english", "stemmer": "english"},
        {"tokenizer": "ngram", "lowercase": False},
        {"tokenizer": "ngram", "positions": False},
        {"tokenizer": "whitespace", "positions": False},
    ],
    ids=str,
)
def test_plain_words_mean_what_they_mean_in_a_group(params: dict[str, Any], operator: str) -> None:
    """They have a shorter way."""
    index = make_index(**params)
    for text in (
        "late",
        "Late parcels",
        "the of",
        "the late",
        "a1 2 late late",
        "parcel\tx  the",
        "and",
        "or not",
        "ö late",
    ):
        assert parsed(text, index, operator=operator) == parsed(f"({text})", index, operator=operator), text


def test_a_tokenizer_that_keeps_a_character_finds_it() -> None:
    index = make_index(tokenizer="whitespace")
    assert parsed("note:late", index) == Term("note:late")
    assert parsed("p?rcel", index) == Term("p?rcel")
    assert parsed('"!late" "late^2"', index) == Boolean(should=(Term("!late"), Term("late^2")))
    with pytest.raises(ExpressionError, match="or put it in quotes to find it as text"):
        parsed("!late", index)


def test_an_index_without_positions_finds_words_but_no_phrases() -> None:
    index = make_index(positions=False)
    rows = ["late parcel", "parcel late", "late", "A-B", "b a"]
    assert found(index, rows, "late AND parcel") == [0, 1]
    assert found(index, rows, "a-b") == [3, 4]
    assert found(index, rows, '"late"') == [0, 1, 2]
    with pytest.raises(ExpressionError, match=r"keeps no positions, so it cannot find phrases\. .* positions=True"):
        parsed('"late parcel"', index)


def define(*fields: Field, unique: bool = False, include: Any = (), **params: Any) -> Any:
    return KIND.define(fields or [FIELD], include, unique, params)


def test_a_definition_has_its_defaults_filled_in() -> None:
    assert define() == {
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
    assert define(tokenizer="ngram")["ngram"] == 3
    assert define(**define()) == define()
    assert define(stemmer="English", stop_words=("b", "a"), k1=2)["stop_words"] == ["a", "b"]


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"tokenizer": "magic"}, "There is no tokenizer 'magic'; there are ngram, whitespace, words"),
        ({"stemmer": "klingon"}, "There is no stemmer 'klingon'; there are .*english.*, and None"),
        ({"stemmer": True}, "There is no stemmer True"),
        ({"stop_words": "klingon"}, "no stop words for 'klingon'; there are some for english, french, german, spanish"),
        ({"stop_words": [1]}, "'stop_words' is None, a language or a list of words"),
        ({"lowercase": 1}, "'lowercase' is True or False, not 1"),
        ({"positions": None}, "'positions' is True or False, not None"),
        ({"tokenizer": "ngram", "ngram": 1}, "'ngram' is a whole number from 2 to 8, not 1"),
        ({"tokenizer": "ngram", "ngram": True}, "'ngram' is a whole number from 2 to 8, not True"),
        (
            {"ngram": 3},
            "'ngram' is only for tokenizer='ngram', not for 'words'. Leave it out, or add tokenizer='ngram'",
        ),
        ({"k1": -1}, "'k1' is a number from 0 to 1000"),
        ({"k1": float("nan")}, "'k1' is a number from 0 to 1000"),
        ({"b": 1.5}, "'b' is a number from 0 to 1, usually 0.75, not 1.5"),
        ({"b": "x"}, "'b' is a number"),
        ({"slop": 1}, "has no parameter 'slop'; it has ascii_folding, b, k1"),
        ({"tokenizer": "ngram", "stemmer": "english"}, "pieces, which have no stem"),
    ],
)
def test_parameters_are_checked(params: dict[str, Any], what: str) -> None:
    with pytest.raises(SchemaError, match=what):
        define(**params)


def test_parameters_may_be_numbers_of_numpy() -> None:
    kept = define(tokenizer="ngram", ngram=np.int64(4), k1=np.float32(2), b=np.int8(1))
    assert (kept["ngram"], kept["k1"], kept["b"]) == (4, 2.0, 1.0)
    assert [type(kept[name]) for name in ("ngram", "k1", "b")] == [int, float, float]


def test_columns_are_checked() -> None:
    number = Field(2, "size", pa.int64(), True)
    large = Field(3, "body", pa.large_string(), True)
    assert define(large)["tokenizer"] == "words"
    with pytest.raises(SchemaError, match="Column 'size' is of type int64; a bm25 index needs a column of text"):
        define(number)
    with pytest.raises(SchemaError, match=r"covers one column, not 2\. Create an index for each"):
        define(FIELD, large)
    with pytest.raises(SchemaError, match="An index of kind bm25 cannot be unique"):
        define(unique=True)
    with pytest.raises(SchemaError, match="An index of kind bm25 cannot include further columns"):
        define(include=[number])


def test_only_a_stemmer_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "Stemmer", None)
    assert found(make_index(), ["late parcels"], "late") == [0]
    with pytest.raises(MissingExtraError, match=r"pip install 'indexlake\[text\]'") as raised:
        define(stemmer="english")
    assert raised.value.extra == "text"
    assert bm25_params.DEFAULTS["stemmer"] is None
